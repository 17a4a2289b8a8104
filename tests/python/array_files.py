# SPDX-License-Identifier: Apache-2.0
"""HDF5 files of h5py with each type, layout and filter that it makes: DATASETS by name, and why others are refused; and
selections at random.

A dataset's maker gets a file and the name. Filters of hdf5plugin are those of the plugin that is installed, if one is.
"""
import functools

import h5py
import numpy as np

try:
    import hdf5plugin
except ImportError:
    hdf5plugin = None

NUMBERS = [order + kind for kind in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16")
           for order in "<>" if not (order == ">" and kind[1] == "1" and len(kind) == 2)]
COMPOUNDS = {
    "plain": np.dtype([("x", "<f4"), ("n", "<i8"), ("name", "S5")]),
    "padded": np.dtype([("a", "i1"), ("b", "<f8"), ("c", "<i2")], align=True),
    "nested": np.dtype([("at", [("x", "<f4"), ("y", ">f4")]), ("v", "<i2", (2, 3)), ("good", "?")]),
    "complex": np.dtype([("z", "<c8"), ("u", "<u2")]),
}


def numbers(shape, dtype, seed=1):
    """Noise of a type, of which half is alike, so that filters have something to do."""
    dtype, random = np.dtype(dtype), np.random.default_rng(seed)
    count = int(np.prod(shape, dtype=int))
    if dtype.names:
        found = np.zeros(shape, dtype)
        for number, name in enumerate(dtype.names):
            part = dtype[name]
            found[name] = numbers((*shape, *part.shape), part.base, seed + number)
        return found
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(dtype)
    if dtype.kind == "S":
        return random.choice([b"", b"a", b"ethanol"], shape).astype(dtype)
    if dtype.kind == "V":
        return np.frombuffer(random.bytes(count * dtype.itemsize), dtype).reshape(shape)
    found = np.round(random.standard_normal(count) * 50)
    found[::2] = np.arange(count)[::2] // 7
    if dtype.kind == "c":
        found = found - 2j * found
    elif dtype.kind == "u":
        found = np.abs(found)
    with np.errstate(over="ignore"):
        return (found % 100 if dtype.itemsize == 1 else found).astype(dtype).reshape(shape)


def plain(file, name, *, shape=(13, 17), dtype="<f4", **options):
    file.create_dataset(name, data=numbers(shape, dtype), **options)


def partly(file, name, *, shape=(20, 30), dtype="<i4", **options):
    """Chunks, or all, that were never written, between others."""
    made = file.create_dataset(name, shape, dtype, **options)
    if options.get("chunks"):
        made[3:9, 2:25] = numbers((6, 23), dtype)


def low(file, name, *, shape=(13, 17), dtype="<f4", layout=None, early=False, filters=(), chunks=None, fill=None,
        write=True):
    """By the calls below h5py's own."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if layout is not None:
        plist.set_layout(layout)
    if chunks:
        plist.set_chunk(chunks)
    if early:
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    if fill is not None:
        plist.set_fill_value(np.array(fill, dtype))
    for call in filters:
        call(plist)
    kind = dtype if isinstance(dtype, h5py.h5t.TypeID) else h5py.h5t.py_create(np.dtype(dtype))
    made = h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create_simple(shape), plist)
    if write:
        of_array = (2, 3) if isinstance(kind, h5py.h5t.TypeArrayID) else ()
        data = numbers((*shape, *of_array), "<u2" if kind is dtype else dtype)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, data, mtype=kind if kind is dtype else None)


def masked(file, name):
    """Chunks that lack filters: the second lacks both, the third shuffle."""
    import zlib
    data = numbers((4, 8), "<i4")
    made = file.create_dataset(name, data.shape, data.dtype, chunks=(1, 8), shuffle=True, compression="gzip")
    shuffled = [row.view("u1").reshape(8, 4).T.tobytes() for row in data]
    made.id.write_direct_chunk((0, 0), zlib.compress(shuffled[0]), 0)
    made.id.write_direct_chunk((1, 0), data[1].tobytes(), 3)
    made.id.write_direct_chunk((2, 0), zlib.compress(data[2].tobytes()), 1)
    made.id.write_direct_chunk((3, 0), shuffled[3], 2)


def float16_of(bits):
    """A type of floats with the bits of bfloat16."""
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_fields(15, 7, bits, 0, 7)
    kind.set_size(2)
    kind.set_precision(16)
    kind.set_offset(0)
    kind.set_ebias(127)
    return kind


def bfloat16(file, name):
    low(file, name, dtype=float16_of(8), layout=h5py.h5d.CHUNKED, chunks=(5, 5), filters=[lambda p: p.set_deflate(1)])


def links(file, name):
    """A soft link to a dataset in a group, and one through a group."""
    plain(file, name + ".groups/a/b", chunks=(4, 4))
    file[name] = h5py.SoftLink(f"/{name}.groups/a/b")


def linked(file, name):
    """An external link to a file beside."""
    with h5py.File(file.filename + ".other", "w") as other:
        plain(other, "there", chunks=(4, 17), compression="gzip")
    file[name] = h5py.ExternalLink(file.filename.rpartition("/")[2] + ".other", "/there")


def external(file, name):
    raw = file.filename + ".raw"
    data = numbers((13, 17), "<f4")
    with open(raw, "wb") as out:
        out.write(b"head" + data.tobytes())
    file.create_dataset(name, data.shape, data.dtype, external=[(raw, 4, data.nbytes)])


def grown(file, name, **options):
    """Grown and shrunk, so that its last chunks are partly behind the end."""
    made = file.create_dataset(name, (5, 9), "<i2", maxshape=(None, None), chunks=(4, 4), **options)
    made[...] = 7
    made.resize((11, 10))
    made[...] = numbers((11, 10), "<i2")
    made.resize((10, 7))


def virtual(file, name, *, shape, blocks, dtype="<f4", fill=None):
    """Blocks of datasets of the file, or of one of 13 rows and 17 columns beside it."""
    path = f"{file.filename}.source{np.dtype(dtype).itemsize}"
    beside = path.rpartition("/")[2]
    with h5py.File(path, "w") as other:
        plain(other, "chunks", dtype=dtype, chunks=(4, 5), compression="gzip")
        plain(other, "plain", dtype=dtype)
        plain(other, "column", shape=(13, 1, 17), dtype=dtype, chunks=(5, 1, 9))
    layout = h5py.VirtualLayout(shape, dtype)
    for target, source, there, *part in blocks:
        whole = h5py.VirtualSource(file.filename if source.startswith("layout/") else beside, source, there)
        layout[target] = whole[part[0]] if part else whole
    file.create_virtual_dataset(name, layout, fillvalue=fill)


S = np.s_
DATASETS = {f"type/{dtype}": functools.partial(plain, dtype=dtype, chunks=(4, 5), shuffle=True, compression="gzip")
            for dtype in [*NUMBERS, "?", "S1", "S7", "V3"]}
DATASETS |= {f"compound/{name}": functools.partial(plain, dtype=dtype, chunks=(4, 5), compression="gzip")
             for name, dtype in COMPOUNDS.items()}
DATASETS |= {f"compound/contiguous {name}": functools.partial(plain, dtype=dtype) for name, dtype in COMPOUNDS.items()}
DATASETS |= {
    "type/enum": functools.partial(plain, dtype=h5py.enum_dtype({"A": 0, "B": 1, "C": 50}, basetype="i2")),
    "type/bfloat16": bfloat16,
    "type/opaque": functools.partial(plain, dtype=h5py.opaque_dtype(np.dtype("V6"))),
    "type/array": functools.partial(low, dtype=h5py.h5t.array_create(h5py.h5t.STD_U16LE, (2, 3))),
    "layout/contiguous": plain,
    "layout/contiguous, empty": functools.partial(partly, fillvalue=-5),
    "layout/compact": functools.partial(low, layout=h5py.h5d.COMPACT),
    "layout/external": external,
    "layout/scalar": functools.partial(plain, shape=()),
    "layout/scalar, compact": functools.partial(low, shape=(), layout=h5py.h5d.COMPACT),
    "layout/without elements": functools.partial(plain, shape=(0, 5)),
    "layout/without elements, chunks": functools.partial(plain, shape=(0, 5), chunks=(4, 5), maxshape=(None, 5)),
    "layout/one dimension": functools.partial(plain, shape=(1000,), chunks=(64,), compression="gzip"),
    "layout/five dimensions": functools.partial(plain, shape=(3, 4, 5, 2, 6), chunks=(2, 2, 5, 1, 4),
                                                compression="gzip"),
    "layout/single chunk": functools.partial(plain, chunks=(13, 17)),
    "layout/single chunk, filtered": functools.partial(plain, chunks=(13, 17), compression="gzip"),
    "layout/chunk larger than the shape": functools.partial(plain, chunks=(20, 30), maxshape=(None, None),
                                                             compression="gzip"),
    "layout/early": functools.partial(low, layout=h5py.h5d.CHUNKED, chunks=(4, 4), early=True),
    "layout/fixed array": functools.partial(plain, chunks=(4, 4)),
    "layout/fixed array, many": functools.partial(plain, shape=(200, 200), chunks=(2, 3), compression="gzip"),
    "layout/extensible array": functools.partial(plain, chunks=(4, 4), maxshape=(None, 17)),
    "layout/extensible array, many": functools.partial(plain, shape=(3000, 3), chunks=(1, 3), maxshape=(None, 3),
                                                       compression="gzip"),
    "layout/tree": functools.partial(plain, chunks=(4, 4), maxshape=(None, None)),
    "layout/tree, many": functools.partial(plain, shape=(200, 90), chunks=(2, 3), maxshape=(None, None),
                                           compression="gzip"),
    "layout/grown": grown,
    "layout/grown, filtered": functools.partial(grown, compression="gzip", fletcher32=True),
    "fill/some chunks": functools.partial(partly, chunks=(4, 7), fillvalue=-5, compression="gzip"),
    "fill/some chunks, unlimited": functools.partial(partly, chunks=(4, 7), fillvalue=9, maxshape=(None, None)),
    "fill/zeros": functools.partial(partly, chunks=(4, 7)),
    "fill/no chunk": functools.partial(low, chunks=(4, 4), layout=h5py.h5d.CHUNKED, fill=2.5, write=False),
    "fill/compound": functools.partial(low, dtype=COMPOUNDS["plain"], chunks=(4, 4), layout=h5py.h5d.CHUNKED,
                                       write=False, fill=(1.5, 3, b"fill")),
    "filter/deflate 9": functools.partial(plain, compression="gzip", compression_opts=9),
    "filter/shuffle alone": functools.partial(plain, chunks=(4, 4), shuffle=True),
    "filter/fletcher32": functools.partial(plain, chunks=(5, 6), fletcher32=True),
    "filter/fletcher32, odd": functools.partial(plain, dtype="i1", chunks=(5, 5), fletcher32=True),
    "filter/shuffle deflate fletcher32": functools.partial(plain, chunks=(5, 6), shuffle=True, compression="gzip",
                                                           fletcher32=True),
    "filter/lzf": functools.partial(plain, shape=(60, 70), chunks=(20, 30), compression="lzf"),
    "filter/shuffle lzf": functools.partial(plain, shape=(60, 70), chunks=(20, 30), compression="lzf", shuffle=True),
    "filter/fletcher32 first": functools.partial(low, layout=h5py.h5d.CHUNKED, chunks=(5, 6), filters=[
        lambda p: p.set_fletcher32(), lambda p: p.set_deflate(1)]),
    "filter/masked": masked,
    "virtual/stacked": functools.partial(virtual, shape=(4, 13, 17), blocks=[
        (i, ("chunks", "plain", "layout/contiguous", "chunks")[i], (13, 17)) for i in range(4)]),
    "virtual/stacked last": functools.partial(virtual, shape=(13, 17, 3), fill=-2, blocks=[
        (S[:, :, i], ("chunks", "missing", "plain")[i], (13, 17)) for i in range(3)]),
    "virtual/stacked between": functools.partial(virtual, shape=(13, 3, 17), blocks=[
        (S[:, i], ("chunks", "plain", "chunks")[i], (13, 17)) for i in range(3)]),
    "virtual/joined": functools.partial(virtual, shape=(26, 17), blocks=[
        (S[:13], "chunks", (13, 17)), (S[13:], "plain", (13, 17))]),
    "virtual/joined in columns": functools.partial(virtual, shape=(13, 36), fill=3.5, blocks=[
        (S[:, :17], "chunks", (13, 17)), (S[:, 18:35], "chunks", (13, 17))]),
    "virtual/blocks": functools.partial(virtual, shape=(20, 21), fill=7, blocks=[
        (S[2:9, 3:12], "chunks", (13, 17), S[5:12, 8:17]), (S[9:20, 0:5], "plain", (13, 17), S[1:12, 2:7]),
        (S[0:2, 0:1], "chunks", (13, 17), S[3:5, 4:5]), (S[12, 6:21], "chunks", (13, 17), S[11, 1:16])]),
    "virtual/without a dimension": functools.partial(virtual, shape=(13, 17), blocks=[
        (S[:, :], "column", (13, 1, 17))]),
    "virtual/numbers": functools.partial(virtual, shape=(13,), blocks=[(S[:], "chunks", (13, 17), S[:, 6])]),
    "virtual/compound": functools.partial(virtual, shape=(2, 13, 17), dtype=COMPOUNDS["plain"], blocks=[
        (i, "chunks", (13, 17)) for i in range(2)]),
    "virtual/without a part": functools.partial(virtual, shape=(3, 4), fill=5, blocks=[]),
    "link/soft": links,
    "name/ünïcode": functools.partial(plain, chunks=(4, 4)),
    "name/with #, a blank": functools.partial(plain, chunks=(4, 4)),
}
if hdf5plugin:
    PLUGINS = {
        "lz4": hdf5plugin.LZ4(), "lz4, small blocks": hdf5plugin.LZ4(nbytes=512), "zstd": hdf5plugin.Zstd(),
        "zstd 19": hdf5plugin.Zstd(clevel=19),
        "bitshuffle": hdf5plugin.Bitshuffle(cname="none"), "bitshuffle lz4": hdf5plugin.Bitshuffle(),
        "bitshuffle zstd": hdf5plugin.Bitshuffle(cname="zstd"),
        "bitshuffle lz4, small blocks": hdf5plugin.Bitshuffle(nelems=64),
    }
    BLOSC = {f"blosc {cname} {shuffle}": hdf5plugin.Blosc(cname=cname, shuffle=shuffle)
             for cname in ("blosclz", "lz4", "lz4hc", "zlib", "zstd") for shuffle in (0, 1, 2)}
    KINDS = {"f4": ("<f4", (90, 70), (40, 30)), "u2": ("<u2", (1000,), (333,)), "i1": ("i1", (64, 9), (16, 9)),
             "compound": (COMPOUNDS["plain"], (50, 7), (20, 7))}
    DATASETS |= {f"plugin/{name} {kind}": functools.partial(plain, shape=shape, chunks=chunks, dtype=dtype,
                                                                compression=codec)
                 for name, codec in PLUGINS.items() for kind, (dtype, shape, chunks) in KINDS.items()}
    DATASETS |= {f"plugin/{name}": functools.partial(plain, shape=(90, 70), chunks=(40, 30), compression=codec)
                 for name, codec in BLOSC.items()}
    DATASETS["plugin/shuffle zstd fletcher32"] = functools.partial(
        plain, shape=(90, 70), chunks=(40, 30), shuffle=True, fletcher32=True, compression=hdf5plugin.Zstd())

# Made as well, and refused: a part of the sentence.
REFUSED = {
    "text": (lambda file, name: file.create_dataset(name, data=["a", "bc"]), "variable"),
    "vlen": (lambda file, name: file.create_dataset(name, (3,), h5py.vlen_dtype("i4")), "variable"),
    "reference": (lambda file, name: file.create_dataset(name, (3,), h5py.ref_dtype), "reference"),
    "null": (lambda file, name: file.create_dataset(name, data=h5py.Empty("f4")), ""),
    "scaleoffset": (functools.partial(plain, dtype="<i4", chunks=(4, 4), scaleoffset=0), "scaleoffset"),
    "nbit": (functools.partial(low, dtype="<i4", layout=h5py.h5d.CHUNKED, chunks=(4, 4),
                               filters=[lambda p: p.set_filter(5)]), "nbit"),
    "twice": (functools.partial(low, layout=h5py.h5d.CHUNKED, chunks=(5, 6), filters=[
        lambda p: p.set_deflate(1), lambda p: p.set_deflate(6)]), "compress"),
    "link": (linked, "reached"),
    "virtual strides": (functools.partial(virtual, shape=(26, 17), blocks=[(S[::2], "plain", (13, 17))]),
                        "is no block"),
    "virtual shape": (functools.partial(virtual, shape=(17, 13), blocks=[(S[:, :], "plain", (13, 17))]),
                      "does not lie in its shape"),
    "virtual twice": (functools.partial(virtual, shape=(20, 17), blocks=[
        (S[:13], "plain", (13, 17)), (S[7:], "plain", (13, 17))]), "two parts"),
    "virtual short": (functools.partial(virtual, shape=(14, 17), blocks=[(S[:], "plain", (14, 17))]),
                      "does not lie in its shape"),
    "virtual type": (functools.partial(virtual, shape=(13, 17), dtype="<f8", blocks=[
        (S[:], "layout/contiguous", (13, 17))]), "another type"),
}


def part_of(length, chance, lists):
    kind = chance.randrange(7 if lists else 5)
    if kind == 0 and length:
        return chance.randrange(-length, length)
    if kind <= 2:
        ends = [None, *range(-length - 2, length + 3)]
        return slice(chance.choice(ends), chance.choice(ends), chance.choice([None, 1, 2, 3, 7, -1, -4]))
    if kind <= 4:
        return slice(None)
    if kind == 5:
        return [chance.randrange(-length, length) for _ in range(chance.randrange(5))] if length else []
    return np.array([chance.random() < 0.4 for _ in range(length)], bool)


def selection_of(shape, chance):
    """A selection, with a list or a mask in one dimension at most."""
    found, lists = [], True
    for length in shape:
        found.append(part_of(length, chance, lists))
        lists &= not isinstance(found[-1], (list, np.ndarray))
    return tuple(found)


def expected(data, selection):
    """As numpy selects, dimension by dimension."""
    for number, part in enumerate(selection):
        whole = (slice(None),) * number
        if isinstance(part, int):
            part %= data.shape[number]
            data = data[(*whole, slice(part, part + 1))]
        else:
            data = data[(*whole, np.array(part, "i8") if isinstance(part, list) else part)]
    return data[tuple(0 if isinstance(part, int) else slice(None) for part in selection)]


def make(path, **options):
    """Write a file; options: of h5py.File, such as libver and userblock_size. Returns the arrays as h5py reads them."""
    with h5py.File(path, "w", **options) as file:
        for name, maker in DATASETS.items():
            maker(file, name)
        for name, (maker, _) in REFUSED.items():
            maker(file, "refused/" + name)
    with h5py.File(path) as file:
        return {name: read(file[name]) for name in DATASETS}


def read(dataset):
    if dataset.name == "/type/bfloat16":
        return bits_of(dataset)
    return dataset[()] if dataset.shape else np.asarray(dataset[()], dataset.dtype)


def bits_of(dataset):
    """The elements, without a conversion, of a type that numpy has not."""
    found = np.empty(dataset.shape, "<u2")
    dataset.id.read(h5py.h5s.ALL, h5py.h5s.ALL, found, mtype=dataset.id.get_type())
    return found
