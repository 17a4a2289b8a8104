# SPDX-License-Identifier: Apache-2.0
"""Files of netCDF4 and PyTables, and of h5py with the filters of hdf5plugin, are read as these libraries read them.

Each maker is a process, since it has an HDF5 library of its own: `test_arrays.py MAKER FILE` makes the file, and
FILE.npz with its arrays by the names of the datasets. tests/python/test_arrays.py is the rest: it runs here once more,
by the newest h5py and with hdf5plugin.
"""
import os
import random
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

TESTS = Path(__file__).parents[1] / "python"
sys.path.insert(0, str(TESTS))


def netcdf4(path):
    import netCDF4
    from array_files import numbers
    wanted = {}
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        for name, length in {"y": 30, "x": 40, "z": 3}.items():
            file.createDimension(name, length)
        group = file.createGroup("deep/er")
        kinds = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]
        options = [{}, {"zlib": True}, {"zlib": True, "shuffle": False, "complevel": 9}, {"fletcher32": True},
                   {"zlib": True, "fletcher32": True}, {"contiguous": True}, {"endian": "big"},
                   {"endian": "big", "zlib": True}, {"chunksizes": (7, 40), "zlib": True}, {"compression": "zstd"},
                   {"compression": "blosc_lz4"}, {"compression": "blosc_zstd", "blosc_shuffle": 2}]
        for number, option in enumerate(options):
            for kind in kinds:
                name = f"v{number}_{kind}"
                made = group.createVariable(name, kind, ("y", "x"), **option)
                made.set_auto_maskandscale(False)
                # Its Blosc refuses chunks that do not shrink.
                plain = np.arange(1200).reshape(30, 40) // 40
                made[...] = plain if "compression" in option else numbers((30, 40), kind)
                wanted[f"/deep/er/{name}"] = made[...]
        for kind in kinds:
            made = file.createVariable(f"grows_{kind}", kind, ("time", "y", "z"), zlib=True, fill_value=7)
            made.set_auto_maskandscale(False)
            made[:11] = numbers((11, 30, 3), kind)
            made[13, 5:7] = 1
            wanted[f"/grows_{kind}"] = made[...]
        made = file.createVariable("letters", "S1", ("y", "z"))
        made.set_auto_chartostring(False)
        made[...] = numbers((30, 3), "S1")
        wanted["/letters"] = made[...]
        kind = file.createCompoundType(np.dtype([("x", "f8"), ("n", "i4"), ("v", "f4", (3,))], align=True), "point")
        made = file.createVariable("points", kind, ("time",), zlib=True)
        made[:14] = numbers((14,), kind.dtype)
        wanted["/points"] = made[...]
        kind = file.createEnumType("u1", "sky", {"clear": 0, "cloud": 1})
        made = file.createVariable("heaven", kind, ("y",), fill_value=0)
        made.set_auto_maskandscale(False)
        made[...] = numbers((30,), "u1") % 2
        wanted["/heaven"] = made[...]
        made = file.createVariable("alone", "f8", ())
        made.set_auto_maskandscale(False)
        made[...] = 5.5
        wanted["/alone"] = made[...]
    return wanted


def pytables(path):
    import tables
    from array_files import COMPOUNDS, numbers
    wanted = {}
    with tables.open_file(path, "w") as file:
        kinds = ["b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16", "S5"]
        codecs = [None, "zlib", "lzo", "bzip2", "blosc", *(f"blosc:{name}" for name in tables.blosc_compressor_list())]
        for codec in codecs:
            if codec and not tables.which_lib_version(codec.partition(":")[0]):
                continue
            filters = codec and tables.Filters(5, codec, shuffle=True, fletcher32=codec == "zlib")
            refused = codec in ("lzo", "bzip2")
            for kind in kinds[:1] if refused else kinds:
                atom, name = tables.Atom.from_dtype(np.dtype(kind)), f"{codec or 'plain'}_{kind}".replace(":", "_")
                data = numbers((50, 20), kind)
                file.create_carray("/", "c_" + name, atom, data.shape, filters=filters, chunkshape=(16, 7))[...] = data
                file.create_earray("/", "e_" + name, atom, (0, 20), filters=filters).append(data)
                wanted["/c_" + name] = wanted["/e_" + name] = "refused" if refused else data
        for kind in kinds:
            file.create_array("/", "a_" + kind, numbers((6, 4), kind))
            wanted["/a_" + kind] = numbers((6, 4), kind)
        for name, dtype in COMPOUNDS.items():
            if name in ("plain", "complex"):
                table = file.create_table("/", "t_" + name, numbers((300,), dtype), chunkshape=64,
                                          filters=tables.Filters(5, "blosc:lz4"))
                wanted["/t_" + name] = table[:]
    return wanted


def bits(array):
    """The elements without a mask, and bool as what it is in files."""
    found = np.ma.getdata(array)
    return found.tobytes(), found.dtype.itemsize, found.shape


@pytest.mark.parametrize("maker", ["netcdf4", "pytables"])
def test_files_of_other_libraries_are_read(maker, tmp_path):
    import sluice
    from array_files import expected, selection_of
    path = str(tmp_path / "made.h5")
    ran = subprocess.run([sys.executable, __file__, maker, path], text=True, capture_output=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    wanted = dict(np.load(path + ".npz"))
    assert len(wanted) > 50
    chance, wrong, read = random.Random(maker), {}, 0
    for name, data in wanted.items():
        name = name.replace("|", "/")
        if data.dtype.kind == "U" and data == "refused":
            with pytest.raises(OSError, match=name):
                sluice.open_array(path, name)
            continue
        try:
            with sluice.open_array(path, name) as array:
                if array.dtype.byteorder == ">":  # netCDF4 converts
                    data = data.astype(array.dtype)
                if bits(array[...]) != bits(data):
                    wrong[name] = f"{array.dtype} {array.shape}, {data.dtype} {data.shape}"
                for _ in range(5):
                    selection = selection_of(data.shape, chance)
                    if bits(np.asarray(array[selection])) != bits(np.asarray(expected(data, selection))):
                        wrong[name] = selection
                read += 1
        except OSError as error:
            if "libblosc" not in str(error):  # is not on this machine
                wrong[name] = str(error)
    assert not wrong
    print(f"{maker}: {read} of {len(wanted)}")


def test_the_suite_of_the_package_with_the_newest_h5py_and_hdf5plugin():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", TESTS / "test_arrays.py"]
    ran = subprocess.run(command, text=True, capture_output=True, env=os.environ, timeout=600)
    assert ran.returncode == 0, ran.stdout
    print(ran.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # netCDF4's, of an order of bytes that is not the machine's
    made = {"netcdf4": netcdf4, "pytables": pytables}[sys.argv[1]](sys.argv[2])
    np.savez(sys.argv[2] + ".npz", **{name.replace("/", "|"): np.ma.getdata(data) for name, data in made.items()})
