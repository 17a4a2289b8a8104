# SPDX-License-Identifier: Apache-2.0
"""What the suites of others run on: moto's server of S3, and a daemon of ours. SLUICE_BUILD: the build's folder."""
import os
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
