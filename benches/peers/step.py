"""Times a training step in plain PyTorch: forward, loss, backward, gradient clipping, AdamW.

Prints one JSON line per variant: eager, captured as one CUDA graph, and compiled and captured; `-merged` computes q|k|v
and gate|up as one product each. LoRA also trains the norms of each layer. With `--mode full --dtype bf16`, weights and
moments are f32 and products bf16 (autocast). With `--model-config` of a Gemma 2, the compiled variants have
FlexAttention, those in `-products` and the others products around a softmax.
"""

import argparse
import contextlib
import gc
import json
import time
from dataclasses import fields

from common import Nvml, captured, emit, list_of, machine, measured, parser, require_torch, sizes

VARIANTS = ("eager", "captured", "compiled", "captured-merged", "compiled-merged")
GEMMA2_VARIANTS = (*VARIANTS, "compiled-merged-products")
# Dimensions, and their names in a config.json.
DIMENSIONS = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "intermediate": "intermediate_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "vocab": "vocab_size",
}


def with_step(made):
    """Adds the arguments of a step to those of a parser."""
    for name in DIMENSIONS:
        made.add_argument(f"--{name.replace('_', '-')}", type=int)
    made.add_argument("--model-config", type=model_config, default={}, help="config.json of a Gemma 2")
    made.add_argument("--mode", choices=("lora", "full"), required=True)
    made.add_argument("--dtype", choices=("f32", "bf16"), required=True)
    made.add_argument("--lora-targets", default="q,v", help="names separated by commas, or all")
    made.add_argument("--rank", type=int, default=16)
    made.add_argument("--size", type=sizes(2), required=True, help="batch x sequence")
    return made


def model_config(path):
    """Reads a config.json."""
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    if config.get("model_type") != "gemma2":
        raise argparse.ArgumentTypeError(f"{path} is no gemma2; other models need only their dimensions")
    return config


def parse_step(made):
    """Parses arguments with those of a step. Dimensions that are not given are those of the config.json."""
    arguments = made.parse_args()
    for name, field in DIMENSIONS.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, arguments.model_config.get(field))
        if getattr(arguments, name) is None:
            made.error(f"--{name.replace('_', '-')} is missing; give it, or --model-config")
    return arguments


def parse():
    made = with_step(parser(__doc__))
    made.add_argument("--variants", type=list_of(str))
    made.add_argument("--compile-only", action="store_true", help="fill the compiler's cache, and measure nothing")
    arguments = parse_step(made)
    variants = GEMMA2_VARIANTS if arguments.model_config else VARIANTS
    arguments.variants = arguments.variants or variants
    unknown = set(arguments.variants) - set(variants)
    if unknown:
        made.error(f"no variant {', '.join(sorted(unknown))}; there are {', '.join(variants)}")
    return arguments


def options(arguments, torch, variant):
    from model import PROJECTIONS, Gemma2, Options

    targets = PROJECTIONS if arguments.lora_targets == "all" else arguments.lora_targets.split(",")
    f32 = arguments.dtype == "f32" or arguments.mode == "full"
    config = arguments.model_config
    return Options(
        layers=arguments.layers,
        hidden=arguments.hidden,
        intermediate=arguments.intermediate,
        heads=arguments.heads,
        kv_heads=arguments.kv_heads,
        vocab=arguments.vocab,
        dtype=torch.float32 if f32 else torch.bfloat16,
        targets=None if arguments.mode == "full" else tuple(targets),
        rank=arguments.rank,
        merged="-merged" in variant,
        gemma2=Gemma2(**{field.name: config[field.name] for field in fields(Gemma2)}) if config else None,
        flex=variant.startswith("compiled") and not variant.endswith("-products"),
    )


def cross_entropy(torch, cap=None):
    """Returns the mean loss as a function of logits and targets. The logits may have a cap."""

    def loss(logits, targets):
        logits = logits.float()
        if cap is not None:
            logits = cap * torch.tanh(logits / cap)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets)

    return loss


class Step:
    """A training step on one batch."""

    def __init__(self, torch, model, arguments, compiled=False, keeps=False):
        # Whether gradients keep their memory.
        self.keeps = keeps
        batch, seq = arguments.size
        self.torch = torch
        self.tokens = torch.randint(0, arguments.vocab, (batch, seq), device="cuda")
        ignored = torch.full_like(self.tokens[:, :1], -100)
        self.targets = torch.cat((self.tokens[:, 1:], ignored), 1).flatten()
        self.autocast = arguments.mode == "full" and arguments.dtype == "bf16"
        self.parameters = [it for it in model.parameters() if it.requires_grad]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-5, fused=True, capturable=True)
        self.forward, self.loss = model, cross_entropy(torch, arguments.model_config.get("final_logit_softcapping"))
        if compiled:
            self.forward = torch.compile(model, dynamic=False)
            self.loss = torch.compile(self.loss, dynamic=False)

    def run(self):
        """Runs the step. Gradients are new tensors, so that no kernel clears them, if none keeps its memory."""
        self.optimizer.zero_grad(set_to_none=not self.keeps)
        autocast = self.torch.autocast("cuda", self.torch.bfloat16)
        with autocast if self.autocast else contextlib.nullcontext():
            logits = self.forward(self.tokens)
        self.loss(logits, self.targets).backward()
        del logits
        self.torch.nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        self.optimizer.step()


def built(torch, variant, arguments):
    """Returns the step of a variant with a new model."""
    from model import Transformer

    torch._dynamo.reset()
    with torch.device("cuda"):
        model = Transformer(options(arguments, torch, variant), arguments.size[1])
    return Step(torch, model, arguments, variant.startswith("compiled"))


def measure(torch, variant, arguments, nvml):
    """Returns the times of a variant."""
    torch.cuda.reset_peak_memory_stats()
    step = built(torch, variant, arguments)
    started = time.perf_counter()
    run = step.run if variant == "eager" else captured(step.run)
    prepare_seconds = time.perf_counter() - started
    return {
        **measured(run, arguments.samples, nvml),
        "prepare_seconds": prepare_seconds,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
    }


def main():
    arguments = parse()
    torch = require_torch(arguments)
    # f32 products keep f32 accuracy, like ours.
    torch.backends.cuda.matmul.allow_tf32 = False
    if arguments.compile_only:
        for variant in arguments.variants:
            built(torch, variant, arguments).run()
        return
    nvml, about = Nvml.find(), machine()
    for variant in arguments.variants:
        try:
            results = measure(torch, variant, arguments, nvml)
        except Exception as error:
            results = {"error": f"{type(error).__name__}: {error}"[:300]}
        emit(kind="step", variant=variant, **results, machine=about)
        gc.collect()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
