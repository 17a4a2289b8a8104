# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of the Python package: files of known bytes, and memory of an emulated device."""

import ctypes
import http.server
import os
import pathlib
import subprocess
import tempfile
import threading
import time
import zlib

import pytest
import sluice
from sluice import _core

C = ctypes.CDLL(_core.__file__)


_PATTERN = bytes((i * 7 + i // 251) % 256 for i in range(100_000))


def pattern(n):
    return _PATTERN[:n]


@pytest.fixture
def path(tmp_path):
    """A file of 100,000 bytes of the pattern."""
    file = tmp_path / "pattern"
    file.write_bytes(pattern(100_000))
    return file


class DeviceArray:
    """Memory of an emulated device, as an array of bytes that CuPy could have."""

    def __init__(self, n, read_only=False, strides=None, device="emulated:0"):
        self.n, self.read_only, self.strides = n, read_only, strides
        number, address = ctypes.c_int(), ctypes.c_void_p()
        assert C.sluice_device_find(device.encode(), ctypes.byref(number)) == 0
        assert C.sluice_device_alloc(number, ctypes.c_size_t(n), ctypes.byref(address)) == 0
        self.device, self.address = number.value, address.value

    @property
    def __cuda_array_interface__(self):
        return {"shape": (self.n,), "typestr": "|u1", "data": (self.address, self.read_only),
                "strides": self.strides, "version": 3}

    def get(self):
        out = ctypes.create_string_buffer(self.n)
        assert C.sluice_copy(out, ctypes.c_void_p(self.address), ctypes.c_size_t(self.n)) == 0
        return out.raw

    def set(self, data):
        assert C.sluice_copy(ctypes.c_void_p(self.address), data, ctypes.c_size_t(len(data))) == 0

    def pass_stream(self, stream):
        assert C.sluice_stream_synchronize(self.device, ctypes.c_void_p(stream)) == 0

    def __del__(self):
        C.sluice_device_free(ctypes.c_void_p(self.address))


@pytest.fixture
def device_array():
    return DeviceArray


@pytest.fixture
def stream(device_array):
    """A stream of the device, by its number."""
    device, made = ctypes.c_int(), ctypes.c_void_p()
    assert C.sluice_device_find(b"emulated:0", ctypes.byref(device)) == 0
    assert C.sluice_stream_new(device, ctypes.byref(made)) == 0
    yield made.value
    C.sluice_stream_synchronize(device, made)
    C.sluice_stream_free(made)


def copy_on(target, source, stream):
    """Copy an array in the order of a stream."""
    assert C.sluice_copy_on(ctypes.c_void_p(target.address), ctypes.c_void_p(source.address),
                            ctypes.c_size_t(source.n), ctypes.c_void_p(stream)) == 0


@pytest.fixture
def mute_server():
    """A server that takes connections and requests, and answers none until the test is over."""
    over = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            over.wait(60)

        do_HEAD = do_GET

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/object"
    over.set()
    server.shutdown()
    server.server_close()


class SlowServer:
    """Serves ranges of the pattern; the body of a GET waits until it is let go."""

    def __init__(self, data):
        go = self.go = threading.Event()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self, body):
                begin, end = 0, len(data) - 1
                asked = self.headers.get("Range")
                if asked:
                    first, last = asked.split("=")[1].split("-")
                    begin, end = int(first), min(int(last or end), end)
                self.send_response(206 if asked else 200)
                self.send_header("Accept-Ranges", "bytes")
                self.send_header("ETag", '"1"')
                self.send_header("Content-Length", str(end + 1 - begin))
                if asked:
                    self.send_header("Content-Range", f"bytes {begin}-{end}/{len(data)}")
                self.end_headers()
                if body:
                    if end > begin:  # not what asks for the size
                        self.wfile.flush()
                        go.wait(60)
                    self.wfile.write(data[begin:end + 1])

            def do_GET(self):
                try:
                    self.answer(True)
                except OSError:  # the client has gone
                    pass

            def do_HEAD(self):
                self.answer(False)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.uri = f"http://127.0.0.1:{self.server.server_port}/object"


@pytest.fixture
def slow_server():
    """A server whose bodies come when `go` is set."""
    slow = SlowServer(pattern(100_000))
    yield slow
    slow.go.set()
    slow.server.shutdown()
    slow.server.server_close()


class Daemon:
    """A sluiced of its own."""

    def __init__(self, *options):
        program = pathlib.Path(_core.__file__).parents[2] / "sluiced"
        if not program.exists():
            pytest.skip(f"{program} is not built")
        self.folder = tempfile.TemporaryDirectory(prefix="sluice-store.")
        self.path = os.path.join(self.folder.name, "socket")
        self.program = subprocess.Popen([program, "--socket", self.path, "--memory", "64M", *options])

    def open(self):
        deadline = time.monotonic() + 60
        while True:
            try:
                return sluice.Store(self.path)
            except (FileNotFoundError, ConnectionRefusedError):
                if time.monotonic() > deadline or self.program.poll() is not None:
                    raise
                time.sleep(0.01)

    def stop(self):
        self.program.terminate()
        self.program.wait(60)
        self.folder.cleanup()


@pytest.fixture
def daemon():
    """A daemon of the store."""
    made = Daemon()
    made.open().close()
    yield made
    made.stop()


@pytest.fixture
def store(daemon):
    with daemon.open() as opened:
        yield opened


class FileServer:
    """Serves ranges of the files of a folder, and takes new ones. `asked`: the methods and paths of requests."""

    def __init__(self, folder):
        asked = self.asked = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self, status, body=b"", **fields):
                self.send_response(status)
                for name, value in {"Content-Length": len(body), **fields}.items():
                    self.send_header(name.replace("_", "-"), str(value))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def do_GET(self):
                asked.append((self.command, self.path))
                file = folder / self.path.lstrip("/")
                if not file.is_file():
                    return self.answer(404)
                data = file.read_bytes()
                fields = {"Accept_Ranges": "bytes", "ETag": f'"{zlib.crc32(data)}"'}
                if self.headers.get("If-Match", fields["ETag"]) != fields["ETag"]:
                    return self.answer(412)
                if "Range" not in self.headers:
                    return self.answer(200, data, **fields)
                begin, last = map(int, self.headers["Range"].split("=")[1].split("-"))
                part = data[begin:last + 1]
                fields["Content_Range"] = f"bytes {begin}-{begin + len(part) - 1}/{len(data)}"
                return self.answer(206, part, **fields)

            do_HEAD = do_GET

            def do_PUT(self):
                (folder / self.path.lstrip("/")).write_bytes(self.rfile.read(int(self.headers["Content-Length"])))
                self.answer(201)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.uri = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def file_server(tmp_path):
    """A server of the test's folder."""
    served = FileServer(tmp_path)
    yield served
    served.server.shutdown()
    served.server.server_close()
