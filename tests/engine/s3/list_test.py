#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists of a server that encodes names in every way, and breaks its lists in every way: a command that succeeds has
seen exactly the names that are there, and no other is ever removed: list_test.py SLUICE

The lists are of SLUICE_TEST_SEED, or of a seed that is printed; 3000 of them with STRESS.
"""

import http.server
import json
import os
import random
import subprocess
import sys
import threading
import time
import urllib.parse

SLUICE = os.path.realpath(sys.argv[1])
ROUNDS = 3000 if os.environ.get("STRESS") else 60
FAULTS = ("cut", "cut, with its length", "no token", "empty token", "old token", "version 1", "does not say", "no list",
          "entity", "escape", "name cut", "no id")
TIME = "2020-01-02T03:04:05.000Z"
WRONG_ENTITIES = ("&", "&nbsp;", "&#;", "&#xD800;", "&#x110000;", "&#0;", "&#12", "&amp", "&#-5;", "&#x 41;")
ALPHABET = "+ %41%zz&<>\"'\r\n\t/;#=?\\]!.~aé€\u202e𝄞"


def number(chance, character):
    digits = "0" * chance.randrange(3)
    return chance.choice((f"&#{digits}{ord(character)};", f"&#x{digits}{ord(character):x};", f"&#x{ord(character):X};"))


def xml_text(chance, name):
    """The bytes of a name as XML: what need not be escaped sometimes is."""
    out = ""
    for c in name.decode():
        named = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"}.get(c)
        must = c in "&<\r"
        if must or chance.random() < 0.2:
            out += named if named and chance.random() < 0.7 else number(chance, c)
        else:
            out += c
    return out


def url_text(chance, name):
    """The bytes of a name with percent-escapes: what need not be escaped sometimes is."""
    out, form = "", chance.choice(("%%%02X", "%%%02x"))
    for b in name:
        if b == 32 and chance.random() < 0.5:
            out += "+"
        elif chr(b) in "-_.~/" or (b < 128 and chr(b).isalnum()):
            out += chr(b) if chance.random() < 0.9 else form % b
        elif chr(b) in "!*();:@=,$'" and chance.random() < 0.3:
            out += chr(b)
        else:
            out += form % b
    return out


class Bucket:
    """What a server has, how it writes lists, and what is wrong with them; one for each command."""

    def __init__(self, seed, fault):
        self.chance = chance = random.Random(seed)
        self.encodes = chance.random() < 0.5
        self.fault, self.broken = fault, False
        self.page, self.pages, self.removed = chance.randint(1, 9), 0, []
        self.deep = chance.randrange(4)  # the page that the fault is of
        count = chance.choice((0, 1, 5, 20, 60))
        self.names = sorted({self.name() for _ in range(count)})
        uploads = {(self.name(), f"u{i}{chance.choice(('', '&<', '%41+'))}") for i in range(count)}
        self.uploads = sorted({(name, id) for name, id in uploads})
        self.lock = threading.Lock()

    def name(self):
        name = "".join(self.chance.choice(ALPHABET) for _ in range(self.chance.randint(1, 12))).encode()
        if self.encodes and self.chance.random() < 0.3:  # XML has no form for these
            name += bytes((self.chance.randint(1, 255), self.chance.randint(128, 255)))
        return name

    def text(self, name):
        return (url_text if self.encodes else xml_text)(self.chance, name)

    def wrong_text(self, name):
        """A text that no XML, or no encoder, has."""
        if self.fault == "entity":
            return self.text(name) + self.chance.choice(WRONG_ENTITIES)
        if self.fault == "escape" and self.encodes:
            return self.text(name) + self.chance.choice(("%", "%4", "%4g", "%00", "%+1"))
        return "<"

    def answer(self, asked):
        chance, uploads = self.chance, b"uploads" in asked
        prefix, delimiter = asked[b"prefix"], asked.get(b"delimiter", b"")
        if uploads:
            rows = [(key, id) for key, id in self.uploads if key.startswith(prefix)]
            after = (asked.get(b"key-marker", b""), asked.get(b"upload-id-marker", b"").decode())
            at = sum(row <= after for row in rows) if after[0] else 0
        else:
            rows = [(key, "") for key in names_of(self.names, prefix, delimiter)]
            at = int(asked.get(b"continuation-token", b"0/=").split(b"/")[0])
        here, more = rows[at:at + self.page], at + self.page < len(rows)
        entries = []
        hit = self.fault if self.pages == self.deep else None
        self.pages += 1
        wrong = chance.randrange(len(here)) if here and hit in ("entity", "escape", "name cut", "no id") else -1
        for i, (key, id) in enumerate(here):
            text = self.wrong_text(key) if i == wrong else self.text(key)
            id_text = f"<UploadId>{xml_text(chance, id.encode())}</UploadId>" if i != wrong or hit != "no id" else ""
            self.broken |= i == wrong and (hit != "no id" or uploads) and (hit != "escape" or text[-1] in "%40g1<")
            if uploads:
                entries.append(f"<Upload><Key>{text}</Key>{id_text}<Initiated>{TIME}</Initiated></Upload>")
            elif delimiter and key.endswith(delimiter):
                entries.append(f"<CommonPrefixes><Prefix>{text}</Prefix></CommonPrefixes>")
            else:
                entries.append(f"<Contents><Key>{text}</Key><LastModified>{TIME}</LastModified>"
                               f"<ETag>&quot;e&quot;</ETag><Size>{len(key)}</Size></Contents>")
        token = ""
        if more and uploads:
            token = (f"<NextKeyMarker>{self.text(here[-1][0])}</NextKeyMarker>"
                     f"<NextUploadIdMarker>{xml_text(chance, here[-1][1].encode())}</NextUploadIdMarker>")
        elif more:
            token = f"<NextContinuationToken>{at + self.page}/+&amp;=%</NextContinuationToken>"
        says = f"<IsTruncated>{str(more).lower()}</IsTruncated>"
        if hit in ("no token", "version 1", "empty token") and more:
            self.broken = True
            token = {"no token": "", "version 1": f"<NextMarker>{self.text(here[-1][0])}</NextMarker>",
                     "empty token": "<NextContinuationToken/><NextKeyMarker></NextKeyMarker>"}[hit]
        elif self.fault == "old token" and more and self.pages > self.deep + 1 and not uploads:
            self.broken, token = True, f"<NextContinuationToken>{self.page}/+&amp;=%</NextContinuationToken>"
        elif hit == "does not say":
            says = chance.choice(("", "<IsTruncated/>", "<IsTruncated>maybe</IsTruncated>"))
            self.broken = more or "maybe" in says  # some leave "false" out
        encoding = "<EncodingType>url</EncodingType>" if self.encodes else chance.choice(("", "<EncodingType/>"))
        parts = [says + token, encoding, "".join(entries), f"<Prefix>{self.text(prefix) if prefix else ''}</Prefix>"]
        chance.shuffle(parts)
        root = "ListMultipartUploadsResult" if uploads else "ListBucketResult"
        head = '<?xml version="1.0" encoding="UTF-8"?>\n'
        xml = f'{head}<{root} xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{"".join(parts)}</{root}>'.encode()
        if hit in ("cut", "cut, with its length"):
            self.broken, xml = True, xml[:chance.randrange(len(xml))]
        elif hit == "no list":
            self.broken, xml = True, chance.choice((b"<html>Please log in</html>", b"", b"{}", b"<Error/>"))
        return xml, hit != "cut"


def names_of(names, prefix, delimiter):
    """As a server lists them."""
    out = []
    for name in names:
        cut = name.find(delimiter, len(prefix)) + 1 if delimiter else 0
        if name.startswith(prefix) and (name[:cut] or name) not in out:
            out.append(name[:cut] or name)
    return out


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def give(self, status, body, sized=True):
        self.send_response(status)
        if sized:
            self.send_header("Content-Length", str(len(body)))
        else:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        asked = dict(part.encode().partition(b"=")[::2] for part in self.path.partition("?")[2].split("&"))
        bucket = self.server.bucket
        with bucket.lock:
            body, sized = bucket.answer({name: urllib.parse.unquote_to_bytes(asked[name]) for name in asked})
        self.give(200, body, sized)

    def do_DELETE(self):
        path, _, query = self.path.partition("?")
        key, bucket = urllib.parse.unquote_to_bytes(path)[len("/b/"):], self.server.bucket
        id = urllib.parse.unquote(query.partition("uploadId=")[2])
        with bucket.lock:
            there = (key, id) in bucket.uploads if id else key in bucket.names
            bucket.removed.append((key, id))
        if there or not id:
            self.give(204, b"")
        else:
            self.give(404, b"<Error><Code>NoSuchUpload</Code></Error>")


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


def run(server, bucket, *arguments):
    server.bucket = bucket
    environment = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}", "AWS_ACCESS_KEY_ID": "a",
                   "AWS_SECRET_ACCESS_KEY": "b", "HOME": "/nonexistent", "LC_ALL": "C.UTF-8",
                   "SLUICE_HTTP_ATTEMPTS": "2", "SLUICE_HTTP_BACKOFF_MS": "1"}
    environment.update({name: value for name, value in os.environ.items() if name.endswith("SAN_OPTIONS")})
    done = subprocess.run([SLUICE, *arguments], env=environment, capture_output=True, timeout=60)
    assert done.returncode in (0, 1), (done.returncode, done.stderr)
    if bucket.broken:
        assert done.returncode == 1 and done.stderr, "a broken list is a success"
    elif bucket.fault is None:
        assert done.returncode == 0, done.stderr
    return done


def lists(server, bucket, prefix):
    recursive = bucket.chance.random() < 0.6
    done = run(server, bucket, "ls", *["-r"] * recursive, b"s3://b/" + prefix)
    names = names_of(bucket.names, prefix, b"" if recursive else b"/")
    expected = b"".join(
        b"%15s  %19s  %s\n" % (b"", b"", name) if not recursive and name.endswith(b"/") else
        b"%15d  2020-01-02 03:04:05  %s\n" % (len(name), name) for name in names)
    assert done.returncode or done.stdout == expected, (done.stdout, expected)


def removes(server, bucket, prefix):
    done = run(server, bucket, "rm", "-q", "-r", b"s3://b/" + prefix) if names_of(bucket.names, prefix, b"") else None
    names = names_of(bucket.names, prefix, b"")
    removed = [name for name, _ in bucket.removed]
    assert set(removed) <= set(names), (set(removed) - set(names), "was not to be removed")
    assert not done or done.returncode or sorted(removed) == names, set(names) - set(removed)


def abandons(server, bucket, prefix):
    done = run(server, bucket, "s3", "abandoned", "--json", "--remove", "--age", "0", b"s3://b/" + prefix)
    uploads = [upload for upload in bucket.uploads if upload[0].startswith(prefix)]
    assert set(bucket.removed) <= set(uploads), set(bucket.removed) - set(uploads)
    assert done.returncode or sorted(bucket.removed) == uploads, set(uploads) - set(bucket.removed)
    said = sorted(json.loads(line)["upload"] for line in done.stdout.splitlines())
    assert said == sorted(id for _, id in bucket.removed), (said, bucket.removed)


def an_upload_that_is_not_there_is_not_removed(server):
    bucket = Bucket(0, "another name than it has")
    bucket.encodes, bucket.uploads = True, [(b"left+b", "u1")]
    bucket.text = lambda name: name.decode()
    done = run(server, bucket, "s3", "abandoned", "--remove", "--age", "0", "s3://b")
    assert done.returncode == 1 and b"NoSuchUpload" in done.stderr and not done.stdout, done


def main():
    seed = os.environ.get("SLUICE_TEST_SEED") or str(time.time_ns())
    print(f"seed {seed}; the same again with SLUICE_TEST_SEED={seed}")
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    an_upload_that_is_not_there_is_not_removed(server)
    chance = random.Random(seed)
    for i in range(ROUNDS):
        fault = chance.choice(FAULTS) if chance.random() < 0.5 else None
        own = f"{seed}-{i}"
        check = chance.choice((lists, lists, removes, abandons))
        bucket = Bucket(own, fault)
        prefix = b""
        if bucket.names and chance.random() < 0.4:
            name = chance.choice(bucket.names)
            prefix = name[:chance.randint(0, len(name))]
            if not bucket.encodes:  # a whole number of characters
                prefix = prefix.decode(errors="ignore").encode()
        try:
            check(server, bucket, prefix)
        except AssertionError:
            print(f"round {i}: {check.__name__}, prefix {prefix!r}, fault {fault!r}, encodes {bucket.encodes}, "
                  f"pages of {bucket.page}, names {bucket.names}, uploads {bucket.uploads}", file=sys.stderr)
            raise


main()
