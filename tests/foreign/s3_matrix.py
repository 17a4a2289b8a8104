#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Services of S3 and features: prints the matrix of docs/s3.md, as Markdown: s3_matrix.py BUILD [SERVICE...]

A feature is "yes" if sluice has it there. It is "no" where boto3, the witness, fails as well: sluice alone may not.
"""
import hashlib
import os
import socket
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import services  # noqa: E402

BIG = 20 << 20
FEATURES = []


def noise(n, seed=1):
    return hashlib.shake_128(str(seed).encode()).digest(n)


def feature(words):
    """Of a function with sluice, which asserts, and a witness, which has boto3 do the same."""
    def take(function):
        FEATURES.append((words, function, None))
        return function
    return take


def witness(function):
    words, own, _ = FEATURES.pop()
    FEATURES.append((words, own, function))
    return function


class Tool:
    """The command, with its own folder and a bucket."""

    def __init__(self, service, build, folder):
        self.service, self.build, self.folder = service, build, Path(folder)
        self.s3 = service.client()
        self.plain = {name: value for name, value in os.environ.items()
                      if not name.startswith("AWS_") and not name.lower().endswith("_proxy")}
        self.plain |= service.environment | {
            "AWS_ENDPOINT_URL": service.endpoint, "AWS_CONFIG_FILE": f"{folder}/config",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_SHARED_CREDENTIALS_FILE": f"{folder}/credentials", "HOME": folder, "XDG_STATE_HOME": folder,
            "SLUICE_HTTP_RETRY_MS": "10000", "SLUICE_HTTP_ATTEMPTS": "3"}

    def run(self, *words, data=None, config="", **environment):
        (self.folder / "config").write_text(config)
        return subprocess.run([f"{self.build}/sluice", *words], input=data, env=self.plain | environment,
                              capture_output=True, timeout=120)

    def __call__(self, *words, **rest):
        done = self.run(*words, **rest)
        assert not done.returncode, done.stderr.decode()
        return done.stdout

    def put(self, key, data, bucket="first-bucket", **rest):
        self.s3.put_object(Bucket=bucket, Key=key, Body=data, **rest)


@feature("objects of any length, read")
def read(tool):
    for n in (0, 1, 100_000, BIG):
        tool.put(f"read/{n}", noise(n))
        assert tool("cp", "-q", f"s3://first-bucket/read/{n}", "-") == noise(n)


@feature("written at once, and in parts")
def written(tool):
    for n in (0, 1, 100_000, BIG):
        tool("cp", "-q", "-f", "-", f"s3://first-bucket/written/{n}", data=noise(n))
        assert tool.s3.get_object(Bucket="first-bucket", Key=f"written/{n}")["Body"].read() == noise(n)


@feature("lists, `cp -r`, `rm -r`")
def lists(tool):
    for i in range(20):
        tool.put(f"list/{i % 3}/a b+{i}", noise(i, i))
    tool("cp", "-q", "-r", "s3://first-bucket/list/", f"{tool.folder}/down")
    for i in range(20):
        assert (tool.folder / f"down/{i % 3}/a b+{i}").read_bytes() == noise(i, i)
    tool("cp", "-q", "-r", f"{tool.folder}/down", "s3://first-bucket/up/")
    assert len(tool("ls", "-r", "s3://first-bucket/up/").splitlines()) == 20
    tool("rm", "-q", "-r", "s3://first-bucket/up/")
    assert not tool.s3.list_objects_v2(Bucket="first-bucket", Prefix="up/").get("KeyCount")


@feature("copies by the server")
def copies(tool):
    tool.put("copied", noise(1000))
    done = tool.run("cp", "-f", "s3://first-bucket/copied", "s3://first-bucket/copy", SLUICE_LOG="debug")
    assert not done.returncode and b"GET" not in done.stderr, done.stderr.decode()
    assert tool.s3.get_object(Bucket="first-bucket", Key="copy")["Body"].read() == noise(1000)


@witness
def copies_of_boto3(tool):
    tool.s3.copy_object(Bucket="first-bucket", Key="copy3", CopySource="first-bucket/copied")


@feature("of writers that overwrite nothing one succeeds (`If-None-Match`)")
def exclusive(tool):
    tool.put("there", b"there")
    done = tool.run("cp", "-q", "-", "s3://first-bucket/there", data=b"other")
    assert done.returncode and b"exists" in done.stderr
    exclusive_of_boto3(tool)


@witness
def exclusive_of_boto3(tool):
    try:
        tool.s3.put_object(Bucket="first-bucket", Key="there", Body=b"other", IfNoneMatch="*")
    except tool.s3.exceptions.ClientError as error:
        assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 412
    assert tool.s3.get_object(Bucket="first-bucket", Key="there")["Body"].read() == b"there"


@feature("uploads that were left: listed and removed")
def abandoned(tool):
    upload = tool.s3.create_multipart_upload(Bucket="first-bucket", Key="left+b")["UploadId"]
    tool.s3.upload_part(Bucket="first-bucket", Key="left+b", UploadId=upload, PartNumber=1, Body=b"x")
    assert b"left+b" in tool("s3", "abandoned", "s3://first-bucket", "--age", "0")
    tool("s3", "abandoned", "--remove", "--age", "0", "s3://first-bucket")
    assert not tool.s3.list_multipart_uploads(Bucket="first-bucket").get("Uploads")


@witness
def abandoned_of_boto3(tool):
    assert tool.s3.list_multipart_uploads(Bucket="first-bucket")["Uploads"]


@feature("CRC-32C of an object, for `sluice cp` to compare")
def sums(tool):
    tool("cp", "-q", "-f", "-", "s3://first-bucket/sum", data=noise(1000))
    assert tool("cp", "-q", "s3://first-bucket/sum", "-") == noise(1000)
    tool.summed = "ChecksumCRC32C" in tool.s3.head_object(Bucket="first-bucket", Key="sum", ChecksumMode="ENABLED")
    assert tool.summed, "it has none"


@witness
def sums_of_boto3(tool):
    assert tool.summed, "it has none"


@feature("versions (`--version-id`)")
def versions(tool):
    try:
        tool.s3.create_bucket(Bucket="with-versions")
    finally:
        tool.s3.put_bucket_versioning(Bucket="with-versions", VersioningConfiguration={"Status": "Enabled"})
    tool("cp", "-q", "-f", "-", "s3://with-versions/v", data=noise(BIG))
    first = tool.s3.head_object(Bucket="with-versions", Key="v")["VersionId"]
    tool("cp", "-q", "-f", "-", "s3://with-versions/v", data=b"newer")
    assert tool("cp", "-q", "--version-id", first, "s3://with-versions/v", "-") == noise(BIG)
    assert tool("cp", "-q", "s3://with-versions/v", "-") == b"newer"


@witness
def versions_of_boto3(tool):
    tool.put("w", b"1", "with-versions")
    first = tool.s3.head_object(Bucket="with-versions", Key="w")["VersionId"]
    tool.put("w", b"2", "with-versions")
    assert tool.s3.get_object(Bucket="with-versions", Key="w", VersionId=first)["Body"].read() == b"1"


@feature("encryption by the server (SSE-S3)")
def encrypted(tool):
    for n in (1000, BIG):
        tool("cp", "-q", "-f", "--header", "x-amz-server-side-encryption: AES256", "-", "s3://first-bucket/sse",
             data=noise(n))
        assert tool.s3.head_object(Bucket="first-bucket", Key="sse")["ServerSideEncryption"] == "AES256"
        assert tool("cp", "-q", "s3://first-bucket/sse", "-") == noise(n)


@witness
def encrypted_of_boto3(tool):
    tool.put("sse3", noise(1000), ServerSideEncryption="AES256")
    assert tool.s3.head_object(Bucket="first-bucket", Key="sse3")["ServerSideEncryption"] == "AES256"
    assert tool.s3.get_object(Bucket="first-bucket", Key="sse3")["Body"].read() == noise(1000)


@feature("encryption with a key of the customer (SSE-C)")
def customers(tool):
    key = ["--header", "x-amz-server-side-encryption-customer-algorithm: AES256",
           "--header", "x-amz-server-side-encryption-customer-key: MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
           "--header", "x-amz-server-side-encryption-customer-key-MD5: KYvwGXoFFJ42a2u2GDWhwQ=="]
    tool("cp", "-q", "-f", *key, "-", "s3://first-bucket/ssec", data=noise(BIG))
    assert tool("cp", "-q", *key, "s3://first-bucket/ssec", "-") == noise(BIG)
    assert tool.run("cp", "-q", "s3://first-bucket/ssec", "-").returncode


@witness
def customers_of_boto3(tool):
    key = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": "01234567890123456789012345678901"}
    tool.put("ssec3", noise(1000), **key)
    assert tool.s3.get_object(Bucket="first-bucket", Key="ssec3", **key)["Body"].read() == noise(1000)
    try:
        tool.s3.get_object(Bucket="first-bucket", Key="ssec3")
    except tool.s3.exceptions.ClientError:
        return
    raise AssertionError("it is read without the key")


@feature("requester pays (`--requester-pays`)")
def payer(tool):
    tool.put("paid", noise(BIG))
    assert tool("cp", "-q", "--requester-pays", "s3://first-bucket/paid", "-") == noise(BIG)
    tool("cp", "-q", "-f", "--requester-pays", "-", "s3://first-bucket/paid", data=noise(1000))


@feature("the bucket in the host (`addressing_style = virtual`)")
def virtual(tool):
    tool.put("virtual", noise(BIG))
    rest = {"config": "[default]\ns3 =\n  addressing_style = virtual\n",
            "AWS_ENDPOINT_URL": f"http://localhost:{tool.service.port}"}
    assert tool("cp", "-q", "s3://first-bucket/virtual", "-", **rest) == noise(BIG)
    tool("cp", "-q", "-f", "-", "s3://first-bucket/virtual", data=noise(1000), **rest)


@witness
def virtual_of_boto3(tool):
    client = tool.service.client("virtual", host="localhost")
    look_up = socket.getaddrinfo
    socket.getaddrinfo = lambda host, *rest, **more: look_up("127.0.0.1" if host.endswith(".localhost") else host,
                                                             *rest, **more)
    try:
        virtual_is_read(client)
    finally:
        socket.getaddrinfo = look_up


def virtual_is_read(client):
    assert client.get_object(Bucket="first-bucket", Key="virtual")["Body"].read(1) == noise(1)


@feature("the keys of a role (`role_arn`, `source_profile`)")
def role(tool):
    tool.put("role", noise(1000))
    keys = tool.service.environment
    config = (f"[profile base]\naws_access_key_id = {keys['AWS_ACCESS_KEY_ID']}\n"
              f"aws_secret_access_key = {keys['AWS_SECRET_ACCESS_KEY']}\n"
              "[profile roled]\nrole_arn = arn:aws:iam::123456789012:role/test\nsource_profile = base\n")
    assert tool("cp", "-q", "--profile", "roled", "s3://first-bucket/role", "-", config=config) == noise(1000)


@witness
def role_of_boto3(tool):
    sts = services.boto3.client("sts", endpoint_url=tool.service.endpoint, region_name="us-east-1",
                                aws_access_key_id=tool.service.environment["AWS_ACCESS_KEY_ID"],
                                aws_secret_access_key=tool.service.environment["AWS_SECRET_ACCESS_KEY"])
    keys = sts.assume_role(RoleArn="arn:aws:iam::123456789012:role/test", RoleSessionName="test")["Credentials"]
    own = services.boto3.client("s3", endpoint_url=tool.service.endpoint, region_name="us-east-1",
                                aws_access_key_id=keys["AccessKeyId"], aws_secret_access_key=keys["SecretAccessKey"],
                                aws_session_token=keys["SessionToken"])
    own.get_object(Bucket="first-bucket", Key="role")


def presigned(tool, version):
    client = tool.service.client(signature=version)
    get, put = (client.generate_presigned_url(name, Params={"Bucket": "first-bucket", "Key": "presigned"})
                for name in ("get_object", "put_object"))
    (tool.folder / "presigned").write_bytes(noise(1000))
    tool("cp", "-q", "-f", f"{tool.folder}/presigned", put)
    assert tool("cp", "-q", get, "-") == noise(1000)


@feature("presigned URLs of version 4")
def presigned_4(tool):
    presigned(tool, "s3v4")


@feature("presigned URLs of version 2")
def presigned_2(tool):
    presigned(tool, "s3")


@witness
def presigned_2_of_boto3(tool):
    get = tool.service.client(signature="s3").generate_presigned_url(
        "get_object", Params={"Bucket": "first-bucket", "Key": "read/1"})
    urllib.request.urlopen(get).close()


def cells(service, build):
    """The cell of each feature; sluice's failures are printed, and those where the witness succeeds are wrong."""
    out, wrong = [], []
    with tempfile.TemporaryDirectory() as folder:
        tool = Tool(service, build, folder)
        for words, own, other in FEATURES:
            try:
                own(tool)
                out.append("yes")
                continue
            except Exception as error:
                why = str(error).strip() or repr(error)
            try:
                if other:
                    other(tool)
                wrong.append(f"{service.name}: {words}: {why}")
            except Exception as error:
                print(f"{service.name}: {words}: {why[:200]}; boto3: {str(error)[:200]}", file=sys.stderr)
            out.append("no")
    return out, wrong


def matrix(build, names):
    """(columns by name, failures, services that are missing)"""
    columns, wrong, missing = {}, [], {}
    for name in names:
        try:
            with services.start(name) as service:
                columns[name], more = cells(service, build)
                wrong += more
        except LookupError as error:
            missing[name] = str(error)
    return columns, wrong, missing


def main():
    columns, wrong, missing = matrix(Path(sys.argv[1]).absolute(), sys.argv[2:] or services.NAMES)
    print("| |", " | ".join(columns), "|")
    print("|---|" + "---|" * len(columns))
    for number, (words, _, _) in enumerate(FEATURES):
        print(f"| {words} |", " | ".join(column[number] for column in columns.values()), "|")
    for name, why in missing.items():
        print(f"left out: {name}: {why}", file=sys.stderr)
    print("\n".join(wrong), file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
