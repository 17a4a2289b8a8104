# SPDX-License-Identifier: Apache-2.0
"""accelerate and diffusers: models are equal bit for bit, patched and not. Run by hand."""
import json
import os
import subprocess
import sys

import accelerate  # noqa: F401
import diffusers
import pytest
import torch
import transformers

PROGRAM = """
import hashlib, json, sys
import torch, transformers, accelerate, diffusers
import sluice
what, folder, scratch, patched = sys.argv[1:]
before = ()
if patched == "patched":
    sluice.patch_safetensors()
    before = tuple(sluice.patched())
x = None
if what == "unet":
    model = diffusers.UNet2DModel.from_pretrained(folder)
else:
    with accelerate.init_empty_weights():
        model = transformers.LlamaForCausalLM(transformers.AutoConfig.from_pretrained(folder))
    if what == "load":
        accelerate.utils.load_checkpoint_in_model(model, folder, device_map={"": "cpu"})
    else:
        parts = {"model.embed_tokens": "cpu", "model.layers.0": "disk", "model.layers.1": "cpu", "model.norm": "cpu",
                 "model.rotary_emb": "cpu", "lm_head": "cpu"}
        model = accelerate.load_checkpoint_and_dispatch(model, folder, device_map=parts, offload_folder=scratch)
    model.eval()
    with torch.no_grad():
        x = model(torch.arange(7).reshape(1, 7)).logits.numpy().tobytes().hex() if what == "disk" else None
state = {name: [str(t.dtype), list(t.shape), t.device.type if t.device.type == "meta" else hashlib.sha256(
             t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()]
         for name, t in model.state_dict().items()}
print(json.dumps([state, x, [name for name in sluice.patched() if name not in before]]))
"""


def equal(what, folder, scratch):
    found = []
    for how in ("plain", "patched"):
        (scratch / how).mkdir()
        ran = subprocess.run([sys.executable, "-c", PROGRAM, what, str(folder), str(scratch / how), how],
                             capture_output=True, text=True, timeout=300, env={**os.environ, "HF_HUB_OFFLINE": "1"})
        assert ran.returncode == 0, ran.stderr
        found.append(json.loads(ran.stdout.splitlines()[-1]))
    assert found[0] == found[1] and found[1][2] == [] and found[0][0]


@pytest.mark.parametrize("sharded", [False, True], ids=["whole", "sharded"])
@pytest.mark.parametrize("what", ["load", "disk"])
def test_accelerate(tmp_path, what, sharded):
    torch.manual_seed(2)
    config = transformers.LlamaConfig(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2)
    folder = tmp_path / "model"
    transformers.LlamaForCausalLM(config).save_pretrained(folder, **({"max_shard_size": "20KB"} if sharded else {}))
    equal(what, folder, tmp_path)


@pytest.mark.parametrize("sharded", [False, True], ids=["whole", "sharded"])
def test_diffusers(tmp_path, sharded):
    torch.manual_seed(3)
    model = diffusers.UNet2DModel(sample_size=8, in_channels=3, out_channels=3, layers_per_block=1,
                                  block_out_channels=(32, 32), down_block_types=("DownBlock2D", "AttnDownBlock2D"),
                                  up_block_types=("AttnUpBlock2D", "UpBlock2D"))
    folder = tmp_path / "model"
    model.save_pretrained(folder, **({"max_shard_size": "200KB"} if sharded else {}))
    assert (len([name for name in os.listdir(folder) if name.endswith(".safetensors")]) > 1) == sharded
    equal("unet", folder, tmp_path)
