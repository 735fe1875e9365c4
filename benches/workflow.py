"""Measures the way from a model directory to a served adapter, with a random model of a real shape.

Parts, one after another:
  train   LoRA in bf16 over chats of many lengths, one epoch each: padded, in buckets, packed
  export  the merged model as a Hugging Face directory; its logits in transformers beside those of base and adapter in
          PEFT, and with --llama-cpp the GGUF file in llama.cpp
  serve   latency over HTTP beside `bench --decode`

Prints a table of each. `--dry-run` runs a small model on the simulated driver, whose times mean nothing.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

QWEN_ONE_AND_HALF = dict(layers=28, hidden=1536, intermediate=8960, heads=12, kv_heads=2, vocab=151936)
SMALL = dict(layers=2, hidden=64, intermediate=176, heads=4, kv_heads=2, vocab=272)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# The words of Qwen2's tokenizer, by which llama.cpp knows it.
QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
WORDS = "the model reads a word and guesses the next one from those before it while each GPU has its own".split()


def byte_letters():
    """The letters by which byte-level tokenizers write the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = (byte for byte in range(256) if byte not in plain)
    return {**{byte: chr(byte) for byte in plain}, **{byte: chr(256 + n) for n, byte in enumerate(rest)}}


def write_model(directory, shape):
    """Writes a model directory with random weights in bf16 and a tokenizer whose tokens are bytes."""
    import torch
    from safetensors.torch import save_file

    directory.mkdir()
    head = shape["hidden"] // shape["heads"]
    config = dict(
        architectures=["Qwen2ForCausalLM"], model_type="qwen2", hidden_act="silu", rms_norm_eps=1e-6,
        rope_theta=1e6, max_position_embeddings=4096, tie_word_embeddings=True, torch_dtype="bfloat16",
        num_hidden_layers=shape["layers"], hidden_size=shape["hidden"], vocab_size=shape["vocab"],
        intermediate_size=shape["intermediate"], num_attention_heads=shape["heads"],
        num_key_value_heads=shape["kv_heads"], bos_token_id=256, eos_token_id=258,
    )
    generator = torch.Generator().manual_seed(0)

    def matrix(*size):
        return (torch.randn(size, generator=generator) * 0.02).to(torch.bfloat16)

    tensors = {"model.embed_tokens.weight": matrix(shape["vocab"], shape["hidden"])}
    for layer in range(shape["layers"]):
        name = f"model.layers.{layer}."
        for projection, rows in (("q", shape["heads"]), ("k", shape["kv_heads"]), ("v", shape["kv_heads"])):
            tensors[f"{name}self_attn.{projection}_proj.weight"] = matrix(rows * head, shape["hidden"])
            tensors[f"{name}self_attn.{projection}_proj.bias"] = matrix(rows * head)
        tensors[f"{name}self_attn.o_proj.weight"] = matrix(shape["hidden"], shape["hidden"])
        for projection in ("gate", "up"):
            tensors[f"{name}mlp.{projection}_proj.weight"] = matrix(shape["intermediate"], shape["hidden"])
        tensors[f"{name}mlp.down_proj.weight"] = matrix(shape["hidden"], shape["intermediate"])
        for norm in ("input", "post_attention"):
            tensors[f"{name}{norm}_layernorm.weight"] = torch.ones(shape["hidden"], dtype=torch.bfloat16)
    tensors["model.norm.weight"] = torch.ones(shape["hidden"], dtype=torch.bfloat16)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})

    vocab = {letter: byte for byte, letter in sorted(byte_letters().items())}
    # Words for all other tokens, which only answers have.
    vocab |= {f"\u0120w{token}": token for token in range(256 + len(SPECIAL), shape["vocab"])}
    added = [
        dict(id=256 + n, content=text, special=True, single_word=False, lstrip=False, rstrip=False, normalized=False)
        for n, text in enumerate(SPECIAL)
    ]
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=False, use_regex=False)
    split = dict(type="Split", pattern=dict(Regex=QWEN_WORDS), behavior="Isolated", invert=False)
    words = dict(type="Sequence", pretokenizers=[split, level])
    tokenizer = dict(
        version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=None, pre_tokenizer=words,
        post_processor=None, decoder=level,
        model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None,
                   fuse_unk=False, byte_fallback=False, vocab=vocab, merges=[]),
    )
    settings = dict(
        tokenizer_class="PreTrainedTokenizerFast", eos_token=SPECIAL[2], pad_token=SPECIAL[0], chat_template=TEMPLATE
    )
    generation = dict(eos_token_id=258, do_sample=False)
    files = [("config", config), ("tokenizer", tokenizer), ("tokenizer_config", settings),
             ("generation_config", generation)]
    for name, content in files:
        (directory / f"{name}.json").write_text(json.dumps(content))


def write_chats(path, count, longest):
    """Writes chats with log-normal lengths, and returns the sum of their tokens."""
    chance, tokens = random.Random(0), 0

    def text(letters):
        words = []
        while letters > 0:
            words.append(chance.choice(WORDS))
            letters -= len(words[-1]) + 1
        return " ".join(words)

    with path.open("w") as file:
        for _ in range(count):
            letters = min(chance.lognormvariate(5.4, 0.8), longest - 80)
            question, answer = text(letters * 0.3), text(letters * 0.7)
            messages = [dict(role="user", content=question), dict(role="assistant", content=answer)]
            file.write(json.dumps(dict(messages=messages)) + "\n")
            tokens += len(question) + len(answer) + len("user\n\n" + "assistant\n\n") + 4
    return tokens


def run(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def train(arguments, place, model, record):
    """Trains one epoch in each way. Returns the directory of the packed run's adapter."""
    data = place / "chats.jsonl"
    seq = 64 if arguments.dry_run else 1024
    tokens = write_chats(data, 8 if arguments.dry_run else arguments.chats, seq)
    ways = [("padded", ["--packing", "false"]), ("4 buckets", ["--buckets", "4"]), ("packed", [])]
    for name, flags in ways:
        metrics, adapter = place / f"{name}.jsonl", place / f"adapter {name}"
        started = time.monotonic()
        run([
            arguments.program, "finetune", "--device", arguments.device, "--model", model, "--data", data,
            "--mode", "lora", "--rank", 16, "--seq", seq, "--batch", 4, "--epochs", 1, "--adapter-out", adapter,
            "--metrics", metrics, *flags,
        ])
        seconds = time.monotonic() - started
        steps = [json.loads(line) for line in metrics.read_text().splitlines()]
        device = sum(step.get("device_ms", 0) for step in steps) / 1e3
        record(dict(part="train", way=name, steps=len(steps), chats=arguments.chats, tokens=tokens, seq=seq, batch=4,
                    device_s=device, wall_s=seconds, tokens_per_s=tokens / device if device else None,
                    first_loss=steps[0]["loss"], last_loss=steps[-1]["loss"]))
    return place / "adapter packed"


def prompts(count=4):
    chance = random.Random(1)
    return [" ".join(chance.choices(WORDS, k=20)) for _ in range(count)]


def export(arguments, place, model, adapter, record):
    """Compares the logits of the exported model with those of base and adapter."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    merged = place / "merged"
    run([arguments.program, "merge", "--model", model, "--adapter", adapter, "--out", merged, "--dtype", "f32"])
    tokenizer = AutoTokenizer.from_pretrained(merged)
    ids = [tokenizer(text, return_tensors="pt").input_ids for text in prompts()]

    def logits(load):
        place = "cpu" if arguments.dry_run else "cuda"
        loaded = load().to(place).eval()
        with torch.no_grad():
            found = [loaded(one.to(place)).logits.double().cpu() for one in ids]
        del loaded
        return found

    def base_and_adapter():
        base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        return PeftModel.from_pretrained(base, adapter)

    expected = logits(base_and_adapter)
    found = logits(lambda: AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32))
    scale = max(one.abs().max().item() for one in expected)
    off = max((a - b).abs().max().item() for a, b in zip(found, expected))
    record(dict(part="export", reader="transformers", largest_logit=scale, largest_difference=off))
    if arguments.llama_cpp:
        file = place / "merged.gguf"
        run([arguments.program, "export", "--model", merged, "--out", file, "--format", "gguf", "--dtype", "f32"])
        wanted = [logits[0, -1].log_softmax(-1) for logits in expected]
        off = max(
            abs(found - one[token].item())
            for one, likely in zip(wanted, llama_cpp(file, [row[0].tolist() for row in ids]))
            for token, found in likely
        )
        record(dict(part="export", reader="llama.cpp", largest_difference_of_log_probabilities=off))


def llama_cpp(file, sequences):
    """The 64 most likely next tokens in llama.cpp on the CPU, with their log-probabilities."""
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path, settings.n_ctx, settings.n_gpu_layers = str(file), 512, 0
    settings.cache_type_k = settings.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    settings.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(settings)

    def likely(tokens):
        request = dict(prompt=tokens, max_tokens=1, logprobs=64, temperature=0.0, cache_prompt=False)
        answer = server.handle_completions(request)
        answer = json.loads(answer) if isinstance(answer, str) else answer
        return [(one["id"], one["logprob"]) for one in answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]]

    return [likely(tokens) for tokens in sequences]


@contextmanager
def server(arguments, model, *further):
    """The address of `retrograph serve`."""
    command = [arguments.program, "serve", "--device", arguments.device, "--model", model, "--port", 0,
               "--dtype", "bf16", "--max-length", 256 if arguments.dry_run else 2048, *further]
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "http://" in line:
            break
    else:
        sys.exit("the server did not start: " + "".join(lines)[-2000:])
    try:
        yield "http://" + line.split("http://")[1].split()[0].rstrip("/.,").removesuffix("/v1")
    finally:
        process.terminate()
        process.wait(60)


def ask(arguments, address, name, text):
    """Streams an answer. Returns its start, the times of its pieces, and its tokens."""
    body = dict(model=name, prompt=text, max_tokens=16 if arguments.dry_run else 256, stream=True, temperature=0,
                stream_options=dict(include_usage=True))
    request = urllib.request.Request(f"{address}/v1/completions", json.dumps(body).encode(),
                                     {"content-type": "application/json"})
    started, times, count = time.perf_counter(), [], 0
    with urllib.request.urlopen(request) as answer:
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line.removeprefix(b"data: "))
            if event["choices"] and event["choices"][0]["text"]:
                times.append(time.perf_counter())
            if event.get("usage"):
                count = event["usage"]["completion_tokens"]
    return started, times, count


def serve(arguments, model, adapter, record):
    """Measures the first token and the time from token to token of streamed answers, one and several at a time."""
    with server(arguments, model, "--adapter", f"mine={adapter}") as address:
        for name in (model.name, "mine"):
            first, per_token, tokens = [], [], 0
            for text in prompts(2 if arguments.dry_run else 6):
                started, times, count = ask(arguments, address, name, text)
                first.append((times[0] - started) * 1e3)
                per_token.append((times[-1] - times[0]) * 1e3 / max(1, count - 1))
                tokens += count
            # The first request builds the programs.
            record(dict(part="serve", model=name, first_token_ms=statistics.median(first[1:]),
                        first_request_ms=first[0], token_ms=statistics.median(per_token), tokens=tokens))
    for batch in (1, 2, 4, 8):
        with server(arguments, model, "--batch", batch) as address, ThreadPoolExecutor(batch) as pool:
            one = lambda text: ask(arguments, address, model.name, text)
            list(pool.map(one, prompts(batch)))
            started = time.perf_counter()
            answers = list(pool.map(one, prompts(batch * (1 if arguments.dry_run else 4))))
            seconds = time.perf_counter() - started
        tokens = sum(count for _, _, count in answers)
        per_token = [(times[-1] - times[0]) * 1e3 / max(1, count - 1) for _, times, count in answers]
        record(dict(part="serve", model=f"{batch} at a time", tokens_per_s=tokens / seconds, tokens=tokens,
                    token_ms=statistics.median(per_token)))
    if not arguments.dry_run:
        out = Path(tempfile.mkstemp(suffix=".json")[1])
        run([arguments.program, "bench", "--device", arguments.device, "--preset", "qwen2.5-1.5b", "--dtype", "bf16",
             "--decode", "128x2048", "--strategies", "manual", "--json", out])
        record(dict(part="serve", model="bench --decode 128x2048", result=json.loads(out.read_text())))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=Path("target/release/retrograph"))
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--chats", type=int, default=2000)
    parser.add_argument("--parts", default="train,export,serve")
    parser.add_argument("--llama-cpp", action="store_true", help="also read the export with xllamacpp")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("out", type=Path, help="JSON lines of the results")
    arguments = parser.parse_args()
    if arguments.dry_run:
        arguments.device, arguments.chats = "sim", 8
    results = arguments.out.open("w")

    def record(row):
        row["simulated"] = arguments.dry_run
        print(json.dumps(row), file=results, flush=True)
        shown = {key: value for key, value in row.items() if key not in ("part", "simulated")}
        print(row["part"], *(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
                             for key, value in shown.items()), sep="  ", flush=True)

    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        model = place / "model"
        write_model(model, SMALL if arguments.dry_run else QWEN_ONE_AND_HALF)
        parts = arguments.parts.split(",")
        adapter = train(arguments, place, model, record)
        if "export" in parts:
            export(arguments, place, model, adapter, record)
        if "serve" in parts:
            serve(arguments, model, adapter, record)


if __name__ == "__main__":
    main()
