# SPDX-License-Identifier: Apache-2.0
"""Files and variables of AWS, drawn at random: server, keys and region are those that botocore chooses.

A server of this test sees which: endpoints differ in their paths, and what goes to AWS comes to it as to a proxy.
SLUICE_TEST_SEED; with STRESS 2,000 rounds.
"""
import http.server
import os
import random
import re
import subprocess
import threading
import time
from pathlib import Path

import botocore.exceptions
import botocore.session

BUILD = Path(os.environ.get("SLUICE_BUILD", "build/check")).absolute()
ROUNDS = 2000 if os.environ.get("STRESS") else 60
NAMES = ["default", "a", "my prof", "x-y.z"]
REGIONS = ["eu-west-1", "us-east-1", "ap-south-1"]
KEYS = ["aws_access_key_id", "aws_secret_access_key", "aws_session_token"]


class Handler(http.server.BaseHTTPRequestHandler):
    def see(self):
        form = re.search(r"Credential=([^/]+)/\d+/([^/]+)/", self.headers.get("Authorization", ""))
        self.server.seen.append((self.path.split("/")[1], *(form.groups() if form else (None, None)),
                                 self.headers.get("x-amz-security-token")))
        self.send_error(404)

    def do_CONNECT(self):
        self.server.seen.append(("AWS", None, re.search(r"s3\.([^.]+)\.amazonaws", self.path)[1], None))
        self.send_error(403)

    def log_message(self, *arguments):
        pass

    do_HEAD = do_GET = see


def drawn(chance, share):
    return chance.random() < share


def line(chance, name, value):
    name = name.upper() if drawn(chance, 0.1) else name.title() if drawn(chance, 0.1) else name
    return f"{name}{chance.choice([' = ', '=', ' =', ': '])}{value}{chance.choice(['', '', ' ', chr(9)])}\n"


def keys(chance, mark):
    """Lines with keys, of which the secret may be missing."""
    out = {name: f"{mark}{number}{name[4].upper()}" for number, name in enumerate(KEYS)}
    if drawn(chance, 0.5):
        del out[KEYS[2]]
    if drawn(chance, 0.1):
        del out[KEYS[1]]
    return [line(chance, name, value) for name, value in out.items()]


def nested(chance, name, values):
    return f"{name} =\n" + "".join(f"{chance.choice([' ', '    ', chr(9)])}{key} = {value}\n"
                                   for key, value in values.items())


def section(chance, head, lines):
    chance.shuffle(lines)
    for _ in range(chance.choice([0, 0, 1])):
        lines.insert(chance.randint(0, len(lines)),
                     chance.choice(["\n", "# a = b\n", "; remark\n", "nothing_known = x\n"]))
    return chance.choice(["", "\n", "# remark\n"]) + f"[{head}]\n" + "".join(lines)


def profile(chance, name, url):
    lines = keys(chance, f"C{name[0].upper()}") if drawn(chance, 0.4) else []
    if drawn(chance, 0.5):
        lines.append(line(chance, "region", chance.choice(REGIONS)))
    if drawn(chance, 0.5):
        lines.append(line(chance, "endpoint_url", url()))
    if drawn(chance, 0.4):
        lines.append(line(chance, "services", chance.choice(["one", "one", "one", "the other", "none"])))
    if drawn(chance, 0.2):
        lines.append(line(chance, "ignore_configured_endpoint_urls", chance.choice(["true", "True", "false", "no"])))
    if drawn(chance, 0.4):
        lines.append(nested(chance, "s3", {"addressing_style": "path", "endpoint_url": url(), "max_queue_size": 9}))
    quoted = chance.choice([f'"{name}"', f"'{name}'"]) if " " in name or drawn(chance, 0.3) else name
    return section(chance, "default" if name == "default" else f"profile{chance.choice([' ', '  '])}{quoted}", lines)


def services(chance, name, url):
    own = {"s3": {"endpoint_url": url()}, "sts": {"endpoint_url": url()},
           "dynamodb": {"endpoint_url": url(), "region": "x"}}
    lines = [nested(chance, key, value) for key, value in own.items() if drawn(chance, 0.7)]
    return section(chance, f'services "{name}"' if " " in name else f"services {name}", lines)


def files(chance, url):
    config = [profile(chance, name, url) for name in NAMES if drawn(chance, 0.7)]
    config += [services(chance, name, url) for name in ("one", "the other") if drawn(chance, 0.9)]
    chance.shuffle(config)
    credentials = [section(chance, name, keys(chance, f"S{name[0].upper()}")) for name in NAMES if drawn(chance, 0.5)]
    variables = {}
    if drawn(chance, 0.6):
        variables["AWS_PROFILE"] = chance.choice(NAMES[1:])
    if drawn(chance, 0.2):
        variables |= {"AWS_ACCESS_KEY_ID": "E0A", "AWS_SECRET_ACCESS_KEY": "E1A"}
        if drawn(chance, 0.5):
            variables["AWS_SESSION_TOKEN"] = "E2A"
    for name, share, value in (("AWS_DEFAULT_REGION", 0.3, chance.choice(REGIONS)), ("AWS_ENDPOINT_URL", 0.3, url()),
                               ("AWS_ENDPOINT_URL_S3", 0.2, url()), ("AWS_ENDPOINT_URL_STS", 0.2, url()),
                               ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", 0.15,
                                chance.choice(["true", "TRUE", "false", "1"]))):
        if drawn(chance, share):
            variables[name] = value
    return "".join(config), "".join(credentials), variables


def of_botocore(environment):
    """What the server sees of botocore's choice; None: it refuses to choose."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    try:
        session = botocore.session.Session()
        chosen = session.get_credentials()
        region = session.get_config_variable("region") or "us-east-1"
        endpoint = session.create_client("s3", region_name=region, aws_access_key_id="x",
                                         aws_secret_access_key="x").meta.endpoint_url
    except botocore.exceptions.BotoCoreError:
        return None
    finally:
        os.environ.clear()
        os.environ.update(before)
    if not chosen:
        return None
    if "amazonaws" in endpoint:
        return "AWS", None, region, None
    return endpoint.rpartition("/")[2], chosen.access_key, region, chosen.token


def test_the_choice_is_that_of_botocore(tmp_path):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.seen = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    here = f"http://127.0.0.1:{server.server_port}"
    seed = int(os.environ.get("SLUICE_TEST_SEED", time.time_ns() % 10**9))
    print(f"SLUICE_TEST_SEED={seed}")
    plain = {name: value for name, value in os.environ.items()
             if not name.startswith("AWS_") and not name.lower().endswith("_proxy")}
    kinds = set()
    for number in range(ROUNDS):
        chance = random.Random(f"{seed} {number}")
        config, credentials, variables = files(chance, lambda chance=chance: f"{here}/e{chance.randint(1, 99)}")
        (tmp_path / "config").write_text(config)
        (tmp_path / "credentials").write_text(credentials)
        environment = plain | variables | {
            "AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
            "AWS_EC2_METADATA_DISABLED": "true", "https_proxy": here, "SLUICE_HTTP_ATTEMPTS": "1"}
        expected = of_botocore(environment)
        server.seen.clear()
        done = subprocess.run([BUILD / "sluice", "stat", "s3://bucket/key"], env=environment, capture_output=True,
                              text=True, timeout=60)
        seen = server.seen[0] if server.seen else None
        assert done.returncode
        assert seen == expected, (f"round {number} of seed {seed}: {done.stderr}\n{variables}\n--- config\n{config}\n"
                                  f"--- credentials\n{credentials}")
        kinds.add("AWS" if expected and expected[0] == "AWS" else bool(expected))
    server.shutdown()
    assert kinds == {"AWS", True, False}
