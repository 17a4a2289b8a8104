#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server that answers as S3 does: it checks the signature of each request by itself, as AWS describes Signature
Version 4, and serves the files below a folder as objects, by GET, HEAD, PUT and DELETE, and by uploads in parts. The
ETags of parts are no hashes of theirs, and those of objects neither.

The name of the bucket is a list of words with '-' between them, which say how it behaves:

  echo      each object consists of the bytes of its key; a version of it has its id behind them
  public    requests have to be without a signature
  payer     requests have to have x-amz-request-payer, and to sign it
  skewed    the server's clock is an hour ahead
  north     it is in the region eu-north-1: elsewhere 301 and the region in a field
  south     it is in the region eu-south-1: elsewhere 400 and the region in the XML
  busy      the first GET of an object is answered 503 SlowDown
  crowded   of more than three GETs at a time the others are answered 503 SlowDown
  halves    the first GET of each range ends in the middle of its body
  stalls    of every 25 ranges the first GET of the last is silent from there on
  away      it redirects GETs to the server itself by another name, where no request may be signed
  none      there is no such bucket
  sealed    bodies have to be part of the signature
  sums      objects have a checksum, and with "wrong" that of other bytes, with "parts" of their parts; ranges have one, too;
            with "untyped" nothing says of which kind it is
  jointed   ETags have the number of parts behind them
  hurried   the first PUT of each part is answered 503 SlowDown
  cut       the connection of the first PUT of each part is closed within the body
  still     the first PUT of the second part has no answer
  denied    parts from the third on are refused
  stuck     uploads are not dropped
  expiring  from the third part on the session "token" has expired, and "token-2" has not
  lost      the first answer to a request that completes an upload is lost, after it was done
  unsure    the first answer to a request that completes an upload begins with success, and has an error in its body
  held      parts have no answer until the object "go" of the bucket "state" is asked for
  slow      each part takes 10 ms more
  sink      bytes are kept nowhere
  checked   uploads say that they have a CRC-32C, and each part and object has to have it: with "wrong" the answer has another
  unaware   requests with a line about checksums are refused
  hashed    ETags are MD5s of parts and objects, and of objects of parts those of the MD5s, as S3 has them

The object "BUCKET" of the bucket "state" has a line for each kind of request to that bucket, with how many were answered,
and for open uploads.

Each bucket has a list of the objects in LISTED, two on a page.

Keys: AKIDTEST and SECRET, in any session but one that is "expired"; ASIATEST needs the session "token"; and those of
metadata_server.py.
"""

import base64
import calendar
import collections
import email.utils
import hashlib
import hmac
import html
import os
import re
import secrets
import socket
import ssl
import tempfile
import threading
import time
import urllib.parse

SECRETS = {"AKIDTEST": "secret/+of=the-test", "ASIATEST": "another/secret"}


class Issued:
    """Keys of metadata_server.py, good for so many requests; None: for all."""

    def __init__(self, secret, token, left):
        self.secret, self.token, self.left = secret, token, left
        self.mutex = threading.Lock()

    def use(self):
        with self.mutex:
            if self.left == 0:
                raise Refused(400, "ExpiredToken", "The provided token has expired.")
            self.left = self.left and self.left - 1


ISSUED = {}  # by their names
SLOWED = collections.Counter()  # answers of "crowded", by the last part of the key

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


def xml_text(text):
    return html.escape(text)


def object_etag(bodies, parts):
    """The ETag of S3 without quotes. parts: "-" and their number; "": the object was put at once."""
    hashes = [hashlib.md5(body) for body in bodies]
    return hashlib.md5(b"".join(part.digest() for part in hashes)).hexdigest() + parts if parts else hashes[0].hexdigest()


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
        self.bucket, self.key = bucket, urllib.parse.unquote_to_bytes(key)
        self.asked = dict(urllib.parse.parse_qsl(self.query, keep_blank_values=True))
        self.body = b""

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

    def payload(self):
        if self.method in ("PUT", "POST") and "sealed" not in self.words:
            return "UNSIGNED-PAYLOAD"
        return hashlib.sha256(self.body).hexdigest()

    def check(self, service="s3"):
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
        keys = ISSUED.get(identity)
        if identity not in SECRETS and not keys:
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
        secret = keys.secret if keys else SECRETS[identity]
        if scope != [date[:8], scope[1], service, "aws4_request"] or \
                not hmac.compare_digest(form[4], self.signature(secret, scope, signed)):
            raise Refused(403, "SignatureDoesNotMatch", "The signature does not match")
        if self.field("x-amz-content-sha256") != self.payload():
            raise Refused(400, "XAmzContentSHA256Mismatch")
        if self.field("x-amz-security-token") == "expired":
            raise Refused(400, "ExpiredToken", "The provided token has expired.")
        if keys and self.field("x-amz-security-token") != keys.token:
            raise Refused(403, "InvalidToken", "the token is another")
        if keys and self.method != "HEAD":
            keys.use()
        if identity == "ASIATEST" and self.field("x-amz-security-token") not in ("token", "token-2"):
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
        self.busy, self.begun = set(), collections.defaultdict(set)
        self.crowd = 0
        self.uploads = {}
        self.etags = {}  # of objects that are hashed, by path
        self.counts = collections.defaultdict(collections.Counter)
        self.made = 0
        self.go = threading.Event()
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
                if request.method in ("PUT", "POST"):
                    rest = self.receive(sock, request, rest)
                self.answer(sock, request)
        except OSError:
            pass
        finally:
            sock.close()

    def first(self, *what):
        """Whether that happens for the first time."""
        with self.mutex:
            if what in self.busy:
                return False
            self.busy.add(what)
            return True

    def receive(self, sock, request, rest):
        """Takes the body of a PUT or POST, and returns the bytes behind it."""
        if request.field("expect"):
            sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        length = int(request.field("content-length") or 0)
        number = request.asked.get("partNumber")
        if number and "cut" in request.words and self.first(request.key, number):
            length //= 2
        parts, left = [rest], length - len(rest)
        while left > 0:
            more = sock.recv(min(left, 1 << 20))
            if not more:
                raise ConnectionError("the body ended early")
            if not number or "sink" not in request.words:
                parts.append(more)
            left -= len(more)
        request.body = b"".join(parts)
        if length < int(request.field("content-length") or 0):
            raise ConnectionError("the connection is closed on purpose")
        return b""

    # Uploads in parts.

    def upload_of(self, request):
        upload = self.uploads.get(request.asked["uploadId"])
        if not upload or (upload["bucket"], upload["key"]) != (request.bucket, request.key):
            raise Refused(404, "NoSuchUpload", "The specified upload does not exist.")
        return upload

    @staticmethod
    def checksum(request):
        """Checks that of the body. Returns the fields of the answer."""
        sum = request.field("x-amz-checksum-crc32c")
        if "unaware" in request.words and sum:
            raise Refused(400, "InvalidArgument", "x-amz-checksum-crc32c")
        if "checked" not in request.words:
            return []
        own = base64.b64encode(crc32c(request.body).to_bytes(4, "big")).decode()
        if sum != own:
            raise Refused(400, "BadDigest", "The CRC32C you specified did not match the calculated checksum.")
        return [("x-amz-checksum-crc32c", "AAAAAA==" if "wrong" in request.words else own)]

    def new_upload(self, sock, request):
        sums = request.field("x-amz-checksum-algorithm")
        if "unaware" in request.words and sums:
            raise Refused(501, "NotImplemented", "A header you provided implies functionality that is not implemented")
        if "checked" in request.words and sums != "CRC32C":
            raise Refused(400, "InvalidRequest", "no checksums")
        with self.mutex:
            self.made += 1
            name = f"{self.made}/+=&{secrets.token_hex(8)}"
            self.uploads[name] = {"bucket": request.bucket, "key": request.key, "parts": {}, "fields": request.fields}
        self.xml(sock, request, f"<InitiateMultipartUploadResult><Key>{xml_text(request.key.decode())}</Key>"
                 f"<UploadId>{xml_text(name)}</UploadId></InitiateMultipartUploadResult>",
                 [("x-amz-checksum-algorithm", sums)] if "checked" in request.words else [])

    def put_part(self, sock, request):
        number = int(request.asked["partNumber"])
        if not 1 <= number <= 10000:
            raise Refused(400, "InvalidArgument", "Part number must be an integer between 1 and 10000, inclusive")
        if "hurried" in request.words and self.first(request.key, number):
            raise Refused(503, "SlowDown", "Please reduce your request rate.")
        if "denied" in request.words and number >= 3:
            raise Refused(403, "AccessDenied", "Access Denied")
        if "still" in request.words and number == 2 and self.first(request.key, number):
            sock.recv(1)
            raise ConnectionError("the client has given up")
        if "held" in request.words:
            self.go.wait(60)
        if "slow" in request.words:
            time.sleep(0.01)
        fields = self.checksum(request)
        with self.mutex:
            upload = self.upload_of(request)
            if "expiring" in request.words and len(upload["parts"]) >= 2 and \
                    request.field("x-amz-security-token") == "token":
                raise Refused(400, "ExpiredToken", "The provided token has expired.")
            etag = f'"{hashlib.md5(request.body).hexdigest()}"' if "hashed" in request.words else \
                f'"{secrets.token_hex(8)}&<{number}"'
            upload["parts"][number] = (etag, request.body)
        self.send(sock, request, 200, [("ETag", etag), *fields], b"", 0)

    def complete(self, sock, request):
        with self.mutex:
            upload = self.upload_of(request)
            found = re.findall(r"<Part><PartNumber>(\d+)</PartNumber><ETag>([^<]*)</ETag>"
                               r"(?:<ChecksumCRC32C>([^<]*)</ChecksumCRC32C>)?</Part>", request.body.decode())
            asked = [(int(number), html.unescape(etag)) for number, etag, _ in found]
            parts = upload["parts"]
            if any((base64.b64encode(crc32c(parts[int(n)][1]).to_bytes(4, "big")).decode() if "checked" in request.words
                    else "") != sum for n, _, sum in found):
                raise Refused(400, "InvalidPart", "a checksum of a part is missing, or another")
            if not asked or asked != sorted(asked) or any(parts.get(n, ("",))[0] != etag for n, etag in asked):
                raise Refused(400, "InvalidPart", "One or more of the specified parts could not be found.")
            unsure = "unsure" in request.words and ("unsure", request.key) not in self.busy
            self.busy.add(("unsure", request.key))
            if not unsure:
                self.store(request, [parts[n][1] for n, _ in asked], f"-{len(asked)}")
                del self.uploads[request.asked["uploadId"]]
        if unsure:
            self.xml(sock, request, "\n" * 9000 + "<Error><Code>InternalError</Code><Message>Again</Message></Error>")
            return
        if "lost" in request.words:
            raise ConnectionError("the answer is lost")
        self.xml(sock, request, '<CompleteMultipartUploadResult><ETag>"x"</ETag></CompleteMultipartUploadResult>')

    def store(self, request, bodies, parts=""):
        path = os.path.join(self.root, request.key)
        if request.field("if-none-match") == "*" and os.path.exists(path):
            raise Refused(412, "PreconditionFailed")
        if "sink" in request.words:
            return
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(path), delete=False) as file:
            for body in bodies:
                file.write(body)
        os.rename(file.name, path)
        if "hashed" in request.words:
            self.etags[path] = object_etag(bodies, parts)

    def remove(self, sock, request):
        if request.field("if-none-match"):
            raise Refused(412, "PreconditionFailed")
        with self.mutex:
            if "uploadId" in request.asked:
                self.upload_of(request)
                if "stuck" in request.words:
                    raise Refused(405, "MethodNotAllowed", "The upload stays.")
                del self.uploads[request.asked["uploadId"]]
            else:
                try:
                    os.unlink(os.path.join(self.root, request.key))
                except (FileNotFoundError, IsADirectoryError):
                    pass
        self.send(sock, request, 204, [], b"", 0)

    def remove_many(self, sock, request):
        keys = [html.unescape(key) for key in re.findall("<Object><Key>([^<]*)</Key></Object>", request.body.decode())]
        if base64.b64decode(request.field("content-md5")) != hashlib.md5(request.body).digest() or len(keys) > 1000:
            raise Refused(400, "InvalidDigest")
        for key in keys:
            try:
                os.unlink(os.path.join(self.root, key.encode()))
            except (FileNotFoundError, IsADirectoryError):
                pass
        entries = "".join(f"<Deleted><Key>{xml_text(key)}</Key></Deleted>" for key in keys)
        self.xml(sock, request, f"<DeleteResult>{entries}</DeleteResult>")

    def list_uploads(self, sock, request):
        """Two on a page."""
        prefix, marker = request.asked["prefix"].encode(), request.asked.get("upload-id-marker", "")
        with self.mutex:
            names = sorted(name for name, upload in self.uploads.items()
                           if upload["bucket"] == request.bucket and upload["key"].startswith(prefix) and name > marker)
        entries = "".join(
            f"<Upload><Key>{urllib.parse.quote_plus(self.uploads[name]['key'], safe='/')}</Key><UploadId>"
            f"{xml_text(name)}</UploadId><Initiated>2015-08-30T12:36:00.000Z</Initiated></Upload>" for name in names[:2])
        more = ""
        if len(names) > 2:
            key = urllib.parse.quote_plus(self.uploads[names[1]]["key"], safe="/")
            more = f"<NextKeyMarker>{key}</NextKeyMarker><NextUploadIdMarker>{xml_text(names[1])}</NextUploadIdMarker>"
        self.xml(sock, request, f"<ListMultipartUploadsResult><EncodingType>url</EncodingType><IsTruncated>"
                 f"{str(bool(more)).lower()}</IsTruncated>{more}{entries}</ListMultipartUploadsResult>")

    def state(self, bucket):
        if bucket == "go":
            self.go.set()
        with self.mutex:
            lines = [f"\n{what} {count}" for what, count in sorted(self.counts[bucket].items())]
            lines.append(f"\nopen {sum(upload['bucket'] == bucket for upload in self.uploads.values())}\n")
        return "".join(lines).ljust(400).encode()

    def xml(self, sock, request, text, fields=()):
        body = ('<?xml version="1.0" encoding="UTF-8"?>\n' + text).encode()
        self.send(sock, request, 200, [("Content-Type", "application/xml"), *fields], body, len(body))

    def put(self, sock, request):
        if not request.field("content-length"):
            raise Refused(411, "MissingContentLength", "You must provide the Content-Length HTTP header.")
        fields = self.checksum(request)
        self.store(request, [request.body])
        self.send(sock, request, 200, [("ETag", '"put"'), *fields], b"", 0)

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
        asked = request.asked
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
                f"<EncodingType>url</EncodingType>"
                f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{entries}</ListBucketResult>").encode()
        self.send(sock, request, 200, [("Content-Type", "application/xml")], body, len(body))

    calls = {("PUT",): put, ("PUT", "partNumber", "uploadId"): put_part, ("POST", "uploads"): new_upload,
             ("POST", "uploadId"): complete, ("DELETE",): remove, ("DELETE", "uploadId"): remove, ("POST", "delete"): remove_many,
             ("GET", "uploads"): list_uploads}

    def body(self, request):
        """The object's name on disk, or its bytes, and its version."""
        if request.bucket == "state":
            data = self.state(request.key.decode())
            return None, data, "state"
        if "echo" in request.words:
            data = request.key + request.asked.get("versionId", "").encode()
            return None, data, hashlib.md5(data).hexdigest()
        path = os.path.join(self.root, request.key)
        try:
            if not os.path.abspath(path).startswith(self.root + b"/") or not os.path.isfile(path):
                raise FileNotFoundError(path)
            there = os.stat(path)
        except OSError:
            raise Refused(404, "NoSuchKey", "The specified key does not exist.") from None
        version = f"{there.st_ino}-{there.st_mtime_ns}-{there.st_size}"
        return path, None, self.etags.get(path, version) if "hashed" in request.words else version

    def modified(self, request, path):
        return os.path.getmtime(path) if path else 0

    def give(self, sock, request):
        if "crowded" not in request.words or request.method != "GET":
            self.give_alone(sock, request)
            return
        with self.mutex:
            self.crowd += 1
            slow = self.crowd > 3
        try:
            if slow:
                SLOWED[os.path.basename(request.key).decode()] += 1
                raise Refused(503, "SlowDown", "Please reduce your request rate.")
            time.sleep(0.01)
            self.give_alone(sock, request)
        finally:
            with self.mutex:
                self.crowd -= 1

    def is_cut(self, request):
        with self.mutex:
            begun = self.begun[request.path]
            if request.method != "GET" or request.field("range") in begun:
                return False
            begun.add(request.field("range"))
            return "halves" in request.words or ("stalls" in request.words and len(begun) % 25 == 0)

    def give_alone(self, sock, request):
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
        call = (request.method, *sorted(request.asked.keys() & {"uploads", "uploadId", "partNumber", "delete"}))
        with self.mutex:
            self.counts[request.bucket]["_".join(call)] += 1
        if call in self.calls:
            self.calls[call](self, sock, request)
            return
        if not request.key and request.method == "GET":
            self.list(sock, request)
            return
        path, data, version = self.body(request)
        etag = f'"{version}{"-2" * ("jointed" in request.words)}"'
        size = os.path.getsize(path) if path else len(data)
        if request.field("if-match") not in ("", etag):
            raise Refused(412, "PreconditionFailed")
        fields = [("ETag", etag), ("Accept-Ranges", "bytes"), ("x-amz-request-id", "R1"),
                  ("Last-Modified", email.utils.formatdate(self.modified(request, path), usegmt=True))]
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
            fields.append(("x-amz-checksum-crc32c", crc + "-2" * ("parts" in request.words)))
            if "untyped" not in request.words:
                fields.append(("x-amz-checksum-type", "COMPOSITE" if "parts" in request.words else "FULL_OBJECT"))
        if self.is_cut(request):
            self.send(sock, request, status, fields, data[:len(data) // 2], last + 1 - first)
            if "stalls" in request.words:
                sock.recv(1)  # until the other end closes
            raise ConnectionError("cut")
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
