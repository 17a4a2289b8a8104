#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The command and a real service of S3, Ceph's Object Gateway, with boto3 as the witness: gateway_test.py SLUICE"""

import concurrent.futures
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import gateway  # noqa: E402

try:
    import boto3
    import botocore.config
except ImportError:
    boto3 = None

SLUICE = sys.argv[1]
BUCKET = "odd-keys"
BACKENDS = ("multi", "easy")
KEYS = ["plain", "a b", "a+b=c", "100%", "%41%2F", "ä/€/𝄞", "a//b", "/lead", "tail/", "n\nl", "#/x", "q?x=1", "?x=1",
        "~t*'()!", ";:@&$,", "<&>\"", "a\\b", "[x]{y}|^`", "x/.hidden", "a..b"]
# boto3's HTTP client takes dot segments out of a path, so it lists these keys only.
DOTS = ["x/../y", "../up", "x/..", "./dot", ".."]

if gateway.missing() or not boto3:
    print("skipped: missing:", *gateway.missing(), *([] if boto3 else ["boto3"]),
          f"(Debian's packages {gateway.PACKAGES} python3-boto3)")
    sys.exit(77)


def noise(n, seed):
    return hashlib.shake_128(str(seed).encode()).digest(n)


class Place:
    """How a client names the gateway: with the bucket in the path, or in the host."""

    def __init__(self, running, folder, style):
        self.style, self.running = style, running
        host = "localhost" if style == "virtual" else "127.0.0.1"
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        self.environment.update(running.environment(), AWS_ENDPOINT_URL=f"http://{host}:{running.port}",
                                AWS_CONFIG_FILE=f"{folder}/{style}", NO_PROXY="*", SLUICE_LOG="error")
        with open(f"{folder}/{style}", "w", encoding="ascii") as file:
            file.write(f"[default]\ns3 =\n  addressing_style = {style}\n")

    def sluice(self, *arguments, data=None, fails=False, **environment):
        done = subprocess.run([SLUICE, *arguments], input=data, capture_output=True, check=False, timeout=120,
                              env={**self.environment, **environment})
        assert (done.returncode != 0) == fails, (self.style, arguments, done.returncode, done.stderr)
        return done.stderr.decode() if fails else done.stdout


def listed(s3, prefix=""):
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
    return {each["Key"]: each for page in pages for each in page.get("Contents", [])}


def uri(key):
    return f"s3://{BUCKET}/{key}"


def odd_keys_are_read_as_boto3_put_them(s3, places, _):
    for i, key in enumerate(KEYS):
        s3.put_object(Bucket=BUCKET, Key=key, Body=noise(1000 + i, key))
        for place in places:
            for backend in BACKENDS:
                assert place.sluice("cp", "-q", "--backend", backend, uri(key), "-") == noise(1000 + i, key), key
        s3.delete_object(Bucket=BUCKET, Key=key)


def odd_keys_are_put_as_boto3_reads_them(s3, places, _):
    for i, key in enumerate(KEYS + DOTS):
        for place, backend in zip(places, BACKENDS, strict=True):
            body = noise(2000 + i, f"{key} {place.style} {backend}")
            # Below a key that ends in '/' a file keeps its name; a stream has none.
            place.sluice("cp", "-q", "-f", "--backend", backend, "-", uri(key), data=body)
            assert place.sluice("cp", "-q", "--backend", backend, uri(key), "-") == body, key
            if key in KEYS:
                assert s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == body, key
            there = listed(s3, key)[key]
            assert there["ETag"] == f'"{hashlib.md5(body).hexdigest()}"' and there["Size"] == len(body), key
        assert "exists" in place.sluice("cp", "-q", "-", uri(key), data=body, fails=True)
    assert set(listed(s3)) == set(KEYS + DOTS)


def a_copy_is_made_by_the_server(s3, places, _):
    """Whole and in parts, of odd keys, with the metadata; and no upload is left."""
    for i, key in enumerate(KEYS):
        size = (0, 1000, (10 << 20) + 1)[i % 3]
        s3.put_object(Bucket=BUCKET, Key=key, Body=noise(size, key), ContentType="text/x", Metadata={"a": "b c"})
        for place in places:
            said = place.sluice("cp", "--no-progress", "-f", uri(key), uri("copied/x"), fails=False,
                                SLUICE_S3_COPY_BYTES="6M", SLUICE_S3_PART_BYTES="5M")
            there = s3.get_object(Bucket=BUCKET, Key="copied/x")
            assert not said and there["Body"].read() == noise(size, key), key
            assert there["ContentType"] == "text/x" and there["Metadata"] == {"a": "b c"}, (key, there)
        s3.delete_object(Bucket=BUCKET, Key=key)
    assert "exists" in places[0].sluice("cp", "-q", uri("copied/x"), uri("copied/x2"), fails=False).decode() + \
        places[0].sluice("cp", "-q", uri("copied/x"), uri("copied/x2"), fails=True)
    assert "NoSuchKey" in places[0].sluice("cp", "-q", uri("absent"), uri("copied/y"), fails=True)
    assert BUCKET in places[0].sluice("ls", "s3://").decode()
    assert not s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads")
    for key in ("copied/x", "copied/x2"):
        s3.delete_object(Bucket=BUCKET, Key=key)


def a_list_is_that_of_boto3(s3, places, _):
    names = [f"many/{i % 7}/{i} +%&" for i in range(2100)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: s3.put_object(Bucket=BUCKET, Key=name, Body=name.encode()), names))
    expected = [(name, each["Size"], each["ETag"]) for name, each in listed(s3).items()]
    assert len(expected) >= len(names)
    for place in places:
        lines = place.sluice("ls", "-r", "--json", f"s3://{BUCKET}").decode().splitlines()
        assert [(e["name"], e["length"], e["etag"]) for e in map(json.loads, lines)] == expected
        lines = place.sluice("ls", "--json", uri("many/")).decode().splitlines()
        assert [json.loads(line)["name"] for line in lines] == [f"many/{i}/" for i in range(7)]


def a_prefix_is_copied_down(s3, places, folder):
    """Names that would leave the folder, or that no file has, are refused, and the others are copied."""
    good = {f"down/{name}": noise(3000 + i, name) for i, name in enumerate(
        ["a", "b/c", "b/d/e f", "ä/%41", "..x/.y", "n\nl", *(f"many/{n}" for n in range(50))])}
    bad = ["down/../up", "down/..", "down/b/../../up", "down//lead", "down/a//b", "down/tail/", "down/./x"]
    for key, body in good.items():
        s3.put_object(Bucket=BUCKET, Key=key, Body=body)
    for none in ("downwards", "down/", "down/b/", "down/marked/"):  # consoles show a folder by an object without bytes
        s3.put_object(Bucket=BUCKET, Key=none, Body=b"")

    def files(top):
        found = (os.path.join(at, name) for at, _, names in os.walk(top) for name in names)
        return {f"down/{os.path.relpath(path, top)}": path for path in found}
    for refused in ([], bad):
        for key in refused:
            places[0].sluice("cp", "-q", "-", uri(key), data=b"x")
        for place, backend, prefix in zip(places, BACKENDS, ("down/", "down"), strict=True):
            to = f"{folder}/{place.style} {len(refused)}"
            message = place.sluice("cp", "-r", "--backend", backend, uri(prefix), to, fails=bool(refused))
            assert all(f"'{uri(key)}' is not copied" in message for key in refused), message
            there = files(to)
            assert set(there) == set(good)
            for key, path in there.items():
                with open(path, "rb") as file:
                    assert file.read() == good[key], key
    assert not os.path.exists(f"{folder}/up") and not os.path.exists(f"{folder}/lead")
    assert "there are no objects" in place.sluice("cp", "-r", uri("nothing/"), f"{folder}/none", fails=True)


def large_objects_are_the_same(s3, places, folder):
    body = noise(20_000_003, "large")
    with open(f"{folder}/body", "wb") as file:
        file.write(body)
    s3.put_object(Bucket=BUCKET, Key="large", Body=body)
    for place in places:
        for backend in BACKENDS:
            assert place.sluice("cp", "-q", "--backend", backend, uri("large"), "-") == body
            for more in [], ["--sign-payload"]:
                place.sluice("cp", "-q", "-f", "--backend", backend, *more, f"{folder}/body", uri("large back"))
                assert s3.get_object(Bucket=BUCKET, Key="large back")["Body"].read() == body
                s3.delete_object(Bucket=BUCKET, Key="large back")


def an_object_of_several_parts_is_read(s3, places, _):
    """Its ETag is no hash of the bytes."""
    key, sizes = {"Bucket": BUCKET, "Key": "parts"}, (5 << 20, 5 << 20, 1000)
    upload = s3.create_multipart_upload(**key)["UploadId"]
    parts = [{"PartNumber": i, "ETag": s3.upload_part(
        **key, UploadId=upload, PartNumber=i, Body=noise(n, i))["ETag"]} for i, n in enumerate(sizes, 1)]
    s3.complete_multipart_upload(**key, UploadId=upload, MultipartUpload={"Parts": parts})
    for backend in BACKENDS:
        assert places[0].sluice("cp", "-q", "--backend", backend, uri("parts"), "-") == \
            b"".join(noise(n, i) for i, n in enumerate(sizes, 1))


def s3cmd(running, *arguments):
    return subprocess.run(["s3cmd", "--config=/dev/null", f"--access_key={gateway.ACCESS_KEY}",
                           f"--secret_key={gateway.SECRET_KEY}", f"--host=127.0.0.1:{running.port}", "--no-ssl",
                           f"--host-bucket=127.0.0.1:{running.port}/%(bucket)", "--no-progress", *arguments],
                          capture_output=True, check=True, timeout=120).stdout


def uploads_in_parts_are_read_by_others(s3, places, folder):
    """And those of others by sluice: boto3 and s3cmd are the witnesses."""
    body = noise(22_000_001, "parts of sluice")
    with open(f"{folder}/body", "wb") as file:
        file.write(body)
    for place, backend in zip(places, BACKENDS, strict=True):
        for source, data in ((f"{folder}/body", None), ("-", body)):
            place.sluice("cp", "-q", "-f", "--backend", backend, source, uri("by sluice"), data=data,
                         SLUICE_S3_PART_BYTES="5M")
            there = s3.get_object(Bucket=BUCKET, Key="by sluice")
            assert there["Body"].read() == body and there["ETag"].endswith('-5"'), there["ETag"]
        message = place.sluice("cp", "-q", f"{folder}/body", uri("by sluice"), fails=True, SLUICE_S3_PART_BYTES="5M")
        assert "exists" in message, message
    if shutil.which("s3cmd"):
        s3cmd(places[0].running, "get", "--force", uri("by sluice"), f"{folder}/back")
        with open(f"{folder}/back", "rb") as file:
            assert file.read() == body
        s3cmd(places[0].running, "put", "--multipart-chunk-size-mb=5", f"{folder}/body", uri("by s3cmd"))
        assert places[1].sluice("cp", "-q", uri("by s3cmd"), "-") == body
    assert not s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads")


def trees_are_copied_up_and_between_prefixes_and_removed(s3, places, folder):
    names = ["one", "a/two", "a/b/three+four %41", *(f"many/{i}" for i in range(30))]
    for name in names:
        os.makedirs(os.path.dirname(f"{folder}/up/{name}"), exist_ok=True)
        with open(f"{folder}/up/{name}", "wb") as file:
            file.write(noise(6_000_000 if name == "one" else 1000, name))
    for place, top in zip(places, ("up 1", "up 2"), strict=True):
        lines = place.sluice("cp", "-r", "--dry-run", f"{folder}/up", uri(top)).decode()
        assert len(lines.splitlines()) == len(names) and not listed(s3, top)
        place.sluice("cp", "-q", "-r", f"{folder}/up", uri(top), SLUICE_S3_PART_BYTES="5M")
        place.sluice("cp", "-q", "-r", uri(top + "/"), uri(f"copy/{top}/"))
        for prefix in (f"{top}/", f"copy/{top}/"):
            assert {key[len(prefix):]: each["Size"] for key, each in listed(s3, prefix).items()} == \
                {name: os.path.getsize(f"{folder}/up/{name}") for name in names}
            for name in names:
                assert s3.get_object(Bucket=BUCKET, Key=prefix + name)["Body"].read() == \
                    noise(6_000_000 if name == "one" else 1000, name)
        place.sluice("rm", uri(f"{top}/one"))
        assert f"{top}/one" not in listed(s3, top)
        assert len(place.sluice("rm", "-r", "--dry-run", uri(top + "/")).splitlines()) == len(names) - 1
        place.sluice("rm", "-r", uri(top + "/"))
        place.sluice("rm", "-r", uri("copy/"))
        assert not listed(s3, top + "/") and not listed(s3, "copy/")


def abandoned_uploads_are_found_and_removed(s3, places, _):
    keys = ["x y", "x%41", "y/ä", *(f"z/{i:02}" for i in range(5))]
    for key in keys:
        s3.create_multipart_upload(Bucket=BUCKET, Key=key)
    for place in places:
        lines = place.sluice("s3", "abandoned", "--json", f"s3://{BUCKET}").decode().splitlines()
        assert sorted(json.loads(line)["uri"] for line in lines) == sorted(map(uri, keys))
        assert not place.sluice("s3", "abandoned", "--remove", uri("x"))  # they may still run
    places[0].sluice("s3", "abandoned", "--remove", "--age", "0", uri("x"))
    assert {each["Key"] for each in s3.list_multipart_uploads(Bucket=BUCKET)["Uploads"]} == set(keys[2:])
    places[1].sluice("s3", "abandoned", "--remove", "--age", "0", f"s3://{BUCKET}")
    assert not s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads")


def a_presigned_url_needs_no_keys(s3, places, folder):
    """curl gets and puts, removes, and is refused by another method, a changed URL, and later."""
    def curl(url, *words, status=200):
        done = subprocess.run(["curl", "-sS", "--path-as-is", "-g", "-o", f"{folder}/got", "-w", "%{http_code}", *words, url],
                              env={"NO_PROXY": "*"}, capture_output=True, check=True, timeout=60)
        with open(f"{folder}/got", "rb") as got:
            body = got.read()
        assert int(done.stdout) == status, (url, words, done.stdout, body)
        return body

    # Not -T, which adds the name of the file behind a '/'.
    put = ("-X", "PUT", "--data-binary", f"@{folder}/body", "-H", "Content-Type:")
    for place in places:
        short = place.sluice("presign", "--expires", "1", uri("many")).decode().strip()
        begin = time.monotonic()
        url = {method: place.sluice("presign", "--method", method, *map(uri, KEYS + DOTS)).decode().splitlines()
               for method in ("GET", "HEAD", "PUT", "DELETE")}
        for i, key in enumerate(KEYS + DOTS):
            with open(f"{folder}/body", "wb") as file:
                file.write(noise(1000, key + place.style))
            curl(url["PUT"][i], *put)
            assert curl(url["GET"][i]) == noise(1000, key + place.style), key
            curl(url["DELETE"][i], "-X", "DELETE", status=204)
        curl(url["PUT"][0], *put)
        curl(url["HEAD"][0], "-I")
        curl(url["GET"][0], *put, status=403)
        curl(url["GET"][0].replace("Expires=3600", "Expires=3601"), status=403)
        curl(url["DELETE"][0], "-X", "DELETE", status=204)
        curl(url["GET"][0], status=404)
        bound = place.sluice("presign", "--method", "PUT", "--header", "Content-Type: text/x", "--header", "x-amz-meta-a: b",
                             uri("bound")).decode().strip()
        curl(bound, *put, status=403)
        curl(bound, *put[:4], "-H", "Content-Type: text/x", "-H", "x-amz-meta-a: b")
        assert s3.head_object(Bucket=BUCKET, Key="bound")["Metadata"] == {"a": "b"}
        s3.delete_object(Bucket=BUCKET, Key="bound")
        time.sleep(max(0, begin + 2.5 - time.monotonic()))
        curl(short, status=403)


def errors_have_the_code_of_s3(_, places, folder):
    with open(f"{folder}/body", "wb") as file:
        file.write(b"x")
    for place in places:
        for backend in BACKENDS:
            message = functools.partial(place.sluice, "cp", "-q", "--backend", backend, fails=True)
            assert "NoSuchKey" in message(uri("none"), "-")
            assert "NoSuchBucket" in message("s3://no-bucket/x", "-")
            for way in ((uri("large"), "-"), ("-f", f"{folder}/body", uri("large"))):
                assert "SignatureDoesNotMatch" in message(*way, AWS_SECRET_ACCESS_KEY="wrong")
                assert "InvalidAccessKeyId" in message(*way, AWS_ACCESS_KEY_ID="WRONG")


def a_store_has_an_origin(s3, places, folder):
    header = b'{"a":{"dtype":"F32","shape":[500000],"data_offsets":[0,2000000]}}       '
    file = f"{folder}/model.safetensors"
    nodes = [subprocess.Popen([os.path.join(os.path.dirname(SLUICE), "sluiced"), "--socket", f"{folder}/{node}", "--memory", "64M"],
                              stderr=subprocess.DEVNULL) for node in (0, 1)]
    while not all(os.path.exists(f"{folder}/{node}") for node in (0, 1)):
        time.sleep(0.01)
    for place in places:
        def store(command, *arguments, node=0, place=place, **more):
            return place.sluice("store", command, "--socket", f"{folder}/{node}", *arguments, SLUICE_S3_PART_BYTES="5M", **more)

        def put(seed, place=place):
            with open(file, "wb") as written:
                written.write(len(header).to_bytes(8, "little") + header + noise(2_000_000, place.style + seed))
            store("put", "--replace", "--tensors", "a b/m", file)
            store("push", "--origin", uri("models"), "a b/m")
            return s3.get_object(Bucket=BUCKET, Key="models/a b/m")["Body"].read()
        get = ("get", "--wait", "20", "--origin", uri("models/"), "a b/m")
        first = put("1")
        assert first[-2_000_000:] == noise(2_000_000, place.style + "1")
        assert "exists" in store("push", "--exclusive", "--origin", uri("models"), "a b/m", fails=True)
        store(*get, f"{folder}/got", node=1)
        assert open(f"{folder}/got", "rb").read() == first
        assert store("refresh", "a b/m", node=1) == b"a b/m: unchanged\n"
        second = put("2")
        assert store("refresh", "a b/m", node=1) == b"a b/m: replaced\n"
        store("get", "a b/m", f"{folder}/got", node=1)
        assert open(f"{folder}/got", "rb").read() == second
        store("rm", "--origin", uri("models"), "a b/m", node=1)
        assert not listed(s3, "models/")
        assert "NoSuchKey" in store(*get, f"{folder}/got", node=1, fails=True)
        wrong = store(*get, f"{folder}/got", node=1, fails=True, AWS_SECRET_ACCESS_KEY="wrong")
        assert "SignatureDoesNotMatch" in wrong
    for node in nodes:
        node.terminate()
        node.wait()


with gateway.Gateway() as running, tempfile.TemporaryDirectory() as scratch:
    os.environ["NO_PROXY"] = "*"
    client = boto3.client("s3", endpoint_url=running.endpoint, region_name="us-east-1",
                          aws_access_key_id=gateway.ACCESS_KEY, aws_secret_access_key=gateway.SECRET_KEY,
                          config=botocore.config.Config(s3={"addressing_style": "path"}))
    client.create_bucket(Bucket=BUCKET)
    both = [Place(running, scratch, style) for style in ("path", "virtual")]
    for case in (odd_keys_are_read_as_boto3_put_them, odd_keys_are_put_as_boto3_reads_them, a_list_is_that_of_boto3,
                 a_prefix_is_copied_down, large_objects_are_the_same, an_object_of_several_parts_is_read,
                 uploads_in_parts_are_read_by_others, trees_are_copied_up_and_between_prefixes_and_removed,
                 abandoned_uploads_are_found_and_removed,
                 a_store_has_an_origin, a_presigned_url_needs_no_keys, errors_have_the_code_of_s3,
                 a_copy_is_made_by_the_server):
        case(client, both, scratch)
        print("ok:", case.__name__, flush=True)
