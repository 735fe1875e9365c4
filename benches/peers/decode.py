"""Times one token of greedy decoding, of each sequence of a batch, in plain PyTorch, with KV caches of fixed capacity.

Prints one JSON line per variant: eager, captured as one CUDA graph, and compiled and captured. q|k|v and gate|up are one
product each.
"""

from common import Nvml, back_to_back, captured, emit, list_of, machine, parser, require_torch, sizes, summary, timed

VARIANTS = ("eager", "captured", "compiled")


def parse():
    made = parser(__doc__)
    for name in ("layers", "hidden", "intermediate", "heads", "kv-heads", "vocab"):
        made.add_argument(f"--{name}", type=int, required=True)
    made.add_argument("--decode", type=sizes(2), required=True, help="position x capacity")
    made.add_argument("--batch", type=int, default=1, help="sequences that are decoded together, all at one position")
    made.add_argument("--dtype", choices=("f32", "bf16"), default="bf16", help="of weights, activations and caches")
    made.add_argument("--variants", type=list_of(str), default=list(VARIANTS))
    arguments = made.parse_args()
    unknown = set(arguments.variants) - set(VARIANTS)
    if unknown:
        made.error(f"no variant {', '.join(sorted(unknown))}; there are {', '.join(VARIANTS)}")
    if arguments.decode[0] >= arguments.decode[1]:
        made.error("--decode: the position must be below the capacity")
    return arguments


def decoder(torch, arguments):
    """Returns a function that maps a token and its position to the next token."""
    import torch.nn.functional as F
    from model import Options, Transformer, rope_tables, rotate

    names = ("layers", "hidden", "intermediate", "heads", "kv_heads", "vocab")
    shape = {name: getattr(arguments, name) for name in names}
    dtype = torch.float32 if arguments.dtype == "f32" else torch.bfloat16
    options = Options(**shape, dtype=dtype, targets=(), rank=0, merged=True)
    capacity, head_dim = arguments.decode[1], options.head_dim
    model = Transformer(options, capacity)
    cache = lambda: torch.zeros(arguments.batch, options.kv_heads, capacity, head_dim, dtype=dtype)
    caches = [(cache(), cache()) for _ in model.layers]
    cached_positions = torch.arange(capacity)

    def decode(token, position):
        cos, sin = rope_tables(position, head_dim, dtype)
        mask = (cached_positions <= position)[None, None, None]
        x = model.embedding(token)[:, None]
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
    arguments = parse()
    torch = require_torch(arguments)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_grad_enabled(False)
    nvml, about = Nvml.find(), machine()
    with torch.device("cuda"):
        decode = decoder(torch, arguments)
        token = torch.zeros(arguments.batch, dtype=torch.long)
        position = torch.full((1,), arguments.decode[0])
    for variant in arguments.variants:
        try:
            function = torch.compile(decode, dynamic=False) if variant == "compiled" else decode
            run = lambda: function(token, position)
            run = run if variant == "eager" else captured(run)
            for _ in range(3):
                run()
            times = summary(timed(run, arguments.samples))
            results = {**times, **back_to_back(run, times["ms_median"], nvml)}
        except Exception as error:
            results = {"error": f"{type(error).__name__}: {error}"[:300]}
        emit(kind="decode", variant=variant, dtype=arguments.dtype, batch=arguments.batch, **results, machine=about)


if __name__ == "__main__":
    main()
