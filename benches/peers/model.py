"""The peer's transformer: RMSNorm, RoPE, grouped-query attention, SwiGLU, biases on q, k and v; or Gemma 2.

The output projection is the token embedding. Weights are random. The products of one input (q, k and v; gate and up) are
one product each if they are merged.
"""

import math
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

PROJECTIONS = ("q", "k", "v", "o", "gate", "up", "down")
ROPE_BASE = 1e6
EPSILON = 1e-6


@dataclass
class Gemma2:
    """What a Gemma 2 has instead: heads of their own size, caps, sliding windows, norms after attention and MLP, GELU."""

    head_dim: int
    query_pre_attn_scalar: float
    attn_logit_softcapping: float
    final_logit_softcapping: float
    # Of every second layer, from the first on.
    sliding_window: int


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
    gemma2: Gemma2 = None
    # Whether capped attention is FlexAttention instead of products around a softmax.
    flex: bool = False

    @property
    def head_dim(self):
        return self.gemma2.head_dim if self.gemma2 else self.hidden // self.heads


class Norm(nn.Module):
    """RMSNorm. A Gemma 2 stores the weights minus 1, and multiplies in f32."""

    def __init__(self, options):
        super().__init__()
        self.minus_one = options.gemma2 is not None
        initial = torch.zeros if self.minus_one else torch.ones
        self.weight = nn.Parameter(initial(options.hidden, dtype=options.dtype))

    def forward(self, x):
        if self.minus_one:
            return F.rms_norm(x.float(), self.weight.shape, 1.0 + self.weight.float(), EPSILON).type_as(x)
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


def plain_attention(q, k, v, enable_gqa):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=enable_gqa)


def attention_of_layers(options, seq):
    """Returns the attention of even and of odd layers for sequences of `seq` tokens."""
    gemma2 = options.gemma2
    if gemma2 is None:
        return plain_attention, plain_attention
    from capped import by_flex, by_products

    make = by_flex if options.flex else by_products
    scaled = (seq, gemma2.attn_logit_softcapping, gemma2.query_pre_attn_scalar**-0.5)
    whole = make(*scaled)
    return make(*scaled, gemma2.sliding_window) if gemma2.sliding_window < seq else whole, whole


class Layer(nn.Module):
    """Attention and MLP."""

    def __init__(self, options, attention):
        super().__init__()
        hidden, intermediate = options.hidden, options.intermediate
        gemma2 = options.gemma2 is not None
        q_width, kv_width = (heads * options.head_dim for heads in (options.heads, options.kv_heads))
        self.head_dim, self.attention = options.head_dim, attention
        self.activation = partial(F.gelu, approximate="tanh") if gemma2 else F.silu
        self.attention_norm, self.mlp_norm = Norm(options), Norm(options)
        self.post_attention_norm, self.post_mlp_norm = (
            Norm(options) if gemma2 else nn.Identity() for _ in range(2)
        )
        widths = {"q": q_width, "k": kv_width, "v": kv_width}
        self.qkv = Projections(options, hidden, widths, bias=not gemma2)
        self.o = Projections(options, q_width, {"o": hidden})
        self.gate_up = Projections(options, hidden, {"gate": intermediate, "up": intermediate})
        self.down = Projections(options, intermediate, {"down": hidden})

    def forward(self, x, cos, sin):
        def heads(part):
            return part.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

        q, k, v = (heads(part) for part in self.qkv(self.attention_norm(x)))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        attended = self.attention(q, k, v, enable_gqa=True)
        (attended,) = self.o(attended.transpose(1, 2).flatten(2))
        x = x + self.post_attention_norm(attended)
        gate, up = self.gate_up(self.mlp_norm(x))
        (down,) = self.down(self.activation(gate) * up)
        return x + self.post_mlp_norm(down)


class Transformer(nn.Module):
    """Tokens to logits."""

    def __init__(self, options, seq):
        super().__init__()
        full = options.targets is None
        self.embedding = nn.Embedding(options.vocab, options.hidden, dtype=options.dtype)
        self.embedding.requires_grad_(full)
        with torch.no_grad():
            self.embedding.weight.mul_(0.02)
        # The factor of embedded tokens.
        self.factor = options.hidden**0.5 if options.gemma2 else None
        attention = attention_of_layers(options, seq)
        self.layers = nn.ModuleList(Layer(options, attention[index % 2]) for index in range(options.layers))
        self.norm = Norm(options).requires_grad_(full)
        cos, sin = rope_tables(torch.arange(seq), options.head_dim, options.dtype)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)

    def forward(self, tokens):
        x = self.embedding(tokens)
        if self.factor is not None:
            x = x * self.factor
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return F.linear(self.norm(x), self.embedding.weight)
