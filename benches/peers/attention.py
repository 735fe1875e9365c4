"""Times causal bf16 attention with grouped queries, forward and backward, by cuDNN and by PyTorch's FlashAttention.

Prints one JSON line per size, pass and backend.
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
    return made.parse_args()


def times(torch, run, samples):
    """Returns the device milliseconds of a run in each sample."""

    def several():
        for _ in range(BATCH):
            run()

    replay = captured(several)
    # The first two samples are warm-up.
    return [time / BATCH for time in timed(replay, samples + 2)[2:]]


def passes(torch, size):
    """Returns the forward pass, and both passes, on tensors of `[batch, sequence, heads, head size]`."""
    batch, seq, heads, kv_heads, head_dim = size

    def make(heads):
        values = torch.rand(batch, seq, heads, head_dim, device="cuda").mul_(2).sub_(1)
        return values.bfloat16().transpose(1, 2)

    q, k, v = (make(count).requires_grad_() for count in (heads, kv_heads, kv_heads))
    attention, grad = torch.nn.functional.scaled_dot_product_attention, make(heads)

    def forward():
        return attention(q, k, v, is_causal=True, enable_gqa=heads != kv_heads)

    # A graph has a backward pass only with its forward pass.
    return forward, lambda: torch.autograd.grad(forward(), (q, k, v), grad)


def measure(torch, size, samples):
    """Returns the times of the forward pass, and of the backward pass as the difference of both."""
    forward, both = (times(torch, run, samples) for run in passes(torch, size))
    median = statistics.median(forward)
    return {"forward": summary(forward), "backward": summary([time - median for time in both])}


def main():
    arguments = parse()
    torch = require_torch(arguments)
    from torch.nn.attention import SDPBackend, sdpa_kernel

    about = machine()
    for size in arguments.sizes:
        for variant, backend in BACKENDS.items():
            try:
                with sdpa_kernel([getattr(SDPBackend, backend)]):
                    found = measure(torch, size, arguments.samples)
            except RuntimeError as error:
                why = {"error": str(error).splitlines()[0][:300]}
                found = {"forward": why, "backward": why}
            for name, results in found.items():
                names = {"kind": "attention", "variant": variant, "size": size, "pass": name}
                emit(**names, **results, machine=about)


if __name__ == "__main__":
    main()
