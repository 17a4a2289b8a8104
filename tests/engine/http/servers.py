#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts a real nginx, the fault server and the server of S3 for a test, and ends them when the test ends.

usage: servers.py ROOT [--pattern FILE]

nginx serves the folder ROOT, plain and with TLS, takes PUT there, and has its own files in a new
folder below ROOT. One line on standard output says where everything is:
  folder=... ca=... nginx=PORT nginx_tls=PORT plain=PORT other=PORT ipv6=PORT good=PORT ...
(without nginx_: ports of the fault server; good, wrong_host and expired are TLS with such a
certificate, client is TLS that wants one of the client; s3 is that of
s3_server.py, s3_good and s3_wrong_host the same with TLS; metadata that of metadata_server.py). All of it ends, and the folder goes, when standard input ends: so when the test does,
in whatever way. Status 77 and a reason: a program that is needed is missing here.
"""

import argparse
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import fault_server  # noqa: E402
import metadata_server  # noqa: E402
import s3_server  # noqa: E402

CONFIGURATION = """
daemon off;
{user}
worker_processes 2;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
	access_log off;
	default_type application/octet-stream;
	sendfile on;
	tcp_nopush on;
	keepalive_requests 1000000;
	client_max_body_size 0;
	client_body_temp_path {folder}/body;
	proxy_temp_path {folder}/proxy;
	fastcgi_temp_path {folder}/fastcgi;
	uwsgi_temp_path {folder}/uwsgi;
	scgi_temp_path {folder}/scgi;
	server {{
		listen 127.0.0.1:{plain};
		listen 127.0.0.1:{tls} ssl http2;
		ssl_certificate {folder}/good.pem;
		ssl_certificate_key {folder}/key.pem;
		root {root};
		location / {{ dav_methods PUT; create_full_put_path on; }}
		location /forbidden/ {{ return 403 "not for you\\nnor for others\\n"; }}
	}}
}}
"""

# An authority that signs what it is given, with dates of our choice.
AUTHORITY = """
[ca]
default_ca = a
[a]
dir = {folder}
database = {folder}/index
serial = {folder}/serial
new_certs_dir = {folder}
certificate = {folder}/ca.pem
private_key = {folder}/key.pem
default_md = sha256
policy = p
copy_extensions = copy
unique_subject = no
[p]
commonName = supplied
"""


def openssl(*arguments):
    done = subprocess.run(["openssl", *arguments], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        sys.exit(f"openssl {' '.join(arguments)}:\n{done.stdout}")


def make_certificates(folder):
    """ca.pem, which signed good.pem, wrong_host.pem and expired.pem, all with key.pem."""
    key = folder + "/key.pem"
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
    openssl("req", "-x509", "-new", "-key", key, "-subj", "/CN=authority of a test", "-days", "2",
            "-addext", "basicConstraints=critical,CA:TRUE", "-out", folder + "/ca.pem")
    with open(folder + "/authority", "w", encoding="ascii") as file:
        file.write(AUTHORITY.format(folder=folder))
    with open(folder + "/index", "w", encoding="ascii"):
        pass
    with open(folder + "/serial", "w", encoding="ascii") as file:
        file.write("01\n")
    valid, past = ["-days", "2"], ["-startdate", "20200101000000Z", "-enddate", "20200201000000Z"]
    for name, host, dates in (("good", "DNS:localhost,IP:127.0.0.1,IP:::1", valid),
                              ("wrong_host", "DNS:elsewhere.example", valid),
                              ("expired", "DNS:localhost,IP:127.0.0.1", past)):
        openssl("req", "-new", "-key", key, "-subj", "/CN=" + name, "-addext",
                "subjectAltName=" + host, "-out", f"{folder}/{name}.req")
        openssl("ca", "-batch", "-notext", "-config", folder + "/authority", *dates,
                "-in", f"{folder}/{name}.req", "-out", f"{folder}/{name}.pem")


def listening_socket():
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    listener.listen(512)
    # nginx leaves this to who made the socket, and a worker that loses the race for a connection
    # would wait for the next one in accept(), and serve nobody until then.
    listener.setblocking(False)
    listener.set_inheritable(True)
    # Each worker of nginx tries to accept, and only one of them gets the connection.
    listener.setblocking(False)
    return listener


def end_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def start_nginx(program, folder, root):
    """The process and its two ports. It gets sockets that listen already: nobody can take the
    ports before, and whoever connects early only waits."""
    plain, tls = listening_socket(), listening_socket()
    ports = plain.getsockname()[1], tls.getsockname()[1]
    with open(folder + "/nginx.conf", "w", encoding="utf-8") as file:
        file.write(CONFIGURATION.format(folder=folder, root=root, plain=ports[0], tls=ports[1],
                                        user="user root;" if os.geteuid() == 0 else ""))
    with open(folder + "/nginx.out", "wb") as output:
        process = subprocess.Popen(
            [program, "-p", folder, "-e", folder + "/error.log", "-c", folder + "/nginx.conf"],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env={**os.environ, "NGINX": f"{plain.fileno()};{tls.fileno()};"},
            pass_fds=(plain.fileno(), tls.fileno()), preexec_fn=end_with_parent)
    plain.close()
    tls.close()
    return process, ports


def answers(port):
    """Whether something on the port speaks HTTP."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
            sock.sendall(b"HEAD / HTTP/1.0\r\n\r\n")
            return sock.recv(9).startswith(b"HTTP/1.")
    except OSError:
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root")
    parser.add_argument("--pattern", help="as of the fault server")
    options = parser.parse_args()

    program = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if not program or not shutil.which("openssl"):
        print("nginx is missing" if not program else "openssl is missing", flush=True)
        sys.exit(77)
    root = os.path.abspath(options.root)
    folder = tempfile.mkdtemp(prefix="servers-", dir=root)
    nginx = None
    # Left out of finally by a signal's default action.
    for signo in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signo, lambda *_: sys.exit(1))
    try:
        make_certificates(folder)
        nginx, (plain, tls) = start_nginx(program, folder, root)
        arguments = ["--pattern", options.pattern or folder + "/key.pem", "--root", root]
        for name in "good", "wrong_host", "expired":
            arguments += ["--tls", f"{name}:{folder}/{name}.pem:{folder}/key.pem"]
        arguments += ["--tls", f"client:{folder}/good.pem:{folder}/key.pem"]
        ports = fault_server.start(fault_server.arguments().parse_args(arguments))
        if not answers(plain):
            with open(folder + "/nginx.out", encoding="utf-8") as output:
                sys.exit("nginx does not answer:\n" + output.read())
        ports["s3"] = s3_server.start(root)
        ports["metadata"] = metadata_server.start()
        for name in "good", "wrong_host":
            ports["s3_" + name] = s3_server.start(root, f"{folder}/{name}.pem", folder + "/key.pem")
        print(f"folder={folder} ca={folder}/ca.pem nginx={plain} nginx_tls={tls}",
              *(f"{name}={port}" for name, port in ports.items()), flush=True)
        sys.stdin.read()
    finally:
        if nginx:
            nginx.terminate()
            try:
                nginx.wait(timeout=2)
            except subprocess.TimeoutExpired:
                nginx.kill()
                nginx.wait()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
