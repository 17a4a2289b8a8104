#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs Ceph's Object Gateway on loopback: a monitor, an OSD that keeps objects in memory, and radosgw.

As a program it prints the environment for clients of S3, and ends the servers when standard input ends:

  tests/engine/s3/gateway.py

The servers are children that die with their parent, in whatever way it ends. They need neither root nor systemd, and
read nothing of /etc/ceph. All files are in a temporary folder.
"""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid

PROGRAMS = ("ceph-mon", "ceph-osd", "radosgw", "radosgw-admin", "ceph", "ceph-authtool", "monmaptool")
PACKAGES = "ceph-mon ceph-osd radosgw ceph-common"
ACCESS_KEY, SECRET_KEY = "GATEWAYTESTGATEWAY00", "a+secret/of+the/gateway"
WAIT_S = 90

CONFIGURATION = """
[global]
fsid = {fsid}
mon_host = v2:127.0.0.1:{mon_port}
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_msgr1 = false
keyring = {folder}/keyring
run_dir = {folder}
crash_dir = {folder}
admin_socket =
log_file = {folder}/$name.log
mon_cluster_log_file = {folder}/cluster.log
mon_data = {folder}/mon
mon_data_avail_crit = 0
mon_allow_pool_size_one = true
paxos_propose_interval = 0.05
osd_data = {folder}/osd
osd_objectstore = memstore
memstore_device_bytes = {memory}
osd_crush_chooseleaf_type = 0
osd_pool_default_size = 1
osd_pool_default_pg_num = 4
osd_pool_default_pg_autoscale_mode = off
[client.rgw]
rgw_data = {folder}
rgw_dns_name = localhost
rgw_frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1
rgw_gc_obj_min_wait = 1
rgw_gc_processor_period = 1
"""


def missing():
    """The programs that are missing here."""
    return [name for name in PROGRAMS if not shutil.which(name)]


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Gateway:
    """with Gateway() as gateway: servers run, and answer at gateway.endpoint. memory: of the objects, bytes."""

    def __init__(self, memory=1 << 30):
        self.memory = memory

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
        self.folder = tempfile.mkdtemp(prefix="gateway.")
        self.servers = {}
        mon_port, self.port = free_ports(2)
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.fsid = str(uuid.uuid4())
        with open(f"{self.folder}/ceph.conf", "w", encoding="ascii") as file:
            file.write(CONFIGURATION.format(folder=self.folder, fsid=self.fsid, mon_port=mon_port, port=self.port,
                                            memory=self.memory))
        try:
            self.start(mon_port)
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            self.__exit__()
            print(f"skipped: Ceph's Object Gateway does not start here: {error}", flush=True)
            sys.exit(77)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for server in self.servers.values():
            server.kill()
        for server in self.servers.values():
            server.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def environment(self):
        return {"AWS_ENDPOINT_URL": self.endpoint, "AWS_ACCESS_KEY_ID": ACCESS_KEY,
                "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": "us-east-1"}

    def start(self, mon_port):
        keyring, monmap = f"{self.folder}/keyring", f"{self.folder}/monmap"
        for name in ("mon", "osd"):
            os.mkdir(f"{self.folder}/{name}")
        self.run("monmaptool", "--create", "--fsid", self.fsid, "--addv", "a", f"[v2:127.0.0.1:{mon_port}]",
                 monmap)
        for name in ("mon.", "client.admin", "client.rgw", "osd.0"):
            self.run("ceph-authtool", keyring, "--gen-key", *(["-C"] if name == "mon." else []), "-n", name,
                     "--cap", "mon", "allow *", "--cap", "osd", "allow *")
        self.run("ceph-mon", "-i", "a", "--mkfs", "--monmap", monmap, "--keyring", keyring)
        self.serve("ceph-mon", "-i", "a", "--foreground")
        osd = str(uuid.uuid4())
        self.run("ceph", "osd", "new", osd)
        self.run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
        self.serve("ceph-osd", "-i", "0", "--foreground")
        self.run("radosgw-admin", "user", "create", "--uid", "test", "--display-name", "test",
                 "--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY)
        self.serve("radosgw", "-n", "client.rgw", "--foreground")
        self.await_answer()

    def command(self, program, *arguments):
        return [program, "--conf", f"{self.folder}/ceph.conf", *arguments]

    def run(self, *command):
        done = subprocess.run(self.command(*command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=WAIT_S, preexec_fn=die_with_parent, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: status {done.returncode}: {done.stdout.decode()}")

    def serve(self, *command):
        with open(f"{self.folder}/{command[0]}.out", "wb") as out:
            self.servers[command[0]] = subprocess.Popen(
                self.command(*command), stdin=subprocess.DEVNULL, stdout=out, stderr=out, preexec_fn=die_with_parent)

    def await_answer(self):
        until = time.monotonic() + WAIT_S
        while True:
            for name, server in self.servers.items():
                if server.poll() is not None:
                    with open(f"{self.folder}/{name}.out", "rb") as out:
                        raise RuntimeError(f"{name} ended: {out.read()[-2000:].decode()}")
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                if time.monotonic() > until:
                    raise RuntimeError(f"radosgw does not listen after {WAIT_S} s") from None
            time.sleep(0.1)


if __name__ == "__main__":
    if missing():
        sys.exit(f"missing: {' '.join(missing())}; Debian's packages {PACKAGES} have them")
    with Gateway() as running:
        for variable, value in running.environment().items():
            print(f"{variable}={value}", flush=True)
        sys.stdin.read()
