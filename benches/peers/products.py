"""Times the matrix products of a training step alone, by cuBLAS and captured as one CUDA graph.

Forward, gradients of inputs and, with `--mode full`, gradients of weights, in bf16, q|k|v and gate|up as one product
each. No step that calls cuBLAS for its products is faster. LoRA's products, attention and everything else are left out.
The gradient of the first layer's input is left out, too, if no embedding is trained.
"""

from common import Nvml, captured, emit, machine, measured, parser, require_torch
from step import parse_step, with_step


def projections(arguments):
    """Returns inputs and outputs of the products of a layer."""
    hidden, inner = arguments.hidden, arguments.intermediate
    head_dim = arguments.model_config.get("head_dim", hidden // arguments.heads)
    q, kv = arguments.heads * head_dim, arguments.kv_heads * head_dim
    return [(hidden, q + 2 * kv), (q, hidden), (hidden, 2 * inner), (inner, hidden)]


def products(torch, arguments):
    """Returns a function that launches all products of a step, and their FLOP."""
    batch, seq = arguments.size
    rows, full = batch * seq, arguments.mode == "full"

    def make(*shape, scale=1.0):
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16) * scale

    layers = [projections(arguments) for _ in range(arguments.layers)] + [[(arguments.hidden, arguments.vocab)]]
    sizes = [size for layer in layers for size in layer]
    weights = [make(outputs, inputs, scale=0.02) for inputs, outputs in sizes]
    # Activations and gradients of one size share their memory.
    matrices = {width: [make(rows, width), make(rows, width)] for size in sizes for width in size}
    grads = {size: make(size[1], size[0]) for size in sizes} if full else {}

    def run():
        for (inputs, outputs), weight in zip(sizes, weights):
            torch.mm(matrices[inputs][0], weight.t(), out=matrices[outputs][1])
        for at, ((inputs, outputs), weight) in reversed(list(enumerate(zip(sizes, weights)))):
            if full or at > 0:
                torch.mm(matrices[outputs][0], weight, out=matrices[inputs][1])
            if full:
                torch.mm(matrices[outputs][0].t(), matrices[inputs][0], out=grads[inputs, outputs])

    elements = [inputs * outputs for inputs, outputs in sizes]
    backward = 2 * sum(elements) if full else sum(elements[1:])
    return run, 2 * rows * (sum(elements) + backward)


def main():
    arguments = parse_step(with_step(parser(__doc__)))
    torch = require_torch(arguments)
    nvml = Nvml.find()
    launch, flop = products(torch, arguments)
    results = measured(captured(launch), arguments.samples, nvml)
    tflops = flop / results["pipelined_ms"] / 1e9
    emit(kind="products", **results, tflops=tflops, machine=machine())


if __name__ == "__main__":
    main()
