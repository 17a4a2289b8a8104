# SPDX-License-Identifier: Apache-2.0
"""The examples of the Python package, each as a program with a small input."""
import contextlib
import os
import runpy
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy
import pytest
from conftest import pattern

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"


def run(name, *arguments):
    done = subprocess.run([sys.executable, EXAMPLES / f"{name}.py", *map(str, arguments)], capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def make(monkeypatch):
    """A function that has an example make its input, in this process: some imports take seconds."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return lambda name, path: runpy.run_path(str(EXAMPLES / f"{name}.py"))["make"](path)


def needs(*modules):
    for module in modules:
        pytest.importorskip(module, reason=f"{module} is not installed")


@contextlib.contextmanager
def served(folder):
    server = subprocess.Popen([sys.executable, EXAMPLES / "serve_ranges.py", folder], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    try:
        yield server.stdout.readline().strip()
    finally:
        server.communicate(timeout=60)


def picture(path, begin):
    assert path.read_bytes().startswith(begin) and path.stat().st_size > 200
    keep = os.environ.get("SLUICE_PICTURES")  # a folder for the pictures of docs/python.md
    if keep:
        (Path(keep) / path.name).write_bytes(path.read_bytes())


def test_hand_over(daemon, monkeypatch):
    monkeypatch.setenv("SLUICE_STORE", daemon.path)
    assert sorted(run("hand_over", 6).splitlines()) == [
        f"the sampler has seen step {step}, or a later step" for step in (3, 6)]


def test_checkpoint(tmp_path):
    whole = run("checkpoint", tmp_path / "whole", 1000)
    for moment in range(4):
        killed = subprocess.Popen([sys.executable, EXAMPLES / "checkpoint.py", tmp_path / "cut", "1000"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        killed.stderr.readline()
        time.sleep(0.05 * moment)
        killed.kill()
        killed.communicate()
    assert run("checkpoint", tmp_path / "cut", 1000) == whole
    assert run("checkpoint", tmp_path / "cut", 1000) == whole


def test_read_into_torch(path, tmp_path):
    needs("torch")
    assert run("read_into_torch", path).endswith(f"sum {sum(pattern(100_000))}\n")
    numpy.save(tmp_path / "a.npy", numpy.arange(6, dtype="i4").reshape(2, 3))
    assert run("read_into_torch", tmp_path / "a.npy").startswith("torch.int32 [2, 3] on ")


def test_overlap_kernels(tmp_path):
    needs("torch")
    file = tmp_path / "blocks"
    file.write_bytes(numpy.arange(6 << 22, dtype="u1").tobytes())
    said = run("overlap_kernels", file, tmp_path / "python-overlap.svg")
    assert said.startswith(f"{(6 << 22) * 255 // 2} is the sum of the blocks")
    picture(tmp_path / "python-overlap.svg", b"<svg")


def test_serve_ranges(path):
    def get(name, method="GET", **fields):
        asked = urllib.request.Request(f"{uri}/{name}", headers=fields, method=method)
        with urllib.request.urlopen(asked, timeout=60) as response:
            return response.status, response.read()

    with served(path.parent) as uri:
        assert get("pattern") == (200, pattern(100_000)) and get("pattern", "HEAD") == (200, b"")
        for asked, part in (("5-9", slice(5, 10)), ("99990-", slice(99_990, None)), ("-3", slice(-3, None))):
            assert get("pattern", Range=f"bytes={asked}") == (206, pattern(100_000)[part])
        for name, status in (("none", "404"), ("../secret", "404"), ("pattern", "416")):
            with pytest.raises(urllib.error.HTTPError, match=status):
                get(name, Range="bytes=200000-")


def test_train(tmp_path, make):
    needs("torch")
    make("train", tmp_path / "samples")
    with served(tmp_path) as uri:
        losses = list(map(float, run("train", f"{uri}/samples", tmp_path / "python-loss.svg").split(":")[1].split()))
    assert losses[-1] < losses[0] / 10
    picture(tmp_path / "python-loss.svg", b"<svg")


def test_zarr_over_http(tmp_path, make):
    needs("zarr", "fsspec")
    make("zarr_over_http", tmp_path / "array")
    with served(tmp_path) as uri:
        said = run("zarr_over_http", f"{uri}/array", tmp_path / "python-zarr.png")
    assert said.startswith("(8, 512, 512) float32; the sum of plane 3 is ")
    picture(tmp_path / "python-zarr.png", b"\x89PNG")


def test_far_array(tmp_path, make):
    needs("h5py")
    make("far_array", tmp_path / "far.h5")
    with served(tmp_path) as uri:
        said = run("far_array", f"{uri}/far.h5#/u", tmp_path / "python-far.png")
    assert said == "(1024, 16384, 16384) float32, 1.1 TB; the column has 1.0 MB, and its greatest element is 1.000\n"
    picture(tmp_path / "python-far.png", b"\x89PNG")


def test_share_array(daemon, monkeypatch):
    monkeypatch.setenv("SLUICE_STORE", daemon.path)
    assert run("share_array") == "333332833333500000\n"


def test_write_frames(tmp_path):
    needs("h5py")
    said = run("write_frames", tmp_path / "f.h5", tmp_path / "python-frames.png")
    assert said.startswith("12 frames, ")
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "f.h5") as file:
        assert file["v"].shape == (12, 128, 128) and list(file["time"]) == list(range(0, 3000, 250))
        assert file["v"].dims[2][0][-1] == 1 and file["v"][...].max() > 0.2
    picture(tmp_path / "python-frames.png", b"\x89PNG")


def test_each_example_is_short_and_a_test():
    for example in EXAMPLES.glob("*.py"):
        assert len(example.read_text().splitlines()) < 60, example.name
        assert example.name.startswith("_") or f"test_{example.stem}" in globals(), example.name
