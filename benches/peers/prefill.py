"""Times the prefill of prompts in plain PyTorch: keys and values to a cache, and the first token of each sequence.

Prints one JSON line per variant: eager, captured as one CUDA graph, and compiled and captured, the latter with attention
as PyTorch chooses it and with cuDNN. q|k|v and gate|up are one product each.
"""

from contextlib import nullcontext

from common import Nvml, captured, emit, generation_arguments, machine, measured, require_torch

VARIANTS = ("eager", "captured", "compiled", "compiled-cudnn")


def prefiller(torch, arguments):
    """Returns a function that maps the tokens of prompts to the next tokens."""
    import torch.nn.functional as F
    from model import generator, rotate

    tokens = arguments.size[0]
    model, caches = generator(arguments, tokens)

    def prefill(prompt):
        x = model.embedding(prompt)
        for layer, (keys, values) in zip(model.layers, caches):
            parts = layer.qkv(layer.attention_norm(x))
            q, k, v = (part.unflatten(-1, (-1, layer.head_dim)).transpose(1, 2) for part in parts)
            q, k = rotate(q, model.cos, model.sin), rotate(k, model.cos, model.sin)
            keys[:, :, :tokens] = k
            values[:, :, :tokens] = v
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            (attended,) = layer.o(attended.transpose(1, 2).flatten(2))
            x = x + attended
            gate, up = layer.gate_up(layer.mlp_norm(x))
            (down,) = layer.down(F.silu(gate) * up)
            x = x + down
        logits = F.linear(model.norm(x[:, -1:]), model.embedding.weight)
        return logits.argmax(-1)

    return prefill


def attention_of(variant):
    """Returns the context in which attention runs as `variant` says."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel(SDPBackend.CUDNN_ATTENTION) if variant.endswith("cudnn") else nullcontext()


def main():
    arguments = generation_arguments(__doc__, "prefill", VARIANTS)
    torch = require_torch(arguments)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_grad_enabled(False)
    nvml, about = Nvml.find(), machine()
    with torch.device("cuda"):
        prefill = prefiller(torch, arguments)
        prompt = torch.arange(arguments.size[0]).repeat(arguments.batch, 1) * 7919 % arguments.vocab
    for variant in arguments.variants:
        try:
            with attention_of(variant):
                function = torch.compile(prefill, dynamic=False) if "compiled" in variant else prefill
                run = lambda: function(prompt)
                run = run if variant == "eager" else captured(run)
                results = measured(run, arguments.samples, nvml)
            torch.compiler.reset()
        except Exception as error:
            results = {"error": f"{type(error).__name__}: {error}"[:300]}
        emit(kind="prefill", variant=variant, dtype=arguments.dtype, batch=arguments.batch, **results, machine=about)


if __name__ == "__main__":
    main()
