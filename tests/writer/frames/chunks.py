# SPDX-License-Identifier: Apache-2.0
"""Chunked datasets, by h5py; where HDF5 has no such filter, chunk by chunk and by the tests' decoders in C."""

import os
import struct
import subprocess

import h5py
import numpy

SHUFFLE, DEFLATE, FLETCHER32 = 2, 1, 3  # HDF5 has these itself
DECODER = os.environ["CODEC_DECODE"]  # codec/codec_decode.c


def codecs():
    """The filter of each codec, and whether it shuffles itself, as the tests know them."""
    lines = subprocess.run([DECODER], check=True, capture_output=True, text=True).stdout.splitlines()
    return {name: (int(number), shuffles == "1") for name, number, shuffles in map(str.split, lines)}


def filters_of(dataset):
    plist = dataset.id.get_create_plist()
    return [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]


def _decode(one, chunks, element, size):
    """All chunks that this filter has written."""
    if one == FLETCHER32:
        return [data[:-4] for data in chunks]
    if one == SHUFFLE:
        return [numpy.frombuffer(data, "u1").reshape(element, -1).T.tobytes() for data in chunks]
    told = b"".join(struct.pack("=Q", len(data)) + data for data in chunks)
    command = [DECODER, str(one), str(element), str(size)]
    found = subprocess.run(command, input=told, stdout=subprocess.PIPE, check=True).stdout
    assert len(found) == size * len(chunks)
    return [found[at : at + size] for at in range(0, len(found), size)]


def read(dataset):
    filters = filters_of(dataset)
    if not set(filters) - {SHUFFLE, DEFLATE, FLETCHER32}:
        return dataset[...]
    out = numpy.zeros(dataset.shape, dataset.dtype)
    assert dataset.id.get_num_chunks() >= numpy.prod([-(-s // c) for s, c in zip(out.shape, dataset.chunks)])
    places = [dataset.id.get_chunk_info(i).chunk_offset for i in range(dataset.id.get_num_chunks())]
    places = [place for place in places if place[0] < len(out)]
    masks, chunks = [], []
    for place in places:
        mask, data = dataset.id.read_direct_chunk(place)
        masks.append(mask)
        chunks.append(data)
    size = int(numpy.prod(dataset.chunks)) * dataset.dtype.itemsize
    for i, one in reversed(list(enumerate(filters))):
        used = [k for k, mask in enumerate(masks) if not mask >> i & 1]
        for k, data in zip(used, _decode(one, [chunks[k] for k in used], dataset.dtype.itemsize, size)):
            chunks[k] = data
    for place, data in zip(places, chunks):
        assert len(data) == size
        chunk = numpy.frombuffer(data, dataset.dtype).reshape(dataset.chunks)
        inside = tuple(slice(p, min(p + c, s)) for p, c, s in zip(place, chunk.shape, out.shape))
        out[inside] = chunk[tuple(slice(0, s.stop - s.start) for s in inside)]
    if all(h5py.h5z.filter_avail(one) for one in filters):
        assert dataset[...].tobytes() == out.tobytes(), dataset
    return out
