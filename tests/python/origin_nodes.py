# SPDX-License-Identifier: Apache-2.0
"""Nodes with a distributed store behind them: a server of S3 that counts, and processes of several daemons.

A node is a daemon with processes that ask; the server knows it by the access key of its requests, which it does not
check. Processes are forked from one that has imported the package and done nothing with it.
"""

import collections
import http.server
import json
import multiprocessing
import os
import re
import struct
import threading
import time
import urllib.parse


def model_bytes(tag, count=20, each=40_000):
    """A file of safetensors whose every byte of data says which it is."""
    header = {f"layer.{i}": {"dtype": "U8", "shape": [each], "data_offsets": [i * each, (i + 1) * each]}
              for i in range(count)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes([tag]) * (count * each)


class Served(collections.namedtuple("Served", "node method key begin length status sent at")):
    """A request that was answered."""


class Refusal(Exception):
    """What a rule answers instead of the object: a status, or None to close the connection."""


class Origin:
    """Objects by key, in one bucket. `rule(node, method, key, begin)` may raise Refusal, wait, change objects, and
    returns the number of bytes after which the body ends, or None. `pace`: seconds between steps of 64 KiB."""

    def __init__(self):
        origin = self
        self.objects, self.noted, self.busy, self.lock = {}, [], 0, threading.Lock()
        self.rule, self.pace, self.uploads = None, 0, {}

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1

            def answer(self, status, body=b"", most=None, **fields):
                self.send_response(status)
                for name, value in {"Content-Length": len(body), **fields}.items():
                    self.send_header(name.replace("_", "-"), str(value))
                self.end_headers()
                self.flush_headers()
                self.wfile.flush()
                sent, view = 0, memoryview(body)
                end = 0 if self.command == "HEAD" else len(body) if most is None else min(most, len(body))
                while sent < end:
                    step = min(end - sent, 1 << 16)
                    self.wfile.write(view[sent : sent + step])
                    sent += step
                    if origin.pace and sent < end:
                        self.wfile.flush()
                        time.sleep(origin.pace)
                if most is not None:
                    self.wfile.flush()
                    self.close_connection = True
                return sent

            def node(self):
                found = re.search(r"Credential=(\w+)/", self.headers.get("Authorization", ""))
                return found[1] if found else ""

            def do(self):
                with origin.lock:
                    origin.busy += 1
                path, _, query = self.path.partition("?")
                _, bucket, key = urllib.parse.unquote(path).split("/", 2)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
                begin, status, sent, length, most = int(span[1]) if span else 0, 0, 0, 0, None
                try:
                    if bucket != "bucket":
                        raise Refusal(404)
                    if origin.rule:
                        most = origin.rule(self.node(), self.command, key, begin)
                    status, reply, fields = origin.look(self.command, key, query, body, self.headers, span)
                    length = len(reply)
                    sent = self.answer(status, reply, most, **fields)
                except Refusal as refusal:
                    status = refusal.args[0]
                    if status is None:
                        self.close_connection = True
                    else:
                        self.answer(status)
                except OSError:  # the client has gone
                    self.close_connection = True
                served = Served(self.node(), self.command, key, begin, length, status, sent, time.monotonic())
                with origin.lock:
                    origin.noted.append(served)
                    origin.busy -= 1

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            request_queue_size = 128
            daemon_threads = True

            def handle_error(self, *_):
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.uri = f"http://127.0.0.1:{self.server.server_port}"

    def look(self, method, key, query, body, headers, span):
        """Status, body and fields of an answer."""
        with self.lock:
            data, etag = self.objects.get(key, (None, None))
            if method in ("GET", "HEAD"):
                if data is None:
                    raise Refusal(404)
                fields = {"Accept_Ranges": "bytes", "ETag": etag, "Last_Modified": "Sat, 28 Nov 2026 12:00:00 GMT"}
                if headers.get("If-Match", etag) != etag:
                    raise Refusal(412)
                if not span:
                    return 200, data, fields
                last = min(int(span[2] or len(data)), len(data) - 1)
                if int(span[1]) >= len(data):
                    raise Refusal(416)
                fields["Content_Range"] = f"bytes {span[1]}-{last}/{len(data)}"
                return 206, data[int(span[1]) : last + 1], fields
            if method == "DELETE":
                self.objects.pop(key, None)
                return 204, b"", {}
            if headers.get("If-None-Match") == "*" and data is not None:
                raise Refusal(412)
            return self.take(method, key, dict(urllib.parse.parse_qsl(query, keep_blank_values=True)), body)

    def take(self, method, key, query, body):
        if method == "POST" and "uploads" in query:
            number = str(len(self.uploads))
            self.uploads[number] = {}
            return 200, f"<r><UploadId>{number}</UploadId></r>".encode(), {}
        if method == "PUT" and "partNumber" in query:
            self.uploads[query["uploadId"]][int(query["partNumber"])] = body
            return 200, b"", {"ETag": '"part"'}
        if method == "POST":
            parts = self.uploads.pop(query["uploadId"])
            body = b"".join(parts[number] for number in sorted(parts))
        etag = self.put(key, body, locked=True)
        return 200, f"<r><ETag>{etag}</ETag></r>".encode() if method == "POST" else b"", {"ETag": etag}

    def put(self, key, data, locked=False):
        etag = f'"{time.monotonic_ns():x}"'
        if locked:
            self.objects[key] = data, etag
        else:
            with self.lock:
                self.objects[key] = data, etag
        return etag

    @property
    def log(self):
        """The requests that were answered, once none is under way."""
        deadline = time.monotonic() + 20
        while self.busy and time.monotonic() < deadline:
            time.sleep(0.001)
        return self.noted

    def asked(self, **of):
        """The requests that have all of these fields."""
        return [served for served in self.log if all(getattr(served, name) == value for name, value in of.items())]

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


# ------------------------------------------------------------------------------------------- processes


def attached(name, timeout, origin, keep):
    import sluice

    made = sluice.attach(name, timeout, origin=origin, framework="dlpack")
    found = summary(made)
    if keep:
        KEPT.append(made)
    else:
        made.close()
    return found


def summary(made):
    """The version, the number of tensors and the bytes that there are in it."""
    import ctypes

    seen = set()
    for name in made:
        _, _, _, _, address, size, _ = made._entry(name)
        memory = ctypes.string_at(address, size)
        seen.add(memory[0])
        if memory.count(memory[:1]) != size:
            seen |= set(memory)
    return made.version, len(made), sorted(seen)


KEPT = []


def released():
    while KEPT:
        kept = KEPT.pop()
        (getattr(kept, "discard", None) or kept.close)()  # a file that is not sealed is given up


def got(name, timeout):
    import sluice

    with sluice.Store() as store, store.get(name, timeout) as blob:
        return bytes(blob)


def pushed(name, data, origin, exclusive=False):
    import sluice

    with sluice.Store() as store:
        store.put(name, data, replace=True).release()
        try:
            store.push(name, origin, exclusive=exclusive)
        finally:
            store.delete(name)


def reserved(name):
    """Makes a file of the store that has the name already."""
    import sluice

    KEPT.append(sluice.open(f"store://{urllib.parse.quote(name)}", "x", expected_size=1000))


def sealed(tag):
    file = KEPT.pop()
    file.write(bytes([tag]) * 1000)
    file.close()


def newer():
    """Of the last that was kept: the one that it was replaced by, or itself."""
    found = KEPT[-1].newer(origin=True).wait()
    if found is None:
        return summary(KEPT[-1])
    result = summary(found)
    KEPT.append(found)
    return result


def mapped(name, timeout, origin):
    """How the memory of the tensors is mapped."""
    import sluice

    with sluice.attach(name, timeout, origin=origin, framework="dlpack") as made, open("/proc/self/maps") as maps:
        rows = [re.match(r"(\w+)-(\w+) (\S+)", line).groups() for line in maps]
        places = [made._entry(tensor)[4] for tensor in made]
        return sorted({how for begin, end, how in rows for at in places if int(begin, 16) <= at < int(end, 16)})


def serve_calls(connection, environment):
    os.environ.update(environment)
    while True:
        try:
            function, arguments = connection.recv()
        except (EOFError, ConnectionError):
            return
        try:
            result = function(*arguments)
        except Exception as error:  # all of them are for the test to judge
            result = type(error).__name__, getattr(error, "errno", None), str(error)
        connection.send(result)


class Process:
    """A process of a node, which makes calls."""

    context = None

    def __init__(self, node):
        cls = type(self)
        if cls.context is None:
            cls.context = multiprocessing.get_context("forkserver")
            cls.context.set_forkserver_preload(["sluice", "origin_nodes"])
        self.connection, theirs = cls.context.Pipe()
        self.process = cls.context.Process(target=serve_calls, args=(theirs, node.environment), daemon=True)
        self.process.start()
        theirs.close()
        self.pid = self.process.pid

    def begin(self, function, *arguments):
        self.connection.send((function, arguments))

    def end(self, timeout=60):
        if not self.connection.poll(timeout):
            raise TimeoutError("a process does not answer")
        return self.connection.recv()

    def call(self, function, *arguments):
        self.begin(function, *arguments)
        return self.end()

    def kill(self):
        self.process.kill()
        self.process.join()
        self.connection.close()

    def stop(self):
        self.connection.close()
        self.process.join(20)


class Node:
    """A daemon and processes that use it."""

    def __init__(self, name, daemon, origin, count):
        self.name, self.daemon = name, daemon
        self.environment = {
            "SLUICE_STORE": daemon.path, "AWS_ENDPOINT_URL": origin.uri, "AWS_ACCESS_KEY_ID": name,
            "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1", "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_EC2_METADATA_DISABLED": "true", "SLUICE_HTTP_HEDGE": "0",
            "SLUICE_HTTP_ATTEMPTS": "4", "SLUICE_HTTP_RETRY_MS": "150", "SLUICE_HTTP_BACKOFF_MS": "1",
            "SLUICE_HTTP_BACKOFF_MAX_MS": "5"}
        self.processes = [Process(self) for _ in range(count)]

    def all(self, function, *arguments):
        """The results of the call, which all of them make at once."""
        for process in self.processes:
            process.begin(function, *arguments)
        return [process.end() for process in self.processes]

    def stop(self):
        for process in self.processes:
            process.stop()
