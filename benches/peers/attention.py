"""Times causal bf16 attention with grouped queries, forward and backward, by cuDNN and by PyTorch's FlashAttention.

Prints one JSON line per size, pass and backend.
"""

from common import emit, list_of, machine, parser, require_torch, sizes, summary, timed

BACKENDS = {"cudnn": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION"}
# Launches between two events.
BATCH = 6
# Clock cycles for which the device waits, so that the host has enqueued the launches before they start.
LEAD = 20_000_000


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

    several()
    found = timed(several, samples, before=lambda: torch.cuda._sleep(LEAD))
    return [time / BATCH for time in found]


def passes(torch, size):
    """Returns forward and backward as functions, on tensors of `[batch, sequence, heads, head size]`."""
    batch, seq, heads, kv_heads, head_dim = size

    def make(heads):
        values = torch.rand(batch, seq, heads, head_dim, device="cuda").mul_(2).sub_(1)
        return values.bfloat16().transpose(1, 2)

    q, k, v = (make(count).requires_grad_() for count in (heads, kv_heads, kv_heads))
    attention = torch.nn.functional.scaled_dot_product_attention

    def forward():
        return attention(q, k, v, is_causal=True, enable_gqa=heads != kv_heads)

    out, grad = forward(), make(heads)

    def backward():
        return torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)

    return {"forward": forward, "backward": backward}


def main():
    arguments = parse()
    torch = require_torch(arguments)
    from torch.nn.attention import SDPBackend, sdpa_kernel

    about = machine()
    for size in arguments.sizes:
        for variant, backend in BACKENDS.items():
            for name in ("forward", "backward"):
                try:
                    with sdpa_kernel([getattr(SDPBackend, backend)]):
                        run = passes(torch, size)[name]
                        results = summary(times(torch, run, arguments.samples))
                except RuntimeError as error:
                    results = {"error": str(error).splitlines()[0][:300]}
                names = {"kind": "attention", "variant": variant, "size": size, "pass": name}
                emit(**names, **results, machine=about)


if __name__ == "__main__":
    main()
