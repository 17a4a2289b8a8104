# SPDX-License-Identifier: Apache-2.0
"""Many ranges of an object on an nginx of this machine, by sluice and by fsspec with aiohttp: `bench/python`.

As a program, with the arguments URI, ranges and length, it is the side of fsspec: each line of its input is a round,
and is answered by the seconds and the checksum of all bytes.
"""

import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import time
import zlib

SIZE = 1 << 30

NGINX = """
daemon off; {user} worker_processes auto; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off; sendfile on; keepalive_requests 1000000; open_file_cache max=16;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    server {{ listen 127.0.0.1:{port}; root {folder}; }}
}}
"""


class Skipped(Exception):
    """What is missing for the row."""


def offsets(count, length):
    """Random places, in random order, the same on both sides."""
    chosen = random.Random(1)
    return [chosen.randrange(SIZE - length) for _ in range(count)]


def peer(uri, count, length):
    import fsspec

    starts = offsets(count, length)
    files = fsspec.filesystem("http")
    target = bytearray(count * length)
    files.cat_ranges([uri] * 10, starts[:10], [start + length for start in starts[:10]])
    for _ in sys.stdin:
        begun = time.perf_counter()
        parts = files.cat_ranges([uri] * count, starts, [start + length for start in starts], on_error="raise")
        for i, part in enumerate(parts):
            target[i * length : (i + 1) * length] = part
        print(time.perf_counter() - begun, zlib.crc32(target), flush=True)


def interpreter(folder, *packages):
    """Returns a Python that has fsspec, aiohttp and other packages."""
    python = os.path.join(folder, "bin", "python")
    install = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--retries", "1", "fsspec", "aiohttp",
               *packages]
    try:
        if not os.path.exists(python):
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        if subprocess.run([python, "-c", ", ".join(["import fsspec, aiohttp", *packages])], capture_output=True).returncode:
            subprocess.run(install, check=True, capture_output=True, timeout=300)
    except (OSError, subprocess.SubprocessError):
        raise Skipped(f"no registry has {' and '.join(['fsspec', 'aiohttp', *packages])}") from None
    return python


def start_nginx(folder):
    """Returns the process of a server of the folder's files, and the URI of the folder."""
    program = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
    if not program:
        raise Skipped("nginx is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with open(os.path.join(folder, "nginx.conf"), "w") as file:
        file.write(NGINX.format(folder=folder, port=port, user="" if os.geteuid() else "user root;"))
    server = subprocess.Popen([program, "-c", file.name, "-e", os.path.join(folder, "error.log")])
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return server, f"http://127.0.0.1:{port}"
        except ConnectionRefusedError:
            time.sleep(0.05)
    server.terminate()
    server.wait()
    raise Skipped("nginx does not answer")


def in_turn(sluice, numpy, uri, python, count, rounds):
    length = 64 << 10
    target = numpy.zeros((count, length), "u1")
    pairs = list(zip(target, offsets(count, length), strict=True))
    other = subprocess.Popen([python, __file__, uri, str(count), str(length)], text=True, bufsize=1,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    ours, theirs = [], []
    with other, sluice.open(uri) as file:
        file.readv(pairs[:10])
        for _ in range(rounds):
            begun = time.perf_counter()
            file.readv(pairs)
            ours.append(time.perf_counter() - begun)
            other.stdin.write("\n")
            seconds, checksum = other.stdout.readline().split()
            theirs.append(float(seconds))
            if zlib.crc32(target) != int(checksum):
                raise SystemExit("bench/python: the two sides read different bytes")
    return statistics.median(ours), statistics.median(theirs)


def measure(sluice, numpy, build, folder, quick):
    """Returns a line of the report."""
    count = 1000 if quick else 10_000
    title = f"{count} ranges of 64 KiB from nginx into a numpy array"
    try:
        if not numpy:
            raise Skipped("numpy is not installed")
        python = interpreter(os.path.join(build, "python-bench"))
        server, uri = start_nginx(folder)
        uri += "/object"
        with open(os.path.join(folder, "object"), "wb") as file:
            block = os.urandom(SIZE // 16 - 1)  # no two ranges of 64 KiB are equal
            while file.tell() < SIZE:
                file.write(block[: SIZE - file.tell()])
    except Skipped as missing:
        return f"{title}: skipped, {missing}"
    try:
        ours, theirs = in_turn(sluice, numpy, uri, python, count, 3 if quick else 5)
    finally:
        server.terminate()
        server.wait()
    return f"{title}: {ours:.3f} s by readv, {theirs:.3f} s by fsspec's cat_ranges with aiohttp: {theirs / ours:.1f} times"


if __name__ == "__main__":
    peer(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
