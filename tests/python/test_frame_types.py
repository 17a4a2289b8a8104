# SPDX-License-Identifier: Apache-2.0
"""Frames of bool, complex numbers, strings and single numbers, with checksums; attributes of texts and rows."""

import contextlib
import importlib
import subprocess
import sys
import time

import numpy
import pytest
import sluice

h5py = pytest.importorskip("h5py", reason="h5py, which reads the files, is missing")
with contextlib.suppress(ImportError):
    importlib.import_module("hdf5plugin")  # the filters of the other codecs

FILTERS = {"none": 0, "deflate": 1, "lz4": 32004, "bitshuffle-lz4": 32008, "zstd": 32015}
TYPES = ["?", "c8", "c16", "S1", "S8", "S13", "S1024", "f8", "i2"]
OPTIONS = {
    "default": {}, "frame by frame": {"chunk_frames": 1}, "three in a chunk": {"chunk_frames": 3},
    "fixed": {"frames": 12}, "shuffled": {"shuffle": True}, "unshuffled": {"shuffle": False},
}  # fmt: skip


@pytest.fixture
def file(tmp_path):
    return tmp_path / "f.h5"


def noise(dtype, shape, seed=1):
    """Elements of which some are alike."""
    draw = numpy.random.default_rng(seed)
    dtype = numpy.dtype(dtype)
    if dtype.kind == "S":
        words = numpy.array([b"", b"water", b"a", b"\0b", b"\xff" * 2000]).astype(dtype)
        return words[draw.integers(0, len(words), shape)]
    if dtype.kind == "b":
        return draw.integers(0, 2, shape).astype(bool)
    real, imaginary = draw.integers(-500, 500, (2, *shape)) / 8
    return (real + 1j * imaginary if dtype.kind == "c" else real).astype(dtype)


def write(path, values, mode="x", **options):
    with sluice.Writer(path, mode) as w:
        s = w.series("g/u", shape=values.shape[1:], dtype=values.dtype, **options)
        for k, value in enumerate(values):
            s.append(value)
            if k == 2:
                w.flush()


def read(path):
    with h5py.File(path, "r") as f:
        return f["g/u"][...]


@pytest.mark.parametrize("fletcher32", [False, True], ids=["", "fletcher32"])
@pytest.mark.parametrize("codec", FILTERS)
@pytest.mark.parametrize("dtype", TYPES)
def test_values_come_back_and_go_on(file, dtype, codec, fletcher32):
    if not h5py.h5z.filter_avail(FILTERS[codec] or 1):
        pytest.skip(f"this HDF5 has no filter of {codec}")
    for name, options in OPTIONS.items():
        if "shuffle" in options and codec in ("none", "bitshuffle-lz4"):
            continue
        for shape in ((), (5,), (7, 9)) if name in ("default", "fixed") else ((7, 9),):
            values = noise(dtype, (11, *shape))
            write(file, values[:5], codec=codec, fletcher32=fletcher32, **options)
            write(file, values[5:], "a")
            found = read(file)
            assert found.dtype == values.dtype and found.shape[1:] == shape, (name, shape)
            assert found[:11].tobytes() == values.tobytes(), (name, shape)
            with h5py.File(file, "r") as f:
                assert f["g/u"].fletcher32 == fletcher32
                assert (f["g/u"].chunks is None) == (name == "fixed" and codec == "none" and not fletcher32)
            file.unlink()


@pytest.mark.parametrize("dtype", TYPES)
def test_files_of_h5py_go_on(file, dtype):
    for options in ({"compression": "gzip", "shuffle": True}, {"compression": "gzip", "fletcher32": True},
                    {"fletcher32": True}, {"chunks": (3, 2), "compression": 3, "fletcher32": True}, {}):  # fmt: skip
        values = noise(dtype, (10, 5))
        with h5py.File(file, "w") as f:
            f.create_dataset("g/u", data=values[:4], maxshape=(None, 5), **{"chunks": (1, 5), **options})
        write(file, values[4:], "a")
        assert read(file).tobytes() == values.tobytes(), options
        with h5py.File(file, "a") as f:  # and on by h5py
            f["g/u"].resize(11, axis=0)
            f["g/u"][10] = values[0]
            assert (f["g/u"][:10] == values).all() and (f["g/u"][10] == values[0]).all()
        file.unlink()


def test_the_filters_are_those_of_h5py(file):
    with sluice.Writer(file) as w:
        for name, dtype in (("b", "?"), ("c", "c16"), ("s", "S8")):
            w.series(name, shape=(3,), dtype=dtype, shuffle=True, fletcher32=True, level=4)
    with h5py.File(file, "a") as f:
        for name, dtype in (("b", "?"), ("c", "c16"), ("s", "S8")):
            ours = f[name]
            theirs = f.create_dataset("h5py " + name, shape=(0, 3), maxshape=(None, 3), dtype=dtype, chunks=ours.chunks,
                                      compression=4, shuffle=True, fletcher32=True)  # fmt: skip
            assert ours.id.get_type() == theirs.id.get_type()
            lists = [d.id.get_create_plist() for d in (ours, theirs)]
            rows = [[p.get_filter(i)[0::2] for i in range(p.get_nfilters())] for p in lists]
            assert rows[0] == rows[1]


def test_a_changed_bit_is_found(file):
    values = noise("S13", (4, 11)).copy()
    for codec in ("none", "deflate"):
        write(file, values, codec=codec, chunk_frames=1, fletcher32=True)
        with h5py.File(file, "r") as f:
            info = [f["g/u"].id.get_chunk_info(i) for i in range(4)]
        assert all(i.filter_mask in (0, 1, 2) for i in info)
        whole = bytearray(file.read_bytes())
        for at in (0, info[1].size // 2, info[1].size - 1):
            whole[info[1].byte_offset + at] ^= 4
            file.write_bytes(whole)
            assert (h5py.File(file, "r")["g/u"][0] == values[0]).all()
            with pytest.raises(OSError):
                h5py.File(file, "r")["g/u"][1]
            whole[info[1].byte_offset + at] ^= 4
        file.unlink()


def test_a_changed_bit_of_the_last_chunk_is_found_when_it_goes_on(file):
    values = numpy.arange(20.0).reshape(4, 5)
    with h5py.File(file, "w") as f:
        f.create_dataset("g/u", data=values, maxshape=(None, 5), chunks=(3, 5), compression="gzip", fletcher32=True)
        info = f["g/u"].id.get_chunk_info(1)
    whole = bytearray(file.read_bytes())
    whole[info.byte_offset + 3] ^= 1
    file.write_bytes(whole)
    with pytest.raises(OSError, match="'/g/u'.* another checksum"):
        write(file, values, "a")


def test_checksums_are_only_for_datasets_with_them(file):
    with h5py.File(file, "w") as f:
        f.create_dataset("g/u", shape=(0, 5), maxshape=(None, 5), chunks=(1, 5), dtype="f8")
    with pytest.raises(FileExistsError, match="no fletcher32"):
        write(file, numpy.zeros((1, 5)), "a", fletcher32=True)


def test_precision_rounds_both_parts(file):
    for dtype, codec in (("c8", "deflate"), ("c16", "none")):
        values = noise(dtype, (3, 50)) * dtype_third(dtype)
        write(file, values, codec=codec, precision=6, frames=3)
        found = read(file)
        for part in ("real", "imag"):
            error = abs(getattr(found, part) - getattr(values, part))
            assert 0 < error.max() and (error <= abs(getattr(values, part)) * 2.0**-7).all()
        with h5py.File(file, "r") as f:
            largest = max(abs(found.real - values.real).max(), abs(found.imag - values.imag).max())
            assert f["g/u"].attrs["sluice_max_error"] == largest
        file.unlink()


def dtype_third(dtype):
    return numpy.dtype(dtype).type(1 / 3)


def test_a_number_a_step(file):
    with sluice.Writer(file) as w:
        e = w.series("energy", shape=(), dtype="f8", scalars=["time"], dimensions=["time"])
        n = w.series("count", shape=(), dtype="u1")
        for k in range(3000):
            e.append(k / 2, time=k)
        frame = e.acquire()
        assert frame.shape == ()
        frame[...] = 7
        e.submit(time=3000)
        for value in (3, numpy.uint8(4), numpy.array(5, "u1"), True):
            n.append(value)
        for wrong in (300, -1, 2.5, "a", [1], None):
            with pytest.raises((TypeError, ValueError)):
                n.append(wrong)
    with h5py.File(file, "r") as f:
        assert (f["energy"][...] == [*numpy.arange(3000) / 2, 7]).all() and f["energy"].chunks == (1024,)
        assert f["energy"].dims[0][0] == f["time"] and (f["time"][...] == numpy.arange(3001)).all()
        assert list(f["count"]) == [3, 4, 5, 1]
    with sluice.Writer(file, "a") as w:
        w.series("count", shape=(), dtype="u1", continue_at=2).append(9)
        with pytest.raises(FileExistsError, match="1 dimensions, and not 2"):
            w.series("energy", shape=(1,), dtype="f8")
    with h5py.File(file, "r") as f:
        assert list(f["count"]) == [3, 4, 9]


def test_frames_that_were_given_up_are_not_there_again(file):
    """The unseen rest of a chunk, of elements that do not divide a page, has the fill value."""
    values = numpy.full((20, 200), b"water", "S13")
    with h5py.File(file, "w") as f:
        f.create_dataset("g/u", (0, 200), "S13", maxshape=(None, 200), chunks=(30, 200), fillvalue=b"nothing")
    write(file, values, "a")
    with sluice.Writer(file, "a") as w:
        w.series("g/u", shape=(200,), dtype="S13", continue_at=1).append(values[0])
    with h5py.File(file, "a") as f:
        f["g/u"].resize(30, axis=0)
        assert (f["g/u"][:2] == b"water").all() and (f["g/u"][2:] == b"nothing").all()


DIES = """
import sluice, sys
with sluice.Writer(sys.argv[1], "a", checkpoint_ms=1) as w:
    series = [w.series(f"u{i}", shape=(), dtype="f8", scalars=["t", "q"]) for i in range(20)]
    print(flush=True)
    while True:
        for s in series:
            s.append(1.5, t=2.5, q=3.5)
"""


def test_numbers_that_are_visible_have_their_scalars_after_a_death(file):
    """The scalars are younger than the numbers, and of one dimension as these are."""
    for wait in (0.02, 0.05, 0.09, 0.14):
        with sluice.Writer(file, "w") as w:
            for i in range(20):
                w.series(f"u{i}", shape=(), dtype="f8", codec="none", chunk_frames=1).append(0.5)
        with subprocess.Popen([sys.executable, "-c", DIES, file], stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            time.sleep(wait)
            process.kill()
        with h5py.File(file, "r") as f:
            for i in range(20):
                assert min(len(f[f"u{i}_t"]), len(f[f"u{i}_q"])) >= len(f[f"u{i}"]) >= 1


def test_strings_are_bytes_of_a_fixed_length(file):
    with sluice.Writer(file) as w:
        s = w.series("g/u", shape=(2,), dtype="S4")
        s.append(numpy.array([b"a", b"bcd"]))
        s.append([b"", b"wxyz"])
        for wrong, error in (([b"abcde", b"a"], TypeError), (["a", "b"], TypeError), ([1, 2], TypeError)):
            with pytest.raises(error, match="series 'g/u' has frames of"):
                s.append(wrong)
        for wrong in ("S", "S0", "S1025", "U4", str, bytes, numpy.dtype("U")):
            with pytest.raises(TypeError, match="series 'v': strings have a fixed length.*'S8'"):
                w.series("v", shape=(2,), dtype=wrong)
        for wrong in ("O", "f4,f4", [("r", "f4"), ("i", "f4")], "V8", "M8[s]", "c32", "(2,)f4", "g", None):
            with pytest.raises(TypeError, match="series 'v'.*none of int8.*S8"):
                w.series("v", shape=(2,), dtype=wrong)
        with pytest.raises(OSError, match="floating-point"):
            w.series("v", shape=(2,), dtype="S8", precision=3)
        for wrong in ([b"a", b"b"], [True, False], ["a"], [1j]):
            with pytest.raises(TypeError, match="coordinate 'x'.*float64. Store"):
                w.coordinate("x", wrong)
    assert read(file).tolist() == [[b"a", b"bcd"], [b"", b"wxyz"]]


def test_strings_are_not_shuffled_unless_it_is_asked_for(file):
    with sluice.Writer(file) as w:
        w.series("default", shape=(2,), dtype="S8")
        w.series("asked", shape=(2,), dtype="S8", shuffle=True)
    with h5py.File(file, "r") as f:
        assert not f["default"].shuffle and f["asked"].shuffle


def test_bool_of_other_bytes_and_in_other_memory(file):
    with sluice.Writer(file) as w:
        s = w.series("g/u", shape=(2, 3), dtype=bool)
        s.append(numpy.asfortranarray(numpy.eye(2, 3, dtype=bool)))
        frame = s.acquire()
        frame[...] = [[2, 0, 3], [0, 1, 0]]  # numpy makes 1 of them
        s.submit(frame)
        with pytest.raises(TypeError, match="frames of bool, not of uint8"):
            s.append(numpy.ones((2, 3), "u1"))
    assert read(file).view("u1").max() == 1 and read(file)[1].tolist() == [[1, 0, 1], [0, 1, 0]]


TEXTS = ["time", "", "Größe", "x" * 5000]
ROWS = numpy.arange(6).reshape(2, 3)


def test_attributes_of_texts_and_rows(file):
    given = {"texts": TEXTS, "tuple": ("a",), "array": numpy.array(["ab", "c"]), "rows": ROWS, "floats": ROWS / 4,
             "nested": [[1, 2.5]], "column": [[1], [2]], "many": [str(i) for i in range(2000)], "one": numpy.array("t")}
    with sluice.Writer(file, attributes=given) as w:
        s = w.series("g/u", shape=(2,), dtype="f4", attributes=given)
        s.append(numpy.zeros(2, "f4"))
        w.flush()
        w.attributes({"later": TEXTS, "later rows": ROWS})
        s.attributes({"later": TEXTS, "later rows": ROWS})
    with h5py.File(file, "r") as f:
        for attributes in (f.attrs, f["g/u"].attrs):
            for name, value in {**given, "later": TEXTS, "later rows": ROWS}.items():
                found, value = attributes[name], numpy.asarray(value)
                assert numpy.shape(found) == value.shape and numpy.all(found == value), name
                assert value.dtype.kind != "U" or all(isinstance(t, str) for t in numpy.ravel(found).tolist())
            assert attributes["rows"].dtype == "i8" and attributes["floats"].dtype == "f8"


def test_attributes_that_are_wrong_are_named(file):
    with sluice.Writer(file) as w:
        s = w.series("g/u", shape=(2,), dtype="f4")
        for wrong, error, match in (
            ([[1, 2], [3]], ValueError, "rows of attribute 'a' differ"),
            ([[[1]]], TypeError, "one or two dimensions"), (numpy.zeros((2, 2, 2)), TypeError, "two dimensions"),
            ([], TypeError, "'a' has to be"), ([[]], TypeError, "'a' has to be"), (["a", 1], TypeError, "has to be"),
            ([["a"]], TypeError, "has to be"), ([b"a"], TypeError, "has to be"), ([1, [2]], TypeError, "has to be"),
            (["a\0b"], ValueError, "null character"), (["\ud800"], ValueError, "surrogates"),
            (numpy.array([b"a"]), TypeError, "has to be"), ([1j], TypeError, "has to be"),
            (["a"] * 5000, OSError, "longer"), (numpy.zeros((100, 100)), OSError, "longer"),
            ([[1 << 63]], OverflowError, "has to be"),
            (numpy.array([None]), TypeError, "has to be"), (None, TypeError, "has to be"),
        ):  # fmt: skip
            with pytest.raises(error, match=match):
                s.attributes({"a": wrong})
            with pytest.raises(error, match=match):
                w.attributes({"a": wrong})
        s.attributes({"a": 1})
    with h5py.File(file, "r") as f:
        assert dict(f["g/u"].attrs) == {"a": 1} and not dict(f.attrs)


def test_memory_of_a_device(file, device_array, stream):
    """Frames are bytes for a device: complex numbers, and bool."""
    values = noise("c16", (3, 30))
    array = device_array(480)
    typed = type("Typed", (), {"__cuda_array_interface__": {**array.__cuda_array_interface__, "typestr": "<c16",
                                                            "shape": (30,)}})()  # fmt: skip
    with sluice.Writer(file) as w:
        s = w.series("g/u", shape=(30,), dtype="c16", fletcher32=True)
        for value in values:
            array.set(value.tobytes())
            s.append(typed, stream=stream)
            w.flush()
        with pytest.raises(TypeError, match="complex128, not of bool"):
            typed.__cuda_array_interface__["typestr"] = "|b1"
            s.append(typed, stream=stream)
    assert read(file).tobytes() == values.tobytes()
