# SPDX-License-Identifier: Apache-2.0
"""What content.c says is in frames, for numpy."""

import numpy

SAME, SMOOTH, MIXED, NUMBERS, BITS = range(5)
MANTISSA = {"float16": 11, "float32": 24, "float64": 53}


def scalars(count, seed, which):
    return numpy.arange(count) / 8 + which * 1000 + seed % 1000


def _bits(name, eighths):
    if name in MANTISSA:
        return (eighths.astype("float64") / 8).astype(name)
    return eighths.astype(name)


def _number(name, noise):
    return _bits(name, noise >> numpy.uint64(64 - MANTISSA[name]) if name in MANTISSA else noise)


def frame(name, kind, seed, number, shape):
    """The elements of a frame, of the numpy type of that name."""
    i = numpy.arange(int(numpy.prod(shape)), dtype="uint64")
    smooth = _bits(name, (i // numpy.uint64(5) + numpy.uint64(number * 3 + seed % 1000)) % numpy.uint64(251))
    noise = i + numpy.uint64((number * 0x9E3779B97F4A7C15 + seed) % 2**64)
    noise = (noise ^ noise >> numpy.uint64(31)) * numpy.uint64(0xBF58476D1CE4E5B9)
    noise = noise ^ noise >> numpy.uint64(29)
    if kind == SAME:
        smooth[:] = _bits(name, numpy.array([(number + seed % 1000) % 251], "uint64"))
    if kind == BITS:
        values = noise.astype("uint%d" % (8 * numpy.dtype(name).itemsize)).view(name)
    elif kind in (SAME, SMOOTH):
        values = smooth
    elif kind == NUMBERS:
        values = _number(name, noise)
    else:
        values = numpy.where(i // numpy.uint64(1024) % numpy.uint64(2) == 1, _number(name, noise), smooth)
    return values.reshape(shape)
