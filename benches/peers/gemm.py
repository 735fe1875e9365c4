"""Times the bf16 products of linear layers by cuBLAS: forward, gradient of inputs, gradient of weights.

Prints one JSON line per layer and product. Results are bf16. Launches take their operands in turn from copies larger than
the L2 cache; several launches are one CUDA graph, so that the host's time does not count.
"""

from common import captured, emit, list_of, machine, parser, require_torch, sizes, summary, timed

# Bytes that the operands of consecutive launches spread over.
RING = 160 << 20


def parse():
    made = parser(__doc__)
    made.add_argument("--rows", type=int, required=True)
    made.add_argument("--layers", type=list_of(sizes(2)), required=True, help="inputs x outputs of each layer")
    return made.parse_args()


def launches(torch, op, rows, inputs, outputs):
    """Returns the product on each copy of its operands."""
    elements = rows * inputs + inputs * outputs + rows * outputs
    copies = max(1, min(64, RING // (2 * elements)))

    def make(*shape):
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

    def launch():
        x, w, y = make(rows, inputs), make(outputs, inputs), make(rows, outputs)
        operands = {"fprop": (x, w.t(), y), "dgrad": (y, w, x), "wgrad": (y.t(), x, w)}
        left, right, out = operands[op]
        return lambda: torch.mm(left, right, out=out)

    return [launch() for _ in range(copies)]


def measure(torch, op, rows, layer, samples):
    inputs, outputs = layer
    flop = 2 * rows * inputs * outputs
    ring = launches(torch, op, rows, inputs, outputs)
    # About a millisecond, and every copy at least once.
    batch = max(2, min(64, int(1e-3 / (flop / 600e12 + 4e-6))), len(ring))

    def run():
        for index in range(batch):
            ring[index % len(ring)]()

    replay, scratch = captured(run), torch.empty(1 << 28, device="cuda")
    # Filling the scratch memory empties the L2 cache and gives the host a lead. The first two samples are warm-up.
    times = timed(replay, samples + 2, before=scratch.zero_)[2:]
    return summary([time / batch for time in times])


def main():
    arguments = parse()
    torch = require_torch(arguments)
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    about = machine()
    for layer in arguments.layers:
        for op in ("fprop", "dgrad", "wgrad"):
            results = measure(torch, op, arguments.rows, layer, arguments.samples)
            names = {"op": op, "rows": arguments.rows, "inputs": layer[0], "outputs": layer[1]}
            emit(kind="gemm", variant="cublas", **names, **results, machine=about)


if __name__ == "__main__":
    main()
