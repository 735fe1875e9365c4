"""The peer's transformer: RMSNorm, RoPE, grouped-query attention, SwiGLU, biases on q, k and v.

The output projection is the token embedding. Weights are random. The products of one input (q, k and v; gate and up) are
one product each if they are merged.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

PROJECTIONS = ("q", "k", "v", "o", "gate", "up", "down")
ROPE_BASE = 1e6
EPSILON = 1e-6


@dataclass
class Options:
    """Dimensions, and how the model is trained."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    vocab: int
    # Data type of the weights that are not LoRA's.
    dtype: torch.dtype
    # Projections with LoRA; None trains all weights.
    targets: tuple
    rank: int
    merged: bool

    @property
    def head_dim(self):
        return self.hidden // self.heads


class Norm(nn.Module):
    """RMSNorm."""

    def __init__(self, options):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(options.hidden, dtype=options.dtype))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, EPSILON)


class Projection(nn.Module):
    """Linear layers of one input as one product, with LoRA on some of them."""

    def __init__(self, options, inputs, outputs, bias=False):
        super().__init__()
        self.widths = list(outputs.values())
        self.base = nn.Linear(inputs, sum(self.widths), bias=bias, dtype=options.dtype)
        self.base.requires_grad_(options.targets is None)
        targets = options.targets or ()
        self.adapted = [index for index, name in enumerate(outputs) if name in targets]
        self.rank = options.rank
        # alpha is twice the rank.
        self.scale = 2.0
        if self.adapted:
            rows = self.rank * len(self.adapted)
            self.a = nn.Parameter(torch.randn(rows, inputs) / math.sqrt(inputs))
            widths = [self.widths[index] for index in self.adapted]
            self.b = nn.ModuleList(nn.Linear(self.rank, width, bias=False) for width in widths)
            for b in self.b:
                nn.init.zeros_(b.weight)

    def forward(self, x):
        parts = list(self.base(x).split(self.widths, -1))
        if self.adapted:
            inner = F.linear(x, self.a.to(x.dtype)).split(self.rank, -1)
            for index, b, t in zip(self.adapted, self.b, inner):
                parts[index] = parts[index] + self.scale * F.linear(t, b.weight.to(x.dtype))
        return parts


class Projections(nn.Module):
    """Linear layers of one input: one product if merged, else one each."""

    def __init__(self, options, inputs, outputs, bias=False):
        super().__init__()
        groups = [outputs] if options.merged else [{name: width} for name, width in outputs.items()]
        self.groups = nn.ModuleList(Projection(options, inputs, group, bias) for group in groups)

    def forward(self, x):
        return [part for group in self.groups for part in group(x)]


def generator(arguments, seq):
    """Returns a model for generation with RoPE tables of `seq` positions, and the caches of its layers."""
    names = ("layers", "hidden", "intermediate", "heads", "kv_heads", "vocab")
    shape = {name: getattr(arguments, name) for name in names}
    dtype = torch.float32 if arguments.dtype == "f32" else torch.bfloat16
    options = Options(**shape, dtype=dtype, targets=(), rank=0, merged=True)
    sizes = (arguments.batch, options.kv_heads, arguments.size[1], options.head_dim)
    model = Transformer(options, seq)
    return model, [(torch.zeros(sizes, dtype=dtype), torch.zeros(sizes, dtype=dtype)) for _ in model.layers]


def rotate(x, cos, sin):
    """Applies RoPE to the two halves of each head."""
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin


def rope_tables(positions, head_dim, dtype):
    """Returns cosines and sines of positions, `[positions, head_dim]`."""
    exponents = torch.arange(0, head_dim, 2, device=positions.device).float() / head_dim
    angles = torch.outer(positions.float(), ROPE_BASE**-exponents)
    angles = torch.cat((angles, angles), -1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


class Layer(nn.Module):
    """Attention and MLP."""

    def __init__(self, options):
        super().__init__()
        hidden, intermediate = options.hidden, options.intermediate
        kv_width = options.kv_heads * options.head_dim
        self.head_dim = options.head_dim
        self.attention_norm, self.mlp_norm = Norm(options), Norm(options)
        widths = {"q": hidden, "k": kv_width, "v": kv_width}
        self.qkv = Projections(options, hidden, widths, bias=True)
        self.o = Projections(options, hidden, {"o": hidden})
        self.gate_up = Projections(options, hidden, {"gate": intermediate, "up": intermediate})
        self.down = Projections(options, intermediate, {"down": hidden})

    def forward(self, x, cos, sin):
        def heads(part):
            return part.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

        q, k, v = (heads(part) for part in self.qkv(self.attention_norm(x)))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        (attended,) = self.o(attended.transpose(1, 2).flatten(2))
        x = x + attended
        gate, up = self.gate_up(self.mlp_norm(x))
        (down,) = self.down(F.silu(gate) * up)
        return x + down


class Transformer(nn.Module):
    """Tokens to logits."""

    def __init__(self, options, seq):
        super().__init__()
        full = options.targets is None
        self.embedding = nn.Embedding(options.vocab, options.hidden, dtype=options.dtype)
        self.embedding.requires_grad_(full)
        with torch.no_grad():
            self.embedding.weight.mul_(0.02)
        self.layers = nn.ModuleList(Layer(options) for _ in range(options.layers))
        self.norm = Norm(options).requires_grad_(full)
        cos, sin = rope_tables(torch.arange(seq), options.head_dim, options.dtype)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return F.linear(self.norm(x), self.embedding.weight)
