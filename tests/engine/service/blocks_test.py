#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Serves objects that consist of blocks, checks the signature of each request, and runs the program.

usage: tests/engine/service/blocks_test.py PROGRAM

For the protocol see blocks_test.c. In "l" each page of a list but the last is empty. An object "hidden" is not there
for HEAD, and each first block of "busy" is refused.
"""

import http.server
import os
import re
import subprocess
import sys
import threading
import urllib.parse

objects, blocks, refused = {}, {}, set()
colors = {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", **fields):
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        if self.command != "HEAD" or "Content_Length" not in fields:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def signed(self, length):
        """Whether the signature is of this very request."""
        fields = [self.headers.get(name, "") for name in ("Range", "If-None-Match", "x-blocks-bytes", "x-meta-color")]
        said = "|".join([self.command, str(length), *fields])
        return self.headers.get("Authorization") == "Blocks " + said

    def handle_one(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self.signed(len(body)):
            return self.reply(403, b"Signature")
        return getattr(self, "on_" + self.command)(url.path, query, body)

    do_GET = do_HEAD = do_PUT = do_DELETE = handle_one

    def on_GET(self, path, query, _):
        if query.get("comp") == "list":
            if not query.get("marker"):
                return self.reply(200, b"next 1")
            names = sorted(name for name in objects if name.startswith(path.rstrip("/") + "/"))
            lines = [f"{name.split('/', 2)[2]} {len(objects[name])}\n" for name in names]
            return self.reply(200, "".join(lines).encode())
        if path not in objects or (self.command == "HEAD" and path == "/c/hidden"):
            return self.reply(404, b"Missing")
        data, etag = objects[path], '"%x"' % hash(objects[path])
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not found:
            return self.reply(200, data, ETag=etag, Accept_Ranges="bytes", Content_Length=str(len(data))) \
                if self.command == "HEAD" else self.reply(200, data, ETag=etag)
        first, last = int(found[1]), min(int(found[2]), len(data) - 1)
        return self.reply(206, data[first:last + 1], ETag=etag, Content_Range=f"bytes {first}-{last}/{len(data)}")

    on_HEAD = on_GET

    def on_PUT(self, path, query, body):
        if query.get("comp") == "block":
            if path == "/c/busy" and query["blockid"] not in refused:
                refused.add(query["blockid"])
                return self.reply(409, b"Busy")
            blocks[path, query["blockid"]] = body
            return self.reply(201)
        if self.headers.get("If-None-Match") == "*" and path in objects:
            return self.reply(409, b"Exists")
        if query.get("comp") == "blocklist":
            body = b"".join(blocks[path, name] for name in body.decode().split())
        colors[path] = self.headers.get("x-meta-color")
        objects[path] = body
        return self.reply(201, ETag='"%x"' % hash(body))

    def on_DELETE(self, path, *_):
        return self.reply(204 if objects.pop(path, None) is not None else 404)


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    env = os.environ | {"BLOCKS_URL": f"http://127.0.0.1:{server.server_port}"}
    status = subprocess.run(sys.argv[1:], env=env, timeout=50, check=False).returncode
    plain = sorted(path for path, color in colors.items() if color != "red")
    if not status and plain:
        sys.exit(f"without the lines about the object: {plain}")
    sys.exit(status)


if __name__ == "__main__":
    main()
