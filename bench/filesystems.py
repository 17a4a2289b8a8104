# SPDX-License-Identifier: Apache-2.0
"""zarr and h5py over HTTP through the file systems of sluice and of fsspec: `bench/python --rows fsspec`.

Chunks of zarr come by requests of S3, too, beside s3fs, and by zarr's store over obstore. Runs by an interpreter that
has these packages, with the arguments URI, folder and rounds. The server at URI serves the folder, whose folders stand
for buckets.
"""

import os
import random
import statistics
import sys
import time
import warnings

warnings.simplefilter("ignore")

ARRAYS = {  # by name the bytes of a chunk, of a shard, and of the array
    "zarr, chunks of 64 KiB": (64 << 10, None, 32 << 20),
    "zarr, chunks of 1 MiB": (1 << 20, None, 256 << 20),
    "zarr, chunks of 4 MiB": (4 << 20, None, 256 << 20),
    "zarr, chunks of 64 KiB in shards of 16 MiB": (64 << 10, 16 << 20, 64 << 20),
}


def make(folder):
    import h5py
    import numpy
    import zarr

    data = numpy.random.default_rng(1).integers(0, 255, 256 << 20, "u1")
    for i, (chunk, shard, size) in enumerate(ARRAYS.values()):
        array = zarr.create_array(f"{folder}/arrays/{i}.zarr", shape=(size,), chunks=(chunk,), dtype="u1", compressors=None,
                                  shards=(shard,) if shard else None)
        array[:] = data[:size]
    with h5py.File(f"{folder}/data.h5", "w") as file:
        file["whole"] = data
        file.create_dataset("chunks", data=data.reshape(16384, 16384), chunks=(256, 1024))
        for i in range(200):
            file.create_group(f"g{i}").attrs["x"] = i


def scattered(file):
    chosen = random.Random(2)
    return sum(int(file["chunks"][chosen.randrange(16384), chosen.randrange(16384)]) for _ in range(40))


OF_H5PY = {
    "h5py, 200 attributes": lambda file: sum(file[f"g{i}"].attrs["x"] for i in range(200)),
    "h5py, 128 MiB in a row": lambda file: file["whole"][: 128 << 20].sum(),
    "h5py, 64 MiB in chunks, rows": lambda file: file["chunks"][:4096].sum(),
    "h5py, 16 MiB in chunks, a column": lambda file: file["chunks"][:, 2048:3072].sum(),
    "h5py, 40 elements": scattered,
}


WAYS = ["sluice+http", "http", "sluice+s3", "s3", "obstore"]


def store_of(way, uri, path):
    """A store of zarr."""
    import obstore.store
    from zarr.storage import FsspecStore, ObjectStore

    if way == "obstore":
        made = obstore.store.HTTPStore(f"{uri}/{path}", client_options={"allow_http": True})
        return ObjectStore(made, read_only=True)
    if way.endswith("s3"):
        return FsspecStore.from_url(f"{way}://{path}", {"endpoint_url": uri, "key": "a", "secret": "b"}, read_only=True)
    return FsspecStore.from_url(f"{way.removesuffix('http')}{uri}/{path}", read_only=True)


def reads(uri):
    """Yields (name, ways, call): call(way) reads in one of these ways, and returns the seconds and a sum."""
    import fsspec
    import h5py
    import zarr

    def by_zarr(store, concurrency):
        zarr.config.set({"async.concurrency": concurrency})
        array = zarr.open_array(store, mode="r", zarr_format=3)
        begun = time.perf_counter()
        data = array[:]
        return time.perf_counter() - begun, int(data[::4096].sum())

    def by_h5py(url, read):
        begun = time.perf_counter()
        with fsspec.open(url) as opened, h5py.File(opened, "r") as file:
            total = int(read(file))
        return time.perf_counter() - begun, total

    for i, name in enumerate(ARRAYS):
        for concurrency in (10, 64):
            yield (f"{name}, {concurrency} at a time", WAYS,
                   lambda way, i=i, n=concurrency: by_zarr(store_of(way, uri, f"arrays/{i}.zarr"), n))
    for name, read in OF_H5PY.items():
        yield name, WAYS[:2], lambda way, read=read: by_h5py(f"{way.removesuffix('http')}{uri}/data.h5", read)


def measure(uri, rounds):
    import sluice.fsspec  # noqa: F401  makes sluice+http known

    print("| s | sluice+http | fsspec's http | times | sluice+s3 | s3fs | times | obstore |\n|---" + "|--:" * 7 + "|")
    for name, ways, call in reads(uri):
        times = {way: [] for way in ways}
        for _ in range(rounds):
            sums = set()
            for way, of in times.items():
                seconds, total = call(way)
                of.append(seconds)
                sums.add(total)
            if len(sums) > 1:
                raise SystemExit(f"bench/python: {name}: the ways read different bytes")
        found = {way: statistics.median(of) for way, of in times.items()}
        cells = [name]
        for ours, theirs in (WAYS[:2], WAYS[2:4]) if len(ways) > 2 else (WAYS[:2],):
            cells += [f"{found[ours]:.3f}", f"{found[theirs]:.3f}", f"{found[theirs] / found[ours]:.1f}"]
        if "obstore" in found:
            cells.append(f"{found['obstore']:.3f}")
        print(f"| {' | '.join(cells + [''] * (8 - len(cells)))} |", flush=True)


if __name__ == "__main__":
    if not os.path.exists(os.path.join(sys.argv[2], "data.h5")):
        make(sys.argv[2])
    measure(sys.argv[1], int(sys.argv[3]))
