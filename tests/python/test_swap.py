# SPDX-License-Identifier: Apache-2.0
"""Weights that are swapped in place: load_into(pin=True), close(keep=True) and attach(at=), on an emulated device."""
import contextlib
import ctypes
import errno
import gc
import os
import pathlib
import subprocess
import sys
import threading
import time

import numpy
import pytest
import sluice
from conftest import C
from sluice import _core, _tensors

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


def test_a_registration_ends_when_its_collection_does(state, usual):
    publish("m", 1, usual)
    publish("n", 2, usual)
    sluice.load_into(state, "store://m", pin=True)
    sluice.load_into(state, "store://n", pin=True)
    same(state, 2)
    assert [found.name for found in sluice.pinned()] == ["m", "n"]
    publish("m", 3, usual)  # with the name that was registered
    usual.delete("n")
    sluice.load_into(state, "store://m", pin=True)
    same(state, 3)
    assert [(found.name, found.version) for found in sluice.pinned()] == [("m", usual.stat("m").id)]
    usual.delete("m")
    with pytest.raises(FileNotFoundError):
        sluice.load_into(state, "store://m", pin=True)
    assert sluice.pinned() == []


def test_what_is_unpinned_meanwhile_is_copied(state, usual, monkeypatch):
    publish("m", 1, usual)
    match = _tensors._match

    def unpinned(*arguments):  # by another thread
        sluice.unpin()
        return match(*arguments)

    monkeypatch.setattr(_tensors, "_match", unpinned)
    sluice.load_into(state, "store://m", pin=True)
    same(state, 1)
    assert sluice.pinned() == []
    usual.delete("m")
    assert usual.list() == []  # so nothing holds it


def test_what_cannot_be_pinned_is_refused_or_read_as_usual(state, usual):
    publish("m", 1, usual)
    for wrong in ("m", "store://m?wait_ms=1", "store://", "/tmp/m.safetensors"):
        with pytest.raises(ValueError, match="store://NAME"):
            sluice.load_into(state, wrong, pin=True)
    with pytest.raises(ValueError, match="no digests"):
        sluice.load_into(state, "store://m", pin=True, verify={})
    with pytest.raises(KeyError, match="large"):
        sluice.load_into({name: array for name, array in state.items() if name != "large"}, "store://m", pin=True)
    short = {**state, "a": state["b"]}
    with pytest.raises(ValueError, match="destination 20"):
        sluice.load_into(short, "store://m", pin=True)
    read_only = type(state["b"])(20, read_only=True)
    with pytest.raises(BufferError, match="read-only"):
        sluice.load_into({**state, "b": read_only}, "store://m", pin=True)
    sluice.unpin()
    on_host = {name: numpy.zeros(shape, "f4") for name, shape in SHAPES.items()}
    sluice.load_into(on_host, "store://m", pin=True)  # there is nothing to register
    assert sluice.pinned() == []
    assert all((on_host[name] == array).all() for name, array in model(1).items())


FALLBACK = """
import ctypes, os, sys
import numpy, sluice
from sluice import _core
C, driver = ctypes.CDLL(_core.__file__), ctypes.CDLL("libcuda.so.1")
number, address = ctypes.c_int(), ctypes.c_void_p()
assert C.sluice_device_find(b"cuda:0", ctypes.byref(number)) == 0
assert C.sluice_device_alloc(number, ctypes.c_size_t(8 << 20), ctypes.byref(address)) == 0
class Array:
    __cuda_array_interface__ = {"shape": (8 << 20,), "typestr": "|u1", "data": (address.value, False), "version": 3}
data = numpy.arange(1 << 20)
sluice.publish("m", {"w": data}, framework="np")
out = numpy.zeros(1 << 20, int)
def load():
    sluice.load_into({"w": Array()}, "store://m", pin=True)
    assert C.sluice_copy(ctypes.c_void_p(out.ctypes.data), address, ctypes.c_size_t(8 << 20)) == 0
    assert (out == data).all()
    out[:] = 0
    assert C.sluice_copy(address, ctypes.c_void_p(out.ctypes.data), ctypes.c_size_t(8 << 20)) == 0
    return sluice.pinned()[0]
sluice.load_into({"w": Array()}, "store://m")  # whose slots are registered
assert driver.cuFakeFail(b"cuMemHostRegister_v2", 1, 2) == 0
failed = load()
assert failed.reason and "cannot use a blob" in failed.reason and not failed.nbytes, failed
assert load() == failed  # it is not tried again
sluice.unpin()
again = load()
assert again.reason is None and again.nbytes == 8 << 20 and again.device == "cuda:0", again
sluice.unpin()
"""


def test_a_failed_registration_leaves_the_ring(daemon):
    fake = pathlib.Path(_core.__file__).parents[2] / "tests" / "lib" / "fake_cuda"
    if not (fake / "libcuda.so.1").exists():
        pytest.skip("the fake driver is not built")
    paths = os.pathsep.join([str(fake), os.environ.get("LD_LIBRARY_PATH", "")])
    subprocess.run([sys.executable, "-c", FALLBACK], check=True, timeout=60,
                   env={**os.environ, "LD_LIBRARY_PATH": paths, "SLUICE_STORE": daemon.path})


def contents(view):
    out = ctypes.create_string_buffer(view._interface()["shape"][0])
    place = view._interface()["data"][0]
    assert C.sluice_copy(out, ctypes.c_void_p(place), ctypes.c_size_t(len(out))) == 0
    return place, out.raw


def has(views, places, seed):
    for name, array in model(seed).items():
        assert not array.size or contents(views[name]) == (places[name], array.tobytes()), name


@pytest.fixture
def kept(usual):
    """What is at places, and was mapped before all else."""
    publish("m", 1, usual, device="emulated:0")
    m = sluice.attach("m", framework="dlpack", store=usual)
    views = {name: m[name] for name in SHAPES if name != "empty"}
    return m, views, {name: contents(view)[0] for name, view in views.items()}


def test_kept_addresses_are_those_of_the_next_version(usual, kept):
    m, views, places = kept
    for seed in range(2, 5):
        m.close(keep=True)
        with pytest.raises(ValueError, match="but for its addresses"):
            m["a"]
        publish("m", seed, usual, device="emulated:0")
        before, m = m, sluice.attach("m", framework="dlpack", store=usual, at=m)
        with pytest.raises(ValueError, match="closed"):
            before["a"]
        with pytest.raises(ValueError, match="closed"):
            sluice.attach("m", framework="dlpack", store=usual, at=before)
        assert m.version == usual.stat("m").id
        has(m, places, seed)
        has(views, places, seed)  # that were made of the first
    m.close()
    gc.collect()
    has(views, places, 4)


def test_what_differs_leaves_the_addresses_as_they_are(usual, kept):
    m, views, places = kept
    other = model(2)
    other["b"] = other["b"].astype("f8")
    sluice.publish("other", other, "emulated:0", store=usual, framework="dlpack").close()
    with pytest.raises(OSError, match="not kept"):
        sluice.attach("m", store=usual, framework="dlpack", at=m)
    m.close(keep=True)
    with pytest.raises(OSError, match="other tensors than the kept") as raised:
        sluice.attach("other", store=usual, framework="dlpack", at=m)
    assert raised.value.errno == errno.EINVAL
    with pytest.raises(FileNotFoundError):
        sluice.attach("none", store=usual, framework="dlpack", at=m)
    with pytest.raises(ValueError, match="origin"):
        sluice.attach("m", store=usual, framework="dlpack", at=m, device="emulated:0")
    with sluice.attach("m", store=usual, framework="dlpack", at=m):
        has(views, places, 1)


def test_only_addresses_of_one_collection_are_kept(usual, kept):
    m, views, places = kept
    with sluice.attach("m", framework="dlpack", store=usual):
        with pytest.raises(OSError, match="another handle") as raised:
            m.close(keep=True)
        assert raised.value.errno == errno.EBUSY
    has(m, places, 1)
    publish("host", 1, usual)
    with sluice.attach("host", framework="dlpack", store=usual) as host:
        with pytest.raises(OSError, match="addresses of a device") as raised:
            host.close(keep=True)
        assert raised.value.errno == errno.ENOTSUP
        assert len(host) == len(SHAPES)
    m.close(keep=True)
    with pytest.raises(ValueError):
        m.close(keep=True)
    m.close()


def test_threads_that_want_the_same_addresses_or_close_them(daemon, usual, kept):
    m, views, places = kept
    for wrong in (3, "m", usual):
        with pytest.raises(TypeError, match="at is a Collection"):
            sluice.attach("m", store=usual, at=wrong)
    m.close(keep=True)
    found = []
    with daemon.open() as other:

        def attach():
            with contextlib.suppress(OSError):
                found.append(sluice.attach("late", 30, framework="dlpack", store=other, at=m))

        threads = [threading.Thread(target=attach) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
    m.close()  # and the store, while they wait
    publish("late", 2, usual, device="emulated:0")
    for thread in threads:
        thread.join()
    assert len(found) == 1
    has(found[0], places, 2)
    has(views, places, 2)


def test_another_store_maps_at_kept_addresses(daemon, kept):
    m, views, places = kept
    m.close(keep=True)
    del kept
    with daemon.open() as other:
        again = sluice.attach("m", framework="dlpack", store=other, at=m)
        has(views, places, 1)
        again.close(keep=True)
        again.close()
    gc.collect()


def test_a_child_of_fork_leaves_it_alone(usual, kept, state):
    m, views, places = kept
    publish("host", 2, usual)
    sluice.load_into(state, "store://host", pin=True)
    m.close(keep=True)
    pid = os.fork()
    if not pid:
        m.close()
        os._exit(0 if sluice.pinned() == [] else 1)
    assert os.waitpid(pid, 0)[1] == 0
    sluice.load_into(state, "store://host", pin=True)
    same(state, 2)
    sluice.attach("m", framework="dlpack", store=usual, at=m)
    has(views, places, 1)
