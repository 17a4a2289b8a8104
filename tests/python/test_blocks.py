# SPDX-License-Identifier: Apache-2.0
"""The blocks of Python in README.md and docs run as they are printed, in a folder that has the files, the web server
and the daemon that they name."""

import asyncio
import importlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import sluice
from test_examples import served

SOURCES = Path(__file__).parents[2]
sys.path.insert(0, str(SOURCES / "tests" / "blocks"))
import blocks  # noqa: E402

BLOCKS = blocks.find(str(SOURCES), "python")
MODULES = "aiohttp", "fsspec", "h5py", "pandas", "torch", "xarray", "zarr"
ROWS = 4


class Steps(int):
    """The number of steps, and in README.md a function that makes them."""

    def __call__(self):
        return numpy.zeros((self, 1080, 1920), "f4")


class Writer:
    def write(self, data):
        assert len(data) == 4096


def world(folder, web):
    """Writes the files; returns the variables that blocks use and do not make."""
    numbers = numpy.arange(65536, dtype="f4")
    for name in ("data.bin", "weights.bin", "samples"):
        numbers.tofile(folder / name)
    numpy.save(folder / "weights.npy", numbers)
    (folder / "table.csv").write_text("a,b\n1,2\n")
    header = '{"blk.experts.7.w":{"dtype":"F32","shape":[6],"data_offsets":[0,24]}}'
    length = len(header).to_bytes(8, "little")
    (folder / "model.safetensors").write_bytes(length + header.encode() + numbers[:6].tobytes())
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"blk.experts.7.w": "model.safetensors"}}')
    with sluice.Writer("fields.h5", "w") as writer:
        u = writer.series("u", shape=(480, 640), dtype="f4")
        for step in range(8):
            u.append(numpy.full((480, 640), step, "f4"))
    f = sluice.open("data.bin")
    a, b = bytearray(512), bytearray(512)
    return {
        "sluice": sluice, "numpy": numpy, "asyncio": asyncio, "f": f, "a": numpy.frombuffer(a, "u1"), "b": b,
        "uri": f"sluice+{web}/data.bin", "path": "data.bin", "writer": Writer(), "n": 4096, "offset": 0,
        "steps": Steps(2), "compute": lambda out: out.fill(0), "dt": 0.1, "array": numpy.zeros((1080, 1920), "f4"),
        "table": numpy.zeros((2, 500)), "extents": [(i * 1024, 1024) for i in range(128)],
    }


@pytest.mark.parametrize("block", BLOCKS, ids=[b.name for b in BLOCKS])
def test_a_block_runs_as_it_is_printed(block, tmp_path, monkeypatch, request):
    if block.mark:
        pytest.skip(block.mark)
    needed = [m for m in MODULES if re.search(rf"\b{m}\b", block.code)]
    needed += ["fsspec", "aiohttp"] if "sluice+" in block.code else []
    needed += ["torch"] if "sluice.load(" in block.code else []
    missing = [m for m in needed if not importlib.util.find_spec(m)]
    if missing:
        pytest.skip(f"there is no {missing[0]}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(sluice.__file__).resolve().parents[1]))
    if "Store" in block.code or "store." in block.code or "publish(" in block.code:
        socket = request.getfixturevalue("daemon")
        monkeypatch.setenv("SLUICE_STORE", socket.path)
    with served(tmp_path) as web:
        names = world(tmp_path, web)
        for module in needed:
            names[module] = importlib.import_module(module)
        if "fsspec" in names:
            system = importlib.import_module("sluice.fsspec").HTTPFileSystem
            names["fsspec"].register_implementation("sluice+http", system)
        if "zarr" in names:
            names["zarr"].save_array(str(tmp_path / "array"), numpy.zeros((ROWS, 8, 8), "f4"))
        if "h5py" in names:
            names["h5py"].File("data.h5", "w").close()
        if "store" in block.code and "store =" not in block.code:
            names["store"] = sluice.Store()
        code = block.code.replace("https://example.org", web).replace("cuda:0", "cpu").replace('"cuda"', '"cpu"')
        run(code.replace("sluice+https", "sluice+http"), block, names)


def run(code, block, names):
    if not re.search(r"\b(await|async)\b", code):
        exec(compile(code, block.name, "exec"), names)
        return
    body = "async def block():\n" + "".join(f"    {line}\n" for line in code.splitlines())
    exec(compile(body, block.name, "exec"), names)
    if "watch(" in code:  # it waits for the next event until the end of the program
        with pytest.raises(asyncio.TimeoutError):
            asyncio.run(asyncio.wait_for(names["block"](), 0.5))
    else:
        asyncio.run(names["block"]())


def test_the_package_is_imported_soon_and_without_others():
    code = "import sys, sluice; print(*{'numpy', 'torch', 'asyncio', 'fsspec'} & set(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": str(Path(sluice.__file__).parents[1])}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def seconds(code):
        before = os.times()
        said = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
        after = os.times()
        assert said.stdout.strip() == ""
        return after.children_user - before.children_user + after.children_system - before.children_system

    taken = [seconds(code) for _ in range(7)]
    common = [seconds("import asyncio, http.server") for _ in range(7)]  # as long on this machine
    assert min(taken) <= min(common), (taken, common)
