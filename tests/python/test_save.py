# SPDX-License-Identifier: Apache-2.0
"""Saving tensors: save(), to files, folders and S3."""
import asyncio
import concurrent.futures
import contextlib
import errno
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import numpy
import pytest
import sluice

RNG = numpy.random.default_rng(5)
INDEX = "model.safetensors.index.json"
STATE = {
    "embed": RNG.random((50, 40)).astype("f4"), "odd": numpy.arange(7, dtype="u1"), "scalar": numpy.array(3.5),
    "empty": numpy.zeros((0, 4), "f2"), "é \"quoted\"": numpy.arange(6).reshape(2, 3).T, "bytes": b"abc",
    "big-endian": numpy.arange(5, dtype=">i4"),
}  # fmt: skip


def same(uri, state=STATE):
    found = sluice.load(uri, framework="np")
    assert set(found) == set(state)
    for name, value in state.items():
        value = numpy.frombuffer(value, "u1") if isinstance(value, bytes) else value
        assert found[name].dtype == value.dtype.newbyteorder("=") and found[name].shape == value.shape, name
        assert (found[name] == value).all(), name


def test_a_file_and_a_folder(tmp_path):
    save = sluice.save(STATE, tmp_path / "x.safetensors", metadata={"step": "7"})
    assert save.wait() == (tmp_path / "x.safetensors").stat().st_size and save.done
    assert save.progress() == (save.wait(), save.wait()) and "done" in repr(save)
    same(tmp_path / "x.safetensors")
    with sluice.safe_open(tmp_path / "x.safetensors", "np") as f:
        assert f.metadata() == {"step": "7"}
    sluice.save({}, tmp_path / "none.safetensors", metadata={"step": "7"}).wait()
    with sluice.safe_open(tmp_path / "none.safetensors", "np") as f:
        assert f.metadata() == {"step": "7"} and not f.keys()
    sluice.save({}, tmp_path / "empty", digests=tmp_path / "sums").wait()
    assert os.listdir(tmp_path / "empty") == [INDEX]
    assert sluice.load(tmp_path / "empty" / INDEX, verify=tmp_path / "sums") == {}
    for size in 1000, "4 KiB", "2 GiB":
        sluice.save(STATE, tmp_path / "folder", shard_bytes=size, durable=False).wait()
        same(tmp_path / "folder" / INDEX)
    assert len(os.listdir(tmp_path / "folder")) == 2


def test_memory_with_two_names_is_written_once(tmp_path):
    array = numpy.arange(1000.0)
    sluice.save({"a": array, "b": array, "c": array.copy()}, tmp_path / "x.safetensors").wait()
    same(tmp_path / "x.safetensors", {"a": array, "c": array})
    with sluice.safe_open(tmp_path / "x.safetensors", "np") as f:
        assert f.metadata() == {"b": "a"}
    with pytest.raises(OSError, match="'a' and 'b' have the same memory"):
        sluice.save({"a": array, "b": array}, tmp_path / "x.safetensors", shared="error")


def test_digests_are_read_by_load_and_by_the_command(tmp_path, monkeypatch):
    sums = tmp_path / "sums"
    sluice.save(STATE, tmp_path / "folder", shard_bytes=1000, digests=sums).wait()
    lines = [line.split("  ") for line in sums.read_text().splitlines()]
    assert len(lines) == len(os.listdir(tmp_path / "folder")) - 1
    for digest, name in lines:
        assert hashlib.sha256(Path(name).read_bytes()).hexdigest() == digest
    sluice.load(tmp_path / "folder" / INDEX, framework="np", verify=sums)
    changed = Path(lines[0][1])
    changed.write_bytes(changed.read_bytes()[:-1] + b"\x99")
    with pytest.raises(OSError, match="SHA-256|digest|differs"):
        sluice.load(tmp_path / "folder" / INDEX, framework="np", verify=sums)


def test_a_snapshot_may_change_at_once(tmp_path):
    array = numpy.zeros(8 << 20, "u1")
    save = sluice.save({"a": array}, tmp_path / "x.safetensors", snapshot="device")
    array[:] = 1
    save.wait()
    assert not sluice.load(tmp_path / "x.safetensors", framework="np")["a"].any()


def test_a_snapshot_of_anything_is_a_copy_and_one_object_is_copied_once(tmp_path):
    data, array = bytearray(8 << 20), numpy.arange(5.0)
    state = {"view": memoryview(data), "bytes": b"abc", "a": array, "b": array}
    save = sluice.save(state, tmp_path / "x.safetensors", snapshot="device")
    data[:] = b"x" * len(data)
    save.wait()
    same(tmp_path / "x.safetensors", {"view": bytes(8 << 20), "bytes": b"abc", "a": array})
    with sluice.safe_open(tmp_path / "x.safetensors", "np") as f:
        assert f.metadata() == {"b": "a"}


def test_a_snapshot_tells_conjugates_from_their_memory(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.tensor([1 + 2j, 3 - 4j])
    state = {"x": x, "conj": x.conj(), "imag": x.imag, "negative": x.conj().imag}
    sluice.save(state, tmp_path / "x.safetensors", snapshot="device").wait()
    found = sluice.load(tmp_path / "x.safetensors")
    assert all(torch.equal(found[name], state[name]) for name in state)


def test_small_integers_of_torch_are_not_taken_for_bytes(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not hasattr(torch, "uint4"):
        pytest.skip("this torch has no uint4")
    state = {
        "plain": torch.ones(3),
        "bytes": torch.arange(4, dtype=torch.uint8),
        "signed": torch.arange(-2, 2, dtype=torch.int8),
    }
    sluice.save(state, tmp_path / "x.safetensors").wait()
    found = sluice.load(tmp_path / "x.safetensors")
    assert all(found[name].dtype == value.dtype and torch.equal(found[name], value) for name, value in state.items())
    with pytest.raises(TypeError, match="'small'.*uint4"):
        sluice.save(state | {"small": state["bytes"].view(torch.uint4)}, tmp_path / "x.safetensors")


def test_an_element_of_torch_of_4_bits_is_two(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("this torch has no type of 4 bits")
    octets = torch.arange(24, dtype=torch.uint8).reshape(3, 8)
    state = {"plain": torch.ones(3), "half": octets.view(torch.float4_e2m1fn_x2), "end": torch.ones(3)}
    sluice.save(state, tmp_path / "x.safetensors").wait()
    with sluice.safe_open(tmp_path / "x.safetensors", "pt") as file:
        assert file.get_slice("half").get_shape() == [3, 16]
    assert torch.equal(sluice.load(tmp_path / "x.safetensors")["half"].view(torch.uint8), octets)


def test_memory_that_a_tensor_loses_while_it_is_looked_at_is_not_read(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")

    class Replaced(torch.overrides.TorchFunctionMode):  # as another thread may do
        def __torch_function__(self, function, types, arguments=(), named=None):
            if function is torch.Tensor.is_neg and arguments[0] is tensor:
                tensor.data = torch.full((1 << 20,), 2.0)  # the other memory is unmapped
            return function(*arguments, **(named or {}))

    tensor = torch.full((1 << 20,), 1.0)
    with Replaced():
        save = sluice.save({"x": tensor}, tmp_path / "x.safetensors")
    save.wait()
    assert sluice.load(tmp_path / "x.safetensors")["x"].eq(2).all()


def test_a_snapshot_of_a_mapping_that_makes_its_tensors(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")

    class Made(Mapping):
        def __getitem__(self, name):
            return torch.full((10,), float(name))

        def __iter__(self):
            return iter(map(str, range(100)))

        def __len__(self):
            return 100

    sluice.save(Made(), tmp_path / "x.safetensors", snapshot="device").wait()
    found = sluice.load(tmp_path / "x.safetensors")
    assert all((found[str(i)] == i).all() for i in range(100))


def test_behind_a_fence_arrays_may_change(tmp_path):
    array = numpy.zeros(8 << 20, "u1")
    for _ in range(5):
        save = sluice.save({"a": array}, tmp_path / "x.safetensors")
        save.fence()
        array += 1
        save.wait()
        assert (sluice.load(tmp_path / "x.safetensors", framework="np")["a"] == array[0] - 1).all()


def test_memory_of_a_device_behind_a_stream(tmp_path, device_array):
    array = device_array(100_000)
    array.set(bytes(range(256)) * 390 + bytes(160))
    sluice.save({"a": array, "host": numpy.ones(3)}, tmp_path / "folder").wait()
    found = sluice.load(tmp_path / "folder" / INDEX, framework="np")
    assert found["a"].tobytes() == array.get() and (found["host"] == 1).all()


def test_a_save_is_awaited_and_others_run_meanwhile(tmp_path):
    async def main():
        saves = [sluice.save({"a": numpy.full(1 << 20, i)}, tmp_path / f"{i}.safetensors") for i in range(4)]
        return await asyncio.gather(*saves)

    assert len(set(asyncio.run(main()))) == 1
    called = threading.Event()
    sluice.save(STATE, tmp_path / "x.safetensors").add_done_callback(lambda save: called.set())
    assert called.wait(30)


def test_a_save_that_is_dropped_goes_on_and_the_end_of_the_interpreter_awaits_it(tmp_path):
    program = f"import numpy, sluice\nsluice.save({{'a': numpy.ones(30 << 20, 'u1')}}, {str(tmp_path / 'f')!r})\n"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)
    same(tmp_path / "f" / INDEX, {"a": numpy.ones(30 << 20, "u1")})


def test_wrong_arguments_are_named(tmp_path):
    to = tmp_path / "x.safetensors"
    for options, error, words in [
        ({"snapshot": "host"}, ValueError, "snapshot is None or 'device', and not 'host'"),
        ({"shared": "x"}, ValueError, "shared is 'alias' or 'error'"),
        ({"shard_bytes": "2 Gigs"}, ValueError, "'2 Gigs' is no size"),
        ({"shard_bytes": -1}, (ValueError, OverflowError, OSError), ""),
        ({"metadata": {"a": 1}}, TypeError, ""),
    ]:
        with pytest.raises(error, match=words):
            sluice.save(STATE, to, **options)
    with pytest.raises(TypeError, match="'o'"):
        sluice.save({"o": numpy.array([object()])}, to)
    with pytest.raises(ValueError, match=r"name of a tensor: 'n\\x00' contains a null"):
        sluice.save({"n\0": numpy.ones(1)}, to)
    with pytest.raises(TypeError, match="3"):
        sluice.save({3: numpy.ones(1)}, to)
    with pytest.raises(FileNotFoundError, match="missing"):
        sluice.save(STATE, tmp_path / "missing/x.safetensors").wait()
    with pytest.raises(OSError, match="no path and no s3"):
        sluice.save(STATE, "http://127.0.0.1:1/x")
    assert not os.listdir(tmp_path)


def test_a_save_is_cancelled_while_a_server_is_silent(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
        save = sluice.save({"a": numpy.ones(3)}, "s3://bucket/prefix")
        server.accept()[0].recv(1)  # of the question for the index
        assert save.cancel()
        with pytest.raises(OSError) as raised:
            save.wait(10)
        assert raised.value.errno == errno.ECANCELED


def test_a_cancelled_save_was_running_however_soon_it_ends(tmp_path):
    save = sluice.save({"a": numpy.ones(200 << 20, "u1")}, tmp_path / "x.safetensors")

    class Core:
        def __getattr__(self, name):
            return getattr(core, name)

        def cancel(self):
            core.cancel()
            with contextlib.suppress(OSError):
                save.wait()

    core, save._core = save._core, Core()
    assert save.cancel() and save.done and not save.cancel()


def test_a_save_that_is_cancelled_leaves_what_was_there(tmp_path):
    large = {"a": numpy.ones(200 << 20, "u1")}
    sluice.save(STATE, tmp_path / "folder").wait()
    save = sluice.save(large, tmp_path / "folder", shard_bytes=1)
    assert save.cancel()
    with pytest.raises(OSError, match="cancelled"):
        save.wait()
    assert not save.cancel()
    same(tmp_path / "folder" / INDEX)
    assert len(os.listdir(tmp_path / "folder")) == 2


def test_the_end_of_a_child_awaits_no_save_of_its_parent(tmp_path):
    program = f"""
import os, sys, numpy, sluice
save = sluice.save({{"a": numpy.ones(200 << 20, "u1")}}, {os.fsencode(tmp_path / "x.safetensors")!r})
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 3 << 8 and save.wait() > 200 << 20
else:  # which has the save as one in flight
    sys.exit(3)
"""
    subprocess.run([sys.executable, "-c", program], timeout=60, check=True)


def test_an_interrupt_ends_a_wait_and_not_the_save(tmp_path):
    save = sluice.save({"a": numpy.ones(200 << 20, "u1")}, tmp_path / "x.safetensors", digests=tmp_path / "sums")
    timer = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        save.wait()
        time.sleep(1)
    except KeyboardInterrupt:
        pass
    timer.join()
    save.wait()
    assert sluice.load(tmp_path / "x.safetensors", framework="np")["a"].all()


def test_a_save_without_a_thread_does_not_begin(tmp_path, monkeypatch):
    def refused(thread):
        raise RuntimeError("can't start new thread")

    sluice.save(STATE, tmp_path / "folder").wait()
    before = os.listdir(tmp_path / "folder")
    with monkeypatch.context() as patch:
        patch.setattr(sluice._threads.calls(), "idle", threading.Semaphore(0))
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError, match="new thread"):
            sluice.save({"a": numpy.zeros(3)}, tmp_path / "folder")
    time.sleep(0.3)  # in which one that began would end
    assert sorted(os.listdir(tmp_path / "folder")) == sorted(before)
    same(tmp_path / "folder" / INDEX)


def test_an_exception_after_the_start_frees_no_memory_that_is_read(tmp_path):
    program = f"""
import contextlib, numpy, sluice, sluice._save
def interrupted(*arguments, begin=sluice._core.Save):
    begin(*arguments)
    raise KeyboardInterrupt
sluice._core.Save = interrupted
with contextlib.suppress(KeyboardInterrupt):  # the save reads a copy, as the array is transposed
    sluice.save({{"a": numpy.ones((2, 100 << 20), "u1").T}}, {str(tmp_path / "x.safetensors")!r})
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)
    assert sluice.load(tmp_path / "x.safetensors", framework="np")["a"].all()


def beside_readers(uri, saves):
    """Saves again and again, while a thread reads: each time it gets all tensors of one save."""
    over, steps, errors = threading.Event(), [], []

    def read():
        while not over.is_set():
            try:
                found = sluice.load(f"{uri}/{INDEX}", framework="np")
                steps.append(int(found["0"][0]))
                assert all((array == steps[-1]).all() for array in found.values()) and len(found) == 8
            except BaseException as error:
                errors.append(error)
                return

    state = {str(i): numpy.zeros(1000) for i in range(8)}
    sluice.save(state, uri, shard_bytes=9000).wait()
    reader = threading.Thread(target=read)
    reader.start()
    for step in range(saves):
        for array in state.values():
            array[:] = step
        sluice.save(state, uri, shard_bytes=9000).wait()
        time.sleep(0.02)
    over.set()
    reader.join()
    assert not errors and steps == sorted(steps) and len(set(steps)) > 2


def test_a_reader_beside_saves_finds_one_that_is_whole(tmp_path):
    beside_readers(str(tmp_path / "folder"), 60)


def test_a_reader_on_s3_beside_saves_finds_one_that_is_whole(bucket):
    beside_readers("s3://bucket/run", 30)


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """The folder with the objects of a server of S3, which checks signatures."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "engine/http"))
    import s3_server

    root = tmp_path / "objects"
    root.mkdir()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDTEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.SECRETS["AKIDTEST"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{s3_server.start(root)}")
    return root


def test_a_prefix_of_s3(bucket):
    for step, size in enumerate([1000, "2 GiB", 3000]):
        state = {**STATE, "step": numpy.array(step)}
        sluice.save(state, "s3://bucket/run/7", shard_bytes=size).wait()
        same("s3://bucket/run/7/" + INDEX, state)
    sluice.save(STATE, "s3://bucket/x.safetensors").wait()
    same("s3://bucket/x.safetensors")
    index = json.loads((bucket / "run/7" / INDEX).read_text())
    assert {path.name for path in (bucket / "run/7").iterdir()} == {INDEX, *index["weight_map"].values()}


def test_saves_at_once_into_a_prefix_of_s3_do_not_fail(bucket):
    def save(step):
        for _ in range(8):
            sluice.save({**STATE, "step": numpy.array(step)}, "s3://bucket/run").wait()

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        assert len(list(threads.map(save, range(4)))) == 4
    assert len(sluice.load("s3://bucket/run/" + INDEX, framework="np")) == len(STATE) + 1


def test_files_of_dead_saves_on_s3_go_after_a_day(bucket, monkeypatch):
    import s3_server

    sluice.save(STATE, "s3://bucket/run").wait()
    (living,) = (path.name for path in (bucket / "run").glob("*.safetensors"))
    names = ["model-" + "a" * 16 + "-00001-of-00002.safetensors", "model-" + "a" * 16 + ".safetensors",
             "model-" + "A" * 16 + "-00001-of-00002.safetensors"]
    unlisted = bucket / "run" / ("model-" + "b" * 16 + "-00001-of-00002.safetensors")
    for file in [bucket / "run" / name for name in names] + [unlisted]:
        file.write_bytes(b"x")
    # The server says of all that it lists that it is of 2015.
    monkeypatch.setattr(s3_server, "LISTED", [f"run/{name}" for name in [*names, living, INDEX]])
    sluice.save(STATE, "s3://bucket/run").wait()
    same("s3://bucket/run/" + INDEX)
    assert [(bucket / "run" / name).exists() for name in names] == [False, True, True]
    assert unlisted.exists() and not (bucket / "run" / living).exists()
