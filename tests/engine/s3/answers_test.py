#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Uploads to a server that answers with anything: success means that the object is ours and whole, and an error says so where
the object may be there: answers_test.py SLUICE

Each object has a plan, made of SLUICE_TEST_SEED, or of a seed that is printed: what befalls each request for it. The server
knows what the bucket really has. Buckets are "hashed", where ETags are MD5s, and "opaque". With STRESS 60 rounds.
"""

import collections
import email.utils
import hashlib
import os
import random
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
import s3_server  # noqa: E402

SLUICE = sys.argv[1]
ROUNDS = 60 if os.environ.get("STRESS") else 2
PART = 64 << 10
FILES = 40

# Answers that say nothing, whether the request was done or not. Those of bytes have the status 200.
UNCLEAR = ["close", "cut", "short", "open end", "silent", "204", "500", "502", "no ETag", b"", b"   ", b"{}", b"\0\0\0", b"\xff\xfe<\0",
           b"<html><body>Please log in</body></html>", b"<Error", b"<Error><Code>AccessDenied</Code>",
           b"<ListBucketResult><ETag>x</ETag></ListBucketResult>", b"<CompleteMultipartUploadResult/>",
           b"<CompleteMultipartUploadResult></CompleteMultipartUploadResult>",
           b"<!-- <CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>",
           b"<a><CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult></a>",
           b"<Error><Code>InternalError</Code><Message>m</Message></Error>",
           b'<?xml version="1.0"?>\n<s3:Error xmlns:s3="x">\n<s3:Code>InternalError</s3:Code></s3:Error>']
# Nothing was done, and it may be next time.
PASSING = ["400 RequestTimeout", "409 OperationAborted", "409 ConditionalRequestConflict", "503 SlowDown",
           "503 ServiceUnavailable", b"<Error><Code>RequestTimeout</Code></Error>",
           b'<Error xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Code>SlowDown</Code></Error>',
           b"\n \n<Error ><Code a='b'>OperationAborted</Code></Error >\n"]
FINAL = ["403 AccessDenied", "400 InvalidPart", b"<Error><Code>AccessDenied</Code></Error>",
         b'<s3:Error xmlns:s3="x"><s3:Code>InvalidPart</s3:Code></s3:Error>']
# Forms of success.
RESULTS = ["<CompleteMultipartUploadResult><ETag>{}</ETag></CompleteMultipartUploadResult>",
           '<?xml version="1.0" encoding="UTF-8"?>\n<!-- a -->\n<CompleteMultipartUploadResult xmlns="http://s3.amazonaws.com/'
           'doc/2006-03-01/"><Location>l</Location><Bucket>b</Bucket><Key>k</Key><ETag>{}</ETag></CompleteMultipartUploadResult>\n',
           '   \n\n<s3:CompleteMultipartUploadResult xmlns:s3="x"><s3:ETag>{}</s3:ETag></s3:CompleteMultipartUploadResult >']

Object = collections.namedtuple("Object", "data etag modified")


class Plan:
    """What befalls an object. Faults are pairs: whether the request is done before, and the answer."""

    def __init__(self, chance, hashed, exclusive):
        self.chance, self.hashed = chance, hashed
        self.parts = chance.choice([0, 2, 3, 5])
        self.data = chance.randbytes((self.parts - 1) * PART + chance.randint(1, PART) if self.parts
                                     else chance.choice([0, 1, 1000, PART]))
        self.wrong = chance.choice([0, 0, 1, 2, 3])
        self.faults = [self.fault() for _ in range(self.wrong)]
        self.of_parts = collections.deque(self.fault() for _ in range(chance.choice([0, 0, 1, 2])))
        self.of_begin = collections.deque(self.fault() for _ in range(chance.choice([0, 0, 0, 1, 2])))
        self.final = chance.choice(FINAL) if chance.random() < 0.1 else None
        # What others do, before the request after so many faults; or after it was done, and the answer lost.
        self.event = chance.choice([None, None, None] + ["taken", "same"] * exclusive + ["dropped", "swapped"] * (self.parts > 0) +
                                   ["overwritten"] * (self.parts > 0 and not exclusive))
        self.at = chance.randint(0, self.wrong)
        # It cannot be known that an object is another's where it is as long, younger, and an answer was lost.
        if self.event == "swapped" and not hashed:
            self.faults, self.at = [], 0
        self.repeats = self.event != "overwritten" and chance.random() < 0.3  # an upload that is complete is completed again
        self.refuses = exclusive and chance.random() < 0.5  # an object that exists, before it looks for the upload
        self.later = chance.choice([0, 5])  # the object is so many seconds younger than the upload
        self.before = None if exclusive else chance.choice([None, "same", "other"])
        self.seen = self.begun = 0  # requests that make the object, and that begin an upload
        self.made = self.unclear = self.struck = False

    def fault(self):
        if self.chance.random() < 0.4:
            return False, self.chance.choice(PASSING)
        return self.chance.random() < 0.5, self.chance.choice(UNCLEAR)

    def other(self):
        """An object as long, of another program."""
        data = self.data if "same" in (self.event, self.before) else self.chance.randbytes(len(self.data))
        return Object(data, s3_server.object_etag([data], "") if self.hashed else "another", time.time() - 100)


class Server(s3_server.Server):
    def __init__(self):
        self.plans, self.objects = {}, {}
        super().__init__("/nowhere")

    def plan_of(self, request):
        return self.plans[request.bucket, request.key.decode()]

    def body(self, request):
        found = self.objects.get((request.bucket, request.key.decode()))
        if not found:
            raise s3_server.Refused(404, "NoSuchKey")
        return None, found.data, found.etag

    def modified(self, request, path):
        return self.objects[request.bucket, request.key.decode()].modified

    def say(self, sock, request, how, result=b"", fields=()):
        """An answer that is no success."""
        chance = self.plan_of(request).chance
        if how in ("close", "cut", "open end", "silent"):
            head = f"HTTP/1.1 200 S\r\nContent-Length: {len(result) + 1}\r\n" if how == "cut" else \
                "HTTP/1.1 200 S\r\nConnection: close\r\n"
            if how in ("cut", "open end"):
                cut = result[:chance.randint(0, max(len(result.rstrip()) - 1, 0))]
                sock.sendall(head.encode() + b"\r\n" + cut)
            elif how == "silent":
                sock.recv(1)
            raise ConnectionError("on purpose")
        if how == "short":
            how = result[:chance.randint(0, max(len(result.rstrip()) - 1, 0))]
        if isinstance(how, str) and " " in how and how[0].isdigit():
            raise s3_server.Refused(int(how[:3]), how[4:])
        status = int(how) if isinstance(how, str) and how.isdigit() else 200
        text = how if isinstance(how, bytes) else b"<html>" if status > 500 else b""
        self.send(sock, request, status, [], text, len(text))

    def befall(self, sock, request, store, result):
        """Answers a request that makes the object by store(), by its plan. result: of success."""
        plan, key = self.plan_of(request), (request.bucket, request.key.decode())
        fault = plan.faults[plan.seen] if plan.seen < len(plan.faults) else None
        plan.seen += 1
        if plan.event not in (None, "overwritten") and plan.seen > plan.at and not plan.struck and not plan.made:
            plan.struck = True
            if plan.event in ("dropped", "swapped"):
                self.uploads.pop(request.asked.get("uploadId"), None)
            if plan.event != "dropped":
                self.objects[key] = plan.theirs = plan.other()
        if fault and not fault[0]:
            plan.unclear |= fault[1] in UNCLEAR
            return self.say(sock, request, fault[1], result)
        if plan.final and not fault:
            return self.say(sock, request, plan.final)
        if not (plan.repeats and plan.made and plan.parts):
            store()
        plan.made = True
        if not fault:
            return self.send(sock, request, 200, [] if plan.parts else [("ETag", result.decode())], result, len(result))
        plan.unclear |= fault[1] in UNCLEAR
        if plan.event == "overwritten":
            plan.struck = True
            self.objects[key] = plan.other()
        return self.say(sock, request, fault[1], result)

    def keep(self, request, etag, body):
        key, plan = (request.bucket, request.key.decode()), self.plan_of(request)
        if request.field("if-none-match") == "*" and key in self.objects:
            raise s3_server.Refused(412, "PreconditionFailed")
        self.objects[key] = Object(body, etag, time.time() + plan.later)

    def complete(self, sock, request):
        plan = self.plan_of(request)
        numbers = range(1, plan.parts + 1)
        name = request.asked["uploadId"]
        parts = self.uploads.get(name, {"parts": {}})["parts"]
        etag = s3_server.object_etag([plan.data[(n - 1) * PART:n * PART] for n in numbers], f"-{plan.parts}") if plan.hashed \
            else name + "&"

        def store():
            if plan.refuses and (request.bucket, request.key.decode()) in self.objects:
                raise s3_server.Refused(412, "PreconditionFailed")
            self.upload_of(request)
            self.keep(request, etag, b"".join(parts[n][1] for n in numbers))
            del self.uploads[name]
        with self.mutex:
            result = plan.chance.choice(RESULTS).format(f"&quot;{s3_server.xml_text(etag)}&quot;").encode()
        self.befall(sock, request, store, result)

    def put(self, sock, request):
        plan = self.plan_of(request)
        etag = hashlib.md5(request.body).hexdigest() if plan.hashed else "opaque"
        self.befall(sock, request, lambda: self.keep(request, etag, request.body), f'"{etag}"'.encode())

    def put_part(self, sock, request):
        plan = self.plan_of(request)
        fault = plan.of_parts.popleft() if plan.of_parts else None
        if fault and not fault[0]:
            return self.say(sock, request, fault[1])
        etag = f'"{hashlib.md5(request.body).hexdigest()}"' if plan.hashed else f'"{plan.chance.random()}"'
        self.upload_of(request)["parts"][int(request.asked["partNumber"])] = etag, request.body
        return self.say(sock, request, fault[1]) if fault else self.send(sock, request, 200, [("ETag", etag)], b"", 0)

    def xml(self, sock, request, text, fields=()):
        if self.plan_of(request).parts % 2:  # as "rclone serve s3" has it
            text = text.replace("InitiateMultipartUploadResult", "InitiateMultipartUpload")
        super().xml(sock, request, text, fields)

    def new_upload(self, sock, request):
        plan = self.plan_of(request)
        plan.begun += 1
        fault = plan.of_begin.popleft() if plan.of_begin else None
        if not fault:
            return super().new_upload(sock, request)
        if fault[0]:
            self.uploads[f"lost {plan.begun}"] = {"bucket": request.bucket, "key": request.key, "parts": {}}
        return self.say(sock, request, fault[1], f"<InitiateMultipartUploadResult><UploadId>lost {plan.begun}</UploadId>"
                        "</InitiateMultipartUploadResult>".encode())

    calls = {**s3_server.Server.calls, ("POST", "uploads"): new_upload, ("POST", "uploadId"): complete, ("PUT",): put,
             ("PUT", "partNumber", "uploadId"): put_part}


def check(plan, there, says, exclusive):
    """there: the object; says: the error, or None."""
    ours = there is not None and there.data == plan.data
    if says is None:
        assert ours, "success, and the object is not there"
        assert not (exclusive and plan.struck and not plan.unclear), "success, and another was first"
        return
    if plan.made or plan.unclear:
        assert "may be there" in says or not plan.made, "the object may be there"
    else:
        assert "may be" not in says, "no answer was lost"
    if exclusive and plan.struck and plan.event in ("taken", "same"):
        assert there == plan.theirs and (plan.final or "exists" in says)
    known = plan.hashed or not plan.unclear or ((plan.repeats or plan.later and not plan.refuses) if plan.parts else not exclusive)
    assert plan.final or plan.struck or not known, "nothing but faults that pass"


def environment(server):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SLUICE_"))}
    return {**kept, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}", "AWS_ACCESS_KEY_ID": "AKIDTEST",
            "AWS_SECRET_ACCESS_KEY": s3_server.SECRETS["AKIDTEST"], "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "SLUICE_S3_PART_BYTES": str(PART), "SLUICE_HTTP_BACKOFF_MS": "2",
            "SLUICE_HTTP_STALL_MS": "1000"}


def sentences_are_lines(server, root):
    """Many threads complain at the same time."""
    os.mkdir(f"{root}/refused")
    for i in range(600):
        plan = server.plans["hashed", f"refused/{i}"] = Plan(random.Random(i), True, False)
        plan.parts, plan.faults, plan.event, plan.final = 0, [], None, "403 AccessDenied"
        with open(f"{root}/refused/{i}", "wb") as file:
            file.write(b"x")
    done = subprocess.run([SLUICE, "cp", "-q", "-r", "-f", f"{root}/refused", "s3://hashed/refused"], env=environment(server),
                          stderr=subprocess.PIPE, text=True, check=False, timeout=300)
    lines = done.stderr.splitlines()
    assert done.returncode == 1 and len(lines) >= 600, done
    assert all(line.startswith("sluice cp: ") and line.count("sluice cp: ") == 1 for line in lines), done.stderr


def copy(server, chance, root, round):
    hashed, exclusive = chance.random() < 0.6, chance.random() < 0.4
    bucket = "hashed" if hashed else "opaque"
    source = f"{root}/{round}"
    os.mkdir(source)
    for i in range(FILES):
        plan = server.plans[bucket, f"{round}/{i}"] = Plan(random.Random(chance.random()), hashed, exclusive)
        if plan.before:
            server.objects[bucket, f"{round}/{i}"] = plan.other()
        with open(f"{source}/{i}", "wb") as file:
            file.write(plan.data)
    done = subprocess.run([SLUICE, "cp", "-q", "-r", *(() if exclusive else ("-f",)), source, f"s3://{bucket}/{round}"],
                          env=environment(server), stderr=subprocess.PIPE, text=True, check=False, timeout=300)
    failed = {}
    for i in range(FILES):
        key = bucket, f"{round}/{i}"
        plan, says = server.plans[key], [line for line in done.stderr.splitlines() if f"s3://{bucket}/{round}/{i}'" in line]
        try:
            check(plan, server.objects.get(key), says[0] if says else None, exclusive)
        except AssertionError as why:
            state = {name: value for name, value in vars(plan).items() if name not in ("data", "chance", "theirs")}
            raise AssertionError(f"{key} {why}: {says}, {state}, exclusive {exclusive}") from None
        failed[i] = bool(says)
    assert done.returncode == any(failed.values()), done.stderr
    # Nobody knows the id of an upload if the answer to its begin was lost.
    left = [upload["key"].decode() for upload in server.uploads.values()]
    assert all(server.plans[bucket, key].begun > 1 for key in left), (left, done.stderr)
    server.uploads.clear()
    return sum(failed.values())


def main():
    seed = os.environ.get("SLUICE_TEST_SEED") or str(time.time_ns())
    print(f"seed {seed}; the same again with SLUICE_TEST_SEED={seed}")
    chance, server = random.Random(seed), Server()
    with tempfile.TemporaryDirectory() as root:
        sentences_are_lines(server, root)
        failed = sum(copy(server, chance, root, i) for i in range(ROUNDS))
    print(f"{failed} of {ROUNDS * FILES} copies failed, all with the right words")


main()
