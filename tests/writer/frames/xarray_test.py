#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What xarray, h5py and ncdump make of named dimensions, and HDF5's plugin of bitshuffle of what has its number.
usage: xarray_test.py WRITE_DIMENSIONS; 77 is a skip."""

import os
import shutil
import subprocess
import sys
import tempfile

try:
    import h5netcdf  # noqa: F401
    import h5py
    import numpy
    import xarray
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

program = sys.argv[1]
X = [0, 0.25, 0.5, 0.75, 1]


def check_xarray(path, frames):
    with xarray.open_dataset(path, engine="h5netcdf") as data:
        assert dict(data.sizes) == {"time": frames, "y": 3, "x": 5}, data
        assert set(data.coords) == {"time", "x"} and data["x"].attrs["units"] == "m", data
        assert list(data["x"].values) == X and list(data["time"].values) == [0.5 * k for k in range(frames)]
        assert list(data["u_step"].values) == [10.0 * k for k in range(frames)]
        for name in "u", "v":
            assert data[name].dims == ("time", "y", "x"), data
            assert (data[name].values.ravel() == numpy.arange(frames * 15)).all()


def check_h5py(path):
    with h5py.File(path, "r") as file:
        for name in "u", "v":
            assert file[name].chunks[0] > 1, "frames of 60 bytes share chunks"
            assert [file[name].dims[i][0].name for i in range(3)] == ["/time", "/y", "/x"]
        references = {(file[dataset].name, axis) for dataset, axis in file["x"].attrs["REFERENCE_LIST"]}
        references |= {(file[dataset].name, axis) for dataset, axis in file["time"].attrs["REFERENCE_LIST"]}
        return references


def check_ncdump(path, frames):
    if not shutil.which("ncdump"):
        print("no ncdump here")
        return
    text = subprocess.run(["ncdump", "-h", path], check=True, capture_output=True, text=True).stdout
    for line in f"time = UNLIMITED ; // ({frames} currently)", "y = 3 ;", "x = 5 ;", "u(time, y, x) ;", "double x(x) ;":
        assert line in text, text
    assert "phony" not in text, text


def check_bits(path):
    with h5py.File(path, "r") as file:
        number, _, values, _ = file["u"].id.get_create_plist().get_filter(0)
        # HDF5's filter, where it is, has added what it needs behind these.
        assert number == 32008 and (values[2], values[3], values[4]) == (2, 0, 2), values
        if not h5py.h5z.filter_avail(number):
            print("HDF5 has no plugin of bitshuffle here")
            return
        assert (file["u"][...] == numpy.array([1000 + i % 7 for i in range(3001)])).all()
    print("HDF5's plugin reads bitshuffle-lz4")


with tempfile.TemporaryDirectory(dir=os.environ.get("SLUICE_TEST_DIR")) as folder:
    for how in "new", "late", "killed":
        path = os.path.join(folder, how + ".h5")
        subprocess.run([program, how, path], check=True)
        check_xarray(path, 4)
        check_ncdump(path, 4)
        references = check_h5py(path)
        assert {("/u", 2), ("/u", 0), ("/u_step", 0)} <= references, references
        # A file with its name has no place for another reference.
        assert how == "late" or {("/v", 2), ("/v", 0)} <= references, references
    for how in "new", "killed":
        path = os.path.join(folder, how + ".h5")
        subprocess.run([program, "append", path], check=True)
        check_xarray(path, 8)
        check_ncdump(path, 8)
        check_h5py(path)
    bits = os.path.join(folder, "bits.h5")
    subprocess.run([program, "bits", bits], check=True)
    check_bits(bits)
