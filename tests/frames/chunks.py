# SPDX-License-Identifier: Apache-2.0
"""Chunked datasets, by h5py; where HDF5 has no such filter, chunk by chunk and by the codec's own decoder."""

import struct

import h5py
import lz4.block
import numpy
import zstandard

SHUFFLE, DEFLATE, ZSTD, LZ4, BITSHUFFLE = 2, 1, 32015, 32004, 32008


def filters_of(dataset):
    plist = dataset.id.get_create_plist()
    return [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]


def _decode_lz4(data, size):
    """The format of HDF5's filter: all bytes, bytes of a block, and blocks, each with its length before it."""
    total, block = struct.unpack_from(">QI", data)
    assert total == size
    at, out = 12, b""
    while len(out) < size:
        (length,) = struct.unpack_from(">I", data, at)
        part = data[at + 4 : at + 4 + length]
        whole = min(block, size - len(out))
        out += part if length == whole else lz4.block.decompress(part, uncompressed_size=whole)
        at += 4 + length
    assert at == len(data)
    return out


def _decode_bits(data, size, element):
    """All bytes, bytes of a block, and blocks of multiples of 8 elements, each with its length before it; their bits
    lie as (bit of the element, element). What is left comes as it is."""
    total, block = struct.unpack_from(">QI", data)
    assert total == size and block == 8192
    at, out = 12, b""
    while size - len(out) >= 8 * element:
        (length,) = struct.unpack_from(">I", data, at)
        whole = min(block, (size - len(out)) // (8 * element) * (8 * element))
        part = lz4.block.decompress(data[at + 4 : at + 4 + length], uncompressed_size=whole)
        bits = numpy.unpackbits(numpy.frombuffer(part, "u1"), bitorder="little").reshape(8 * element, -1)
        out += numpy.packbits(bits.T, bitorder="little").tobytes()
        at += 4 + length
    return out + data[at:]


def _decode(dataset, filters, place):
    mask, data = dataset.id.read_direct_chunk(place)
    size = int(numpy.prod(dataset.chunks)) * dataset.dtype.itemsize
    for i, one in reversed(list(enumerate(filters))):
        if mask >> i & 1:
            continue
        if one == ZSTD:
            data = zstandard.ZstdDecompressor().decompress(data, max_output_size=size)
        elif one == LZ4:
            data = _decode_lz4(data, size)
        elif one == BITSHUFFLE:
            data = _decode_bits(data, size, dataset.dtype.itemsize)
        elif one == SHUFFLE:
            data = numpy.frombuffer(data, "u1").reshape(dataset.dtype.itemsize, -1).T.tobytes()
        assert len(data) == size
    return numpy.frombuffer(data, dataset.dtype).reshape(dataset.chunks)


def read(dataset):
    filters = filters_of(dataset)
    if not {ZSTD, LZ4, BITSHUFFLE} & set(filters):
        return dataset[...]
    out = numpy.zeros(dataset.shape, dataset.dtype)
    assert dataset.id.get_num_chunks() >= numpy.prod([-(-s // c) for s, c in zip(out.shape, dataset.chunks)])
    for i in range(dataset.id.get_num_chunks()):
        place = dataset.id.get_chunk_info(i).chunk_offset
        if place[0] >= len(out):
            continue
        chunk = _decode(dataset, filters, place)
        inside = tuple(slice(p, min(p + c, s)) for p, c, s in zip(place, chunk.shape, out.shape))
        out[inside] = chunk[tuple(slice(0, s.stop - s.start) for s in inside)]
    if all(h5py.h5z.filter_avail(one) for one in filters):
        assert dataset[...].tobytes() == out.tobytes(), dataset
    return out
