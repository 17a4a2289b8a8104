# SPDX-License-Identifier: Apache-2.0
"""Slices for ranks: load() and load_into() with slices=, for several ranks of a process and for one."""

import functools
import itertools
import os
import random
import urllib.parse
import warnings

import numpy
import pytest
import sluice
from conftest import FileServer
from test_tensors import BITS, NUMPY, write

ROUNDS = 60 if os.environ.get("STRESS") else 12
SEED = int(os.environ.get("SEED", random.randrange(1 << 30)))


def of_rank(array, dimension, rank, ranks):
    """The slice of a rank, by numpy."""
    if dimension is None:
        return array
    n = array.shape[dimension]
    return numpy.moveaxis(numpy.moveaxis(array, dimension, 0)[n * rank // ranks:n * (rank + 1) // ranks], 0, dimension)


def same(found, expected):
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape, name
        assert found[name].tobytes() == array.tobytes(), name


def by_chance(path, rng, count):
    """A file of tensors by chance, and the arrays."""
    shapes = {f"t.{i}.{kind}": (kind, [rng.choice((0, 1, 2, 3, 5, 8, 33)) for _ in range(rng.randrange(4))])
              for i, kind in enumerate(rng.choices(list(NUMPY), k=count))}
    shapes["rows"] = ("I16", [rng.randrange(1, 3000), rng.randrange(1, 70)])
    data = write(path, shapes)
    return {name: numpy.frombuffer(data[name], NUMPY[kind]).reshape(shape) for name, (kind, shape) in shapes.items()}


def test_slices_are_those_of_numpy(tmp_path):
    rng = random.Random(SEED)
    print("SEED", SEED)
    path = tmp_path / "m.safetensors"
    for _ in range(ROUNDS):
        arrays = by_chance(path, rng, 30)
        slices = {name: rng.randrange(-array.ndim, array.ndim) if rng.random() < 0.8 else None
                  for name, array in arrays.items() if array.ndim and rng.random() < 0.9}
        ranks = rng.randrange(1, 6)
        expected = [{name: of_rank(array, slices.get(name), rank, ranks) for name, array in arrays.items()}
                    for rank in range(ranks)]
        options = {"slices": slices, "framework": "np", "allocate": rng.choice(("torch", "blocks"))}
        some = sorted(rng.sample(range(ranks), rng.randrange(1, ranks + 1)), key=lambda _: rng.random())
        found = sluice.load(path, dict.fromkeys(some, "cpu"), ranks=ranks, **options)
        assert list(found) == some
        for rank in some:
            same(found[rank], expected[rank])
        same(sluice.load(path, rank=some[0], ranks=ranks, **options), expected[some[0]])
        into = {rank: {name: numpy.empty_like(array) for name, array in expected[rank].items()} for rank in some}
        assert sluice.load_into(into, path, slices=slices, ranks=ranks) == list(arrays)
        for rank in some:
            same(into[rank], expected[rank])
        one = {name: numpy.empty_like(array) for name, array in expected[some[-1]].items()}
        sluice.load_into(one, path, slices=slices, rank=some[-1], ranks=ranks)
        same(one, expected[some[-1]])


def test_slices_are_those_of_torch(tmp_path):
    torch, safetensors = pytest.importorskip("torch"), pytest.importorskip("safetensors")
    rng = random.Random(SEED)
    path = tmp_path / "m.safetensors"
    for _ in range(ROUNDS):
        shapes = {f"{i}": (kind, [rng.choice((1, 2, 3, 8, 33)) for _ in range(rng.randrange(1, 4))])
                  for i, kind in enumerate([*NUMPY, "BF16", "F8_E4M3", "F8_E5M2"])}
        write(path, shapes)
        ranks, slices = rng.randrange(1, 6), {name: rng.randrange(len(shape)) for name, (_, shape) in shapes.items()}
        found = sluice.load(path, dict.fromkeys(range(ranks), "cpu"), slices=slices)
        with safetensors.safe_open(path, "pt") as f:
            for rank, (name, dimension) in itertools.product(range(ranks), slices.items()):
                n = shapes[name][1][dimension]
                part = slice(n * rank // ranks, n * (rank + 1) // ranks)
                theirs = f.get_slice(name)[(slice(None),) * dimension + (part,)]
                ours = found[rank][name]
                assert ours.dtype == theirs.dtype and ours.shape == theirs.shape and ours.is_contiguous()
                assert torch.equal(ours.view(torch.uint8), theirs.contiguous().view(torch.uint8))


def test_the_first_pattern_wins(tmp_path):
    path = tmp_path / "m.safetensors"
    write(path, {name: ("U8", (4, 6)) for name in ("a.q.weight", "a.norm.weight", "b.o.weight", "B.q")})

    def shapes(slices):
        found = sluice.load(path, {0: "cpu", 1: "cpu"}, slices=slices, framework="np")
        assert {name: array.shape for name, array in found[0].items()} == {n: a.shape for n, a in found[1].items()}
        return [array.shape for array in found[0].values()]

    whole, rows, columns = (4, 6), (2, 6), (4, 3)
    assert shapes(None) == shapes({}) == [whole] * 4
    with pytest.warns(UserWarning, match="slices: no tensor is named 'weight', 'a'") as warned:
        assert shapes({"weight": 0, "a": 1}) == [whole] * 4
    assert warned[0].filename == __file__
    assert shapes({"*.q.*": 0, "*.norm.*": None, "*": 1}) == [rows, whole, columns, columns]
    with pytest.warns(UserWarning, match="b.\\[q"):
        assert shapes({"*.weight": 0, "a.*": 1, "b.[q]": 1}) == [rows, rows, rows, whole]
    assert shapes({"?.q": 0}) == [whole, whole, whole, rows]
    with pytest.warns(UserWarning, match="b.?"):
        assert shapes({"b.?": 1}) == [whole] * 4
    with warnings.catch_warnings(action="error"):  # names= leaves tensors out, and not patterns
        sluice.load(path, {0: "cpu"}, slices={"b.*": 0}, names="B.q", framework="np")


def test_what_cannot_be_sliced_is_named(tmp_path):
    path = tmp_path / "m.safetensors"
    write(path, {"odd": ("F32", (5, 4)), "scalar": ("F32", ()), "none": ("F32", (0, 4))})
    two = {0: "cpu", 1: "cpu"}

    def refused(says, device=two, **options):
        with pytest.raises(ValueError, match=says):
            sluice.load(path, device, framework="np", **options)

    refused("'odd': dimension 0 has 5 elements, which 2 ranks do not divide", slices={"o*": 0}, even=True)
    refused("'odd': dimension -2 has 5 elements", slices={"o*": -2}, even=True)
    found = sluice.load(path, two, slices={"o*": -1, "none": 0}, even=True, framework="np")
    assert found[1]["odd"].shape == (5, 2) and found[1]["none"].shape == (0, 4)
    for dimension in (2, -3, 1 << 20):
        refused(f"'odd' has 2 dimensions, and no number {dimension}", slices={"odd": dimension})
    for dimension in (1 << 31, -(1 << 31) - 1, 1 << 80):
        refused(f"no tensor has a dimension {dimension}, as 'o", slices={"odd": dimension})
    refused("'scalar' has 0 dimensions, and no number 0", slices={"*": 0})
    assert sluice.load(path, two, slices={"*": 0}, names="odd", framework="np")[0]["odd"].shape == (2, 4)
    refused("no rank 2 of 2", {0: "cpu", 2: "cpu"})
    refused("no rank -1 of 2", {-1: "cpu", 0: "cpu"})
    refused("no rank 1 of 1", ranks=1)
    refused("no rank 0 of 0", "cpu", rank=0, ranks=0)
    refused("no rank 0 of -1", "cpu", rank=0, ranks=-1)
    refused("no rank 1 of 4294967298", "cpu", rank=1, ranks=(1 << 32) + 2)
    refused("there are no ranks", {})
    refused("rank= and ranks= go together", "cpu", ranks=2)
    refused("rank= and ranks= go together", "cpu", rank=2)
    refused("rank= is for a process with one rank", rank=0, ranks=2)
    refused("slices= is for ranks", "cpu", slices={"*": 0})
    refused("stream= is for one device", stream=1)
    for slices in ({"*": "0"}, {"*": 0.5}, [("*", 0)], "*", {0: 0}):
        with pytest.raises(TypeError):
            sluice.load(path, two, slices=slices, framework="np")
    for options in ({"device": {"0": "cpu"}}, {"rank": 0.5, "ranks": 2}, {"rank": 0, "ranks": 2.0}):
        with pytest.raises(TypeError):
            sluice.load(path, framework="np", **options)
    into = {"odd": numpy.empty((5, 4), "f4")}
    with pytest.raises(ValueError, match=r"'odd' is F32 \[2, 4\] in the file, and float32 \[5, 4\] in memory"):
        sluice.load_into(into, path, strict=False, slices={"odd": 0}, rank=0, ranks=2)
    with pytest.raises(KeyError, match="2 names"):
        sluice.load_into({0: into, 1: into}, path)
    with pytest.raises(ValueError, match="stream= is for one device"):
        sluice.load_into({0: into, 1: into}, path, strict=False, stream=1)


def test_types_below_a_byte_are_cut_at_bytes(tmp_path):
    path = tmp_path / "m.safetensors"
    shapes = {"four": ("F4", (6, 4)), "six": ("F6_E2M3", (4, 8))}
    BITS.setdefault("F6_E2M3", 6)
    data = write(path, shapes)
    rows = {rank: {"four": bytearray(6), "six": bytearray(12)} for rank in range(2)}
    sluice.load_into(rows, path, slices={"*": 0})
    assert all(bytes(rows[0][name] + rows[1][name]) == data[name] for name in shapes)
    columns = {rank: {"four": bytearray(6), "six": bytearray(12)} for rank in range(2)}
    sluice.load_into(columns, path, slices={"*": 1})
    for name, n in (("four", 2), ("six", 6)):
        lines = [data[name][i:i + n] for i in range(0, len(data[name]), n)]
        for rank in range(2):
            assert bytes(columns[rank][name]) == b"".join(line[n // 2 * rank:n // 2 * (rank + 1)] for line in lines)
    for name, count in (("four", 12 // 4), ("six", 24 // 4)):
        with pytest.raises(ValueError, match=f"'{name}': the range of dimension 1 does not begin and end at a byte"):
            sluice.load_into({name: bytearray(count)}, path, strict=False, slices={"*": 1}, rank=1, ranks=4 + 4 * (
                name == "six"))


class Counted(FileServer):
    """A server of a folder that counts the bytes of files that it sends."""

    def __init__(self, folder):
        super().__init__(folder)
        handler, served = self.server.RequestHandlerClass, self
        self.sent, answer = 0, handler.answer

        def counted(handler, status, body=b"", **fields):
            served.sent += len(body) if handler.command == "GET" else 0
            answer(handler, status, body, **fields)

        handler.answer = counted


@pytest.fixture
def counted(tmp_path):
    served = Counted(tmp_path)
    yield served
    served.server.shutdown()
    served.server.server_close()


SIZE = 1 << 20
MODEL = {"down": ("F16", (64, 8192)), "up": ("F16", (512, 1024)), "norm": ("F32", (1 << 18,))}
SLICES = {"down": 1, "up": 0}


def test_a_server_sends_what_ranks_need_once(counted, tmp_path, device_array):
    data = write(tmp_path / "m.safetensors", MODEL)
    arrays = {name: numpy.frombuffer(data[name], NUMPY[kind]).reshape(shape) for name, (kind, shape) in MODEL.items()}
    uri, least = counted.uri + "/m.safetensors", 3 * SIZE

    def sent(call):
        counted.sent = 0
        result = call()
        return counted.sent, result

    count, found = sent(lambda: sluice.load(uri, dict.fromkeys(range(4), "cpu"), slices=SLICES, framework="np"))
    assert least <= count < least * 1.1
    for rank in range(4):
        same(found[rank], {name: of_rank(array, SLICES.get(name), rank, 4) for name, array in arrays.items()})
    for (name, dimension), rank in itertools.product((("down", 1), ("up", 0), ("norm", 0)), (0, 3)):
        options = {"slices": {name: dimension}, "names": name, "framework": "np"}
        count, found = sent(functools.partial(sluice.load, uri, rank=rank, ranks=4, **options))
        assert SIZE / 4 <= count < SIZE / 4 * 2.2  # bytes beside columns are read if they are few
        same(found, {name: of_rank(arrays[name], dimension, rank, 4)})
    places = [{name: device_array(of_rank(array, SLICES.get(name), rank, 2).nbytes, device=f"emulated:{rank}")
               for name, array in arrays.items()} for rank in range(2)]
    count, _ = sent(lambda: sluice.load_into(dict(enumerate(places)), uri, slices=SLICES))
    assert least <= count < least * 1.1
    places[1] = {name: device_array(array.n) for name, array in places[1].items()}  # both are on one device
    count, _ = sent(lambda: sluice.load_into(dict(enumerate(places)), uri, slices=SLICES))
    assert least <= count < least * 1.1
    for rank, name in itertools.product(range(2), MODEL):
        assert places[rank][name].get() == of_rank(arrays[name], SLICES.get(name), rank, 2).tobytes()


def test_slices_of_a_collection_an_archive_and_checked_files(tmp_path, daemon, store):
    rng = numpy.random.default_rng(3)
    arrays = {"a": rng.integers(0, 99, (50, 40), "i4"), "b": rng.integers(0, 99, 7, "i8")}
    numpy.savez(tmp_path / "m.npz", **arrays)
    sluice.publish("m", arrays, store=store)
    sluice.save(arrays, tmp_path / "m.safetensors", digests=tmp_path / "sums").wait()
    for files, verify in ((f"store://m?socket={urllib.parse.quote(daemon.path)}", None), (tmp_path / "m.npz", None),
                          (tmp_path / "m.safetensors", tmp_path / "sums")):
        found = sluice.load(files, dict.fromkeys(range(3), "cpu"), slices={"a": 1, "b": 0}, framework="np", dtype="f4",
                            verify=verify)
        for rank in range(3):
            same(dict(sorted(found[rank].items())),
                 {name: of_rank(array, {"a": 1, "b": 0}[name], rank, 3) for name, array in arrays.items()})
