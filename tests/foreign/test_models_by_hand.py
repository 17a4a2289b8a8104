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
x, models = None, {}
if what == "unet":
    model = diffusers.UNet2DModel.from_pretrained(folder)
elif what == "pipeline":
    x = {}
    for kind, inputs in {"unet": {}, "transformer": {"class_labels": [3]}, "text": {"prompt": "ab"}}.items():
        for dtype in (torch.float32, torch.bfloat16):
            pipeline = diffusers.DiffusionPipeline.from_pretrained(f"{folder}/{kind}", torch_dtype=dtype)
            pipeline.set_progress_bar_config(disable=True)
            models |= {f"{kind}.{dtype}.{name}": part for name, part in pipeline.components.items()
                       if isinstance(part, torch.nn.Module)}
            if dtype == torch.float32:
                x[kind] = pipeline(**inputs, generator=torch.manual_seed(5), num_inference_steps=2,
                                   output_type="np")[0].ravel().tolist()
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
state = {f"{part}.{name}": [str(t.dtype), list(t.shape), t.device.type if t.device.type == "meta" else hashlib.sha256(
             t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()]
         for part, model in (models or {"": model}).items() for name, t in model.state_dict().items()}
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
    (state, x, _none), (patched_state, patched_x, left) = found
    assert state == patched_state and left == [] and state
    if what == "pipeline":  # how a sum is rounded depends on where the weights lie
        x = {kind: pytest.approx(image, abs=1e-6) for kind, image in x.items()}
    assert patched_x == x


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


def pipeline(kind):
    """A small random pipeline, as from a hub: with a text encoder, of a transformer, and of a UNet alone."""
    schedule = diffusers.DDIMScheduler(num_train_timesteps=20, steps_offset=1, clip_sample=False)
    blocks = {"down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}
    if kind == "unet":
        unet = diffusers.UNet2DModel(sample_size=8, layers_per_block=1, block_out_channels=(32, 32), **blocks)
        return diffusers.DDIMPipeline(unet=unet, scheduler=schedule)
    vae = diffusers.AutoencoderKL(block_out_channels=(32, 32), down_block_types=("DownEncoderBlock2D",) * 2,
                                  up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=4, sample_size=16)
    if kind == "transformer":
        transformer = diffusers.DiTTransformer2DModel(sample_size=8, num_layers=2, patch_size=2, attention_head_dim=8,
                                                      num_attention_heads=2, in_channels=4, out_channels=8,
                                                      num_embeds_ada_norm=1000, norm_type="ada_norm_zero")
        return diffusers.DiTPipeline(transformer=transformer, vae=vae, scheduler=schedule)
    unet = diffusers.UNet2DConditionModel(block_out_channels=(32, 64), layers_per_block=1, sample_size=8, in_channels=4,
                                          out_channels=4, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
                                          up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), cross_attention_dim=32)
    config = transformers.CLIPTextConfig(hidden_size=32, intermediate_size=37, num_attention_heads=4, vocab_size=8,
                                         num_hidden_layers=2, bos_token_id=0, eos_token_id=1, pad_token_id=1)
    vocabulary = ["<|startoftext|>", "<|endoftext|>", "a", "b", "a</w>", "b</w>", "ab</w>", "c"]
    tokenizer = transformers.CLIPTokenizer({word: i for i, word in enumerate(vocabulary)}, [("a", "b</w>")])
    tokenizer.model_max_length = 77
    return diffusers.StableDiffusionPipeline(
        unet=unet, vae=vae, scheduler=schedule, text_encoder=transformers.CLIPTextModel(config), tokenizer=tokenizer,
        safety_checker=None, feature_extractor=None, requires_safety_checker=False)


def test_pipelines(tmp_path):
    torch.manual_seed(4)
    for kind in ("unet", "transformer", "text"):
        pipeline(kind).save_pretrained(tmp_path / "model" / kind, max_shard_size="100KB")
    equal("pipeline", tmp_path / "model", tmp_path)
