"""Causal attention with capped scores: each score becomes cap · tanh(score / cap), as in Gemma 2."""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def by_flex(seq, cap, scale=None, window=None):
    """Returns FlexAttention, compiled. A query sees the last `window` positions, its own included."""

    def capped(score, batch, head, query, key):
        return cap * torch.tanh(score / cap)

    def sees(batch, head, query, key):
        causal = query >= key
        return causal if window is None else causal & (query - key < window)

    mask = create_block_mask(sees, None, None, seq, seq)
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda q, k, v, enable_gqa: compiled(
        q, k, v, score_mod=capped, block_mask=mask, scale=scale, enable_gqa=enable_gqa
    )


def by_products(seq, cap, scale=None, window=None):
    """Returns the same by products around a softmax, as in transformers."""
    hidden = torch.ones(seq, seq, device="cuda", dtype=torch.bool).triu(1)
    if window is not None:
        hidden |= torch.ones_like(hidden).tril(-window)

    def attend(q, k, v, enable_gqa):
        group = q.shape[1] // k.shape[1]
        k, v = (tensor.repeat_interleave(group, 1) for tensor in (k, v))
        scores = q @ k.transpose(2, 3) * (scale or q.shape[-1] ** -0.5)
        scores = (cap * torch.tanh(scores / cap)).masked_fill(hidden, float("-inf"))
        return torch.softmax(scores, -1, dtype=torch.float32).to(q.dtype) @ v

    return attend
