#!/usr/bin/env python3
"""Adapters of `retrograph` against PEFT, in both directions; needs torch, transformers and peft.

    cargo build --release -p retrograph
    python3 crates/finetune/tests/golden/check_peft.py target/release/retrograph

Tiny base models of random weights are saved by transformers: Qwen2 in f32, bf16 and f16, and Phi-3 and an untied Llama. Then
1. an adapter that `retrograph finetune` trained is loaded by PEFT, and
2. an adapter that PEFT saved is read by `retrograph`,
and each time the model that `retrograph merge` writes is compared with PEFT: its logits with base and adapter, its weights with
PEFT's own merge. Ends with 0 when all agree.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, Phi3Config, Qwen2Config

MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
FUSED = ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]
SIZES = dict(
    vocab_size=256, hidden_size=64, intermediate_size=176, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-6,
)
QWEN2 = Qwen2Config(**SIZES, tie_word_embeddings=True, rope_theta=1e4)
PHI3 = Phi3Config(
    **SIZES, tie_word_embeddings=False, pad_token_id=None, bos_token_id=0, eos_token_id=None,
    rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.75),
)
LLAMA = LlamaConfig(**SIZES, tie_word_embeddings=False)
NORMS = ["input_layernorm", "post_attention_layernorm"]
# Flags of `retrograph`, and options of PEFT.
PLAIN = ([], {})
RSLORA = (["--rslora", "--train-norms"], dict(use_rslora=True, modules_to_save=NORMS))
TIED = (["--train-embeddings"], dict(modules_to_save=["embed_tokens"], ensure_weight_tying=True))
WHOLE = (["--train-embeddings", "--train-head"], dict(modules_to_save=["embed_tokens", "lm_head"]))
SOME = (["--rslora", "--lora-targets", "q,v,up"], dict(rank_pattern={"down_proj": 5}))
BY_LAYER = (
    ["--lora-layers", "1", "--rank-pattern", r"layers\.\d{1,2}\.mlp\..*=3,k_proj=2", "--alpha-pattern", "q_proj=7"],
    dict(layers_to_transform=[0], rank_pattern={r"layers\.0\..*(q|down)_proj": 2}, alpha_pattern={"layers.0.mlp.up_proj": 9}),
)
DORA = (["--dora"], dict(use_dora=True))
FUSED_BY_LAYER = (
    ["--rslora", "--rank-pattern", "layers.1.self_attn.qkv_proj=2,down_proj=4", "--alpha-pattern", "layers.0.mlp.gate_up_proj=3"],
    dict(rank_pattern={"layers.1.self_attn.qkv_proj": 2}, alpha_pattern={"down_proj": 9}),
)


def run(*arguments):
    subprocess.run([str(argument) for argument in arguments], check=True)


def save_base(folder, config, dtype):
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(config)
    model.to(dtype).save_pretrained(folder, max_shard_size="200KB")


def from_retrograph(program, folder, flags):
    text = folder / "text"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 30)
    out = folder / "trained"
    targets = [] if "--lora-targets" in flags else ["--lora-targets", "all"]
    run(program, "finetune", "--model", folder / "base", "--text", text, "--mode", "lora",
        "--rank", 5, "--alpha", 12, "--lr", 0.01, "--dtype", "f32", "--seq", 32, "--batch", 2,
        "--steps", 12, "--sample", 0, "--device", "sim", "--adapter-out", out, *targets, *flags)
    return out


def from_peft(base, folder, options):
    torch.manual_seed(8)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    modules = FUSED if model.config.model_type == "phi3" else MODULES
    config = LoraConfig(r=3, lora_alpha=7, target_modules=modules, task_type="CAUSAL_LM", **options)
    model = get_peft_model(model, config)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parameter.data += 0.05 * torch.randn_like(parameter)
    out = folder / "of-peft"
    model.save_pretrained(out)
    return out


def compare(program, base, adapter, dtype, what):
    with tempfile.TemporaryDirectory() as place:
        merged = Path(place) / "merged"
        run(program, "merge", "--model", base, "--adapter", adapter, "--out", merged)
        ours = AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float64)
        stored = AutoModelForCausalLM.from_pretrained(merged, dtype="auto")
        assert next(stored.parameters()).dtype == dtype, "the type of the weights changed"
    theirs = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float64)
    theirs = PeftModel.from_pretrained(theirs, adapter, autocast_adapter_dtype=False).double()
    tokens = torch.randint(0, 256, (2, 33), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        left, right = ours(tokens).logits, theirs(tokens).logits
        plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float64)(tokens).logits
    error = ((left - right).norm() / right.norm()).item()
    effect = ((plain - right).norm() / right.norm()).item()
    exact = theirs.merge_and_unload().state_dict()
    # One rounding to the stored type is half a unit of its last place.
    unit = torch.finfo(dtype).eps / 2 * 1.001
    worst = 0.0
    for name, value in ours.state_dict().items():
        bound = exact[name].abs() * unit + torch.finfo(dtype).tiny
        worst = max(worst, ((value - exact[name]).abs() / bound).max().item())
    tolerance = {torch.float32: 1e-6, torch.bfloat16: 3e-2, torch.float16: 4e-3}[dtype]
    good = error < tolerance and effect > 10 * error and worst <= 1.0
    print(f"{'ok  ' if good else 'FAIL'} {what} {dtype}: logits differ by {error:.1e}, the adapter "
          f"changes them by {effect:.1e}, weights are off by {worst:.3f} roundings")
    return good


def main():
    program, good = Path(sys.argv[1]).resolve(), True
    types = [torch.float32, torch.bfloat16, torch.float16]
    cases = [(QWEN2, dtype, how) for dtype in types for how in [PLAIN, RSLORA]]
    cases += [(PHI3, torch.float32, how) for how in [PLAIN, SOME, FUSED_BY_LAYER]]
    cases += [(QWEN2, torch.float32, BY_LAYER)]
    cases += [(config, dtype, DORA) for config in [QWEN2, PHI3] for dtype in types[:2]]
    cases += [(QWEN2, torch.float32, TIED), (LLAMA, torch.float32, WHOLE)]
    for config, dtype, (flags, options) in cases:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            base, name = folder / "base", f"{config.model_type} {' '.join(flags)}"
            save_base(base, config, dtype)
            trained = from_retrograph(program, folder, flags)
            good &= compare(program, base, trained, dtype, f"retrograph -> PEFT {name}")
            saved = from_peft(base, folder, options)
            good &= compare(program, base, saved, dtype, f"PEFT -> retrograph {name}")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
