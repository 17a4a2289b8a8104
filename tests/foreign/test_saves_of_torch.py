# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch that sluice saves, read by safetensors and by sluice."""
import json

import pytest
import safetensors
import safetensors.torch
import sluice
import torch

INDEX = "model.safetensors.index.json"
TYPES = [name for name in (*(
    "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 bfloat16 float32 float64 complex64 "
    "float8_e4m3fn float8_e5m2 float8_e8m0fnu float8_e4m3fnuz float8_e5m2fnuz").split(),) if hasattr(torch, name)]
SHAPES = [(), (1,), (0, 3), (5, 7), (3, 1, 11), (1000, 33)]


def tensors():
    made = {}
    for kind in TYPES:
        dtype = getattr(torch, kind)
        for shape in SHAPES:
            n = torch.Size(shape).numel() * torch.empty((), dtype=dtype).element_size()
            data = torch.randint(0, 2 if kind == "bool" else 256, (n,), dtype=torch.uint8)
            made[f"{kind}{list(shape)}"] = data.view(dtype).reshape(shape) if n else torch.empty(shape, dtype=dtype)
    return made


def same(found, expected):
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape, name
        if tensor.numel():
            assert torch.equal(found[name].contiguous().reshape(-1).view(torch.uint8),
                               tensor.contiguous().reshape(-1).view(torch.uint8)), name


@pytest.mark.parametrize("snapshot", [None, "device"])
def test_every_type_and_shape_is_read_by_both(tmp_path, snapshot):
    state = tensors()
    sluice.save(state, tmp_path / "x.safetensors", metadata={"format": "pt"}, snapshot=snapshot).wait()
    same(safetensors.torch.load_file(tmp_path / "x.safetensors"), state)
    same(sluice.load(tmp_path / "x.safetensors"), state)
    sluice.save(state, tmp_path / "folder", shard_bytes="100 KiB", snapshot=snapshot).wait()
    weights = json.loads((tmp_path / "folder" / INDEX).read_text())["weight_map"]
    found = {}
    for file in set(weights.values()):
        found |= safetensors.torch.load_file(tmp_path / "folder" / file)
    same(found, state)
    same(sluice.load(tmp_path / "folder" / INDEX), state)


def test_strided_conjugate_and_required_tensors(tmp_path):
    base = torch.arange(1000.0).reshape(10, 100)
    state = {"t": base.t(), "step": base[:, ::3], "expanded": torch.ones(1, 4).expand(5, 4),
             "grad": torch.ones(3, requires_grad=True),
             "conj": torch.randn(4, dtype=torch.complex64).conj(),
             "neg": torch.randn(4, dtype=torch.complex64).conj().imag,
             "parameter": torch.nn.Parameter(torch.ones(2))}
    for snapshot in None, "device":
        sluice.save(state, tmp_path / "x.safetensors", snapshot=snapshot).wait()
        same(safetensors.torch.load_file(tmp_path / "x.safetensors"),
             {name: tensor.detach().resolve_conj().resolve_neg() for name, tensor in state.items()})


def test_tied_weights_have_one_memory_and_an_alias(tmp_path):
    model = torch.nn.Sequential(torch.nn.Embedding(50, 8), torch.nn.Linear(8, 50, bias=False))
    model[1].weight = model[0].weight
    for snapshot in None, "device":
        sluice.save(model.state_dict(), tmp_path / "x.safetensors", snapshot=snapshot).wait()
        with safetensors.safe_open(tmp_path / "x.safetensors", "pt") as f:
            assert list(f.keys()) == ["0.weight"] and f.metadata() == {"1.weight": "0.weight"}
        other = torch.nn.Sequential(torch.nn.Embedding(50, 8), torch.nn.Linear(8, 50, bias=False))
        other[1].weight = other[0].weight
        assert safetensors.torch.load_model(other, tmp_path / "x.safetensors") == (set(), [])
        assert torch.equal(other[1].weight, model[0].weight)


def test_what_has_no_plain_memory_is_refused_by_name(tmp_path):
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    for tensor, words in [(torch.eye(3).to_sparse(), "sparse"), (quantized, "quantized"),
                          (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested"),
                          (torch.empty(3, device="meta"), "on meta")]:
        with pytest.raises(TypeError, match=f"tensor 'bad' is .*{words}"):
            sluice.save({"good": torch.ones(1), "bad": tensor}, tmp_path / "x.safetensors")
    assert not list(tmp_path.iterdir())


def test_a_distributed_tensor_is_refused_by_name(tmp_path):
    dist = torch.distributed
    if not dist.is_available():
        pytest.skip("torch is built without torch.distributed")
    from torch.distributed.tensor import DeviceMesh, distribute_tensor

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        tensor = distribute_tensor(torch.ones(4), DeviceMesh("cpu", [0]))
        with pytest.raises(TypeError, match="tensor 'w' is a DTensor: save its local part"):
            sluice.save({"w": tensor}, tmp_path / "x.safetensors")
    finally:
        dist.destroy_process_group()


def test_the_state_of_an_optimizer_comes_back(tmp_path):
    model = torch.nn.Linear(10, 3)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        model(torch.randn(5, 10)).sum().backward()
        optimizer.step()
    state = {f"{i}.{key}": value for i, of in optimizer.state_dict()["state"].items() for key, value in of.items()}
    sluice.save(state, tmp_path / "o.safetensors").wait()
    same(sluice.load(tmp_path / "o.safetensors"), state)
