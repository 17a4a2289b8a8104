# SPDX-License-Identifier: Apache-2.0
"""Collections: tensors by one name in the store."""
import asyncio
import errno
import gc
import os
import subprocess
import sys
import threading
import time

import numpy
import pytest
import sluice

RNG = numpy.random.default_rng(7)
MODEL = {
    "embed": RNG.random((50, 40)).astype("f4"), "odd": numpy.arange(7, dtype="u1"), "scalar": numpy.array(3.5),
    "empty": numpy.zeros((0, 4), "f2"), "é \"quoted\"": numpy.arange(6).reshape(2, 3).T,
}  # fmt: skip


def same(collection, model):
    assert set(collection) == set(model) and len(collection) == len(model)
    for name, array in model.items():
        found = collection[name]
        assert found.dtype == array.dtype and found.shape == array.shape and (found == array).all(), name


@pytest.fixture
def at(store):
    return {"store": store, "framework": "np"}


def test_what_is_published_is_attached_without_a_copy(at):
    with sluice.publish("m", MODEL, files={"config.json": '{"a": 1}', "raw": b"\0\1"}, **at) as made:
        same(made, MODEL)
        first, second = sluice.attach("m", **at), sluice.attach("m", **at)
        same(first, MODEL)
        assert first["embed"].ctypes.data == second["embed"].ctypes.data
        assert not first["embed"].flags.writeable and first["embed"].ctypes.data % 256 == 0
        assert first.version == made.version > 0 and first.name == "m"
        assert first.files == {"config.json": b'{"a": 1}', "raw": b"\0\1"}
        assert "5 tensors" in repr(first) and "none" not in first
        with pytest.raises(KeyError):
            first["none"]
    copied = sluice.attach("m", copy=True, **at)["embed"]
    copied[0, 0] = 99
    assert sluice.attach("m", **at)["embed"][0, 0] != 99


def test_a_view_keeps_the_memory(at, store):
    view = sluice.publish("m", MODEL, **at)["embed"]
    store.delete("m")
    gc.collect()
    for i in range(5):
        sluice.publish("other", {"x": numpy.full((50, 40), i, "f4")}, replace=True, **at).close()
    assert (view == MODEL["embed"]).all()
    capsule = sluice.attach("other", store=store, framework="dlpack")["x"]
    array = numpy.from_dlpack(capsule)
    store.delete("other")
    del capsule
    gc.collect()
    assert (array == 4).all()


def test_a_closed_collection_says_so(at):
    made = sluice.publish("m", MODEL, **at)
    view = made["embed"]
    made.close()
    assert (view == MODEL["embed"]).all()
    assert "closed" in repr(made)
    with pytest.raises(ValueError, match="closed"):
        made["embed"]


def test_a_collection_is_written_in_place_and_sealed(at):
    made = sluice.collection("m", {"a": ((3, 4), "float32"), "b": (5, "int64")}, **at)
    made["a"][:] = 7
    made["b"][:] = range(5)
    assert made.version == 0 and "not sealed" in repr(made)
    with pytest.raises(FileNotFoundError):
        sluice.attach("m", **at)
    made.seal()
    same(sluice.attach("m", **at), {"a": numpy.full((3, 4), 7, "f4"), "b": numpy.arange(5)})
    assert made.version == sluice.attach("m", **at).version
    with pytest.raises(PermissionError):
        made.seal()


def test_replacing(at, store):
    old = sluice.publish("m", {"x": numpy.zeros(9)}, **at)
    with pytest.raises(FileExistsError):
        sluice.publish("m", {"x": numpy.ones(9)}, **at)
    sluice.publish("m", {"x": numpy.ones(9)}, replace=True, **at)
    assert (old["x"] == 0).all() and (sluice.attach("m", **at)["x"] == 1).all()
    sluice.publish("m", {"x": numpy.full(9, 2.0)}, replace="delete-first", **at)
    assert (sluice.attach("m", **at)["x"] == 2).all()
    with pytest.raises(ValueError, match="delete-first"):
        sluice.publish("m", {}, replace="always", **at)
    for number in (0, -3):
        with pytest.raises(ValueError, match="an id|the id"):
            sluice.publish("m", {}, replace=number, **at)
    with pytest.raises(OSError, match="needs .* bytes, beside what it replaces"):
        sluice.collection("m", {"x": (1 << 50, "u1")}, replace=True, **at)


def test_replacing_a_version_alone(at, store):
    first = sluice.publish("m", {"x": numpy.zeros(9)}, **at)
    written = sluice.collection("m", {"x": (9, "f8")}, replace=first.version, **at)
    second = sluice.publish("m", {"x": numpy.ones(9)}, replace=first.version, **at)
    written["x"][:] = 5
    for late in (written.seal, lambda: sluice.publish("m", {"x": numpy.zeros(9)}, replace=first.version, **at)):
        with pytest.raises(OSError, match=f"{second.version} now") as raised:
            late()
        assert raised.value.errno == errno.ESTALE
        assert sluice.attach("m", **at).version == second.version
    store.delete("m")
    with pytest.raises(OSError, match="no blob is 'm' any more"):
        sluice.publish("m", {"x": numpy.zeros(9)}, replace=second.version, **at)
    with pytest.raises(FileNotFoundError):
        sluice.attach("m", **at)


def test_arguments_of_a_publish(at, store):
    sluice.publish("m", {"x": numpy.zeros(3)}, **at)
    for wrong in (5, [1, 2]):
        with pytest.raises(TypeError):
            sluice.publish("m", {"x": numpy.ones(3)}, replace="delete-first", files={"a": wrong}, **at)
    assert (sluice.attach("m", **at)["x"] == 0).all()
    sluice.publish("m", {"x": numpy.ones(3)}, replace=numpy.True_, **at)
    assert (sluice.attach("m", **at)["x"] == 1).all()
    with pytest.raises(ValueError, match="needs a name"):
        sluice.publish("", {"x": numpy.ones(3)}, **at)


def test_files_are_published(at, store, tmp_path, monkeypatch):
    monkeypatch.setenv("SLUICE_STORE", str(store._path))
    sluice.publish("m", MODEL, **at)
    sluice.publish("copy", "store://m", **at)
    same(sluice.attach("copy", **at), MODEL)
    # As a file it is read like any other.
    loaded = sluice.load("store://copy", framework="np")
    assert all((loaded[name] == array).all() for name, array in MODEL.items())
    numpy.savez(tmp_path / "some.npz", a=numpy.arange(4), b=numpy.ones((2, 2)))
    same(sluice.publish("npz", tmp_path / "some.npz", **at), {"a": numpy.arange(4), "b": numpy.ones((2, 2))})
    with pytest.raises(FileNotFoundError):
        sluice.publish("none", tmp_path / "none.safetensors", **at)


def test_a_newer_one_is_waited_for(at):
    first = sluice.publish("m", {"x": numpy.zeros(3)}, **at)
    with pytest.raises(TimeoutError):
        first.newer(0.05).wait()
    threading.Timer(0.1, lambda: sluice.publish("m", {"x": numpy.ones(3)}, replace=True, **at)).start()
    second = first.newer(60).wait()
    assert second.version > first.version and (second["x"] == 1).all()

    async def main():
        threading.Timer(0.1, lambda: sluice.publish("m", {"x": numpy.full(3, 2.0)}, replace=True, **at)).start()
        return await second.newer(60)

    assert (asyncio.run(main())["x"] == 2).all()
    assert (first.newer(0).wait()["x"] == 2).all()


def test_a_cancelled_wait_for_a_newer_one_gives_its_thread_and_its_descriptors_back(at):
    def waiting():  # each has a connection of its own
        return len(os.listdir("/proc/self/fd"))

    async def main(model):
        for timeout in (0.01, 0.05):
            with pytest.raises((TimeoutError, asyncio.TimeoutError)):
                await asyncio.wait_for(model.newer(), timeout)

    with sluice.publish("m", {"x": numpy.zeros(3)}, **at) as made:
        with pytest.raises(TimeoutError):
            made.newer(0).wait()  # and the thread is there
        gc.collect()
        before = waiting()
        asyncio.run(main(made))
        call = made.newer()
        assert call.cancel()
        with pytest.raises(OSError) as caught:
            call.wait(60)
        assert caught.value.errno == errno.ECANCELED and not call.cancel()
        del call, caught
        made.newer()  # is dropped, which ends it as well
        deadline = time.monotonic() + 60
        while gc.collect() >= 0 and waiting() > before:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_other_processes(at, store):
    sluice.publish("m", MODEL, **at)
    code = ("import sluice, sys\nm = sluice.attach('m', framework='np')\nprint(len(m), m.version, m['embed'].sum())\n"
            "sluice.publish('n', {'y': m['odd']}, framework='np').close()")
    environment = {**os.environ, "SLUICE_STORE": str(store._path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, stdout=subprocess.PIPE, text=True)
    count, version, total = done.stdout.split()
    assert int(count) == 5 and int(version) == sluice.attach("m", **at).version
    assert float(total) == pytest.approx(MODEL["embed"].sum(), rel=1e-4)
    same(sluice.attach("n", **at), {"y": MODEL["odd"]})


def test_a_child_of_fork_is_refused(at):
    with sluice.publish("m", MODEL, **at) as made:
        child = os.fork()
        if not child:
            refused = 0
            for call in (lambda: list(made), lambda: made["odd"], lambda: "odd" in made, lambda: made.files):
                try:
                    call()
                except ChildProcessError as error:
                    refused += "fork" in str(error)
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
        same(made, MODEL)


def test_what_cannot_be_published(at, store):
    with pytest.raises(TypeError):
        sluice.publish("m", {"x": numpy.array(["text"])}, **at)
    with pytest.raises(ValueError, match="framework"):
        sluice.publish("m", {}, store=store, framework="jax")
    with pytest.raises(OSError):
        sluice.publish("m", {"x": numpy.zeros(3)}, device="cuda:77", **at)
    store.put("blob", b"bytes")
    with pytest.raises(OSError, match="no collection"):
        sluice.attach("blob", **at)
    assert not [info for info in store.list() if info.name == "m"]


def test_tied_tensors_have_one_memory(at):
    tied = numpy.arange(12.0)
    made = sluice.publish("m", {"a": tied, "b": tied, "c": tied.copy()}, **at)
    assert made["a"].ctypes.data == made["b"].ctypes.data != made["c"].ctypes.data


def test_torch(store):
    torch = pytest.importorskip("torch")
    model = {"w": torch.rand(30, 20), "h": torch.rand(8).bfloat16(), "flag": torch.tensor(True)}
    model |= {"tied": model["w"], "none": torch.empty(0, 3)}
    sluice.publish("m", model, store=store)
    found = sluice.attach("m", store=store)
    for name, tensor in model.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor)
    assert found["tied"].data_ptr() == found["w"].data_ptr()
    written = sluice.attach("m", store=store, copy=True)["w"].add_(1)
    assert torch.equal(found["w"] + 1, written)
    made = sluice.collection("n", {"w": ((4, 5), torch.bfloat16)}, store=store)
    made["w"].fill_(3)
    made.seal()
    assert (sluice.attach("n", store=store)["w"] == 3).all()


def test_an_element_of_torch_of_4_bits_is_two(store):
    torch = pytest.importorskip("torch")
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("this torch has no type of 4 bits")
    octets = torch.arange(24, dtype=torch.uint8).reshape(3, 8)
    sluice.publish("m", {"w": octets.view(torch.float4_e2m1fn_x2)}, store=store)
    for framework in ("pt", "dlpack"):
        found = sluice.attach("m", framework=framework, store=store)["w"]
        found = torch.from_dlpack(found) if framework == "dlpack" else found
        assert found.dtype == torch.float4_e2m1fn_x2 and torch.equal(found.view(torch.uint8), octets)
    with sluice.collection("n", {"odd": ((2, 3), "F4")}, framework="pt", store=store) as made:
        with pytest.raises(ValueError, match="not even"):
            made["odd"]
