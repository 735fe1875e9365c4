"""Times one token of greedy decoding, of each sequence of a batch, in plain PyTorch, with KV caches of fixed capacity.

Prints one JSON line per variant: eager, captured as one CUDA graph, and compiled and captured. q|k|v and gate|up are one
product each.
"""

from common import Nvml, captured, emit, generation_arguments, machine, measured, require_torch

VARIANTS = ("eager", "captured", "compiled")


def decoder(torch, arguments):
    """Returns a function that maps a token and its position to the next token."""
    import torch.nn.functional as F
    from model import generator, rope_tables, rotate

    capacity = arguments.size[1]
    model, caches = generator(arguments, capacity)
    cached_positions = torch.arange(capacity)

    def decode(token, position):
        x = model.embedding(token)[:, None]
        head_dim = model.layers[0].head_dim
        cos, sin = rope_tables(position, head_dim, x.dtype)
        mask = (cached_positions <= position)[None, None, None]
        for layer, (keys, values) in zip(model.layers, caches):
            parts = layer.qkv(layer.attention_norm(x))
            q, k, v = (part.unflatten(-1, (-1, head_dim)).transpose(1, 2) for part in parts)
            keys.index_copy_(2, position, rotate(k, cos, sin))
            values.index_copy_(2, position, v)
            q = rotate(q, cos, sin)
            attended = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True)
            (attended,) = layer.o(attended.transpose(1, 2).flatten(2))
            x = x + attended
            gate, up = layer.gate_up(layer.mlp_norm(x))
            (down,) = layer.down(F.silu(gate) * up)
            x = x + down
        logits = F.linear(model.norm(x), model.embedding.weight)
        return logits.argmax(-1).flatten()

    return decode


def main():
    arguments = generation_arguments(__doc__, "decode", VARIANTS)
    torch = require_torch(arguments)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_grad_enabled(False)
    nvml, about = Nvml.find(), machine()
    with torch.device("cuda"):
        decode = decoder(torch, arguments)
        token = torch.zeros(arguments.batch, dtype=torch.long)
        position = torch.full((1,), arguments.size[0])
    for variant in arguments.variants:
        try:
            function = torch.compile(decode, dynamic=False) if variant == "compiled" else decode
            run = lambda: function(token, position)
            run = run if variant == "eager" else captured(run)
            results = measured(run, arguments.samples, nvml)
        except Exception as error:
            results = {"error": f"{type(error).__name__}: {error}"[:300]}
        emit(kind="decode", variant=variant, dtype=arguments.dtype, batch=arguments.batch, **results, machine=about)


if __name__ == "__main__":
    main()
