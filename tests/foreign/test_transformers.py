# SPDX-License-Identifier: Apache-2.0
"""from_pretrained() of small random models: patched and unpatched are equal bit for bit. It wants torch."""
import json
import os
import subprocess
import sys

import pytest
import torch
import transformers

PROGRAM = """
import hashlib, json, sys
import torch, transformers
import sluice
from sluice import _tensor_files
folder, patched = sys.argv[1:]
opened = []
if patched == "patched":
    sluice.patch_safetensors()
    files = _tensor_files.Files.__init__
    _tensor_files.Files.__init__ = lambda self, name, *rest: (opened.append(str(name)), files(self, name, *rest))[1]
model = transformers.AutoModelForCausalLM.from_pretrained(folder, **{DTYPE: "auto"})
found = {}
for name, tensor in [*model.named_parameters(remove_duplicate=False), *model.named_buffers()]:
    raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    found[name] = [str(tensor.dtype), list(tensor.shape), hashlib.sha256(raw).hexdigest()]
tied = model.lm_head.weight.data_ptr() == model.get_input_embeddings().weight.data_ptr()
print(json.dumps([found, tied, len(opened), [what for what, who in sluice.patched().items() if what not in BEFORE]]))
""".replace("DTYPE", repr("dtype" if int(transformers.__version__.split(".")[0]) >= 5 else "torch_dtype"))
PROGRAM = PROGRAM.replace("opened = []\n", "opened = []\nBEFORE = ()\n").replace(
    "    files = _tensor_files", "    BEFORE = tuple(sluice.patched())\n    files = _tensor_files")


def loaded(folder, how):
    ran = subprocess.run([sys.executable, "-c", PROGRAM, str(folder), how], capture_output=True, text=True, timeout=300,
                         env={**os.environ, "HF_HUB_OFFLINE": "1"})
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.parametrize(("dtype", "tied", "sharded"), [
    ("float32", False, False), ("bfloat16", False, True), ("bfloat16", True, True), ("float16", True, False)])
def test_a_model_is_equal(tmp_path, dtype, tied, sharded):
    torch.manual_seed(1)
    config = transformers.LlamaConfig(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=tied)
    model = transformers.LlamaForCausalLM(config).to(getattr(torch, dtype))
    model.save_pretrained(tmp_path, **({"max_shard_size": "20KB"} if sharded else {}))
    files = [name for name in os.listdir(tmp_path) if name.endswith(".safetensors")]
    assert (len(files) > 1) == sharded
    plain, is_tied, none, _ = loaded(tmp_path, "plain")
    patched, patched_tied, opened, left = loaded(tmp_path, "patched")
    assert plain == patched and is_tied == patched_tied == tied
    assert none == 0 and opened >= len(files) and left == []


def test_weights_of_8_bits_are_equal(tmp_path):
    """A state of float8, as an fp8 model's file has it, by the calls that from_pretrained() makes."""
    import safetensors.torch

    kinds = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]
    state = {kind: torch.randint(0, 255, (8, 16), dtype=torch.uint8).view(getattr(torch, kind))
             for kind in kinds if hasattr(torch, kind)}
    path = tmp_path / "model.safetensors"
    written = {}
    for kind, tensor in state.items():  # an older safetensors has not all of them
        try:
            safetensors.torch.save({kind: tensor})
            written[kind] = tensor
        except (KeyError, safetensors.SafetensorError):
            continue
    assert {"float8_e4m3fn", "float8_e5m2"} <= set(written)
    safetensors.torch.save_file(written, path)
    program = ("import sys, torch, safetensors, sluice; sluice.patch_safetensors()\n"
               "with safetensors.safe_open(sys.argv[1], framework='pt') as f:\n"
               "    assert isinstance(f, sluice.safe_open)\n"
               "    for n in f.keys():\n"
               "        print(n, f.get_tensor(n).dtype, f.get_slice(n)[:].view(torch.uint8).numpy().tobytes().hex())\n")
    ran = subprocess.run([sys.executable, "-W", "error::RuntimeWarning", "-c", program, str(path)], capture_output=True,
                         text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    found = {line.split()[0]: line.split()[1:] for line in ran.stdout.splitlines()}
    assert found == {kind: [str(tensor.dtype), tensor.view(torch.uint8).numpy().tobytes().hex()]
                     for kind, tensor in written.items()}
