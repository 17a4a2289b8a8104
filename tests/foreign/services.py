# SPDX-License-Identifier: Apache-2.0
"""Services of S3 on loopback: SeaweedFS and `rclone serve s3` of PyPI, moto's server, Ceph's gateway of Debian.

with start(name) as service: it has an endpoint and keys. A service that is missing here gives LookupError.
"""
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import boto3
import botocore.config

sys.path.insert(0, str(Path(__file__).parent.parent / "engine/s3"))
import gateway  # noqa: E402

NAMES = ["SeaweedFS", "rclone", "moto", "Ceph"]
ACCESS, SECRET = "SERVICETESTSERVICE00", "a+secret/of+the/service"
WAIT_S = 90


class Service:
    def __init__(self, name, port, environment):
        self.name, self.port, self.environment = name, port, environment
        self.endpoint = f"http://127.0.0.1:{port}"

    def client(self, style="path", signature="s3v4", host="127.0.0.1"):
        """boto3's, the witness."""
        return boto3.client("s3", endpoint_url=f"http://{host}:{self.port}", region_name="us-east-1",
                            aws_access_key_id=self.environment["AWS_ACCESS_KEY_ID"],
                            aws_secret_access_key=self.environment["AWS_SECRET_ACCESS_KEY"],
                            config=botocore.config.Config(signature_version=signature, s3={"addressing_style": style},
                                                          retries={"max_attempts": 1}))


def program(name):
    """A program of the environment's packages, or of the machine."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if not found:
        raise LookupError(f"there is no {name}")
    return found


def command(name, ports, folder):
    if name == "rclone":
        os.mkdir(f"{folder}/objects")
        return [program("rclone"), "serve", "s3", "--addr", f"127.0.0.1:{ports[0]}", "--auth-key", f"{ACCESS},{SECRET}",
                f"{folder}/objects"]
    if name == "moto":
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(ports[0])]
    Path(f"{folder}/s3.json").write_text(json.dumps({"identities": [
        {"name": "test", "credentials": [{"accessKey": ACCESS, "secretKey": SECRET}],
         "actions": ["Admin", "Read", "Write", "List"]}]}))
    os.mkdir(f"{folder}/data")
    kinds = ["s3.port", "master.port", "volume.port", "filer.port"]
    kinds += [f"{kind}.grpc" for kind in kinds]
    # Each bucket has volumes of its own.
    return [program("weed"), "server", f"-dir={folder}/data", "-ip=127.0.0.1", "-filer", "-s3",
            f"-s3.config={folder}/s3.json", "-s3.domainName=localhost", "-s3.port.iceberg=0", "-s3.port.lance=0",
            "-master.telemetry=false", "-volume.max=60", "-master.volumeSizeLimitMB=64",
            *(f"-{kind}={port}" for kind, port in zip(kinds, ports, strict=True))]


@contextlib.contextmanager
def start(name):
    if name == "Ceph":
        if gateway.missing():
            raise LookupError(f"{' '.join(gateway.missing())} are missing (Debian's packages {gateway.PACKAGES})")
        try:
            running = gateway.Gateway().__enter__()
        except SystemExit:
            raise LookupError("it does not start here") from None
        with contextlib.ExitStack() as stack:
            stack.callback(running.__exit__)
            service = Service(name, running.port, running.environment())
            service.client().create_bucket(Bucket="first-bucket")
            yield service
        return
    environment = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
    folder = tempfile.mkdtemp(prefix="service.")
    ports = gateway.free_ports(8)
    service = Service(name, ports[0], environment)
    server = None
    try:
        server = subprocess.Popen(command(name, ports, folder), env=os.environ | {"WEED_S3_SSE_KEK": "5a" * 32},
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder,
                                  preexec_fn=gateway.die_with_parent)
        until = time.monotonic() + WAIT_S
        while True:
            try:
                service.client().create_bucket(Bucket="first-bucket")
                service.client().put_object(Bucket="first-bucket", Key="first", Body=b"x")
                break
            except Exception as error:
                if server.poll() is not None or time.monotonic() > until:
                    raise LookupError(f"{name} does not answer: {error}") from None
                time.sleep(0.3)
        yield service
    finally:
        if server:
            server.kill()
            server.wait()
        shutil.rmtree(folder, ignore_errors=True)
