#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server that answers as S3 does: it checks the signature of each request by itself, as AWS describes Signature
Version 4, and serves the files below a folder as objects, by GET, HEAD and PUT.

The name of the bucket is a list of words with '-' between them, which say how it behaves:

  echo      each object consists of the bytes of its key
  public    requests have to be without a signature
  payer     requests have to have x-amz-request-payer, and to sign it
  skewed    the server's clock is an hour ahead
  north     it is in the region eu-north-1: elsewhere 301 and the region in a field
  south     it is in the region eu-south-1: elsewhere 400 and the region in the XML
  busy      the first GET of an object is answered 503 SlowDown
  away      it redirects GETs to the server itself by another name, where no request may be signed
  none      there is no such bucket
  sums      objects have a checksum, and with "wrong" that of other bytes, with "parts" of their parts; ranges have one, too

Each bucket has a list of the objects in LISTED, two on a page.

Keys: AKIDTEST and SECRET, in any session but one that is "expired"; ASIATEST needs the session "token".
"""

import base64
import calendar
import email.utils
import hashlib
import hmac
import os
import re
import socket
import ssl
import tempfile
import threading
import time
import urllib.parse

SECRETS = {"AKIDTEST": "secret/+of=the-test", "ASIATEST": "another/secret"}


LISTED = ["a b", "a/1", "a/2", "b&<>", "c+d%", "nl\nx", "z/deep/er"]


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc = CRC32C[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xffffffff


def crc32c_row(byte):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82f63b78 if byte & 1 else 0)
    return byte


CRC32C = [crc32c_row(byte) for byte in range(256)]


class Refused(Exception):
    def __init__(self, status, code, message="", fields=(), region=""):
        super().__init__(code)
        self.status, self.code, self.message = status, code, message
        self.fields, self.region = list(fields), region


def digest(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class Request:
    def __init__(self, head):
        lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, _ = lines[0].split(" ")
        self.path, _, self.query = self.target.partition("?")
        self.fields = {}
        for line in filter(None, lines[1:]):
            name, _, value = line.partition(":")
            self.fields.setdefault(name.lower(), []).append(" ".join(value.split()))
        _, bucket, key = self.path.split("/", 2)
        self.words = bucket.split("-")
        self.key = urllib.parse.unquote_to_bytes(key)

    def field(self, name):
        return ",".join(self.fields.get(name, []))

    def now(self):
        return time.time() + 3600 * ("skewed" in self.words)

    def region(self):
        return {"north": "eu-north-1", "south": "eu-south-1"}.get(self.words[0], "us-east-1")

    def signature(self, secret, scope, signed):
        query = "&".join(sorted(item if "=" in item else item + "=" for item in self.query.split("&") if item))
        canonical = "\n".join([self.method, self.path, query] +
                              [f"{name}:{self.field(name)}" for name in signed] +
                              ["", ";".join(signed), self.field("x-amz-content-sha256")])
        text = "\n".join(["AWS4-HMAC-SHA256", self.field("x-amz-date"), "/".join(scope),
                          hashlib.sha256(canonical.encode("latin-1")).hexdigest()])
        key = ("AWS4" + secret).encode()
        for step in scope:
            key = digest(key, step)
        return digest(key, text).hex()

    def check(self):
        """Raises Refused if the request has not exactly one valid signature that covers what it has to."""
        form = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/([^,]+), SignedHeaders=([^,]+), Signature=(\w+)",
                            self.field("authorization"))
        if "public" in self.words:
            if self.fields.keys() & {"authorization", "x-amz-date", "x-amz-security-token"}:
                raise Refused(400, "InvalidArgument", "a signature where none is asked for")
            return
        if not form:
            raise Refused(403, "AccessDenied", "Access Denied")
        identity, scope, signed = form[1], form[2].split("/"), form[3].split(";")
        needs = {"host", "x-amz-date"} | {name for name in self.fields if name.startswith("x-amz-")}
        if not needs <= set(signed) or signed != sorted(signed) or not set(signed) <= self.fields.keys():
            raise Refused(403, "AccessDenied", "There were headers present in the request which were not signed")
        if identity not in SECRETS:
            raise Refused(403, "InvalidAccessKeyId", "The key <is> unknown & so on")
        if scope[1] != self.region():
            there = f"'{self.region()}'"
            if "south" in self.words:
                raise Refused(400, "AuthorizationHeaderMalformed", f"the region is wrong; expecting {there}",
                              region=self.region())
            raise Refused(301, "PermanentRedirect", "The bucket must be addressed elsewhere",
                          [("x-amz-bucket-region", self.region())])
        date = self.field("x-amz-date")
        at = calendar.timegm(time.strptime(date, "%Y%m%dT%H%M%SZ"))
        if abs(at - self.now()) > 900:
            raise Refused(403, "RequestTimeTooSkewed", "The difference between the clocks is too large.")
        if scope != [date[:8], scope[1], "s3", "aws4_request"] or \
                not hmac.compare_digest(form[4], self.signature(SECRETS[identity], scope, signed)):
            raise Refused(403, "SignatureDoesNotMatch", "The signature does not match")
        empty = hashlib.sha256(b"").hexdigest()
        if self.field("x-amz-content-sha256") != ("UNSIGNED-PAYLOAD" if self.method == "PUT" else empty):
            raise Refused(400, "XAmzContentSHA256Mismatch")
        if self.field("x-amz-security-token") == "expired":
            raise Refused(400, "ExpiredToken", "The provided token has expired.")
        if identity == "ASIATEST" and self.field("x-amz-security-token") != "token":
            raise Refused(403, "InvalidAccessKeyId", "the token is missing")
        if "payer" in self.words and self.field("x-amz-request-payer") != "requester":
            raise Refused(403, "AccessDenied", "Access Denied")


class Server:
    def __init__(self, root, certificate=None, key=None):
        self.tls = None
        if certificate:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(certificate, key)
        self.root = os.path.abspath(root).encode()
        self.busy = set()
        self.mutex = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            sock, _ = self.listener.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock):
        rest = b""
        try:
            if self.tls:
                sock = self.tls.wrap_socket(sock, server_side=True)
            while True:
                while b"\r\n\r\n" not in rest:
                    more = sock.recv(65536)
                    if not more:
                        return
                    rest += more
                head, _, rest = rest.partition(b"\r\n\r\n")
                request = Request(head)
                if request.method == "PUT":
                    rest = self.receive(sock, request, rest)
                self.answer(sock, request)
        except OSError:
            pass
        finally:
            sock.close()

    @staticmethod
    def receive(sock, request, rest):
        """Takes the body of a PUT, and returns the bytes behind it."""
        if request.field("expect"):
            sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        parts, left = [rest], int(request.field("content-length") or 0) - len(rest)
        while left > 0:
            parts.append(sock.recv(min(left, 1 << 20)))
            if not parts[-1]:
                raise ConnectionError("the body ended early")
            left -= len(parts[-1])
        request.body = b"".join(parts)
        return b""

    def put(self, sock, request):
        path = os.path.join(self.root, request.key)
        if not request.field("content-length"):
            raise Refused(411, "MissingContentLength", "You must provide the Content-Length HTTP header.")
        if request.field("if-none-match") == "*" and os.path.exists(path):
            raise Refused(412, "PreconditionFailed")
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(path), delete=False) as file:
            file.write(request.body)
        os.rename(file.name, path)
        self.send(sock, request, 200, [("ETag", '"put"')], b"", 0)

    def answer(self, sock, request):
        try:
            self.give(sock, request)
        except Refused as why:
            region = f"<Region>{why.region}</Region>" if why.region else ""
            message = why.message.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
            body = (f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{why.code}</Code>'
                    f"<Message>{message}</Message>{region}<RequestId>R1</RequestId></Error>").encode()
            fields = why.fields + [("Content-Type", "application/xml"), ("x-amz-request-id", "R1")]
            self.send(sock, request, why.status, fields, body, len(body))

    def list(self, sock, request):
        asked = dict(urllib.parse.parse_qsl(request.query, keep_blank_values=True))
        if asked.get("list-type") != "2" or asked.get("encoding-type") != "url":
            raise Refused(400, "InvalidArgument")
        prefix, delimiter, names = asked["prefix"], asked.get("delimiter"), []
        for name in LISTED:
            cut = name.find(delimiter, len(prefix)) + 1 if delimiter else 0
            if name.startswith(prefix) and (name[:cut] or name) not in names:
                names.append(name[:cut] or name)
        at = int(asked.get("continuation-token", "=0=").strip("="))
        entries = "".join(
            f"<CommonPrefixes><Prefix>{urllib.parse.quote_plus(name, safe='/')}</Prefix></CommonPrefixes>"
            if delimiter and name.endswith(delimiter) else
            f"<Contents><Key>{urllib.parse.quote_plus(name, safe='/')}</Key><LastModified>2015-08-30T12:36:00.000Z"
            f"</LastModified><ETag>&quot;e-1&quot;</ETag><Size>{len(name)}</Size></Contents>"
            for name in names[at:at + 2])
        more = at + 2 < len(names)
        token = f"<NextContinuationToken>={at + 2}=</NextContinuationToken>" if more else ""
        body = (f'<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult><Prefix>{prefix}</Prefix>'
                f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{entries}</ListBucketResult>").encode()
        self.send(sock, request, 200, [("Content-Type", "application/xml")], body, len(body))

    def body(self, request):
        """The object's name on disk, or its bytes, and its version."""
        if "echo" in request.words:
            return None, request.key, hashlib.md5(request.key).hexdigest()
        path = os.path.join(self.root, request.key)
        try:
            if not os.path.abspath(path).startswith(self.root + b"/") or not os.path.isfile(path):
                raise FileNotFoundError(path)
            there = os.stat(path)
        except OSError:
            raise Refused(404, "NoSuchKey", "The specified key does not exist.") from None
        return path, None, f"{there.st_ino}-{there.st_mtime_ns}-{there.st_size}"

    def give(self, sock, request):
        if "none" in request.words:
            raise Refused(404, "NoSuchBucket", "The specified bucket does not exist")
        if "away" in request.words and "127.0.0.1" in request.field("host"):
            request.check()
            if request.method == "GET":
                to = f"http://localhost:{self.port}{request.path.replace('away', 'public', 1)}"
                raise Refused(307, "TemporaryRedirect", "", [("Location", to)])
        else:
            request.check()
        with self.mutex:
            if "busy" in request.words and request.method == "GET" and request.key not in self.busy:
                self.busy.add(request.key)
                raise Refused(503, "SlowDown", "Please reduce your request rate.")
        if request.method == "PUT":
            self.put(sock, request)
            return
        if not request.key and request.method == "GET":
            self.list(sock, request)
            return
        path, data, version = self.body(request)
        etag = f'"{version}"'
        size = os.path.getsize(path) if path else len(data)
        if request.field("if-match") not in ("", etag):
            raise Refused(412, "PreconditionFailed")
        fields = [("ETag", etag), ("Accept-Ranges", "bytes"), ("x-amz-request-id", "R1"),
                  ("Last-Modified", email.utils.formatdate(os.path.getmtime(path) if path else 0, usegmt=True))]
        first, last, status = 0, size - 1, 200
        form = re.fullmatch(r"bytes=(\d+)-(\d+)", request.field("range"))
        if form:
            first, last, status = int(form[1]), min(int(form[2]), size - 1), 206
            if first >= size:
                raise Refused(416, "InvalidRange", "", [("Content-Range", f"bytes */{size}")])
            fields.append(("Content-Range", f"bytes {first}-{last}/{size}"))
        if path and request.method == "GET":
            with open(path, "rb") as file:
                data = os.pread(file.fileno(), last + 1 - first, first)
        elif data is not None:
            data = data[first:last + 1]
        if "sums" in request.words and request.field("x-amz-checksum-mode") == "ENABLED":
            whole = data if data is not None else open(path, "rb").read()
            crc = base64.b64encode(crc32c(whole + b"x" * ("wrong" in request.words)).to_bytes(4, "big")).decode()
            fields += [("x-amz-checksum-crc32c", crc + "-2" * ("parts" in request.words)),
                       ("x-amz-checksum-type", "COMPOSITE" if "parts" in request.words else "FULL_OBJECT")]
        self.send(sock, request, status, fields, data, last + 1 - first)

    @staticmethod
    def send(sock, request, status, fields, body, length):
        date = email.utils.formatdate(request.now(), usegmt=True)
        head = "".join(f"{name}: {value}\r\n" for name, value in
                       [("Date", date), ("Content-Length", length), *fields])
        sock.sendall(f"HTTP/1.1 {status} S\r\n{head}\r\n".encode() +
                     (body if request.method != "HEAD" and body else b""))


def start(*arguments):
    """Starts the server on a thread. Returns its port."""
    return Server(*arguments).port
