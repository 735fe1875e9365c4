#!/usr/bin/env python3
"""Tiny models of each architecture as Hugging Face's libraries save them, and what those compute.

    python3 crates/finetune/tests/golden/make_models.py [NAME...]

writes one folder for each model, or for the named ones, into models/ next to this file. It needs
torch, transformers and peft; the committed files are of versions 2.11.0, 5.17.0 and 0.21.0, those of
linear and yarn, and of the models after them, of 2.15.0, 5.24.0 and 0.21.2. A folder
is a model directory (bfloat16, one of them in shards) with an adapter of PEFT in adapter/ and
golden.safetensors, computed in float64 by the libraries' own classes from the files just written:

- tokens, targets [steps, batch, seq]: a batch for each step;
- logits [batch, seq, vocab], loss: of the first batch, without the adapter;
- grad.NAME: the gradient of that loss for each parameter;
- adapter.logits, adapter.loss, adapter.grad.NAME: the same with the adapter, for its matrices;
- losses, norms [steps]: training the adapter with AdamW, clipping and a cosine schedule. All weights
  are trained instead in models with fused projections, since PEFT trains one A for all parts;
- greedy, adapter.greedy [prompt + 64]: a prompt and the likeliest tokens that follow. Dynamic RoPE
  has none: its frequencies differ from token to token.
"""

import json
import math
import pathlib
import shutil
import sys

import torch
import torch.nn.functional as F
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    LlamaConfig,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
)

STEPS, BATCH, SEQ, PROMPT, GREEDY = 30, 2, 11, 5, 64
VOCAB = 96
PEAK, LEAST, WARMUP = 0.004, 0.0004, 3
BETAS, ADAM_EPS, DECAY, MAX_NORM = (0.9, 0.95), 1e-8, 0.1, 0.25
# The two likeliest tokens must be further apart than float32 can err.
MARGIN = 2e-3

SIZES = dict(
    vocab_size=VOCAB, hidden_size=32, intermediate_size=44, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
    rms_norm_eps=1e-5, bos_token_id=0, eos_token_id=None, pad_token_id=None,
)
LLAMA3 = dict(
    rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
    original_max_position_embeddings=32, rope_theta=100.0,
)
LINEAR = dict(rope_type="linear", factor=4.0, rope_theta=100.0)
YARN = dict(
    rope_type="yarn", factor=8.0, original_max_position_embeddings=16, rope_theta=100.0,
    beta_fast=2.0, beta_slow=0.25,
)
DYNAMIC = dict(rope_type="dynamic", factor=4.0, rope_theta=100.0)
# The first is for runs within the original context, the second for longer ones.
SHORT_ROPE = dict(
    rope_type="longrope", rope_theta=100.0, original_max_position_embeddings=96,
    short_factor=[1.0, 1.25, 1.5, 2.0], long_factor=[1.5, 2.0, 4.0, 8.0],
)
LONG_ROPE = dict(
    rope_type="longrope", rope_theta=100.0, original_max_position_embeddings=4,
    partial_rotary_factor=0.75, short_factor=[1.0, 1.5, 2.0], long_factor=[1.25, 3.0, 5.0],
)
# Caps that bend scores and logits.
GEMMA2 = dict(
    head_dim=8, query_pre_attn_scalar=12, sliding_window=4, attn_logit_softcapping=2.0,
    final_logit_softcapping=6.0,
)
GEMMA3 = dict(
    head_dim=12, query_pre_attn_scalar=10, sliding_window=4, num_hidden_layers=3,
    layer_types=["sliding_attention", "sliding_attention", "full_attention"],
    rope_parameters={
        "sliding_attention": dict(rope_type="default", rope_theta=20.0),
        "full_attention": dict(rope_type="linear", factor=2.0, rope_theta=100.0),
    },
)
# Seeds are positions: add new models at the end.
MODELS = {
    "qwen2": Qwen2Config(**SIZES, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**SIZES, tie_word_embeddings=False, head_dim=12),
    "llama2": LlamaConfig(**{**SIZES, "num_key_value_heads": 4}, tie_word_embeddings=False),
    "llama3": LlamaConfig(**SIZES, tie_word_embeddings=True, rope_parameters=LLAMA3),
    "linear": LlamaConfig(**SIZES, tie_word_embeddings=True, rope_parameters=LINEAR),
    "yarn": Qwen3Config(**SIZES, tie_word_embeddings=False, head_dim=16, rope_parameters=YARN),
    "phi3": Phi3Config(
        **SIZES, tie_word_embeddings=False, rope_parameters=SHORT_ROPE, sliding_window=6,
        original_max_position_embeddings=96,
    ),
    "phi4": Phi3Config(
        **SIZES, tie_word_embeddings=True, rope_parameters=LONG_ROPE,
        original_max_position_embeddings=4,
    ),
    "smollm3": SmolLM3Config(**SIZES, tie_word_embeddings=True, no_rope_layer_interval=2),
    "biases": LlamaConfig(
        **SIZES, tie_word_embeddings=False, attention_bias=True, mlp_bias=True
    ),
    "dynamic": LlamaConfig(
        **{**SIZES, "max_position_embeddings": 8}, tie_word_embeddings=True,
        rope_parameters=DYNAMIC,
    ),
    "saved": LlamaConfig(**SIZES, tie_word_embeddings=False),
    "tied": Qwen2Config(**SIZES, tie_word_embeddings=True),
    "gemma2": Gemma2Config(**SIZES, **GEMMA2),
    "gemma3": Gemma3TextConfig(**{**SIZES, **GEMMA3}),
    "by_layer": Qwen2Config(**{**SIZES, "num_hidden_layers": 3}, tie_word_embeddings=True),
    "dora": Qwen2Config(**SIZES, tie_word_embeddings=True),
    "dora_fused": Phi3Config(
        **SIZES, tie_word_embeddings=False, rope_parameters=SHORT_ROPE, sliding_window=6,
        original_max_position_embeddings=96,
    ),
}
# Options of the adapters of single models.
LORA = {
    "saved": dict(
        modules_to_save=["embed_tokens", "lm_head"],
        rank_pattern={"o_proj": 5, "gate_proj": 2, "up_proj": 2},
        alpha_pattern={"down_proj": 2, "gate_proj": 7, "up_proj": 7},
    ),
    "tied": dict(modules_to_save=["embed_tokens"], ensure_weight_tying=True),
    "by_layer": dict(
        layers_to_transform=[0, 2], layers_pattern="layers",
        rank_pattern={
            "model.layers.2.self_attn.q_proj": 5, r"layers\.0\..*\.(k|up)_proj": 2, "v_proj": 1,
            r"layers\.[12]\.mlp\..*": 4,
        },
        alpha_pattern={"layers.2.mlp.down_proj": 2, "k_proj": 7},
    ),
    "dora": dict(use_dora=True, rank_pattern={"v_proj": 1}),
    "dora_fused": dict(use_dora=True),
}
PARTS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
FUSED_PARTS = ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]


def fused(model):
    return model.config.model_type == "phi3"


def fill(model, seed):
    """Weights that are large enough for every part of the model to matter."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() == 2:
            parameter.data = 0.25 * noise
        else:
            parameter.data = ("norm" in name) + 0.2 * noise


def save_model(folder, config, seed):
    model = AutoModelForCausalLM.from_config(config)
    fill(model, seed)
    size = "24KB" if folder.name == "qwen3" else "1GB"
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size=size)


def save_adapter(folder, seed, rslora):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.config._name_or_path = folder.name
    model.name_or_path = folder.name
    config = LoraConfig(
        r=3, lora_alpha=5, target_modules=FUSED_PARTS if fused(model) else PARTS, use_rslora=rslora, task_type="CAUSAL_LM",
        base_model_name_or_path=folder.name, **LORA.get(folder.name, {}),
    )
    model = get_peft_model(model, config)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            noise = 0.2 * torch.randn(parameter.shape, generator=generator)
            added = "modules_to_save" in name or "magnitude" in name
            parameter.data = parameter.data + noise if added else noise
    model.save_pretrained(folder / "adapter")
    (folder / "adapter" / "README.md").unlink(missing_ok=True)


def load(folder, adapter):
    """In float64: what the classes round to float32 by themselves, norms and angles, stays so."""
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager"
    )
    if adapter:
        path = folder / "adapter"
        model = PeftModel.from_pretrained(
            model, path, is_trainable=True, autocast_adapter_dtype=False
        ).double()
    return model


def plain(name):
    """The name without what PEFT puts around it."""
    for part in [".default", ".base_layer", ".modules_to_save"]:
        name = name.replace(part, "")
    # Files have magnitudes without this end.
    name = name.replace("lora_magnitude_vector.weight", "lora_magnitude_vector")
    return name.removeprefix("base_model.model.")


def loss_of(model, tokens, targets):
    logits = model(input_ids=tokens, use_cache=False).logits
    return logits, F.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))


def first_step(model, batch, prefix):
    logits, loss = loss_of(model, *batch)
    loss.backward()
    made = {prefix + "logits": logits, prefix + "loss": loss.reshape(1)}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            made[f"{prefix}grad.{plain(name)}"] = parameter.grad.clone()
            parameter.grad = None
    return made


def learning_rate(step):
    if step < WARMUP:
        return PEAK * (step + 1) / WARMUP
    progress = min((step - WARMUP) / (STEPS - WARMUP), 1.0)
    return LEAST + (PEAK - LEAST) * (1 + math.cos(math.pi * progress)) / 2


def train(model, tokens, targets):
    named = [(name, one) for name, one in model.named_parameters() if one.requires_grad]
    trained = [one for _, one in named]
    # The trainer of transformers decays magnitudes, too: their names are not those of norms.
    decayed = [one.dim() == 2 or "lora_magnitude_vector" in name for name, one in named]
    groups = [
        dict(params=[one for one, decays in zip(trained, decayed) if decays == some], weight_decay=decay)
        for some, decay in [(True, DECAY), (False, 0.0)]
    ]
    optimizer = torch.optim.AdamW(groups, lr=PEAK, betas=BETAS, eps=ADAM_EPS)
    losses, norms = [], []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.zero_grad()
        loss = loss_of(model, tokens[step], targets[step])[1]
        loss.backward()
        norm = torch.sqrt(sum(parameter.grad.square().sum() for parameter in trained))
        scale = min(1.0, MAX_NORM / norm.item())
        for parameter in trained:
            parameter.grad.mul_(scale)
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm.item())
    return {"losses": torch.tensor(losses), "norms": torch.tensor(norms)}


def greedy(model, prompt):
    """The likeliest tokens, and the least distance of any of them to the second likeliest."""
    tokens, margin = prompt.reshape(1, -1), math.inf
    for _ in range(GREEDY):
        with torch.no_grad():
            last = model(input_ids=tokens, use_cache=False).logits[0, -1]
        best = last.topk(2).values
        margin = min(margin, (best[0] - best[1]).item())
        tokens = torch.cat([tokens, last.argmax().reshape(1, 1)], dim=1)
    return tokens[0], margin


def greedy_of(model, generator):
    """From the first of many prompts for which every choice is clear."""
    for _ in range(200):
        prompt = torch.randint(0, VOCAB, (PROMPT,), generator=generator)
        tokens, margin = greedy(model, prompt)
        if margin > MARGIN and len(set(tokens[PROMPT:].tolist())) > 5:
            return tokens
    raise SystemExit("no prompt has clear choices only")


def make(name, seed):
    folder = pathlib.Path(__file__).parent / "models" / name
    shutil.rmtree(folder, ignore_errors=True)
    save_model(folder, MODELS[name], seed)
    save_adapter(folder, seed + 100, rslora=name == "llama3")
    generator = torch.Generator().manual_seed(seed + 200)
    tokens, targets = (
        torch.randint(0, VOCAB, (STEPS, BATCH, SEQ), generator=generator) for _ in range(2)
    )
    batch = (tokens[0], targets[0])
    made = {"tokens": tokens, "targets": targets}
    base = load(folder, adapter=False)
    made |= first_step(base, batch, "")
    changing = (base.config.rope_parameters or {}).get("rope_type") == "dynamic"
    if not changing:
        made["greedy"] = greedy_of(base, generator)
    adapted = load(folder, adapter=True)
    made |= first_step(adapted, batch, "adapter.")
    if not changing:
        made["adapter.greedy"] = greedy_of(adapted, generator)
    made |= train(base if fused(base) else adapted, tokens, targets)
    made = {key: value.detach().to(torch.float32).contiguous() for key, value in made.items()}
    save_file(made, folder / "golden.safetensors")
    shape = {key: list(value.shape) for key, value in made.items() if "grad" not in key}
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(name, size, "bytes", json.dumps(shape), "losses", made["losses"][[0, 1, -1]].tolist())


def main():
    torch.set_num_threads(4)
    names = sys.argv[1:] or list(MODELS)
    for seed, name in enumerate(MODELS):
        if name in names:
            make(name, seed)
    unknown = set(names) - set(MODELS)
    if unknown:
        raise SystemExit(f"no such models: {', '.join(sorted(unknown))}")


if __name__ == "__main__":
    main()
