# SPDX-License-Identifier: Apache-2.0
"""What the suites of others run on: moto's server of S3, a daemon of ours, nginx. SLUICE_BUILD: the build's folder."""
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

BUILD = Path(os.environ.get("SLUICE_BUILD", "build/check")).absolute()


def _stopped(process):
    process.terminate()
    process.wait()


@pytest.fixture(scope="session")
def s3():
    """The options of a file system for moto's server, which has a bucket."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    endpoint = f"http://127.0.0.1:{port}"
    server = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(300):
        try:
            urllib.request.urlopen(urllib.request.Request(f"{endpoint}/there", method="PUT")).close()
            break
        except urllib.error.URLError:
            time.sleep(0.1)
    else:
        pytest.fail("moto's server does not answer")
    yield {"endpoint_url": endpoint, "key": "key", "secret": "secret"}
    _stopped(server)


@pytest.fixture(scope="session")
def store_options(tmp_path_factory):
    """The options of a file system for a daemon's store."""
    socket = tmp_path_factory.mktemp("store") / "socket"
    daemon = subprocess.Popen([BUILD / "sluiced", "--socket", socket, "--memory", "64M"], stderr=subprocess.DEVNULL)
    for _ in range(300):
        if socket.exists():
            break
        time.sleep(0.1)
    yield {"socket": str(socket)}
    _stopped(daemon)


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    """A folder, and the URL at which nginx has it."""
    assert shutil.which("nginx"), "nginx is not installed (scripts/bootstrap check)"
    folder = tmp_path_factory.mktemp("web")
    folder.chmod(0o755)
    (folder / "files").mkdir(mode=0o755)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in
                        ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(
        f"{'user root; ' if os.geteuid() == 0 else ''}daemon off; pid {folder}/pid; error_log {folder}/error.log; "
        f"events {{}} http {{ access_log off; {temporary} "
        f"server {{ listen 127.0.0.1:{port}; root {folder}/files; }} }}")
    with (folder / "said").open("w") as said:
        server = subprocess.Popen(["nginx", "-p", folder, "-c", folder / "nginx.conf"], stdout=said, stderr=said)
    for _ in range(100):
        with socket.socket() as tried:
            if not tried.connect_ex(("127.0.0.1", port)):
                break
        time.sleep(0.1)
    yield folder / "files", f"sluice+http://127.0.0.1:{port}"
    server.terminate()
    server.wait()
