# SPDX-License-Identifier: Apache-2.0
"""A user's program with types, which calls all that the package has: mypy --strict checks it, test_types.py runs it.

usage: typed_user.py FOLDER [SOCKET]
"""

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import Any, assert_type

import sluice


def files(folder: Path) -> None:
    path = folder / "data"
    with sluice.open(path, "w", expected_size=11, permissions=0o600) as made:
        assert_type(made, sluice.File)
        assert_type(made.write(b"hello "), int)
        assert_type(made.write_async(memoryview(b"world"), offset=6).wait(timeout=60), Any)
        made.truncate(11)
        made.sync()
        made.sync_async().wait()
    context = sluice.Context(workers=2, piece_bytes="256 KiB", ca_bundle=None)
    rows: list[tuple[str, str, str, str, str]] = context.settings()
    print(len(rows), [usable for _, usable, _, _, _ in context.features()])
    buffer = bytearray(5)
    with sluice.open(str(path), headers={"X-Key": "a"}, context=context) as file:
        assert_type(file.read(5), bytes)
        assert_type(file.read_into(buffer, 6), int)
        assert_type(file.readv([(buffer, 0), (bytearray(3), 2)]), int)
        found: sluice.Stat = file.stat()
        assert_type((found.size, found.etag, found.final_uri, found.whole_only), tuple[int, str, str | None, bool])
        assert_type((file.size, file.uri, file.mode, file.closed), tuple[int, str, str, bool])
        operations = [file.read_async(5), file.read_into_async(buffer, offset=1), file.readv_async([(buffer, 0)]),
                      file.stat_async()]
        assert_type(operations[0], sluice.Operation)
        operations[0].add_done_callback(lambda operation: print(operation.done))
        print(operations[1].cancel(), sluice.progress([operations[0], operations[3]], disable=True))
        assert_type(file.context, sluice.Context)
    with sluice.open_async(path, "r", uncached=False).wait() as again, again.as_io(buffer_size=4096) as raw:
        print(raw.read(3), again.close_async())
    dropped = sluice.open(path, "x" if not path.exists() else "r+", durable=True, backend=None)
    dropped.discard()
    dropped.close()


async def awaited(path: Path) -> bytes:
    with await sluice.open_async(path) as file:
        assert isinstance(file, sluice.File)
        data: bytes = await file.read_async(5)
        return data


def on_a_gpu(file: sluice.File, array: sluice.Array, tensor: Any) -> sluice.Operation:
    file.write_on(tensor, offset=8)
    assert_type(array.read_on(tensor, (slice(0, 1), ...)), sluice.Operation)
    print(array.read(slice(1, 2), "cuda:0"))
    return file.read_on(tensor, 0, stream=None)


def objects(uri: str) -> None:
    sluice.copy(uri, uri + ".copy", exclusive=True, headers=["X-Key: a"], s3={"region": "a"}, context=None)
    keys = {"access_key": "A", "secret_key": "S"}
    assert_type(sluice.presign(uri, method="PUT", expires=60, headers={"X-Key": "a"}, s3=keys, context=None), str)


def tensors(folder: Path) -> None:
    import numpy

    path = folder / "a.npz"
    numpy.savez(path, a=numpy.arange(3.0), b=numpy.arange(4))
    assert_type(sluice.load(path, framework="np", names=["a"], verify=None), dict[str, Any])
    sluice.load([path], "cpu", names=lambda name: name == "b", framework="np", dtype="float32", allocate="torch")
    assert_type(sluice.load_into({"a": numpy.zeros(3)}, os.fspath(path), strict=False, tied=False), list[str])
    both = sluice.load(path, {0: "cpu", 1: "cpu"}, slices={"a": -1, "*": None}, framework="np", names="a")
    assert_type(both, dict[int, dict[str, Any]])
    assert_type(sluice.load(path, slices={"b": 0}, even=True, rank=0, ranks=2, framework="np"), dict[str, Any])
    print(sluice.load_into({0: {"a": numpy.zeros(1)}, 1: both[1]}, path, strict=False, slices={"a": 0}, even=False))
    print(sluice.load_array(path, names="a", framework="np"))
    with sluice.safe_open(path, framework="np", device="cpu") as opened:
        assert_type((opened.keys(), opened.offset_keys()), tuple[list[str], list[str]])
        assert_type(opened.metadata(), dict[str, str] | None)
        part = opened.get_slice("a")
        print(opened.get_tensor("a"), opened.get_tensors(), part.get_shape(), part.get_dtype(), part[:2])
    save = sluice.save({"a": numpy.arange(3.0)}, folder / "saved", metadata={"step": "1"}, snapshot="device",
                       durable=False, shard_bytes="1 MiB", digests=folder / "sums", shared="alias")
    assert_type((save, save.progress()), tuple[sluice.Save, tuple[int, int]])
    save.fence()
    print(save.wait(), save.cancel())
    with contextlib.suppress(ImportError):
        sluice.patch_safetensors()
    assert_type(sluice.patched(), dict[str, str])
    samples = sluice.Samples([path], [(0, 4), (4, 4)], transform=bytes, headers=None, settings={"workers": 1})
    print(len(samples), samples[0], samples.__getitems__([0, 1]))
    samples.close()


def frames(folder: Path) -> None:
    import numpy

    with sluice.Writer(folder / "f.h5", "w", attributes={"title": "waves", "n": [1, 2.5]}, threads=2) as writer:
        writer.coordinate("x", numpy.linspace(0, 1, 4), {"units": "m"})
        writer.attributes({"more": 1})
        series = writer.series("u", shape=(4,), dtype="f4", codec="none", dimensions=("time", "x"), scalars=["time"])
        assert_type(series, sluice.Series)
        series.append(numpy.zeros(4, "f4"), time=0.0, timeout=60)
        frame = series.acquire(timeout=60)
        series.submit(frame, time=1.0)
        series.discard(series.acquire())
        series.attributes({"units": "K"})
        writer.flush()
        assert_type((series.frames, series.name), tuple[int, str])
        counts: dict[str, int | float] = writer.stats()
        print(counts.keys() == series.stats().keys(), writer.closed, writer.path)
    with sluice.open_array(folder / "f.h5", "/u", context=sluice.Context(workers=1)) as array:
        assert_type(array, sluice.Array)
        assert_type((array.shape, array.filters), tuple[tuple[int, ...], tuple[str, ...]])
        assert_type(array.chunks, tuple[int, ...] | None)
        assert_type((array.ndim, array.size, array.nbytes, len(array)), tuple[int, int, int, int])
        out = numpy.empty((2, 4), "f4")
        assert_type(array.read_into(out), int)
        assert_type(array.read_into_async(out, (slice(None), slice(0, 4))), sluice.Operation)
        print(array[0, ::2], [frame.sum() for frame in array.frames(1, 2)], array.dtype, array.uri, array.dataset)
        print(array.read((0, ...), framework="np"))
        array.refresh()
    for batch in sluice.Samples(f"{folder}/f.h5#/u").batches(2, [1, 0], device=numpy.empty, ahead=1, drop_last=True):
        print(len(batch))
    opened: sluice.Array = sluice.open_array_async(f"{folder}/f.h5#/u").wait()
    opened.close()
    late = sluice.Writer(folder / "g.h5")
    late.discard()
    late.close()


def saves(folder: Path) -> None:
    save = sluice.save({"w": bytearray(8)}, folder / "saved.safetensors", metadata={"step": "1"}, durable=False)
    assert_type(save, sluice.Save)
    save.fence()
    print(save.wait())


def from_an_origin(store: sluice.Store, origin: str) -> None:
    with sluice.attach("model", 60, origin=origin, device="cpu", context=None, store=store) as model:
        newer: sluice.Collection | None = model.newer(origin=True).wait()
        print(newer is None, store.refresh("model", origin))
    store.push("model", origin, exclusive=True)


def blobs(socket: str) -> None:
    with sluice.Store(socket) as store, store.watch("a") as watch:
        assert_type(watch, sluice.Watch)
        with store.create("a", (2, 3), "float64", device=None) as made:
            made.numpy()[:] = 1
        blob = store.get("a", timeout=1)
        print(watch.fileno() > 0, blob.torch(copy="on-write") if "torch" in sys.modules else blob.numpy(copy=True))
        assert_type((blob.nbytes, blob.id, blob.sealed, blob.device), tuple[int, int, bool, str])
        assert_type((blob.dtype, blob.shape, blob.name), tuple[str | None, tuple[int, ...], str])
        other: sluice.Blob = store.put("b", b"bytes", replace=True, transient=True)
        store.put("b", b"other", replace=other.id).release()
        event = watch.next(timeout=60)
        print(event.kind, event.name, memoryview(blob)[:8], len(blob))
        infos: list[sluice.BlobInfo] = store.list()
        print([info.nbytes for info in infos], store.stat("b").state)
        other.release()
        store.delete("a")
        sealed = store.create("c", 4, "uint8")
        sealed.seal()


def collections(socket: str) -> None:
    with sluice.Store(socket) as store:
        with sluice.publish("model", {"w": bytearray(8)}, files={"config.json": b"{}"}, store=store) as first:
            assert_type(first, sluice.Collection)
            assert_type((first.name, first.version, first.files), tuple[str, int, dict[str, bytes]])
        made = sluice.collection("model", {"w": ((2,), "float32")}, "cpu", replace=True, store=store)
        first.close(keep=False)
        assert_type(sluice.pinned(), list[sluice.Pinned])
        sluice.unpin("store://model")
        with sluice.attach("model", timeout=1, store=store, at=None) as held:
            made.seal()
            newer = held.newer(timeout=60).wait()
            print(newer.version != held.version, len(newer), list(newer), "w" in newer)
            newer.close()
        made.close()
        store.delete("model")


async def watched(store: sluice.Store) -> str:
    async for event in store.watch():
        return event.name
    return ""


if __name__ == "__main__":
    sluice.configure(workers=2)
    here = Path(sys.argv[1])
    files(here)
    assert asyncio.run(awaited(here / "data")) == b"hello"
    tensors(here)
    saves(here)
    frames(here)
    if sys.argv[2:]:
        blobs(sys.argv[2])
        collections(sys.argv[2])
    sluice.doctor()
