"""Times causal bf16 attention with grouped queries, forward and backward, by cuDNN and by PyTorch's FlashAttention.

With `--softcap`, scores have a cap, and the variants are FlexAttention and products around a softmax, both compiled.
Prints one JSON line per size, pass and variant.
"""

import statistics

from common import captured, emit, list_of, machine, parser, require_torch, sizes, summary, timed

BACKENDS = {"cudnn": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION"}
# Launches in a graph.
BATCH = 16


def parse():
    made = parser(__doc__)
    help_text = "batch x sequence x heads x key heads x head size, separated by commas"
    made.add_argument("--sizes", type=list_of(sizes(5)), required=True, help=help_text)
    made.add_argument("--softcap", type=float, help="cap of the scores")
    return made.parse_args()


def times(torch, run, samples):
    """Returns the device milliseconds of a run in each sample."""

    def several():
        for _ in range(BATCH):
            run()

    replay = captured(several)
    # The first two samples are warm-up.
    return [time / BATCH for time in timed(replay, samples + 2)[2:]]


def by_sdpa(torch, backend):
    """Returns a function that makes the attention of a size by a backend of PyTorch."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def attention(q, k, v, enable_gqa):
        with sdpa_kernel([getattr(SDPBackend, backend)]):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=enable_gqa)

    return lambda seq: attention


def capped(torch, cap):
    """Returns such functions by variant, with capped scores."""
    from capped import by_flex, by_products

    return {
        "flex": lambda seq: by_flex(seq, cap),
        "compiled": lambda seq: torch.compile(by_products(seq, cap), dynamic=False),
    }


def passes(torch, size, make_attention):
    """Returns the forward pass, and both passes, on tensors of `[batch, sequence, heads, head size]`."""
    batch, seq, heads, kv_heads, head_dim = size

    def make(heads):
        values = torch.rand(batch, seq, heads, head_dim, device="cuda").mul_(2).sub_(1)
        return values.bfloat16().transpose(1, 2)

    q, k, v = (make(count).requires_grad_() for count in (heads, kv_heads, kv_heads))
    attention, grad = make_attention(seq), make(heads)

    def forward():
        return attention(q, k, v, enable_gqa=heads != kv_heads)

    # A graph has a backward pass only with its forward pass.
    return forward, lambda: torch.autograd.grad(forward(), (q, k, v), grad)


def measure(torch, size, samples, make_attention):
    """Returns the times of the forward pass, and of the backward pass as the difference of both."""
    forward, both = (times(torch, run, samples) for run in passes(torch, size, make_attention))
    median = statistics.median(forward)
    return {"forward": summary(forward), "backward": summary([time - median for time in both])}


def main():
    arguments = parse()
    torch = require_torch(arguments)
    if arguments.softcap is None:
        variants = {name: by_sdpa(torch, backend) for name, backend in BACKENDS.items()}
    else:
        variants = capped(torch, arguments.softcap)
    about = machine()
    for size in arguments.sizes:
        for variant, make_attention in variants.items():
            torch._dynamo.reset()
            try:
                found = measure(torch, size, arguments.samples, make_attention)
            except Exception as error:
                why = {"error": f"{type(error).__name__}: {error}"[:300]}
                found = {"forward": why, "backward": why}
            for name, results in found.items():
                names = {"kind": "attention", "variant": variant, "size": size, "pass": name}
                emit(**names, **results, machine=about)


if __name__ == "__main__":
    main()
