# SPDX-License-Identifier: Apache-2.0
"""Presigned URLs of names, methods, keys and lines drawn at random are those of botocore; moto's server takes them."""
import datetime
import os
import random
import urllib.parse
import urllib.request
import warnings

import boto3
import botocore.auth
import botocore.config
import fsspec
import pytest
import sluice
import sluice.fsspec  # noqa: F401
from moto.server import ThreadedMotoServer

ALPHABET = "aZ09-._~ +%&=?#;:@!$'()*,<>[]{}|^`\\\"éß\u4e2d\U0001d11e"
ROUNDS = 200
CALLS = {"GET": "get_object", "HEAD": "head_object", "PUT": "put_object", "DELETE": "delete_object"}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")


def theirs(asked, method, bucket, key, seconds, more, style):
    s3 = {"addressing_style": style or "virtual"}  # "auto" has a host without the region
    client = boto3.client("s3", endpoint_url=asked.get("endpoint"), region_name=asked["region"],
                          aws_access_key_id=asked["access_key"], aws_secret_access_key=asked["secret_key"],
                          aws_session_token=asked.get("session_token"),
                          config=botocore.config.Config(signature_version="s3v4", s3=s3))
    return client.generate_presigned_url(CALLS[method], {"Bucket": bucket, "Key": key, **more}, seconds)


def parts(url):
    """A URL whose query has any order, and any escapes."""
    place, _, query = url.partition("?")
    return place, sorted(urllib.parse.unquote(pair) for pair in query.split("&"))


def test_urls_are_those_of_botocore(monkeypatch):
    seed = os.environ.get("SLUICE_TEST_SEED") or str(random.randrange(1 << 32))
    chance = random.Random(seed)
    for round_ in range(ROUNDS):
        method = chance.choice(list(CALLS))
        key = "/".join("".join(chance.choices(ALPHABET, k=chance.randint(1, 9))) for _ in range(chance.randint(1, 4)))
        bucket, seconds = chance.choice(["bucket", "a-b-9", "with.dots"]), chance.choice([1, 60, 3600, 604800])
        asked = {"access_key": "AKID" + str(round_), "secret_key": "s/+=" + str(chance.random()),
                 "region": chance.choice(["eu-west-1", "us-west-2", "cn-north-1"])}
        if chance.random() < 0.4:
            asked["session_token"] = "tok+/=" + str(chance.random())
        if chance.random() < 0.5:
            asked["endpoint"] = chance.choice(["http://127.0.0.1:9000", "https://s3.example.com", "https://host:8443"])
        style = chance.choice([None, "path", "virtual"])
        more, headers = {}, {}
        if style:
            asked["addressing"] = style
        if method in ("GET", "HEAD", "DELETE") and chance.random() < 0.3:
            asked["version"] = more["VersionId"] = "v+/=" + str(chance.random())
        if method == "PUT" and chance.random() < 0.5:
            headers["Content-Type"] = more["ContentType"] = "text/x; a=b  c"
        if method == "PUT" and chance.random() < 0.5:
            name = chance.choice(["a", "a!#&+b"])
            more["Metadata"], headers[f"x-amz-meta-{name}"] = {name: "b c"}, "b c"
        # Where botocore takes another address of its own accord: an endpoint, or a name with dots, in the host.
        if bucket == "with.dots" and style != "path":
            asked["addressing"] = style = "path"
        if asked.get("endpoint") and not style:
            asked["addressing"] = style = chance.choice(["path", "virtual"])
        if style == "virtual" and "127.0.0.1" in asked.get("endpoint", ""):
            asked["addressing"] = style = "path"
        mine = sluice.presign(f"s3://{bucket}/{key}", method=method, expires=seconds, headers=headers, s3=asked)
        stamp = mine.partition("X-Amz-Date=")[2][:16]
        at = datetime.datetime.strptime(stamp, "%Y%m%dT%H%M%SZ")
        monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda remove_tzinfo=True, at=at: at, raising=False)
        there = theirs(asked, method, bucket, key, seconds, more, style)
        assert parts(mine) == parts(there), (seed, round_)


def test_refusals_and_warnings(tmp_path, monkeypatch):
    keys = {"access_key": "A", "secret_key": "S"}
    for wrong in ({"method": "POST"}, {"expires": 0}, {"expires": 604801}, {"expires": -1}, {"headers": {"Host": "x"}},
                  {"s3": {"anonymous": True}}):
        with pytest.raises((ValueError, OSError)):
            sluice.presign("s3://bucket/key", **{"s3": keys, **wrong})
    for uri in ("s3://bucket", "s3://bucket/", "https://host/x", "/tmp/x", "s3:///x"):
        with pytest.raises(OSError):
            sluice.presign(uri, s3=keys)
    # Keys that end in an hour.
    end = (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    (tmp_path / "config").write_text(
        "[default]\ncredential_process = echo '{\"Version\": 1, \"AccessKeyId\": \"A\", \"SecretAccessKey\": \"S\", "
        f"\"SessionToken\": \"T\", \"Expiration\": \"{end}\"}}'\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "X-Amz-Security-Token=T&" in sluice.presign("s3://bucket/key", expires=3000, context=sluice.Context())
    with pytest.warns(UserWarning, match="ends in 3[56][0-9][0-9] seconds, with the keys"):
        sluice.presign("s3://bucket/key", expires=7200, context=sluice.Context())


def test_a_server_takes_them():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        keys = {"access_key": "A", "secret_key": "S", "endpoint": f"http://{host}:{port}"}
        boto3.client("s3", endpoint_url=keys["endpoint"], aws_access_key_id="A", aws_secret_access_key="S",
                     region_name="us-east-1").create_bucket(Bucket="bucket")
        fs = fsspec.filesystem("sluice+s3", key="A", secret="S", endpoint_url=keys["endpoint"])
        for key in ("plain", "ü b+c%41?#&=", "deep/er"):
            put = sluice.presign(f"s3://bucket/{key}", method="PUT", s3=keys)
            urllib.request.urlopen(urllib.request.Request(
                put, key.encode(), {"Content-Type": "text/x"}, method="PUT")).close()
            assert fs.cat(f"bucket/{key}") == key.encode()
            with urllib.request.urlopen(fs.sign(f"sluice+s3://bucket/{key}", expiration=60)) as answer:
                assert answer.read() == key.encode()
        with pytest.raises(TypeError, match="client_method"):
            fs.sign("bucket/plain", client_method="put_object")
    finally:
        server.stop()
