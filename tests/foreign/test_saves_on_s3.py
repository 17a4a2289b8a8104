# SPDX-License-Identifier: Apache-2.0
"""Saves into prefixes of servers of S3 that others wrote, with readers beside them."""
import json
import threading

import numpy
import pytest
import services
import sluice

INDEX = "model.safetensors.index.json"


@pytest.fixture(params=services.NAMES)
def client(request, monkeypatch):
    """boto3's client of a service with an empty bucket, whose endpoint and keys sluice has from the environment."""
    try:
        started = services.start(request.param)
        with started as service:
            for name, value in {**service.environment, "AWS_ENDPOINT_URL": service.endpoint}.items():
                monkeypatch.setenv(name, value)
            service.client().create_bucket(Bucket="saves")
            yield service.client()
    except LookupError as missing:
        pytest.skip(str(missing))


def state(step):
    return {"step": numpy.array(step), **{f"w{i}": numpy.full(300_000 + i, step * 100 + i, "f4") for i in range(12)}}


def load(context):
    """The step of the tensors that are there, which are all of one save."""
    found = sluice.load(f"s3://saves/run/7/{INDEX}", framework="np", context=context)
    step = int(found["step"])
    assert set(found) == set(state(0)) and all((found[name] == value).all() for name, value in state(step).items())
    return step


def test_a_prefix_has_the_files_of_its_index_alone(client, tmp_path):
    context = sluice.Context()
    for step, size in enumerate(["4 MiB", "1 MiB", "2 GiB"]):
        sluice.save(state(step), "s3://saves/run/7", shard_bytes=size, context=context).wait()
        assert load(context) == step
        index = json.loads(client.get_object(Bucket="saves", Key=f"run/7/{INDEX}")["Body"].read())
        keys = {entry["Key"] for entry in client.list_objects_v2(Bucket="saves")["Contents"]}
        assert keys == {f"run/7/{name}" for name in {INDEX, *index["weight_map"].values()}}
    sluice.save(state(9), "s3://saves/one.safetensors", digests=tmp_path / "sums", context=context).wait()
    sluice.load("s3://saves/one.safetensors", framework="np", verify=tmp_path / "sums", context=context)


def test_readers_beside_saves_find_one_that_is_whole(client):
    context, over, steps, errors = sluice.Context(), threading.Event(), [], []

    def read():
        try:
            while not over.is_set():
                steps.append(load(context))
        except BaseException as error:
            errors.append(error)

    sluice.save(state(0), "s3://saves/run/7", shard_bytes="4 MiB", context=context).wait()
    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for step in range(1, 8):
        sluice.save(state(step), "s3://saves/run/7", shard_bytes="4 MiB", context=context).wait()
    over.set()
    for reader in readers:
        reader.join()
    assert not errors and len(set(steps)) > 1
