#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An HTTP server that does wrong what it is told to do wrong.

An object is /ID/NAME?OPTIONS, or /ID/NAME;OPTIONS. Its bytes are those of the file given with --pattern, over and over,
so that it can be larger than any disk. GET /_/ID tells what was asked for below ID, forgets it
with ?forget, and ends what the fault "hold" began with ?release. What is PUT is kept in memory, and read again with stored=1. Options:

  size=N              bytes of the object (default 1000003)
  file=NAME           a file below --root instead
  version=N           which content and ETag it has; change=K: one more from the K-th GET on
  etag=weak|none|same instead of a strong one that names the ID; ifmatch=ignore: If-Match is not looked at
  farm=1              every other connection is to a server with ETags of its own
  pad=N               bytes more of ETag, in front
  modified=SECONDS    there is a Last-Modified, so many after 1970 and one more for each version
  ranged=200          the status of parts, instead of 206
  ranges=no           only whole objects; ranges=silent: they work, but HEAD does not say so
  head=CODE|nolength  what HEAD answers
  put=length          a PUT that does not say its length gets 411
  length=no|chunked   how a GET says where its body ends; length=close: it does, and closes
  close=1             one request for each connection
  mute=1              every other connection is accepted, and never answered
  latency=MS          before each answer
  stall_percent=P     of the GET requests stop in mid-body for stall_ms=MS (default 5000)
  pace=BYTES:MS       the body in steps of BYTES with MS between them

  fault=NAME[:ARG]    see the functions fault_NAME in faults.py; for the requests that are
    on=METHODS        of these methods (default GET), separated by commas
    at=OFFSET         for a range that holds this byte
    skip=N, times=N   not among the first N, and no more than N of them

  quota=N, signed=METHOD and fault=hub: see hub.py
  auth=KINDS: see passwords.py
  bearer=A:B:N        401, with the token that came, but for the token A; from request N on, B
"""

import argparse
import collections
import email.utils
import os
import random
import socket
import ssl
import struct
import sys
import threading
import time
import urllib.parse

sys.dont_write_bytecode = True
from faults import Faults, Gone  # noqa: E402
from hub import Hub  # noqa: E402
from passwords import Passwords  # noqa: E402

REASONS = {200: "OK", 201: "Created", 206: "Partial Content", 302: "Found", 401: "Unauthorized",
           403: "Forbidden", 404: "Not Found", 410: "Gone", 412: "Precondition Failed",
           416: "Range Not Satisfiable", 429: "Too Many Requests", 503: "Service Unavailable"}
HEAD_MOST = 1 << 20
STEP = 1 << 20


class Ledger:
    """What was asked for below one ID, and what was put there."""

    def __init__(self):
        self.lock = threading.Lock()
        self.lines = []
        self.methods = collections.Counter()
        self.statuses = collections.Counter()
        self.connections = set()
        self.matches = 0  # requests that a fault was meant for
        self.served = 0  # GET requests that began
        self.now = self.peak = 0
        self.sent = 0  # bytes of bodies
        self.stored = {}
        self.signatures = 0  # given by a hub
        self.signed = collections.Counter()  # requests with each signature
        self.quota_used, self.quota_ends = 0, 0.0
        self.released = threading.Event()

    def text(self):
        with self.lock:
            out = [f"requests {sum(self.methods.values())}",
                   f"connections {len(self.connections)}",
                   f"peak {self.peak}", f"now {self.now}", f"sent {self.sent}",
                   f"signatures {self.signatures}"]
            out += [f"{name} {n}" for name, n in sorted(self.methods.items())]
            out += [f"status_{code} {n}" for code, n in sorted(self.statuses.items())]
            out += [f"stored {path} {len(body)}" for path, body in sorted(self.stored.items())]
            return "\n".join(out + self.lines) + "\n"


class Server:
    def __init__(self, options):
        self.options = options
        self.lock = threading.Lock()
        self.ledgers = {}
        self.connections = 0
        self.listeners = {}  # by port
        self.random = random.Random(options.seed)
        with open(options.pattern, "rb") as file:
            pattern = file.read()
        self.period = len(pattern)
        self.pattern = memoryview(pattern + pattern)

    def ledger(self, name):
        with self.lock:
            return self.ledgers.setdefault(name, Ledger())

    def forget(self, name):
        with self.lock:
            self.ledgers.pop(name, None)

    def chance(self, percent):
        with self.lock:
            return self.random.uniform(0, 100) < percent

    def listen(self, host, context=None):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, 0))
        listener.listen(512)
        port = listener.getsockname()[1]
        self.listeners[port] = listener
        threading.Thread(target=self.accept, args=(listener, port, context), daemon=True).start()
        return port

    def leave(self, port):
        """Connections to the port are refused from now on."""
        with self.lock:
            listener = self.listeners.pop(port, None)
        if listener:
            listener.shutdown(socket.SHUT_RDWR)

    def accept(self, listener, port, context):
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                listener.close()
                return
            with self.lock:
                self.connections += 1
                number = self.connections
            threading.Thread(target=self.serve, args=(sock, number, context), daemon=True).start()

    def serve(self, sock, number, context):
        connection = None
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context:
                sock.settimeout(30)
                sock = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
                try:
                    sock.do_handshake()
                except ssl.SSLError:
                    # The other end reads the alert, and no reset before it.
                    sock = socket.socket(fileno=sock.detach())
                    sock.settimeout(30)
                    Connection(self, sock, number).wait_for_the_other_end()
                sock.settimeout(None)
            connection = Connection(self, sock, number)
            connection.run()
        except (Gone, OSError, ValueError):
            pass
        finally:
            sock.close()


class Request:
    def __init__(self, head):
        lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, self.protocol = lines[0].split(" ", 2)
        self.headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self.path, _, query = self.target.replace(";", "?", 1).partition("?")
        self.options = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        self.id = self.path.split("/")[1] if self.path.count("/") > 1 else ""

    def line(self, connection):
        shown = ("range", "if-match", "authorization", "host", "content-length", "user-agent", "content-type",
                 "x-test")
        return f"{self.method} {self.target} connection={connection} " + " ".join(
            f"{name}={self.headers.get(name, '-')}" for name in shown)

    def number(self, name, otherwise=0):
        return int(self.options.get(name, otherwise))


class Connection:
    def __init__(self, server, sock, number):
        self.server, self.sock, self.number = server, sock, number
        self.ahead = b""

    # ------------------------------------------------------------------------------- the wire

    def receive(self):
        data = self.sock.recv(1 << 18)
        if not data:
            raise Gone
        return data

    def read_until(self, mark, most):
        while mark not in self.ahead:
            if len(self.ahead) > most:
                raise Gone
            self.ahead += self.receive()
        found, _, self.ahead = self.ahead.partition(mark)
        return found

    def read_exactly(self, n):
        parts, have = [], 0
        while have < n:
            if not self.ahead:
                self.ahead = self.receive()
            part, self.ahead = self.ahead[:n - have], self.ahead[n - have:]
            parts.append(part)
            have += len(part)
        return b"".join(parts)

    def read_body(self, request):
        """The body of a PUT, in either of the two ways to say how long it is."""
        if request.headers.get("expect", "").lower() == "100-continue":
            self.sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        if "chunked" not in request.headers.get("transfer-encoding", ""):
            return self.read_exactly(int(request.headers.get("content-length", 0)))
        parts = []
        while True:
            n = int(self.read_until(b"\r\n", 100), 16)
            parts.append(self.read_exactly(n))
            self.read_until(b"\r\n", 1000)
            if n == 0:
                return b"".join(parts)

    def wait_for_the_other_end(self):
        """Until the other end closes."""
        try:
            while self.sock.recv(1 << 16):
                pass
        except OSError:
            pass
        raise Gone

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()
        raise Gone

    # ------------------------------------------------------------------------------ requests

    def run(self):
        while True:
            try:
                request = Request(self.read_until(b"\r\n\r\n", HEAD_MOST))
            except ValueError:
                self.sock.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                raise Gone from None
            if request.method == "CONNECT":  # to a host codeNNN.invalid
                status = request.target[4:7]
                self.sock.sendall(f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n".encode())
                raise Gone
            if request.id == "_":
                self.tell(request)
                continue
            ledger = self.server.ledger(request.id)
            with ledger.lock:
                ledger.methods[request.method] += 1
                ledger.connections.add(self.number)
                ledger.now += 1
                ledger.peak = max(ledger.peak, ledger.now)
                ledger.lines.append(request.line(self.number))
            answer = Answer(self, request, ledger)
            try:
                if "mute" in request.options and self.number % 2:
                    self.wait_for_the_other_end()
                answer.give()
            finally:
                answer.leaves()
                if answer.file is not None:
                    os.close(answer.file)
            if request.options.get("close") or answer.last:
                raise Gone

    def tell(self, request):
        name = request.path.rpartition("/")[2]
        body = self.server.ledger(name).text().encode()
        if "release" in request.options:
            self.server.ledger(name).released.set()
        if "forget" in request.options:
            self.server.forget(name)
        self.sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


class Answer(Faults, Hub, Passwords):
    """One request and what is sent for it."""

    def __init__(self, connection, request, ledger):
        self.connection, self.request, self.ledger = connection, request, ledger
        self.server, self.sock = connection.server, connection.sock
        self.options = request.options
        self.left = False
        self.last = False  # the connection is to be closed behind this
        self.version = request.number("version")
        self.file = None
        self.stop_at, self.stop = None, None
        self.match = None  # how many requests that the fault was meant for came before

    def count(self, n):
        """Before they are sent: the other end may ask before this thread goes on."""
        with self.ledger.lock:
            self.ledger.sent += n

    def leaves(self):
        """It counts no more as one of those that are under way. Before its last bytes: the other
        end may have them, and send the next request, before this thread goes on."""
        if not self.left:
            self.left = True
            with self.ledger.lock:
                self.ledger.now -= 1

    def give(self):
        request = self.request
        if request.number("latency"):
            time.sleep(request.number("latency") / 1000)
        elif self.server.options.latency:
            time.sleep(self.server.options.latency / 1000)
        if self.over_quota() or self.badly_signed() or self.lacks_token() or self.lacks_password():
            return None
        with self.ledger.lock:
            if request.method == "GET":
                self.ledger.served += 1
            if "change" in self.options and self.ledger.served > request.number("change"):
                self.version += 1
        self.size = self.find_size()
        if self.size is None and request.method != "PUT":
            return self.error(404, "there is nothing here")
        self.first, self.end = self.range()
        fault = self.due_fault()
        if fault:
            name, _, argument = fault.partition(":")
            return getattr(self, "fault_" + name)(argument)
        return self.right()

    def lacks_token(self):
        if "bearer" not in self.options:
            return False
        first, then, change = self.options["bearer"].split(":")
        with self.ledger.lock:
            token = first if sum(self.ledger.methods.values()) < int(change) else then
        came = self.request.headers.get("authorization", "nothing")
        if came == "Bearer " + token:
            return False
        self.error(401, "I do not know " + came)
        return True

    def right(self):
        request = self.request
        if request.method == "PUT" and self.options.get("put") == "length" and \
                "content-length" not in request.headers:
            self.error(411, "say how long it is")
            raise Gone
        if request.method == "PUT":
            return self.put()
        if request.method == "HEAD":
            return self.head()
        return self.get()

    def find_size(self):
        if "stored" in self.options:
            body = self.ledger.stored.get(self.request.path)
            return None if body is None else len(body)
        if "file" in self.options:
            path = os.path.join(self.server.options.root, os.path.basename(self.options["file"]))
            self.file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            return os.fstat(self.file).st_size
        return self.request.number("size", 1000003)

    def range(self):
        """First byte and end of what was asked for; (0, size) without a range."""
        if self.size is None:
            return 0, 0
        unit, _, text = self.request.headers.get("range", "").partition("=")
        first, dash, last = text.partition("-")
        if unit != "bytes" or not dash or self.options.get("ranges") == "no":
            return 0, self.size
        if not first:
            return max(0, self.size - int(last)), self.size
        return int(first), min(self.size, int(last) + 1 if last else self.size)

    def status(self):
        return self.request.number("ranged", 206) if self.is_ranged() else 200

    def is_ranged(self):
        return "range" in self.request.headers and self.options.get("ranges") != "no"

    def due_fault(self):
        request = self.request
        if "fault" not in self.options:
            return None
        if request.method not in self.options.get("on", "GET").upper().split(","):
            return None
        if "at" in self.options and not self.first <= request.number("at") < self.end:
            return None
        with self.ledger.lock:
            self.match = self.ledger.matches
            self.ledger.matches += 1
        skip = request.number("skip")
        return self.options["fault"] if skip <= self.match < skip + request.number("times", 1 << 60) else None

    # ------------------------------------------------------------------------ right answers

    def etag(self):
        kind = self.options.get("etag", "strong")
        tag = "x" * self.request.number("pad")
        tag += "f" * ("farm" in self.options and self.connection.number % 2)
        tag = f'"{tag}{"same" if kind == "same" else self.request.id}-{self.version}"'
        return [] if kind == "none" else [("ETag", "W/" + tag if kind == "weak" else tag)]

    def send_head(self, status, headers, length=None):
        """length: bytes of the body; None: the headers say it, or it ends with the connection."""
        with self.ledger.lock:
            self.ledger.statuses[status] += 1
        headers = list(headers)
        if length is not None:
            headers.append(("Content-Length", length))
        if self.options.get("close"):
            headers.append(("Connection", "close"))
        text = f"HTTP/1.1 {status} {REASONS.get(status, 'Unknown')}\r\nServer: fault\r\n"
        text += "".join(f"{name}: {value}\r\n" for name, value in headers)
        self.sock.sendall((text + "\r\n").encode("latin-1"))

    def object_headers(self):
        ranges = self.options.get("ranges")
        out = self.etag() + [("Content-Type", "application/octet-stream")]
        if "modified" in self.options:
            out.append(("Last-Modified",
                        email.utils.formatdate(self.request.number("modified") + self.version,
                                                usegmt=True)))
        if not (ranges == "no" or ranges == "silent" and self.request.method == "HEAD"):
            out.append(("Accept-Ranges", "bytes"))
        return out

    def content_range(self, first=None, end=None, size=None):
        first = self.first if first is None else first
        end = self.end if end is None else end
        size = self.size if size is None else size
        return ("Content-Range", f"bytes {first}-{end - 1}/{size}")

    def error(self, status, text, headers=()):
        body = text.encode()
        self.leaves()
        self.send_head(status, headers, len(body))
        if self.request.method != "HEAD":
            self.sock.sendall(body)

    def head(self):
        special = self.options.get("head", "")
        if special == "nolength":
            self.send_head(200, self.object_headers())
        elif special:
            self.send_head(int(special), [], 0)
        else:
            self.send_head(200, self.object_headers(), self.size)

    def get(self, extra=()):
        wanted = self.request.headers.get("if-match")
        if wanted and self.options.get("ifmatch") != "ignore" and self.etag() and \
                wanted != self.etag()[0][1]:
            return self.error(412, "it has another ETag now")
        if self.is_ranged() and (self.first >= self.size or self.first >= self.end):
            return self.error(416, "no such range", [("Content-Range", f"bytes */{self.size}")])
        headers = self.object_headers() + list(extra)
        status = self.status()
        if self.is_ranged():
            headers.append(self.content_range())
        percent = float(self.options.get("stall_percent", self.server.options.stall_percent))
        if percent and self.server.chance(percent):
            pause = int(self.options.get("stall_ms", self.server.options.stall_ms)) / 1000
            self.stop_at, self.stop = (self.end - self.first) // 2, lambda: time.sleep(pause)
        return self.send_object(status, headers)

    def send_object(self, status, headers):
        length = self.options.get("length")
        if length == "chunked":
            self.send_head(status, headers + [("Transfer-Encoding", "chunked")])
        elif length == "no":
            self.last = True
            self.send_head(status, headers + [("Connection", "close")])
        else:
            self.last = length == "close"
            self.send_head(status, headers, self.end - self.first)
        self.send_bytes(self.first, self.end, chunked=length == "chunked")

    def send_bytes(self, at, end, chunked=False):
        """The object's bytes; calls stop() once after stop_at of them, if there are more."""
        if self.stop_at is not None and self.stop_at >= end - at:
            self.stop_at = None
        step, pause = STEP, 0
        if "pace" in self.options:
            step, _, pause = self.options["pace"].partition(":")
            step, pause = int(step), int(pause or 0) / 1000
        if self.stop_at is not None:
            self.send_bytes_until(at, min(end, at + self.stop_at), step, pause, chunked)
            at = min(end, at + self.stop_at)
            self.stop()
            self.stop_at = None
        self.send_bytes_until(at, end, step, pause, chunked)
        if chunked:
            self.sock.sendall(b"0\r\n\r\n")

    def send_bytes_until(self, at, end, step, pause, chunked):
        while at < end:
            part = self.part(at, min(end, at + step))
            if at + len(part) == end and self.stop_at is None:
                self.leaves()
            if chunked:
                self.sock.sendall(b"%x\r\n" % len(part))
            self.count(len(part))
            self.sock.sendall(part)
            if chunked:
                self.sock.sendall(b"\r\n")
            at += len(part)
            if pause and at < end:
                time.sleep(pause)

    def part(self, at, end):
        if self.file is not None:
            return os.pread(self.file, min(end - at, STEP), at)
        if "stored" in self.options:
            return self.ledger.stored[self.request.path][at:end]
        at, n = (at + 7919 * self.version) % self.server.period, end - at
        return self.server.pattern[at:at + min(n, self.server.period, STEP)]

    def put(self):
        exists = self.request.path in self.ledger.stored
        if self.request.headers.get("if-none-match") == "*" and exists:
            self.last = True
            return self.error(412, "it exists")
        body = self.connection.read_body(self.request)
        with self.ledger.lock:
            self.ledger.stored[self.request.path] = body
        return self.send_head(201, self.etag(), 0)


def tls(certificate, key):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def start(options):
    """Listens; the ports by name. options: as main() parses them."""
    server = Server(options)
    ports = {"plain": server.listen("127.0.0.1"), "other": server.listen("127.0.0.1")}
    try:
        ports["ipv6"] = server.listen("::1")
    except OSError:
        ports["ipv6"] = 0
    for entry in options.tls:
        name, certificate, key = entry.split(":")
        context = tls(certificate, key)
        if name == "client":  # which has to have a certificate, too
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(os.path.join(os.path.dirname(certificate), "ca.pem"))
        ports[name] = server.listen("127.0.0.1", context)
    return ports


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pattern", required=True, help="the file whose bytes objects consist of")
    parser.add_argument("--root", default=".", help="the folder of file=NAME")
    parser.add_argument("--tls", action="append", default=[], metavar="NAME:CERTIFICATE:KEY",
                        help="also listen with TLS; the port is printed as NAME=PORT")
    parser.add_argument("--latency", type=float, default=0, metavar="MS")
    parser.add_argument("--stall-percent", type=float, default=0)
    parser.add_argument("--stall-ms", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--until-eof", action="store_true", help="end when standard input ends")
    return parser


def main():
    options = arguments().parse_args()
    ports = start(options)
    print(" ".join(f"{name}={port}" for name, port in ports.items()), flush=True)
    if options.until_eof:
        sys.stdin.read()
    else:
        threading.Event().wait()


if __name__ == "__main__":
    main()
