#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies by a server that answers with anything: success means that the target has the source, whole and of one version; an
error leaves what was there, or the copy; and no upload stays: copy_test.py SLUICE

Each object has a plan, made of SLUICE_TEST_SEED, or of a seed that is printed. With STRESS 40 rounds.
"""

import hashlib
import os
import random
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
import s3_server  # noqa: E402

SLUICE = sys.argv[1]
ROUNDS = 40 if os.environ.get("STRESS") else 1
PART = 64 << 10
FILES = 60
# The request was done or not, and the answer does not say so. Bytes have the status 200.
UNCLEAR = ["close", "204", "500", "502", b"", b"  \n", b"<html>log in</html>", b"<{0}", b"<{0}><ETag>x</ETag>", b"<{0}></{0}>",
           b"<Error><Code>InternalError</Code></Error>", b"<ListBucketResult><ETag>x</ETag></ListBucketResult>"]
PASSING = ["503 SlowDown", "400 RequestTimeout", b"<Error><Code>SlowDown</Code></Error>", b" \n<Error ><Code>RequestTimeout</Code></Error>"]
FINAL = ["403 AccessDenied", b"<Error><Code>AccessDenied</Code></Error>", b"<Error><Code>InvalidRequest</Code></Error>"]
RESULT = "    \n<{0}><LastModified>x</LastModified><ETag>&quot;{1}&quot;</ETag></{0}>"


class Plan:
    def __init__(self, chance):
        self.chance = chance
        self.parts = chance.choice([0, 0, 2, 3, 5])
        self.versions = [self.bytes()]
        self.before = chance.choice([None, b"before"])
        self.exclusive = chance.random() < 0.3
        self.faults = [self.fault() for _ in range(chance.choice([0, 0, 1, 2]))]
        # The server has no copies; knows no such header, and stores the empty body; the source changes, after so many requests.
        self.event = chance.choice([None] * 5 + ["405", "501", "deaf", "changes", "changes", "final"])
        self.at = chance.randint(1, self.parts + 2)
        self.looks = chance.random() < 0.5  # at the line about the source's ETag
        self.seen, self.made, self.unclear = 0, False, False

    def bytes(self):
        return self.chance.randbytes((self.parts - 1) * PART + self.chance.randint(1, PART) if self.parts
                                     else self.chance.choice([0, 1, 1000, PART]))

    def fault(self):
        passes = self.chance.random() < 0.4
        return (False, self.chance.choice(PASSING)) if passes else (self.chance.random() < 0.5, self.chance.choice(UNCLEAR))


class Server(s3_server.Server):
    def __init__(self):
        self.plans, self.objects, self.etags_of = {}, {}, {}
        super().__init__("/nowhere")

    def body(self, request):
        key = request.key.decode()
        data = self.plans[key].versions[-1] if request.bucket == "from" else self.objects.get(key)
        if data is None:
            raise s3_server.Refused(404, "NoSuchKey")
        return None, data, self.etags_of.get(key, self.etag(data)) if request.bucket == "to" else self.etag(data)

    def modified(self, request, path):
        return time.time()

    @staticmethod
    def etag(data):
        return hashlib.md5(data).hexdigest()

    def say(self, sock, request, how, root):
        if how == "close":
            raise ConnectionError("on purpose")
        if isinstance(how, str) and " " in how:
            raise s3_server.Refused(int(how[:3]), how[4:])
        text = how.replace(b"{0}", root.encode()) if isinstance(how, bytes) else b""
        self.send(sock, request, int(how) if isinstance(how, str) else 200, [], text, len(text))

    def befall(self, sock, request, root, do):
        """Answers a request by the plan of its object. do() does it, and returns the ETag of the result."""
        plan = self.plans[request.key.decode()]
        with self.mutex:
            plan.seen += 1
            if plan.event == "changes" and plan.seen == plan.at:
                plan.versions.append(plan.bytes())
            fault = plan.faults.pop() if plan.faults and plan.chance.random() < 0.5 else None
        if plan.event == "final" and not fault and plan.seen >= plan.at:
            return self.say(sock, request, FINAL[plan.at % len(FINAL)], root)
        if fault and not fault[0]:
            plan.unclear |= fault[1] in UNCLEAR
            return self.say(sock, request, fault[1], root)
        etag = do()
        if fault:
            plan.unclear |= fault[1] in UNCLEAR
            return self.say(sock, request, fault[1], root)
        return self.xml(sock, request, RESULT.format(root, etag))

    def source(self, request):
        """The bytes that a copy takes."""
        plan = self.plans[request.key.decode()]
        if plan.event in ("405", "501"):
            raise s3_server.Refused(int(plan.event), "NotImplemented" if plan.event == "501" else "MethodNotAllowed")
        bucket, _, key = request.field("x-amz-copy-source").partition("/")
        assert (bucket, key) == ("from", request.key.decode())
        if plan.looks and request.field("x-amz-copy-source-if-match").strip('"') != self.etag(plan.versions[-1]):
            raise s3_server.Refused(412, "PreconditionFailed")
        return plan.versions[-1]

    def keep(self, request, data, etag=None):
        key = request.key.decode()
        plan = self.plans[key]
        if request.field("if-none-match") == "*" and key in self.objects:
            raise s3_server.Refused(412, "PreconditionFailed")
        self.objects[key], self.etags_of[key] = data, etag or self.etag(data)
        plan.made = True

    def put(self, sock, request):
        plan = self.plans[request.key.decode()]
        if not request.field("x-amz-copy-source") or plan.event == "deaf":
            self.keep(request, request.body)
            return self.send(sock, request, 200, [("ETag", f'"{self.etag(request.body)}"')], b"", 0)

        def do():
            data = self.source(request)
            self.keep(request, data)
            return self.etag(data)
        return self.befall(sock, request, "CopyObjectResult", do)

    def put_part(self, sock, request):
        plan, number = self.plans[request.key.decode()], int(request.asked["partNumber"])
        upload = self.upload_of(request)
        if not request.field("x-amz-copy-source") or plan.event == "deaf":
            etag = self.etag(request.body)
            upload["parts"][number] = etag, request.body
            return self.send(sock, request, 200, [("ETag", f'"{etag}"')], b"", 0)

        def do():
            first, _, last = request.field("x-amz-copy-source-range").removeprefix("bytes=").partition("-")
            data = self.source(request)
            if int(last) >= len(data):
                raise s3_server.Refused(400, "InvalidArgument")
            upload["parts"][number] = self.etag(data[int(first):int(last) + 1]), data[int(first):int(last) + 1]
            return upload["parts"][number][0]
        return self.befall(sock, request, "CopyPartResult", do)

    def complete(self, sock, request):
        def do():
            parts = [data for _, (_, data) in sorted(self.upload_of(request)["parts"].items())]
            etag = s3_server.object_etag(parts, f"-{len(parts)}").strip('"')
            self.keep(request, b"".join(parts), etag)
            del self.uploads[request.asked["uploadId"]]
            return etag
        return self.befall(sock, request, "CompleteMultipartUploadResult", do)

    calls = {**s3_server.Server.calls, ("POST", "uploadId"): complete, ("PUT",): put, ("PUT", "partNumber", "uploadId"): put_part}


def copy(server, chance, key, env):
    plan = server.plans[key] = Plan(random.Random(chance.random()))
    if plan.before is not None:
        server.objects[key] = plan.before
    done = subprocess.run([SLUICE, "cp", *(() if plan.exclusive else ("-f",)), f"s3://from/{key}", f"s3://to/{key}"],
                          env=env, stderr=subprocess.PIPE, text=True, check=False, timeout=30)
    there = server.objects.get(key)
    assert done.returncode in (0, 1), done.stderr
    if done.returncode == 0:
        assert there in plan.versions, "success, and the target is no version of the source"
        assert not (plan.exclusive and plan.before), "success, and another was there"
    else:
        if plan.event == "deaf" and plan.exclusive and not plan.parts and not plan.before:
            assert there == b"" and "knows no copies" in done.stderr
        else:
            assert there in (plan.before, *plan.versions), "neither old nor new"
        assert plan.event in ("changes", "final") or (plan.exclusive and (plan.before or plan.event == "deaf")), \
            "an error without a reason"
    if plan.exclusive and plan.before:
        assert there == plan.before and "exists" in done.stderr
    if plan.event in ("405", "501") and not plan.unclear and not (plan.exclusive and plan.before):
        assert there in plan.versions and "by their server" not in done.stderr
    assert not server.uploads, "an upload stays"
    return done.returncode


def main():
    seed = os.environ.get("SLUICE_TEST_SEED") or str(time.time_ns())
    print(f"seed {seed}; the same again with SLUICE_TEST_SEED={seed}")
    chance, server = random.Random(seed), Server()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SLUICE_"))}
    env = {**kept, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}", "AWS_ACCESS_KEY_ID": "AKIDTEST",
           "AWS_SECRET_ACCESS_KEY": s3_server.SECRETS["AKIDTEST"], "AWS_CONFIG_FILE": "/dev/null",
           "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "SLUICE_S3_PART_BYTES": str(PART), "SLUICE_S3_COPY_BYTES": str(PART),
           "SLUICE_HTTP_BACKOFF_MS": "2", "SLUICE_HTTP_STALL_MS": "2000"}
    failed = 0
    for i in range(ROUNDS * FILES):
        try:
            failed += copy(server, chance, str(i), env)
        except (AssertionError, subprocess.TimeoutExpired) as why:
            plan = {name: value for name, value in vars(server.plans[str(i)]).items() if name not in ("chance", "versions")}
            lengths = [len(data) for data in server.plans[str(i)].versions], len(server.objects.get(str(i), b""))
            raise AssertionError(f"object {i}: {why}, {plan}, {lengths}") from why
    print(f"{failed} of {ROUNDS * FILES} copies failed, and left what was there or the copy")


main()
