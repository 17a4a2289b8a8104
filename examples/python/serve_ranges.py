#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A web server of files and ranges of files, by asyncio: thousands of reads wait on a single thread.

usage: serve_ranges.py FOLDER [PORT]    prints its URI; ends with its input
"""

import asyncio
import os
import sys
import urllib.parse

import sluice

PART = 1 << 20


async def answer(folder, method, target, fields, writer):
    path = os.path.realpath(folder + urllib.parse.unquote(target.partition("?")[0]))
    if not path.startswith(folder + os.sep) or not os.path.isfile(path):
        return writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
    with await sluice.open_async(path) as file:
        found = await file.stat_async()
        begin, end, status = 0, found.size, "200 OK"
        unit, _, asked = fields.get("range", "").partition("=")
        if unit == "bytes" and "," not in asked:
            first, _, last = asked.partition("-")
            begin = int(first) if first else max(end - int(last), 0)
            end = min(int(last) + 1, end) if first and last else end
            status = "206 Partial Content" if begin < end else "416 Range Not Satisfiable"
        content = f"\r\nContent-Range: bytes {begin}-{end - 1}/{found.size}" if status[:3] == "206" else ""
        writer.write(f'HTTP/1.1 {status}\r\nContent-Length: {max(end - begin, 0)}\r\nAccept-Ranges: bytes\r\n'
                     f'ETag: "{found.size:x}-{found.modified_ns:x}"{content}\r\n\r\n'.encode())
        for at in range(begin, end if method == "GET" else begin, PART):
            writer.write(await file.read_async(min(PART, end - at), at))
            await writer.drain()


async def serve(folder, port=0):
    async def connected(reader, writer):
        try:
            while request := (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n"):
                pairs = (line.partition(":") for line in request[1:])
                fields = {name.lower(): value.strip() for name, _, value in pairs}
                await answer(folder, *request[0].split()[:2], fields, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    return await asyncio.start_server(connected, "127.0.0.1", port)


async def main(folder, port):
    server = await serve(os.path.realpath(folder), port)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]) if sys.argv[2:] else 0)) if sys.argv[1:] else sys.exit(__doc__)
