# SPDX-License-Identifier: Apache-2.0
"""Tensors in files: load(), load_into(), safe_open(), patch_safetensors()."""

import errno
import hashlib
import json
import os
import queue
import random
import struct
import subprocess
import sys
import threading
import time
import zipfile

import numpy
import pytest
import sluice
from conftest import SlowServer
from sluice import _core

BITS = {"BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64, "F16": 16,
        "BF16": 16, "F32": 32, "F64": 64, "C64": 64, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4}
NUMPY = {"BOOL": "?", "U8": "u1", "I8": "i1", "U16": "u2", "I16": "i2", "U32": "u4", "I32": "i4", "U64": "u8",
         "I64": "i8", "F16": "f2", "F32": "f4", "F64": "f8", "C64": "c8"}


def write(path, tensors, metadata=None):
    """Writes {name: (type, shape)} with random bytes, and returns {name: bytes}."""
    rng = numpy.random.default_rng(len(tensors))
    header = {"__metadata__": metadata} if metadata else {}
    data = {}
    at = 0
    for name, (kind, shape) in tensors.items():
        count = 1
        for length in shape:
            count *= length
        data[name] = rng.integers(0, 2 if kind == "BOOL" else 256, count * BITS[kind] // 8, "u1").tobytes()
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + len(data[name])]}
        at += len(data[name])
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data.values()))
    return data


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.safetensors"
    shapes = {f"layer.{i}.{kind}": (kind, (3, i + 2)) for i, kind in enumerate(NUMPY)}
    shapes.update({"scalar": ("F32", ()), "empty": ("I32", (0, 5)), "large": ("F32", (1000, 300))})
    return path, shapes, write(path, shapes, {"format": "np"})


@pytest.mark.parametrize("allocate", ["blocks", "torch"])
def test_numpy(model, allocate):
    path, shapes, data = model
    found = sluice.load(path, framework="np", allocate=allocate)
    assert list(found) == list(shapes)
    for name, (kind, shape) in shapes.items():
        assert found[name].dtype == NUMPY[kind] and found[name].shape == shape
        assert found[name].tobytes() == data[name]


def test_names(model):
    path, shapes, _ = model
    assert set(sluice.load(path, framework="np", names="layer.*.F*")) == {n for n in shapes if ".F" in n}
    assert list(sluice.load(path, framework="np", names=["large", "scalar"])) == ["scalar", "large"]
    assert list(sluice.load(path, framework="np", names=lambda name: name == "empty")) == ["empty"]
    with pytest.raises(KeyError, match="'nothing'"):
        sluice.load(path, framework="np", names="nothing")


def test_types_that_numpy_lacks(tmp_path):
    path = tmp_path / "m.safetensors"
    data = write(path, {"b": ("BF16", (4,)), "f": ("F8_E4M3", (8,)), "four": ("F4", (4,))})
    found = sluice.load(path, framework="np", names=["b", "f"])
    assert {name: array.tobytes() for name, array in found.items()} == {"b": data["b"], "f": data["f"]}
    with pytest.raises(TypeError, match="F4"):
        sluice.load(path, framework="np")


def test_dtype(model):
    with numpy.errstate(invalid="ignore"):
        found = sluice.load(model[0], framework="np", dtype="float64", names=["large", "layer.0.BOOL"])
    assert found["large"].dtype == "f8" and found["layer.0.BOOL"].dtype == "?"


def test_sharded_index(tmp_path):
    data = {}
    weights = {}
    for shard in "ab":
        name = f"model-{shard}.safetensors"
        data.update(write(tmp_path / name, {f"{shard}{i}": ("F32", (i + 1, 7)) for i in range(9)}))
        weights.update({f"{shard}{i}": name for i in range(9)})
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weights}))
    for name in (index, os.fsencode(index)):
        assert {name: array.tobytes() for name, array in sluice.load(name, framework="np").items()} == data
    both = sluice.load([tmp_path / "model-a.safetensors", tmp_path / "model-b.safetensors"], framework="np")
    assert set(both) == set(data)


def test_names_of_files_may_be_bytes(tmp_path):
    name = os.fsencode(tmp_path / "a")
    with sluice.Writer(name + b".h5") as writer:
        writer.series("u", shape=3, dtype="f4").append(numpy.ones(3, "f4"))
    with sluice.open_array(name + b".h5#/u") as array:
        assert array.shape == (1, 3) and sluice.load_array(name + b".h5#/u", framework="np").sum() == 3
    assert len(sluice.Samples(name + b".h5#/u")) == 1 and sluice.Samples(name + b".h5", [(1, 3)], bytes)[0] == b"HDF"
    sluice.save({"x": numpy.arange(3)}, name + b".safetensors").wait()
    with sluice.safe_open(name + b".safetensors", "np") as file:
        assert list(file.keys()) == ["x"]
    assert sluice.load([name + b".safetensors"], framework="np")["x"][2] == 2
    with pytest.raises(FileNotFoundError):  # after more attempts
        sluice.load(name + b".json")


def test_npy_and_npz(tmp_path):
    array = numpy.arange(12.0).reshape(3, 4)
    numpy.save(tmp_path / "a.npy", array)
    numpy.savez(tmp_path / "a.npz", first=array, second=array.astype("i2"))
    assert (sluice.load(tmp_path / "a.npy", framework="np")["a"] == array).all()
    found = sluice.load(tmp_path / "a.npz", framework="np")
    assert (found["first"] == array).all() and found["second"].dtype == "i2" and set(found) == {"first", "second"}


def test_a_damaged_member_of_an_archive_is_refused(tmp_path, device_array, stream):
    path, rng = tmp_path / "a.npz", numpy.random.default_rng(1)
    arrays = {"a": numpy.arange(12, dtype="i2").reshape(3, 4), "b": rng.integers(0, 256, 70_001, "u1"),
              "none": numpy.zeros((0, 3)), "scalar": numpy.array(5.0)}
    numpy.savez(path, **arrays)
    whole = path.read_bytes()
    assert all((sluice.load(path, framework="np")[name] == array).all() for name, array in arrays.items())
    with zipfile.ZipFile(path) as archive:
        members = {info.filename[:-4]: info for info in archive.infolist()}
    for name, info in members.items():
        begin = info.header_offset + 30 + sum(struct.unpack("<HH", whole[info.header_offset + 26:][:4]))
        last = begin + info.file_size - 1
        array, directory = arrays[name], whole.index(b"PK\1\2")
        crc = whole.index(struct.pack("<I", info.CRC), directory)
        for at in {last, last - array.nbytes // 2, last - array.nbytes - 3, crc, crc + 3}:  # spaces end the header
            damaged = bytearray(whole)
            damaged[at] ^= 1 << int(rng.integers(8)) if array.nbytes and at > last - array.nbytes else 0x29
            path.write_bytes(damaged)
            with sluice.safe_open(path, "np") as f:
                for call, *arguments in ((sluice.load, path, "cpu"), (f.get_tensor, name),
                                         (sluice.load_into, {name: numpy.empty_like(array)}, path)):
                    options = {sluice.load: {"framework": "np", "names": name, "allocate": "blocks"},
                               sluice.load_into: {"strict": False}}.get(call, {})
                    with pytest.raises(OSError, match=f"'{name}': its CRC-32 is .{{8}}, and should be") as raised:
                        call(*arguments, **options)
                    assert raised.value.errno == errno.EBADMSG
                with pytest.raises(OSError, match=f"'{name}': its CRC-32"):
                    sluice.load(path, framework="np")
                others = [other for other in arrays if other != name]
                assert set(sluice.load(path, framework="np", names=others)) == set(others)
                if array.size > 1:  # a part has no sum
                    assert f.get_slice(name)[:1].shape == array[:1].shape
            if array.nbytes:
                for on in (None, stream):
                    sluice.load_into({name: device_array(array.nbytes)}, path, strict=False, stream=on)
            digest = hashlib.sha256(damaged).hexdigest()
            assert set(sluice.load(path, framework="np", verify={"a.npz": digest})) == set(arrays)


def test_load_into(model):
    path, shapes, data = model
    arrays = {name: numpy.empty(shape, NUMPY[kind]) for name, (kind, shape) in shapes.items()}
    assert sorted(sluice.load_into(arrays, path)) == sorted(shapes)
    assert {name: array.tobytes() for name, array in arrays.items()} == data
    with pytest.raises(ValueError, match="'large' is F32"):
        sluice.load_into({"large": numpy.empty((300, 1000), "f4")}, path, strict=False)
    with pytest.raises(ValueError, match="has 1200000 bytes, its destination 5"):
        sluice.load_into({"large": bytearray(5)}, path, strict=False)
    with pytest.raises(KeyError, match="not both"):
        sluice.load_into({"large": arrays["large"]}, path)
    with pytest.raises(BufferError):
        sluice.load_into({"large": numpy.empty((1000, 600), "f4")[:, ::2]}, path, strict=False)


def test_tied_tensors_are_no_names_that_are_missing(tmp_path):
    data = write(tmp_path / "m.safetensors", {"a": ("F32", (3, 4))})
    array, other = numpy.zeros((3, 4), "f4"), numpy.zeros((3, 4), "f4")
    for tensors in ({"a": array, "head": array}, {"a": array, "head": array[:]}):
        with pytest.raises(KeyError, match="1 names are not both .*head"):
            sluice.load_into(tensors, tmp_path / "m.safetensors")
        array[:] = 0
        assert sluice.load_into(tensors, tmp_path / "m.safetensors", tied=True) == ["a"]
        assert array.tobytes() == data["a"]
    for odd in (other, array.T, array[:2], array.view("i4"), bytearray(48)):
        with pytest.raises(KeyError, match="1 names are not both .*head"):
            sluice.load_into({"a": array, "head": odd}, tmp_path / "m.safetensors", tied=True)
    with pytest.raises(KeyError, match="1 names are not both .*: a"):
        sluice.load_into({}, tmp_path / "m.safetensors", tied=True)


def test_load_into_memory_of_a_device(model, device_array, stream):
    path, _, data = model
    for on in (None, stream):
        loaded = {name: device_array(len(data[name])) for name in ("large", "layer.3.U16", "scalar")}
        sluice.load_into(loaded, path, strict=False, stream=on)
        if on is not None:  # a read behind it, on the same stream, is over after it
            with sluice.open(path) as f:
                assert f.read_on(device_array(1), 0, stream).wait(60) == 1
        assert {name: array.get() for name, array in loaded.items()} == {name: data[name] for name in loaded}
    bounds = device_array(1000)
    with pytest.raises(ValueError, match="its destination 1000"):
        sluice.load_into({"large": bounds}, path, strict=False)


def test_a_load_on_a_stream_that_fails_is_reported_and_harms_no_other(model, device_array, stream, monkeypatch):
    path, _, data = model
    reported = queue.Queue()

    class Failing:
        def __init__(self, *_):
            pass

        def wait(self, _):
            raise OSError(errno.EIO, "it failed")

    with monkeypatch.context() as patched:
        patched.setattr(_core, "Load", Failing)
        patched.setattr(threading, "excepthook", reported.put)
        sluice.load_into({"scalar": device_array(4)}, path, strict=False, stream=stream)
        failure = reported.get(timeout=60)
    assert failure.exc_value.strerror == "it failed" and failure.thread.name == "sluice-load"
    assert sluice.load(path, framework="np", names="scalar")["scalar"].tobytes() == data["scalar"]


def test_a_load_that_is_dropped_ends_early(model):
    path, shapes, data = model
    slow = SlowServer(path.read_bytes())
    slow.go.set()
    tensors = _core.Tensors(sluice._context.default(), [slow.uri.encode()], [])
    slow.go.clear()
    begun = time.monotonic()
    load = _core.Load(tensors, [(list(shapes).index("large"), None, bytearray(len(data["large"])))], None, None, None)
    assert load.wait(100) is None
    del load
    assert time.monotonic() - begun < 20  # the server's answer comes after 60
    slow.go.set()
    slow.server.shutdown()
    slow.server.server_close()


def test_safe_open(model):
    path, shapes, data = model
    with sluice.safe_open(path, "np") as f:
        assert f.keys() == sorted(shapes) and f.metadata() == {"format": "np"} and f.offset_keys() == list(shapes)
        whole = f.get_tensor("large")
        part = f.get_slice("large")
        assert whole.tobytes() == data["large"] and part.get_shape() == [1000, 300] and part.get_dtype() == "F32"
        rng = numpy.random.default_rng(1)
        for _ in range(50):
            a, b = sorted(rng.integers(-5, 1006, 2).tolist())
            c, d = rng.integers(-310, 310, 2).tolist()
            cut = slice(c, d)
            step = int(rng.integers(1, 9))
            for index in (slice(a, b), (slice(a, b), cut), (..., cut), (slice(None), c % 300), -1, ..., [],
                          slice(a, b, step), (slice(None, None, step), slice(c, d, 7)), (3, slice(None, None, step))):
                assert part[index].tobytes() == whole[index].tobytes() and part[index].shape == whole[index].shape
        assert f.get_slice("scalar")[()].tobytes() == data["scalar"]
        for wrong, error in (((0, 0, 0), IndexError), (1000, IndexError), (slice(9, 0, -2), ValueError)):
            with pytest.raises(error):
                part[wrong]
        with pytest.raises(KeyError, match="no tensor is named 'x'"):
            f.get_tensor("x")
    with pytest.raises(ValueError, match="closed"):
        f.keys()


def test_any_part_of_any_tensor_comes_to_any_memory(tmp_path, device_array, stream):
    """Random models, in several files, read by every call: whole, in parts, tied, to host and device."""
    for _ in range(3000 if os.environ.get("STRESS") else 10):
        draw = random.Random(seed := random.randrange(1 << 32))
        print("seed", seed)
        data, shapes, files = {}, {}, []
        for number in range(draw.randrange(1, 4)):
            lengths = 0, 1, 2, 3, 7, 40, 500
            made = {f"{number}.{i}": (draw.choice(list(NUMPY)), draw.choices(lengths, k=draw.randrange(4)))
                    for i in range(draw.randrange(1, 9))}
            made = {name: (kind, shape) for name, (kind, shape) in made.items() if numpy.prod(shape) < 1 << 20}
            files.append(tmp_path / f"{seed}.{number}.safetensors")
            data |= write(files[-1], made)
            shapes |= made
        arrays = {name: numpy.frombuffer(data[name], NUMPY[kind]).reshape(shape)
                  for name, (kind, shape) in shapes.items()}
        chosen = draw.sample(list(shapes), draw.randrange(len(shapes) + 1))
        found = sluice.load(files, framework="np", names=chosen, allocate=draw.choice(("blocks", "torch")))
        assert set(found) == set(chosen)
        for name, array in found.items():
            assert (array.dtype, array.shape, array.tobytes()) == (arrays[name].dtype, arrays[name].shape, data[name])
        into = {name: numpy.empty_like(array) for name, array in arrays.items()}
        heads = {f"head{i}": into[name] for i, name in enumerate(chosen)}
        assert sorted(sluice.load_into(into | heads, files, tied=True)) == sorted(shapes)
        assert all(array.tobytes() == data[name] for name, array in into.items())
        places = {name: device_array(len(data[name])) for name in chosen if data[name]}
        on = draw.choice((None, stream))
        sluice.load_into(places, files, strict=False, stream=on)
        with sluice.safe_open(files, "np") as f:
            for name in draw.sample(list(shapes), min(5, len(shapes))):
                index = ()
                for n in shapes[name][1][:draw.randrange(4)]:
                    cut = slice(draw.randrange(-n - 2, n + 3), draw.randrange(-n - 2, n + 3), draw.randrange(1, 9))
                    index += (draw.randrange(-n, n) if n and draw.randrange(2) else cut,)
                index += (...,) * draw.randrange(2)
                part = f.get_slice(name)[index]
                want = arrays[name][index]
                assert part.tobytes() == want.tobytes() and part.shape == want.shape, (name, shapes[name], index)
        if on is not None and places:
            with sluice.open(files[0]) as f:  # a read behind it, on the same stream, is over after it
                assert f.read_on(device_array(1), 0, stream).wait(60) == 1
        assert all(array.get() == data[name] for name, array in places.items())
        for file in files:
            file.unlink()


def test_verify(model, tmp_path):
    path, _, data = model
    right = hashlib.sha256(path.read_bytes()).hexdigest()
    sums = tmp_path / "SHA256SUMS"
    sums.write_text(f"{right}  {path.name}\n")
    for verify in ({str(path): right}, sums):
        assert sluice.load(path, framework="np", verify=verify)["large"].tobytes() == data["large"]
    with pytest.raises(OSError, match=right[1:20]):
        sluice.load(path, framework="np", verify={path.name: "0" + right[1:] if right[0] != "0" else "1" + right[1:]})
    with pytest.raises(KeyError, match="no digest"):
        sluice.load(path, framework="np", verify={})
    counted = tmp_path / "counted.npy"
    numpy.save(counted, numpy.arange(300000, dtype="<u4"))
    sums.write_text("e185f526206c1ec33ee755a726c8c5df  counted.npy\n")  # as xxhsum -H2 prints it
    assert len(sluice.load(counted, framework="np", verify=sums)) == 1
    with pytest.raises(OSError, match="XXH3-128 e185f526206c1ec33ee755a726c8c5df"):
        sluice.load(counted, framework="np", verify={"counted.npy": "0" * 32})
    with pytest.raises(ValueError, match="64 digits"):
        sluice.load(path, framework="np", verify={path.name: "00"})


def test_wrong_input(model, tmp_path):
    damaged = tmp_path / "d.safetensors"
    damaged.write_bytes(model[0].read_bytes()[:-1])
    with pytest.raises(OSError, match="d.safetensors"):
        sluice.load(damaged, framework="np")
    with pytest.raises(FileNotFoundError, match="nothing.safetensors"):
        sluice.load(tmp_path / "nothing.safetensors", framework="np")
    for options in ({"framework": "jax"}, {"device": "cuda"}, {"allocate": "two"}):
        with pytest.raises(ValueError):
            sluice.load(model[0], **{"framework": "np", **options})
    with pytest.raises(TypeError, match="stream"):
        sluice.load(model[0], framework="np", stream=1)


def test_a_stream_serves_no_tensors_too():
    torch = object.__new__(sluice._libraries.Torch)
    assert torch.stream([], 5) == 5
    assert torch.stream([], None) is None


def test_many_loads_leave_nothing(model):
    def load():
        with sluice.safe_open(model[0], "np") as f:
            f.get_tensor("large")

    load()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(200):
        load()
    assert len(os.listdir("/proc/self/fd")) == before


TORCH = """
import json, sys, torch, sluice
path, = sys.argv[1:]
found = sluice.load(path)
apart = sluice.load(path, allocate="torch")
for name, tensor in found.items():
    raw = tensor.contiguous().view(torch.uint8) if tensor.dim() else tensor.reshape(1).view(torch.uint8)
    other = apart[name] if tensor.dim() else apart[name].reshape(1)
    assert torch.equal(raw, other.contiguous().view(torch.uint8)) and apart[name].dtype == tensor.dtype
    print(json.dumps([name, str(tensor.dtype), list(tensor.shape), raw.flatten().numpy().tobytes().hex()]))
sluice.load_into(found, path)
"""


def torch_types():
    torch = pytest.importorskip("torch")
    return [*NUMPY, "BF16", "F8_E4M3", "F8_E5M2", *(["F8_E8M0"] if hasattr(torch, "float8_e8m0fnu") else [])]


def test_torch(tmp_path):
    shapes = {f"t.{kind}": (kind, (4, 6)) for kind in torch_types()}
    shapes["scalar"] = ("BF16", ())
    path = tmp_path / "m.safetensors"
    data = write(path, shapes)
    ran = subprocess.run([sys.executable, "-c", TORCH, path], capture_output=True, text=True, env=os.environ)
    assert ran.returncode == 0, ran.stderr
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert {row[0]: bytes.fromhex(row[3]) for row in rows} == data
    assert all(tuple(row[2]) == shapes[row[0]][1] for row in rows)


PATCH = """
import sys
import safetensors, safetensors.numpy
from safetensors import safe_open
import numpy
safetensors.numpy.save_file({"a": numpy.arange(6.0).reshape(2, 3)}, sys.argv[1], {"by": "safetensors"})
import sluice
sluice.patch_safetensors()
assert issubclass(safe_open, sluice.safe_open) and safetensors.safe_open is safe_open
with safe_open(sys.argv[1], framework="np") as f:
    assert f.metadata() == {"by": "safetensors"} and (f.get_slice("a")[1:] == [[3, 4, 5]]).all()
assert safetensors.numpy.load_file(sys.argv[1])["a"].sum() == 15
if "torch" in sys.modules or sys.argv[2:]:
    import safetensors.torch
    assert safetensors.torch.load_file(sys.argv[1])["a"].sum() == 15
"""


PATCHED = r"""
import json, os, random, struct, sys, warnings
import numpy, safetensors, safetensors.numpy
import sluice
path = sys.argv[1]
plain, error, plain_load = safetensors.safe_open, safetensors.SafetensorError, safetensors.numpy.load_file
assert sluice.patched() == {}
sluice.patch_safetensors()
sluice.patch_safetensors()
warnings.simplefilter("ignore")
newer = hasattr(plain, "get_tensors")
rng = random.Random(int(sys.argv[2]))

def outcome(call):
    try:
        found = call()
    except Exception as raised:
        return error if isinstance(raised, error) else type(raised)
    if isinstance(found, dict):
        return {name: (getattr(value, "dtype", 0), getattr(value, "shape", 0), value.tobytes()
                       if hasattr(value, "dtype") else value) for name, value in found.items()}
    return (found.dtype, found.shape, found.tobytes()) if hasattr(found, "dtype") else found

def write(header, data):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)

def drawn_index(shape):
    def part(length):
        match rng.randrange(8):
            case 0: return rng.randrange(-length - 2, length + 2)
            case 1: return slice(None)
            case 2: return slice(rng.randrange(length + 2), None)
            case 3: return slice(None, rng.randrange(-1, length + 2))
            case 4 if newer: return slice(None, None, rng.choice([1, 2, 3, 100]))
            case 5 if newer: return slice(rng.randrange(length + 1), length, rng.choice([0, -1, 2, 5]))
            case _:
                bounds = sorted((rng.randrange(length + 1), rng.randrange(length + 1)))
                return slice(*bounds)
    parts = tuple(part(length) for length in shape[:rng.randrange(len(shape) + 1)])
    match rng.randrange(8):
        case 0: return ... if newer else slice(None)
        case 1: return parts + (...,) if newer else parts
        case 2: return []
        case 3: return rng.choice([[0], "x", None, True, 1.5, parts + (slice(None),) * 9])
        case 4 if parts: return parts[0]
        case _: return parts

def compare(make, what):
    ours, theirs = outcome(lambda: make(safetensors.safe_open)), outcome(lambda: make(plain))
    assert ours == theirs or (isinstance(ours, type) and isinstance(theirs, type)), (what, ours, theirs)

for round in range(int(sys.argv[3])):
    header, data = {}, b""
    for i in range(rng.randrange(1, 4)):
        kind, size = rng.choice([("F32", 4), ("U8", 1), ("I64", 8), ("F16", 2), ("BOOL", 1)])
        shape = [rng.randrange(6) for _ in range(rng.randrange(4))]
        count = size
        for length in shape:
            count *= length
        header[f"t{i}"] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + count]}
        data += bytes(rng.randrange(2) for _ in range(count))
    good, name = dict(header), rng.choice(list(header))
    text = None
    match rng.randrange(12):
        case 0: header[name] = {**header[name], "more": [{"a": None}, 1.5]}
        case 1: header["__metadata__"] = rng.choice([None, {}, {"a": "b"}, {"a": 1}, [], "x"])
        case 2: header[name] = {**header[name], "dtype": rng.choice(["F99", "", None, "F8_E4M3FNUZ", "BF16", "F4"])}
        case 3: header[name] = {**header[name], "shape": rng.choice([[1] * 20, [-1], [1.0], [2**63, 2**63, 2], None])}
        case 4: header[name] = {**header[name], "data_offsets": rng.choice([[0], [5, 1], [0, 10**9], [0, 2**64], None])}
        case 5: data += b"x"
        case 6: data = data[:-1]
        case 7:
            names = [b'"\\ud800"', b'"\\udc00x"', b'"\\ud83d\\ude00"', b'"\xff"', b'"\\\\ud800"']
            text = json.dumps(header).encode().replace(b'"t0"', rng.choice(names))
        case 8: text = json.dumps(header).encode() + rng.choice([b" ", b"x", b"}", b"\n\t "])
        case 9: text = json.dumps(header).encode()[:-1]
    write(text or header, data)
    for what in ("keys", "metadata"):
        if what != "metadata" or header.get("__metadata__") != {}:
            compare(lambda opener: getattr(opener(path, framework="np"), what)(), (what, header))
    compare(lambda opener: {name: (f := opener(path, framework="np")).get_tensor(name) for name in good}, header)
    assert outcome(lambda: safetensors.numpy.load_file(path)) == outcome(lambda: plain_load(path)), (header, text)
    write(good, data := b"".join([bytes(end - start) for start, end in (row["data_offsets"] for row in good.values())]))
    for _ in range(8):
        index = drawn_index(good[name]["shape"])
        compare(lambda opener: opener(path, framework="np").get_slice(name)[index], (good[name], index))
    compare(lambda opener: opener(path, framework="np").get_tensor("nothing"), "an absent name")

warnings.simplefilter("error")
f = safetensors.safe_open(path, framework="np")
assert isinstance(f, sluice.safe_open)
kept = f.get_slice(name)
with f:
    pass
kept[:0] if kept.get_shape() else kept[()]
for call in (f.keys, lambda: f.get_tensor(name), lambda: f.get_slice(name)):
    try:
        call()
    except error as closed:
        assert str(closed) == "File is closed"
    else:
        raise AssertionError("it is closed")
try:
    safetensors.safe_open("http://127.0.0.1:1/x", framework="np")
except error as absent:
    assert isinstance(absent, OSError) and "127.0.0.1" in str(absent)
for wrong in ({"framework": "odd"}, {"framework": "np", "device": "odd"}, {"framework": "np", "backend": "odd"},
              {"framework": "np", "more": 1}):
    try:
        safetensors.safe_open(path, **wrong)
    except (error, TypeError):
        pass
    else:
        raise AssertionError(wrong)
write({"a": {"dtype": "U8", "shape": [1] * 20, "data_offsets": [0, 1]}}, b"x")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(3):
        assert safetensors.numpy.load_file(path)["a"].shape == (1,) * 20
assert len(caught) == 1 and "more than 16 dimensions" in str(caught[0].message), [str(one.message) for one in caught]
assert any("more than 16" in what and who == "safetensors" for what, who in sluice.patched().items())
assert sluice.patched()["safetensors.numpy.load_file"] == "sluice"
"""


def test_what_is_patched_is_as_it_was(tmp_path):
    """Headers and slices that are drawn: the same result as of safetensors, or both refuse."""
    pytest.importorskip("safetensors")
    rounds = 2000 if os.environ.get("SLUICE_TEST_ROUNDS") == "all" else 40
    ran = subprocess.run([sys.executable, "-c", PATCHED, tmp_path / "p.safetensors", str(rounds), str(rounds)],
                         capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_patch_safetensors(tmp_path):
    pytest.importorskip("safetensors")
    ran = subprocess.run([sys.executable, "-c", PATCH, tmp_path / "p.safetensors"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
