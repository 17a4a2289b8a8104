# SPDX-License-Identifier: Apache-2.0
"""Weights that are swapped in place: load_into(pin=True), close(keep=True) and attach(at=), on an emulated device."""
import ctypes
import errno

import numpy
import pytest
import sluice
from conftest import C

SHAPES = {"a": (300, 70), "b": (5,), "empty": (0, 3), "large": (3 << 20,), "scalar": ()}


def model(seed):
    rng = numpy.random.default_rng(seed)
    return {name: rng.random(shape).astype("f4") for name, shape in SHAPES.items()}


def publish(name, seed, store, **options):
    sluice.publish(name, model(seed), replace=True, store=store, framework="dlpack", **options).close()
    return name


@pytest.fixture
def state(device_array):
    return {name: device_array(4 * max(1, int(numpy.prod(shape)))) if 0 not in shape else numpy.zeros(shape, "f4")
            for name, shape in SHAPES.items()}


@pytest.fixture
def usual(daemon, store, monkeypatch):
    """The store of load_into(), which takes no other."""
    monkeypatch.setenv("SLUICE_STORE", daemon.path)
    yield store
    sluice.unpin()


def same(state, seed):
    for name, array in model(seed).items():
        assert not array.size or state[name].get() == array.tobytes(), name


def test_a_pinned_load_registers_once(state, usual, stream):
    publish("m", 1, usual)
    assert sluice.pinned() == []
    assert set(sluice.load_into(state, "store://m", pin=True)) == set(SHAPES)
    same(state, 1)
    first, = sluice.pinned()
    assert first.name == "m" and first.device == "emulated:0" and first.reason is None
    assert first.nbytes > 12 << 20 and first.seconds > 0 and first.version == usual.stat("m").id
    for array in state.values():
        if hasattr(array, "set"):
            array.set(b"\0" * array.n)
    on = {name: array for name, array in state.items() if name != "empty"}
    sluice.load_into(on, "store://m", pin=True, stream=stream, strict=False)
    state["a"].pass_stream(stream)
    same(state, 1)
    assert sluice.pinned() == [first]
    sluice.unpin("store://m")
    assert sluice.pinned() == []


def test_kept_addresses_are_those_of_the_next_version(usual, device_array):
    publish("m", 1, usual, device="emulated:0")
    m = sluice.attach("m", framework="dlpack", store=usual)
    views = dict(m)
    places = {name: view._interface()["data"][0] for name, view in views.items() if name != "empty"}
    m.close(keep=True)
    with pytest.raises(ValueError, match="addresses"):
        m["a"]
    publish("m", 2, usual, device="emulated:0")
    again = sluice.attach("m", framework="dlpack", store=usual, at=m)
    with pytest.raises(ValueError, match="closed"):
        m["a"]
    assert again.version == usual.stat("m").id
    for name, place in places.items():
        assert again[name]._interface()["data"][0] == place
        out = ctypes.create_string_buffer(model(2)[name].nbytes)
        assert C.sluice_copy(out, ctypes.c_void_p(place), ctypes.c_size_t(len(out))) == 0
        assert out.raw == model(2)[name].tobytes()
