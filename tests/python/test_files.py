# SPDX-License-Identifier: Apache-2.0
import contextlib
import doctest
import errno
import gc
import importlib
import io
import os
import pickle
import shutil
import subprocess
import sys
import threading
import types
import warnings

import numpy
import pytest
import sluice
from conftest import pattern


def test_reads_give_the_bytes_at_an_offset_and_end_with_the_file(path):
    with sluice.open(path) as f:
        assert f.size == 100_000 and not f.closed
        assert f.read(10) == pattern(100_000)[:10]
        assert f.read(n=300, offset=99_900) == pattern(100_000)[99_900:]
        assert f.read(5, 100_000) == b"" and f.read(0) == b""
        buffer = bytearray(50)
        assert f.read_into(buffer, offset=99_980) == 20 and buffer[:20] == pattern(100_000)[99_980:]
        parts = [(bytearray(10), 5), (numpy.zeros(4, "u2"), 70_000)]
        assert f.readv(parts) == 18
        assert parts[0][0] == pattern(100_000)[5:15] and parts[1][0].tobytes() == pattern(100_000)[70_000:70_008]
    assert f.closed


def test_each_mode_does_what_it_says(tmp_path):
    path = tmp_path / "modes"
    with pytest.raises(FileNotFoundError, match="modes"):
        sluice.open(path)
    with sluice.open(path, "x") as f:
        assert f.write(b"first") == 5
        assert not path.exists()
    with pytest.raises(FileExistsError):
        sluice.open(path, "x")
    with sluice.open(path, "r+") as f:
        f.write(b"F", 0)
        f.sync()
        assert f.read(5) == b"First"
        f.truncate(3)
    assert path.read_bytes() == b"Fir"
    with sluice.open(path, "a") as f:
        f.write(b"m", f.size)
        assert f.read(4) == b"Firm"
    with sluice.open(tmp_path / "new", "a") as f:
        f.write(b"x")
    with sluice.open(path, "wb", durable=True, permissions=0o600, expected_size=4) as f:
        f.write(b"last")
        assert path.read_bytes() == b"Firm"
    assert path.read_bytes() == b"last"


def test_a_file_that_is_not_finished_leaves_the_old_one(tmp_path):
    path = tmp_path / "old"
    path.write_bytes(b"old")
    with pytest.raises(KeyError):
        with sluice.open(path, "w") as f:
            f.write(b"new")
            raise KeyError
    assert f.closed and path.read_bytes() == b"old"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        f = sluice.open(path, "w")
        f.write(b"new")
        del f
        gc.collect()
    assert [w.category for w in caught] == [ResourceWarning] and path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["old"]


def test_wrong_calls_are_refused_with_a_sentence(path):
    with pytest.raises(ValueError, match="mode 'rw'"):
        sluice.open(path, "rw")
    with pytest.raises(TypeError, match="'colour'"):
        sluice.open(path, colour="red")
    with pytest.raises(OSError, match="no-such"):
        sluice.open("no-such://scheme")
    with pytest.raises(TypeError, match="headers"):
        sluice.open(path, headers="Name: value")
    with sluice.open(path) as f:
        with pytest.raises(OSError) as caught:
            f.write(b"x")
        assert caught.value.errno == errno.EBADF and "was not opened for writing" in str(caught.value)
        with pytest.raises(BufferError):
            f.read_into(b"read only")
        with pytest.raises(BufferError, match="contiguous"):
            f.read_into(numpy.zeros((4, 4))[:, 1])
        with pytest.raises(BufferError, match="read-only"):
            array = numpy.zeros(4)
            array.flags.writeable = False
            f.read_into(array)
        with pytest.raises(TypeError, match="buffer is needed.*not int"):
            f.read_into(7)
        with pytest.raises(ValueError):
            f.read(-1)
        with pytest.raises(OverflowError):
            f.read(1, -1)
        with pytest.raises(OSError, match="INT64_MAX"):
            f.read(1, 2**63)
        with pytest.raises(TypeError, match="float"):
            f.read(1, 1.0)
        assert f.read(numpy.int64(2), numpy.int64(3)) == pattern(5)[3:]
        assert f.readv([(bytearray(2), numpy.uint32(3))]) == 2
        with pytest.raises(TypeError, match="pair of buffer and offset"):
            f.readv([(bytearray(1),)])
    for call in (lambda: f.read(1), lambda: f.read_async(1), f.stat, f.sync, lambda: f.truncate(0)):
        with pytest.raises(ValueError, match="closed"):
            call()
    f.close()
    f.discard()
    for options, error, sentence in (({"mode": None}, ValueError, "mode None"),
                                     ({"expected_size": -1}, OverflowError, "-1"),
                                     ({"permissions": 2**40}, OSError, "permissions"),
                                     ({"backend": "posix\0"}, ValueError, "backend.*null character"),
                                     ({"part": 5}, TypeError, "part: a str is needed, not 5"),
                                     ({"headers": ["a: b\0"]}, ValueError, "headers.*null character"),
                                     ({"headers": [None]}, TypeError, "headers"),
                                     ({"context": 5}, TypeError, "Context")):
        with pytest.raises(error, match=sentence):
            sluice.open(path, **options)


def test_a_context_that_was_not_made_is_refused(path):
    bare = sluice.Context.__new__(sluice.Context)
    for call in (bare.settings, bare.features, lambda: sluice.File(path, context=bare)):
        with pytest.raises((ValueError, AttributeError)):
            call()


def test_settings_are_checked_and_belong_to_their_context(path):
    context = sluice.Context(workers=3, piece_bytes="64 KiB", log="off", tls_insecure=False)
    values = {name: (value, source) for name, value, source, _, _ in context.settings()}
    assert values["SLUICE_WORKERS"] == ("3", "config") and values["SLUICE_PIECE_BYTES"][0] in ("65536", "64 KiB")
    assert any(name == "io_uring" for name, *_ in context.features())
    with sluice.open(path, context=context) as f:
        assert f.read(4) == pattern(4)
    for settings, error in (({"colour": 1}, TypeError), ({"colour": None}, TypeError), ({"workers": 100_000}, OSError),
                            ({"workers": "many"}, OSError), ({"log": 1}, TypeError), ({"workers": -1}, OSError),
                            ({"workers": 1.5}, OSError), ({"log": "off\0"}, ValueError)):
        with pytest.raises(error, match=next(iter(settings)) if settings != {"workers": 100_000} else "WORKERS"):
            sluice.Context(**settings)
    tuned = sluice.Context(tune="slots=3,piece_bytes=1M", piece_bytes="64 KiB", cufile_streams=True, slot_bytes=None)
    values = {name: value for name, value, *_ in tuned.settings()}
    assert [values[f"SLUICE_{name}"] for name in ("SLOTS", "PIECE_BYTES", "CUFILE_STREAMS")] == ["3", "64 KiB", "1"]
    with pytest.raises(OSError, match="SLUICE_PIECE_BYTES: 'many'"):
        sluice.Context(piece_bytes="many")
    assert "secret" not in repr(sluice.Context(http_bearer="secret"))
    assert repr(context) == "sluice.Context(workers=3, piece_bytes='64 KiB', log='off', tls_insecure=False)"
    sluice.configure(workers=2)
    with sluice.open(path) as f:
        assert f.read(4) == pattern(4)
    sluice.configure()


def test_files_and_contexts_are_pickled_by_name_and_settings(path):
    context = pickle.loads(pickle.dumps(sluice.Context(workers=2)))
    with sluice.open(path, context=context) as f, pickle.loads(pickle.dumps(f)) as again:
        assert again.read(9, 9) == f.read(9, 9) == pattern(18)[9:] and again.uri == str(path)
    sluice.configure(workers=3)
    pickled = [pickle.dumps(sluice.open(path)) for _ in range(2)]
    sluice.configure()
    first, second = map(pickle.loads, pickled)
    assert repr(first.context) == "sluice.Context(workers=3)" and first.context is second.context
    first.close(), second.close()
    with sluice.open(str(path) + ".new", "w") as f, pytest.raises(TypeError, match="being made"):
        pickle.dumps(f)
    with pytest.raises(ValueError, match="closed"):
        pickle.dumps(first)


def test_a_file_object_reads_writes_and_seeks(path):
    with sluice.open(path).as_io(4096) as f:
        assert f.seekable() and f.readable() and not f.writable()
        assert f.read(3) == pattern(3) and f.tell() == 3
        assert f.seek(-5, os.SEEK_END) == 99_995 and f.read() == pattern(100_000)[99_995:]
        f.seek(0)
        assert b"".join(iter(lambda: f.read(777), b"")) == pattern(100_000)
        with pytest.raises(ValueError):
            f.seek(-1)
    with sluice.open(path, "w").as_io() as f:
        f.write(b"text: ")
        io.TextIOWrapper(f, write_through=True).write("x\n" * 2)
    assert path.read_bytes() == b"text: x\nx\n"
    with sluice.open(path, "r+").as_io() as f:
        f.seek(6)
        f.write(b"y")
        f.seek(0)
        assert f.read() == b"text: y\nx\n"
        f.truncate(4)
    assert path.read_bytes() == b"text"


def test_a_file_object_has_name_and_mode_and_the_refusals_of_the_built_in_open(path):
    for mode, new in (("r", "rb"), ("r+", "r+b"), ("a", "a+b"), ("w", "wb")):
        with sluice.open(path, mode).as_io() as f, open(path, new) as built_in:
            assert (f.name, f.mode) == (str(path), built_in.mode) and str(path) in repr(f)
            with pytest.raises(TypeError):
                f.raw.seek(1.5)
        for call in f.raw.tell, lambda: f.raw.seek(0):
            with pytest.raises(ValueError, match="closed"):
                call()
    with sluice.open(os.fsencode(path), "w").as_io() as f:
        assert f.name == str(path) and f.write(b"hello") == 5
    assert path.read_bytes() == b"hello"


def test_a_file_object_that_is_not_finished_leaves_the_old_file(tmp_path):
    path = tmp_path / "old"
    for mode in ("w", "a"):
        path.write_bytes(b"old")
        with pytest.raises(KeyError):
            with sluice.open(path, mode).as_io() as f:
                f.write(b"new")
                raise KeyError
        assert f.closed and path.read_bytes() == b"old"
    f = sluice.open(path, "w").as_io()
    f.write(b"new")
    with pytest.warns(ResourceWarning):
        del f
        gc.collect()
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["old"]
    file = sluice.open(path, "w")
    f = file.as_io()
    f.write(b"new")
    file.close()
    with pytest.raises(ValueError, match="closed"):  # bytes that are still in its buffer are not lost silently
        f.flush()


def test_a_file_object_begins_where_its_mode_says_and_reads_all_at_once(path):
    with sluice.open(path, "a").as_io() as f:
        assert f.write(b"end") == 3 and f.tell() == 100_003
        f.seek(0)
        assert f.read() == pattern(100_000) + b"end" and f.read() == b""
    with sluice.open(path).as_io() as f:
        reads = []
        f.raw.file = type("Counted", (), {
            "stat": f.raw.file.stat, "close": f.raw.file.close,
            "read": lambda self, n, offset: reads.append((n, offset)) or b"all"})()
        assert f.read() == b"all" and reads == [(100_003, 0)]
        with pytest.raises(ValueError, match="whence"):
            f.raw.seek(0, 7)


def test_every_object_describes_itself(path, capsys):
    f = sluice.open(path)
    assert repr(f) == f"<sluice.File {str(path)!r}, mode 'r'>"
    operation = f.read_async(4)
    operation.wait()
    assert repr(operation) == "<sluice.Operation, done: 4 bytes>"
    assert isinstance(f.stat(), sluice.Stat) and f.stat().modified_ns == os.stat(path).st_mtime_ns
    f.close()
    assert repr(f).endswith(", mode 'r', closed>")
    sluice.doctor()
    assert capsys.readouterr().out.startswith(f"sluice {sluice.__version__}")
    ran = subprocess.run([sys.executable, "-m", "sluice", "--version"], capture_output=True, text=True)
    assert ran.stdout.strip() == sluice.__version__
    assert subprocess.run([sys.executable, "-m", "sluice", "--nothing"], capture_output=True).returncode == 1


def test_examples_in_docstrings_are_right(tmp_path):
    names = ["", "._context", "._core", "._file", "._operation", "._tensors"]
    with contextlib.suppress(OSError):  # without HDF5 there are none
        sluice.Writer(tmp_path / "none.h5").close()
        names += ["._arrays", "._dataset"]
    for name in names:
        module = importlib.import_module("sluice" + name)
        example = tmp_path / "hello"
        finder = doctest.DocTestFinder()
        tests = finder.find(module, extraglobs={"sluice": sluice, "path": str(example)})
        if name == "._core":
            methods = [*vars(module.File).values(), *vars(module.Operation).values()]
            tests = [t for method in methods if getattr(method, "__doc__", None)
                     for t in finder.find(method, name=repr(method), module=False,
                                          globs={"sluice": sluice, "path": str(example)})]
            assert len(tests) >= 12
        for test in tests:
            example.write_bytes(b"hello")
            assert doctest.DocTestRunner().run(test).failed == 0
    sluice.configure()


def test_the_interpreter_goes_on_while_calls_wait(slow_server, mute_server):
    """A call that kept the lock while it waits would wait for ever: this thread lets the servers answer."""
    context = sluice.Context(max_operations=1)
    full, f, closing = (sluice.open(slow_server.uri, context=c) for c in (context, None, None))
    operation, waiting, _ = full.read_async(1000), f.read_async(1000), closing.read_async(1000)
    calls = [lambda: f.read(50_000), lambda: f.readv([(bytearray(9), 0)]), operation.wait, lambda: waiting.wait(60),
             closing.close, lambda: full.read(10), lambda: full.read_async(10).wait()]
    threads = [threading.Thread(target=call) for call in calls]
    threading.Thread(target=lambda: pytest.raises(OSError, sluice.open, mute_server), daemon=True).start()
    for thread in threads:
        thread.start()
    for counted in range(1_000_000):
        if counted == 500_000:
            assert all(thread.is_alive() for thread in threads)
            slow_server.go.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    full.close(), f.close()


def test_servers_are_trusted_by_the_bundle_of_the_system(tmp_path, monkeypatch):
    def bundle():
        return next((value, source) for name, value, source, *_ in sluice.Context().settings()
                    if name == "SLUICE_CA_BUNDLE")

    monkeypatch.delenv("SLUICE_CA_BUNDLE", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "mine"))
    assert bundle() == (str(tmp_path / "mine"), "config")
    monkeypatch.setenv("SLUICE_CA_BUNDLE", str(tmp_path / "other"))
    assert bundle() == (str(tmp_path / "other"), "environment")
    monkeypatch.delenv("SLUICE_CA_BUNDLE")
    monkeypatch.delenv("SSL_CERT_FILE")
    monkeypatch.setattr(sluice._context, "_CA_BUNDLES", (str(tmp_path / "none"), str(tmp_path)))
    assert bundle() == (str(tmp_path), "config")


def test_a_failed_import_says_why(tmp_path):
    shutil.copytree(os.path.dirname(sluice.__file__), tmp_path / "sluice", ignore=shutil.ignore_patterns("*.so*"))
    extension = os.path.basename(sluice._core.__file__)
    for setup, sentence in (("", "cannot import name '_core'"),
                            (f"open('sluice/{extension}', 'w')", f"{extension}: file too short"),
                            ("import sysconfig; sysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1", "free-threaded")):
        ran = subprocess.run([sys.executable, "-c", setup + "\nimport sluice"], cwd=tmp_path, capture_output=True,
                             text=True, env={**os.environ, "PYTHONPATH": str(tmp_path)})
        assert ran.returncode == 1 and "ImportError: sluice" in ran.stderr and sentence in ran.stderr, ran.stderr


def test_progress_is_shown_by_tqdm(path, monkeypatch):
    shown = []
    module = types.ModuleType("tqdm.auto")
    module.tqdm = lambda operations, **options: shown.append(options) or operations
    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", module)
    with sluice.open(path) as f:
        assert sluice.progress(f.read_async(3), desc="reads") == [pattern(3)] and shown == [{"desc": "reads"}]
