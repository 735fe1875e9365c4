"""Exports to GGUF, read by llama.cpp on the CPU: log-probabilities and greedy tokens are those of transformers.

    python3 llama_cpp.py PROGRAM MODELS

PROGRAM is `retrograph`, MODELS the folder of golden models of `retrograph-finetune`. Each one is exported in four forms: the
base model in f32, the model with its merged adapter in f32, base and adapter as two files, and the base model in q8_0.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import xllamacpp

from golden import PROMPT, Golden

# Largest difference of log-probabilities. llama.cpp takes GELU from a table in f16, so Gemma is less exact.
EXACT, GELU, Q8_0 = 5e-5, 1e-2, 1.0
# Models by what llama.cpp can have of them.
WITH_ADAPTER_FILE = ["llama2", "llama3", "linear", "qwen2", "qwen3", "gemma2", "gemma3"]
MERGED = ["by_layer", "dora", "phi4", "saved", "tied"]
# llama.cpp has contexts of 256 tokens and more, for which it takes the long factors of LongRoPE where transformers takes the
# short ones, and no dynamic RoPE: these are only loaded.
LOADED = ["dora_fused", "dynamic", "phi3"]
REFUSED = {"biases": "bias", "smollm3": "RoPE", "yarn": "YaRN"}


def log_softmax(row):
    top = max(row)
    total = top + math.log(sum(math.exp(value - top) for value in row))
    return [value - total for value in row]


class Reader:
    """llama.cpp with a file, and an adapter if there is one."""

    def __init__(self, file, adapter=None):
        settings = xllamacpp.CommonParams()
        settings.model.path, settings.n_ctx, settings.n_gpu_layers = str(file), 128, 0
        settings.n_parallel, settings.verbosity, settings.warmup = 1, -1, False
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
        settings.cache_type_k = settings.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        settings.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        if adapter:
            settings.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(str(adapter), 1.0)]
        self.server = xllamacpp.Server(settings)

    def complete(self, tokens, count, likeliest):
        """For each of `count` greedy tokens the likeliest ones, with their log-probabilities."""
        request = dict(prompt=tokens, max_tokens=count, logprobs=likeliest, temperature=0.0, cache_prompt=False)
        answer = self.server.handle_completions(request)
        answer = json.loads(answer) if isinstance(answer, str) else answer
        if "choices" not in answer:
            sys.exit(f"llama.cpp refused {request}: {answer}")
        content = answer["choices"][0]["logprobs"]["content"]
        return [[(one["id"], one["logprob"]) for one in step["top_logprobs"]] for step in content]

    def difference(self, golden, prefix):
        """The largest difference of log-probabilities after each prefix of the first batch."""
        (_, batch, seq), tokens = golden.tensors["tokens"]
        (_, _, vocab), logits = golden.tensors[prefix + "logits"]
        worst = 0.0
        for row in range(batch):
            ids = [int(token) for token in tokens[row * seq : (row + 1) * seq]]
            for at in range(seq):
                expected = log_softmax(logits[(row * seq + at) * vocab :][:vocab])
                found = dict(self.complete(ids[: at + 1], 1, vocab)[0])
                if len(found) != vocab:
                    sys.exit(f"{len(found)} log-probabilities of {vocab}")
                worst = max(worst, *(abs(found[id] - expected[id]) for id in range(vocab)))
        return worst

    def greedy(self, golden, prefix):
        """Whether the greedy tokens after the prompt are those of transformers."""
        ids = golden.greedy(prefix)
        return [step[0][0] for step in self.complete(ids[:PROMPT], len(ids) - PROMPT, 1)] == ids[PROMPT:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("models", type=Path)
    arguments = parser.parse_args()
    failures = []

    def retrograph(*line):
        command = [str(part) for part in (arguments.program, *line)]
        return subprocess.run(command, capture_output=True, text=True)

    def must(*line):
        done = retrograph(*line)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, line))}\n{done.stdout}{done.stderr}")

    def judge(name, form, reader, golden, prefix, limit):
        off, same = reader.difference(golden, prefix), reader.greedy(golden, prefix)
        passed = off <= limit and (same or form == "q8_0")
        print(f"{name:11} {form:9} log-probabilities {off:.1e}  greedy tokens {'equal' if same else 'differ'}"
              f"{'' if passed else f'  FAILED, at most {limit:.0e}'}", flush=True)
        if not passed:
            failures.append(f"{name}, {form}")

    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        for name in sorted([*WITH_ADAPTER_FILE, *MERGED, *LOADED, *REFUSED]):
            base, adapter = place / name / "model", arguments.models / name / "adapter"
            golden = Golden(arguments.models / name, base)

            def gguf(form, model, *further):
                # A file that is called after Phi-3 must have its special tokens for llama.cpp.
                file = place / name / f"{form}.gguf"
                must("export", "--model", model, "--format", "gguf", "--out", file, *further)
                return file

            if name in REFUSED:
                done = retrograph("export", "--model", base, "--format", "gguf", "--out", place / "refused.gguf")
                if done.returncode == 0 or REFUSED[name] not in done.stderr:
                    failures.append(f"{name}, which must be refused for its {REFUSED[name]}: {done.stderr}")
                print(f"{name:11} refused for its {REFUSED[name]}")
                continue
            limit = GELU if name.startswith("gemma") else EXACT
            exact = gguf("f32", base, "--dtype", "f32")
            if name in LOADED:
                Reader(exact).complete([1], 1, 1)
                print(f"{name:11} loaded")
                continue
            judge(name, "f32", Reader(exact), golden, "", limit)
            judge(name, "q8_0", Reader(gguf("q8_0", base, "--dtype", "q8_0")), golden, "", Q8_0)
            merged = place / name / "merged"
            must("merge", "--model", base, "--adapter", adapter, "--out", merged, "--dtype", "f32")
            judge(name, "merged", Reader(gguf("merged", merged)), golden, "adapter.", limit)
            if name in WITH_ADAPTER_FILE:
                file = gguf("adapter", base, "--adapter", adapter, "--adapter-only")
                judge(name, "adapter", Reader(exact, file), golden, "adapter.", limit)
    if failures:
        sys.exit("failed: " + "; ".join(failures))


if __name__ == "__main__":
    main()
