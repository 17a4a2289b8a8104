#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Removal of many objects from a server that answers with anything: a name that is printed is of an object that is gone, any
other object stays and has an error, and nothing but the objects of the list is removed: remove_test.py SLUICE

The random test is made of SLUICE_TEST_SEED, or of a seed that is printed. With STRESS 60 rounds.
"""

import base64
import hashlib
import html
import os
import random
import re
import subprocess
import sys
import time
import urllib.parse

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
import s3_server  # noqa: E402

SLUICE = sys.argv[1]
ROUNDS = 60 if os.environ.get("STRESS") else 8
UNKNOWN = ["405", "501", "404", "400", "411", "200", "200 <html>log in</html>", "200 <DeleteResult></DeleteResult>",
           "200 <ListBucketResult><Key>a</Key></ListBucketResult>"]
NAMES = ["{}", "a/{}", "a b{}", "ä{}", "{}=&", "<{}>", "{}'\"", "a+{}", "%41{}", " {}", "{} ", "a  b{}", "{}//a", "{}/", "/{}", "../{}",
         "{}/.", "\n{}", "\x01{}", "{}\\a"]


class Server(s3_server.Server):
    """unknown: its answer to a request that removes many; None: it knows them. faults: how often a request fails."""

    def __init__(self, unknown=None, faults=0.0, chance=random):
        self.unknown, self.faults, self.chance = unknown, faults, chance
        self.objects, self.denied = set(), set()
        self.many = self.single = 0
        super().__init__("/nowhere")

    def list(self, sock, request):
        names = sorted(name for name in self.objects if name.startswith(request.asked["prefix"]) and
                       name > request.asked.get("continuation-token", "")[1:])
        more = len(names) > 1000
        entries = "".join(f"<Contents><Key>{urllib.parse.quote_plus(name, safe='/')}</Key><Size>1</Size></Contents>"
                          for name in names[:1000])
        token = f"<NextContinuationToken>={html.escape(names[999])}</NextContinuationToken>" if more else ""
        self.xml(sock, request, f"<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>{str(more).lower()}"
                 f"</IsTruncated>{token}{entries}</ListBucketResult>")

    def fail(self):
        if self.chance.random() < self.faults:
            if self.chance.random() < 0.5:
                raise s3_server.Refused(503, "SlowDown")
            raise ConnectionError("on purpose")

    def remove(self, sock, request):
        key = request.key.decode()
        with self.mutex:
            self.single += 1
            self.fail()
            if key in self.denied:
                raise s3_server.Refused(403, "AccessDenied")
            self.objects.discard(key)
            self.fail()
        self.send(sock, request, 204, [], b"", 0)

    def remove_many(self, sock, request):
        with self.mutex:
            self.many += 1
            self.fail()
            if self.unknown:
                if self.unknown[:3] != "200":
                    raise s3_server.Refused(int(self.unknown), {"400": "InvalidRequest", "404": "NoSuchKey"}.get(self.unknown, "No"))
                return self.send(sock, request, 200, [], self.unknown[4:].encode(), len(self.unknown[4:]))
            assert base64.b64decode(request.field("content-md5")) == hashlib.md5(request.body).digest()
            text = request.body.decode()
            assert text.startswith("<Delete xmlns=") and text.endswith("</Object></Delete>") and "Quiet" not in text
            keys = [html.unescape(key) for key in re.findall("<Object><Key>([^<]*)</Key></Object>", text)]
            assert 0 < len(keys) <= 1000
            entries = []
            for key in keys:
                if self.chance.random() < self.faults / 5:  # it forgets that
                    continue
                if self.chance.random() < self.faults / 5:
                    entries.append(("Error", key, "<Code>InternalError</Code><Message>Again</Message>"))
                elif key in self.denied:
                    entries.append(("Error", key, "<Code>AccessDenied</Code><Message>No</Message>"))
                else:
                    self.objects.discard(key)
                    entries.append(("Deleted", key, ""))
            if self.faults and self.chance.random() < 0.5:
                self.chance.shuffle(entries)
            self.fail()
            body = ('<?xml version="1.0" encoding="UTF-8"?>\n<DeleteResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">' + "".join(
                f"<{kind}><Key>{html.escape(key)}</Key>{rest}</{kind}>" for kind, key, rest in entries) + "</DeleteResult>").encode()
            if self.chance.random() < self.faults:  # half of it, as if that were all
                body = body[:self.chance.randrange(len(body))]
        self.send(sock, request, 200, [("Content-Type", "application/xml")], body, len(body))

    calls = {**s3_server.Server.calls, ("DELETE",): remove, ("POST", "delete"): remove_many}


def rm(server, prefix):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SLUICE_"))}
    env = {**kept, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}", "AWS_ACCESS_KEY_ID": "AKIDTEST",
           "AWS_SECRET_ACCESS_KEY": s3_server.SECRETS["AKIDTEST"], "AWS_CONFIG_FILE": "/dev/null",
           "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "SLUICE_HTTP_BACKOFF_MS": "2", "SLUICE_HTTP_ATTEMPTS": "4"}
    return subprocess.run([SLUICE, "rm", "-r", f"s3://bucket/{prefix}"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, check=False, timeout=120)


def a_request_removes_a_thousand():
    server = Server()
    server.objects = {f"a/{i}" for i in range(2500)} | {"b"}
    done = rm(server, "a/")
    assert done.returncode == 0 and done.stdout.count("\n") == 2500, done.stderr
    assert server.objects == {"b"} and server.many == 3 and server.single == 0, (server.many, server.single)


def a_server_that_knows_no_such_request_is_asked_one_by_one():
    for unknown in UNKNOWN:
        server = Server(unknown)
        server.objects = {f"a/{i}" for i in range(50)} | {"b"}
        done = rm(server, "a/")
        assert done.returncode == 0 and done.stdout.count("\n") == 50, f"{unknown}: {done.stderr}"
        assert server.objects == {"b"} and server.single == 50, unknown


def each_object_has_its_error():
    server = Server()
    server.objects = {f"a/{i}" for i in range(50)}
    server.denied = {"a/3", "a/33"}
    done = rm(server, "a/")
    assert done.returncode == 1 and server.objects == server.denied, done.stderr
    assert done.stderr.count("\n") == 2 and "AccessDenied" in done.stderr, done.stderr
    assert all(f"s3://bucket/{name}'" in done.stderr and f"s3://bucket/{name}\n" not in done.stdout for name in server.denied)


def nothing_else_is_removed(chance):
    server = Server(chance.choice([None, None, None, *UNKNOWN]), chance.choice([0, 0.05, 0.3]), chance)
    odd = chance.random() < 0.5
    below = {"in/" + (chance.choice(NAMES) if odd else "{}").format(i) for i in range(chance.choice([1, 2, 30, 200, 1500]))}
    other = {name.replace("in/", chance.choice(["in", "", "in/"]), 1) + "x" for name in below if chance.random() < 0.2}
    other = {name for name in other if not name.startswith("in/")} | {"in", "A1", "a 1"}
    server.objects = below | other
    server.denied = {name for name in below if chance.random() < 0.02}
    done = rm(server, "in/")
    said = f"{server.unknown}, faults {server.faults}, {len(below)} objects: {done.returncode}, {done.stderr[-1000:]}"
    assert other <= server.objects, f"{other - server.objects} is gone; {said}"
    left = below & server.objects
    assert server.denied <= left, said
    # Of an object whose answers were lost it is not known that it is gone.
    assert done.returncode == (1 if left else 0) or (done.returncode == 1 and server.faults), f"{len(left)} are left; {said}"
    assert left == server.denied or server.faults, f"{left - server.denied} is left; {said}"
    lines = done.stdout.split("\n") if not odd else []
    assert not {f"s3://bucket/{name}" for name in left} & set(lines), said
    assert odd or len(lines) - 1 == len(below) - len(left) or server.faults, said


def main():
    seed = os.environ.get("SLUICE_TEST_SEED") or str(time.time_ns())
    print(f"seed {seed}; the same again with SLUICE_TEST_SEED={seed}")
    a_request_removes_a_thousand()
    a_server_that_knows_no_such_request_is_asked_one_by_one()
    each_object_has_its_error()
    for i in range(ROUNDS):
        nothing_else_is_removed(random.Random(f"{seed} {i}"))


main()
