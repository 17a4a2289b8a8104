#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Uploads of many small objects, to servers that behave in several ways: uploads_test.py SLUICE
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import threading

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
import s3_server  # noqa: E402

SLUICE = sys.argv[1]


class Server(s3_server.Server):
    """Keeps objects in memory. together: PUTs have no answer before so many of them wait, or two seconds are over once."""

    def __init__(self, together=1):
        self.objects, self.together = {}, together
        self.waiting, self.most, self.connections = 0, 0, 0
        self.full = threading.Condition()
        super().__init__("/nowhere")

    def serve(self, sock):
        with self.mutex:
            self.connections += 1
        super().serve(sock)

    def body(self, request):
        data = self.objects.get(request.key.decode())
        if data is None:
            raise s3_server.Refused(404, "NoSuchKey")
        return None, data, hashlib.md5(data).hexdigest()

    def keep(self, request):
        """Keeps the bytes of a PUT. Returns the status of the answer."""
        key = request.key.decode()
        if request.field("if-none-match") == "*" and key in self.objects:
            return 412
        self.objects[key] = request.body
        return 200

    def put(self, sock, request):
        with self.full:
            self.waiting += 1
            self.most = max(self.most, self.waiting)
            self.full.notify_all()
            if not self.full.wait_for(lambda: self.most >= self.together, 2):
                self.together = 0
            self.waiting -= 1
        with self.mutex:
            status = self.keep(request)
        if status != 200:
            raise s3_server.Refused(status, {412: "PreconditionFailed", 501: "NotImplemented"}.get(status, "InvalidArgument"))
        self.send(sock, request, 200, [("ETag", f'"{hashlib.md5(request.body).hexdigest()}"')], b"", 0)

    calls = {**s3_server.Server.calls, ("PUT",): put}


def sluice(server, *arguments, **settings):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SLUICE_"))}
    env = {**kept, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}", "AWS_ACCESS_KEY_ID": "AKIDTEST",
           "AWS_SECRET_ACCESS_KEY": s3_server.SECRETS["AKIDTEST"], "AWS_CONFIG_FILE": "/dev/null",
           "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "SLUICE_HTTP_BACKOFF_MS": "2", **settings}
    return subprocess.run([SLUICE, *arguments], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                          timeout=60)


def folder_of(files):
    folder = tempfile.mkdtemp(dir=SCRATCH)
    for name, data in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
    return folder


def small_objects_go_up_many_at_a_time():
    files = {f"{i % 7}/{i}": os.urandom(i % 5 * 1000) for i in range(200)}
    folder, server = folder_of(files), Server(together=16)
    done = sluice(server, "cp", "-rq", folder, "s3://up/to")
    assert done.returncode == 0, done.stderr
    assert server.objects == {f"to/{name}": data for name, data in files.items()}
    assert server.most >= 16, f"{server.most} at a time"
    assert server.connections <= 64, f"{server.connections} connections"
    names = [os.path.join(folder, name) for name in files if name.startswith("3/")]
    server = Server(together=16)
    done = sluice(server, "cp", "-q", *names, "s3://up")
    assert done.returncode == 0, done.stderr
    assert server.objects == {os.path.basename(name): files[os.path.relpath(name, folder)] for name in names}
    assert server.most >= 16, f"{server.most} of several files at a time"


with tempfile.TemporaryDirectory() as SCRATCH:
    small_objects_go_up_many_at_a_time()
