# SPDX-License-Identifier: Apache-2.0
"""Other readers read the frames of a writer: each codec, type and shape, in chunks of one frame and of several.

Each reader is a process, since it may have an HDF5 library of its own, or crash:
`test_hdf5_readers.py READER FILE` prints, as JSON, what is wrong with each series; "": all its numbers are right.
FILES has the types and shapes of a file by its name.
"""
import functools
import json
import os
import subprocess
import sys
import warnings
import zlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

CODECS = ["deflate", "zstd", "lz4", "bitshuffle-lz4", "none"]
TYPES = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "b1", "c8", "c16", "S8"]
SHAPES = [(), (1,), (37,), (5, 7), (33, 9), (3, 4, 5), (2, 3, 4, 5)]
LARGE = {("f4", (33, 9)): (300, 200), ("i2", (33, 9)): (300, 200)}
CHUNK_FRAMES = [None, 4, 1]
FRAMES = 11
FILES = {"frames": (TYPES, SHAPES), "continued": (["i2", "f4", "b1", "c8", "S8"], [(), (5, 7), (33, 9)])}
# Beside these a series with a fixed number of frames, an empty one; of fewer bits, with small chunks, with checksums.
OTHERS = {
    "fixed": {"shape": (64, 64), "dtype": "f4", "codec": "none", "frames": 20},
    "empty": {"shape": (4, 4), "dtype": "f8"},
    "precision": {"shape": (64, 64), "dtype": "f4", "precision": 8},
    "chunky": {"shape": (50, 60), "dtype": "f4", "chunk": (16, 16)},
    "checksums": {"shape": (50, 60), "dtype": "f4", "fletcher32": True},
}


def series(types, shapes):
    """The options of each series by its name."""
    found = {}
    for c, codec in enumerate(CODECS):
        for t, dtype in enumerate(types):
            for s, shape in enumerate(shapes):
                name = f"{codec}/{dtype}_{'x'.join(map(str, shape))}"
                found[name] = {"shape": LARGE.get((dtype, shape), shape), "dtype": dtype, "codec": codec,
                               "chunk_frames": CHUNK_FRAMES[(c + t + s) % 3]}
    return found | OTHERS


def frames(name, options):
    """The frames of a series: noise, which does not compress, or small numbers, which do."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    dtype, shape = np.dtype(options["dtype"]), (0 if name == "empty" else FRAMES, *options["shape"])
    if dtype.kind in "fc":
        parts = random.standard_normal((2, *shape)) * 50
        return (parts[0] if dtype.kind == "f" else parts[0] + 1j * parts[1]).astype(dtype)
    if dtype.kind == "S":
        return random.choice([b"", b"water", b"ethanol!"], shape).astype(dtype)
    return random.integers(-100 if dtype.kind == "i" else 0, 2 if dtype.kind == "b" else 100, shape).astype(dtype)


def write(path):
    import sluice
    with sluice.Writer(path, attributes={"title": "frames", "n": 3}) as writer:
        for name, options in series(*FILES["frames"]).items():
            one = writer.series(name, **options)
            for frame in frames(name, options):
                one.append(frame)


def write_thrice(path):
    """A new file, more frames, and then others from an earlier frame on, in the middle of a chunk of several."""
    import sluice
    for mode, continued_at, end in [("x", None, 6), ("a", None, 9), ("a", 5, FRAMES)]:
        with sluice.Writer(path, mode) as writer:
            for name, options in series(*FILES["continued"]).items():
                all_frames = frames(name, options)
                one = writer.series(name, **options, continue_at=continued_at and min(continued_at, len(all_frames)))
                for frame in range(one.frames, min(end, len(all_frames))):
                    one.append(all_frames[-1 - frame if end == 9 else frame])


# ------------------------------------------------------------------------------- readers: a function of a series' name

def h5py_(path):
    import h5py
    file = h5py.File(path)
    return lambda name: file[name][:]


def pytables(path):
    import tables
    file = tables.open_file(path)
    return lambda name: file.get_node("/" + name)[:]


def h5netcdf_(path):
    import h5netcdf
    file = h5netcdf.File(path, "r", phony_dims="sort")
    return lambda name: file[name][...]


def xarray_(path):
    import xarray
    groups = {group: xarray.open_dataset(path, engine="h5netcdf", group=group, phony_dims="sort", mask_and_scale=False)
              for group in ["/", *CODECS]}
    return lambda name: groups[name.rpartition("/")[0] or "/"][name.rpartition("/")[2]].values


def netcdf4(path):
    import netCDF4
    file = netCDF4.Dataset(path)
    file.set_auto_maskandscale(False)
    return lambda name: file[name][...]


def pyfive_(path):
    import pyfive
    file = pyfive.File(path)
    return lambda name: file[name][:]


def kerchunk_(url):
    import fsspec
    import zarr
    from kerchunk.hdf import SingleHdf5ToZarr
    from kerchunk.utils import refs_as_store
    with fsspec.open(url) as file:
        store = refs_as_store(SingleHdf5ToZarr(file, url, inline_threshold=0).translate())
    group = zarr.open_group(store, mode="r", zarr_format=2)
    return lambda name: group[name][...]


def virtualizarr_(path):
    import zarr
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr.parsers import HDFParser
    registry = ObjectStoreRegistry({"file://": LocalStore()})

    @functools.cache
    def group_of(group):
        store = HDFParser(group=group or "/", drop_variables=None if group else CODECS)(f"file://{path}", registry)
        return zarr.open_group(store, mode="r", zarr_format=3)
    return lambda name: group_of(name.rpartition("/")[0])[name.rpartition("/")[2]][...]


ALL, OWN = set(CODECS), {"deflate", "none"}
# Of each reader its function, and the codecs that it has. docs/writer.md has the same as a table.
READERS = {
    "h5py": (h5py_, ALL), "PyTables": (pytables, ALL), "h5netcdf": (h5netcdf_, ALL), "xarray": (xarray_, ALL),
    "netCDF4": (netcdf4, ALL), "pyfive": (pyfive_, OWN), "kerchunk": (kerchunk_, OWN | {"zstd"}),
    "VirtualiZarr": (virtualizarr_, OWN | {"zstd"}),
}
CRASHES = {"netCDF4": ["f2"]}  # in its own code, with files of h5py as well
LACKS = {"kerchunk": ["checksums"]}


def outcome(read, name, options):
    try:
        found = np.asarray(read(name))
    except Exception as error:  # of any reader, of any kind
        return f"{type(error).__name__}: {error}"
    wanted = frames(name, options)
    if name == "fixed":
        found = found[:FRAMES]  # the others have space, and no numbers yet
    if found.dtype.hasobject:
        found = found.astype(wanted.dtype)  # texts
    # Some show bool as int8, and complex numbers as pairs.
    alike = found.dtype == wanted.dtype or (wanted.dtype.kind in "bc" and found.dtype.itemsize == wanted.itemsize)
    if not alike or found.shape != wanted.shape:
        return f"{found.dtype} {found.shape}"
    if name == "precision":
        return "" if np.allclose(found, wanted, rtol=2 ** -9, atol=0) else "other numbers"
    return "" if found.tobytes() == wanted.tobytes() else "other numbers"


def main(reader, file):
    warnings.simplefilter("ignore")
    read = READERS[reader][0](file)
    types, shapes = FILES[file.rpartition("/")[2].removesuffix(".h5")]
    left = series([dtype for dtype in types if dtype not in CRASHES.get(reader, [])], shapes)
    print(json.dumps({name: outcome(read, name, options) for name, options in left.items()}))


# ------------------------------------------------------------------------------------------------------------ the tests

@pytest.fixture(scope="module")
def written(web):
    folder, url = web
    write(folder / "frames.h5")
    write_thrice(folder / "continued.h5")
    return folder, url.removeprefix("sluice+")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("reader", READERS)
def test_each_series_is_read(written, reader, file):
    """kerchunk by HTTP, so that its references and ranges of the file come from a server, too."""
    where = written[1 if reader == "kerchunk" else 0]
    plugins = Path(find_spec("hdf5plugin").origin).parent / "plugins"
    ran = subprocess.run([sys.executable, __file__, reader, f"{where}/{file}.h5"], text=True,
                         capture_output=True, env=os.environ | {"HDF5_PLUGIN_PATH": str(plugins)}, timeout=300)
    assert ran.returncode == 0, ran.stderr
    outcomes = json.loads(ran.stdout.splitlines()[-1])
    codecs = {name: options.get("codec", "deflate") for name, options in series(*FILES[file]).items()}
    wrong = {name: said for name, said in outcomes.items() if
             said and codecs[name] in READERS[reader][1] and name not in LACKS.get(reader, [])}
    assert not wrong
    print(f"{reader}, {file}: {sum(not said for said in outcomes.values())} of {len(outcomes)} series")


if __name__ == "__main__":
    main(*sys.argv[1:])
