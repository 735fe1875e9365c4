#!/usr/bin/env python3
"""Golden losses and gradients of a tiny model, made by PyTorch in float64.

    python3 crates/finetune/tests/golden/make_golden.py

writes full.safetensors and lora.safetensors next to this file. Only PyTorch is needed. Weights and
tokens are not stored: both sides compute them from an integer hash, exactly.

The model is written with torch.nn.functional, independently of the kernels and of the formulas of
their gradients: gradients come from autograd.
"""

import json
import math
import pathlib
import struct

import torch
import torch.nn.functional as F

VOCAB, HIDDEN, LAYERS, INNER, HEADS, KV_HEADS = 256, 24, 2, 40, 4, 2
HEAD_DIM = HIDDEN // HEADS
THETA, EPS = 1e4, 0.03  # An eps that is large enough for a wrong one to show.
BATCH, SEQ, STEPS = 3, 11, 8
RANK, ALPHA = 3, 12.0
PEAK, LEAST, WARMUP, TOTAL = 0.02, 0.002, 3, 8
BETAS, ADAM_EPS, DECAY, MAX_NORM = (0.9, 0.95), 1e-8, 0.1, 0.25

MASK = 0xFFFFFFFF


def hashed(name, index):
    """A 32-bit hash of a name (FNV-1a) and an index (the finalizer of MurmurHash3)."""
    seed = 0x811C9DC5
    for byte in name.encode():
        seed = ((seed ^ byte) * 0x01000193) & MASK
    x = (seed + index * 0x9E3779B9) & MASK
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & MASK
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & MASK
    return x ^ (x >> 16)


def value(name, index):
    """A weight, rounded to float32: within 1/4 of 0, or of 1 for norms."""
    unit = ((hashed(name, index) >> 8) - (1 << 23)) / (1 << 23)
    base = 1.0 if "norm" in name else 0.0
    return struct.unpack("<f", struct.pack("<f", base + unit / 4))[0]


def tokens_of(kind, step):
    """Few different tokens, so that each occurs several times in a batch."""
    count = BATCH * SEQ
    values = [hashed(f"{kind}.{step}", index) % 19 * 13 for index in range(count)]
    return torch.tensor(values).reshape(BATCH, SEQ)


def shapes(lora):
    """Every parameter with its shape, and whether it is trained."""
    full, kv = not lora, KV_HEADS * HEAD_DIM
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN), full
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        yield at + "input_layernorm.weight", (HIDDEN,), True
        for part, width in (("q_proj", HIDDEN), ("k_proj", kv), ("v_proj", kv)):
            yield f"{at}self_attn.{part}.weight", (width, HIDDEN), full
            yield f"{at}self_attn.{part}.bias", (width,), full
            if lora and part != "k_proj":
                yield f"{at}self_attn.{part}.lora_A.weight", (RANK, HIDDEN), True
                yield f"{at}self_attn.{part}.lora_B.weight", (width, RANK), True
        yield at + "self_attn.o_proj.weight", (HIDDEN, HIDDEN), full
        yield at + "post_attention_layernorm.weight", (HIDDEN,), True
        yield at + "mlp.gate_proj.weight", (INNER, HIDDEN), full
        yield at + "mlp.up_proj.weight", (INNER, HIDDEN), full
        yield at + "mlp.down_proj.weight", (HIDDEN, INNER), full
    yield "model.norm.weight", (HIDDEN,), full


def parameters(lora):
    made = {}
    for name, shape, trained in shapes(lora):
        data = [value(name, index) for index in range(math.prod(shape))]
        tensor = torch.tensor(data, dtype=torch.float64).reshape(shape)
        made[name] = tensor.requires_grad_(trained)
    return made


def rms_norm(x, gain):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * gain


def rotate(x):
    """Rotary positions over pairs (i, i + half), as in Qwen2."""
    half = HEAD_DIM // 2
    frequency = THETA ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(SEQ, dtype=torch.float64)[:, None] * frequency
    cos, sin = torch.cat([angle, angle], -1).cos(), torch.cat([angle, angle], -1).sin()
    turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * cos + turned * sin


def project(p, name, x):
    y = F.linear(x, p[name + ".weight"], p.get(name + ".bias"))
    if name + ".lora_A.weight" in p:
        low = F.linear(x, p[name + ".lora_A.weight"])
        y = y + ALPHA / RANK * F.linear(low, p[name + ".lora_B.weight"])
    return y


def attention(p, at, x):
    split = lambda y, heads: y.reshape(BATCH, SEQ, heads, HEAD_DIM).transpose(1, 2)
    q = rotate(split(project(p, at + "q_proj", x), HEADS))
    k = rotate(split(project(p, at + "k_proj", x), KV_HEADS))
    v = split(project(p, at + "v_proj", x), KV_HEADS)
    k, v = (y.repeat_interleave(HEADS // KV_HEADS, dim=1) for y in (k, v))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return project(p, at + "o_proj", out.transpose(1, 2).reshape(BATCH, SEQ, HIDDEN))


def loss_of(p, tokens, targets):
    table = p["model.embed_tokens.weight"]
    x = F.embedding(tokens, table)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        x = x + attention(p, at + "self_attn.", rms_norm(x, p[at + "input_layernorm.weight"]))
        y = rms_norm(x, p[at + "post_attention_layernorm.weight"])
        gated = F.silu(project(p, at + "mlp.gate_proj", y)) * project(p, at + "mlp.up_proj", y)
        x = x + project(p, at + "mlp.down_proj", gated)
    logits = F.linear(rms_norm(x, p["model.norm.weight"]), table)
    return F.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))


def learning_rate(step):
    if step < WARMUP:
        return PEAK * (step + 1) / WARMUP
    progress = min((step - WARMUP) / (TOTAL - WARMUP), 1.0)
    return LEAST + (PEAK - LEAST) * (1 + math.cos(math.pi * progress)) / 2


def train(lora):
    """Losses and norms of every step, and the gradients of the first before clipping."""
    p = parameters(lora)
    trained = {name: tensor for name, tensor in p.items() if tensor.requires_grad}
    decayed = [tensor for tensor in trained.values() if tensor.dim() == 2]
    others = [tensor for tensor in trained.values() if tensor.dim() == 1]
    groups = [{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    groups = [group for group in groups if group["params"]]
    optimizer = torch.optim.AdamW(groups, lr=PEAK, betas=BETAS, eps=ADAM_EPS)
    losses, norms, gradients = [], [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(p, tokens_of("tokens", step), tokens_of("targets", step))
        loss.backward()
        if step == 0:
            gradients = {f"grad.{name}": t.grad.clone() for name, t in trained.items()}
        norms.append(torch.nn.utils.clip_grad_norm_(list(trained.values()), MAX_NORM).item())
        losses.append(loss.item())
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.step()
    final = {f"final.{name}": tensor.detach() for name, tensor in trained.items()}
    series = {"losses": torch.tensor(losses), "norms": torch.tensor(norms)}
    return series | gradients | final


def save(path, tensors, metadata):
    """Writes float32 tensors in the safetensors format."""
    header, blobs, offset = {"__metadata__": metadata}, [], 0
    for name, tensor in tensors.items():
        flat = tensor.to(torch.float32).reshape(-1).tolist()
        blob = struct.pack(f"<{len(flat)}f", *flat)
        places = [offset, offset + len(blob)]
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": places}
        offset += len(blob)
        blobs.append(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def main():
    torch.set_default_dtype(torch.float64)
    folder = pathlib.Path(__file__).parent
    for lora in (False, True):
        name = "lora" if lora else "full"
        save(folder / f"{name}.safetensors", train(lora), {"torch": torch.__version__})


if __name__ == "__main__":
    main()
