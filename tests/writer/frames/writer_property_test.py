#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A sample of the plans of property_test.c, by h5py, by the tests' decoders, and by h5diff and
h5dump against files that HDF5 itself has written. usage: property_test.py WRITER_PROPERTY; 77 is a skip."""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
if not (shutil.which("h5diff") and shutil.which("h5dump")):
    print("skipped: no h5diff or h5dump")
    sys.exit(77)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import chunks  # noqa: E402
import content  # noqa: E402

SCALARS = ["time", "step", "a b"]
CODECS = chunks.codecs()
SHUFFLE_DEFAULT, SHUFFLE_NONE, SHUFFLE_BYTE = range(3)
FLETCHER32 = 4  # of enum sluice_series_flags


def expected(series):
    shape = [series["frames"], *series["shape"]]
    frames = numpy.zeros(shape, series["type"])
    for k in range(series["frames"]):
        frames[k] = content.frame(series["type"], series["kind"], series["seed"], k, series["shape"])
    return frames


def check_filters(dataset, series):
    found = chunks.filters_of(dataset)
    number, shuffles = CODECS[series["codec"]]
    shuffled = number and not shuffles and (
        series["shuffle"] == SHUFFLE_BYTE
        or series["shuffle"] == SHUFFLE_DEFAULT and dataset.dtype.itemsize > 1
    )
    summed = bool(series["flags"] & FLETCHER32)
    assert found == [2] * bool(shuffled) + [number] * bool(number) + [3] * summed, (series, found)


def same(found, wanted, precision, dataset):
    if not precision:
        return found.tobytes() == wanted.tobytes()
    kept = {2: 10, 4: 23, 8: 52}[found.dtype.itemsize]
    low = found.view("u%d" % found.dtype.itemsize) & numpy.array((1 << (kept - precision)) - 1, "u8").astype(
        "u%d" % found.dtype.itemsize
    )
    error = numpy.abs(found.astype("f8") - wanted.astype("f8"))
    most = error.max() if error.size else 0
    assert dataset.attrs["sluice_precision"] == precision
    assert dataset.attrs["sluice_max_error"] == most, (dataset.attrs["sluice_max_error"], most)
    return not low.any() and (error <= numpy.abs(wanted.astype("f8")) * 2.0 ** -(precision + 1)).all()


def is_contiguous(series):
    return bool(series["fixed"]) and series["codec"] == "none" and not series["flags"] & FLETCHER32


def check_attributes(dataset, count):
    assert count < 1 or dataset.attrs["units"] == "mol/m\u00b3"
    assert count < 2 or list(dataset.attrs["numbers"]) == [0.5, -1.5, 1e300]
    assert count < 3 or (dataset.attrs["integer"] == -7 and dataset.attrs["integer"].shape == ())


def check_series(file, series):
    if series["name"] not in file:
        assert series["frames"] == 0
        return
    dataset, count = file[series["name"]], series["frames"]
    assert dataset.dtype == numpy.dtype(series["type"])
    contiguous = is_contiguous(series)
    assert len(dataset) == (series["fixed"] if contiguous else count)
    assert list(dataset.shape[1:]) == series["shape"]
    assert dataset.maxshape[0] == (series["fixed"] or None)
    assert (dataset.chunks is None) == contiguous
    if contiguous:
        assert dataset.attrs["sluice_frames"] == count
    check_filters(dataset, series)
    found = chunks.read(dataset) if dataset.chunks else dataset[:count]
    assert same(found, expected(series), series["precision"], dataset), series
    for which, name in enumerate(SCALARS[: series["scalars"]]):
        values = file[f"{series['name']}_{name}"][...]
        assert (values == content.scalars(count, series["seed"], which)).all() and len(values) == count
    check_attributes(dataset, series["attributes"])


def write_plain(path, series, chunks, contiguous):
    """The same dataset, as programs write it that know nothing of a writer."""
    with h5py.File(path, "w") as file:
        frames = expected(series)
        filters = {}
        if series["codec"] == "deflate":
            filters = {"compression": "gzip", "compression_opts": 6, "shuffle": True}
        if not contiguous:
            filters.update(chunks=chunks, maxshape=(series["fixed"] or None, *series["shape"]))
        dataset = file.create_dataset(series["name"], data=frames, **filters)
        if contiguous:
            dataset.attrs["sluice_frames"] = numpy.uint64(series["frames"])


def data_of(path, name):
    """What h5dump prints of the type and the numbers, without what says how they are stored."""
    command = ["h5dump", "-m", "%.17g", "-d", "/" + name, path]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = text.split("\n")
    kind = [line for line in lines if "DATATYPE" in line]
    begin = next(i for i, line in enumerate(lines) if line.strip().startswith("DATA {"))
    end = next(i for i in range(begin, len(lines)) if lines[i].strip() == "}")
    return kind[:1] + lines[begin:end]


def compare_with_hdf5(path, series, plain):
    with h5py.File(path, "r") as file:
        chunks = file[series["name"]].chunks
    write_plain(plain, series, chunks, chunks is None)
    name = "/" + series["name"]
    subprocess.run(["h5diff", path, plain, name, name], check=True)
    assert data_of(path, series["name"]) == data_of(plain, series["name"])


def is_plain(series):
    """What the tools read without a filter, and whose numbers can be compared."""
    contiguous = is_contiguous(series)
    return (
        series["codec"] in ("none", "deflate")
        and series["kind"] != content.BITS
        and series["type"] != "float16"
        and not series["precision"]
        and not series["attributes"]
        and series["frames"] > 0
        and (not contiguous or series["frames"] == series["fixed"])
        and numpy.prod(series["shape"]) < 20000
    )


program = sys.argv[1]
stress = bool(os.environ.get("STRESS"))
count, diffs = (600, 80) if stress else (30, 4)
with tempfile.TemporaryDirectory(dir=os.environ.get("SLUICE_TEST_DIR")) as folder:
    seed = os.environ.get("SLUICE_TEST_SEED") or str(random.randrange(10**9))
    print(f"the same again with SLUICE_TEST_SEED={seed}")
    environment = {**os.environ, "SLUICE_TEST_SEED": seed}
    # Other plans than those of the program for itself.
    answer = subprocess.run([program, "100000", str(count), folder], env=environment, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    plans = [json.loads(line) for line in answer.stdout.split("\n") if line.startswith("{")]
    assert len(plans) == count
    checked, compared = 0, 0
    for plan in plans:
        if not os.path.exists(plan["path"]):
            continue
        with h5py.File(plan["path"], "r") as file:
            assert file.attrs["title"] == "a file" and file.attrs["run"] == 12
            for series in plan["series"]:
                check_series(file, series)
                checked += 1
        for series in plan["series"]:
            if compared < diffs and is_plain(series):
                compare_with_hdf5(plan["path"], series, os.path.join(folder, "plain.h5"))
                compared += 1
        os.unlink(plan["path"])
    print(f"{checked} series of {count} plans are right by h5py, {compared} by h5diff and h5dump")
    assert checked >= count and (compared or not stress)
