"""OpenAI's Python client asks `retrograph serve`: greedy answers are those of transformers.

    python3 openai_client.py PROGRAM MODELS

PROGRAM is `retrograph`, MODELS the folder of golden models of `retrograph-finetune`. The server runs on the simulated driver.
"""

import argparse
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai

from golden import PROMPT, Golden

TEMPLATE = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
KEY = "a-key"
BATCH = 3


class Server:
    """`retrograph serve` with an adapter and a key."""

    def __init__(self, program, model, adapter, key_file):
        command = [program, "serve", "--device", "sim", "--model", model, "--adapter", f"tuned={adapter}", "--port", 0,
                   "--max-length", 128, "--api-key-file", key_file, "--batch", BATCH]
        self.process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if line.startswith("serving"):
                break
        else:
            sys.exit("the server did not start: " + "".join(lines))
        self.url = line.split()[1] + "/v1"
        # The server must not wait for a reader of its output.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def stop(self):
        self.process.terminate()
        return self.process.wait(60)


def require(holds, what):
    if not holds:
        sys.exit(f"failed: {what}")
    print(f"passed: {what}", flush=True)


def refused(call, kind):
    try:
        call()
    except kind as error:
        return error.body is not None
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("models", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        model = place / "model"
        golden = Golden(arguments.models / "llama3", model, TEMPLATE)
        (place / "key").write_text(KEY)
        server = Server(arguments.program, model, arguments.models / "llama3" / "adapter", place / "key")
        try:
            check(openai.OpenAI(base_url=server.url, api_key=KEY, max_retries=0, timeout=60), server.url, golden)
        finally:
            status = server.stop()
        require(status == 0, "SIGTERM ends the server with status 0")


def check(client, url, golden):
    require([model.id for model in client.models.list()] == ["model", "tuned"], "models.list")
    texts = {}
    for name, prefix in (("model", ""), ("tuned", "adapter.")):
        tokens = golden.greedy(prefix)
        text = "".join(golden.letters[token] for token in tokens[PROMPT:])
        ask = dict(model=name, prompt=tokens[:PROMPT], max_tokens=len(tokens) - PROMPT, temperature=0)
        texts[name] = (ask, text)
        answer = client.completions.create(**ask)
        require(answer.choices[0].text == text, f"{name}: a completion has the greedy tokens of transformers")
        usage = (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.choices[0].finish_reason)
        require(usage == (PROMPT, len(text), "length"), f"{name}: usage and reason of the end")
        pieces = [part.choices[0].text for part in client.completions.create(**ask, stream=True) if part.choices]
        require(len(pieces) > 10 and "".join(pieces) == text, f"{name}: the same as a stream")

    ask, text = texts["model"]
    stopped = client.completions.create(**ask, stop=text[7:9]).choices[0]
    require((stopped.text, stopped.finish_reason) == (text[: text.index(text[7:9])], "stop"), "a stop string")

    messages = [dict(role="system", content="short"), dict(role="user", content="hello")]
    chat = dict(model="tuned", messages=messages, max_tokens=12, temperature=0)
    whole = client.chat.completions.create(**chat)
    rendered = client.completions.create(model="tuned", prompt="system:short;user:hello;", max_tokens=12, temperature=0)
    require(whole.choices[0].message.content == rendered.choices[0].text, "a chat is its template, completed")
    parts = list(client.chat.completions.create(**chat, stream=True, stream_options=dict(include_usage=True)))
    content = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
    require(content == whole.choices[0].message.content, "a chat as a stream")
    require(parts[-1].usage == whole.usage, "the usage at the end of a stream")

    # More at once than there are slots, and each with an answer of its own.
    def drawn(seed):
        request = dict(model=["model", "tuned"][seed % 2], prompt="abc", max_tokens=20, temperature=0.9, seed=seed)
        return client.completions.create(**request).choices[0].text

    seeds = range(3 * BATCH)
    alone = [drawn(seed) for seed in seeds]
    with ThreadPoolExecutor(len(seeds)) as pool:
        require(list(pool.map(drawn, seeds)) == alone, "answers at the same time are those of each alone")
    require(len(set(alone)) > BATCH, "seeds change answers")

    stream = client.completions.create(**ask, stream=True)
    next(iter(stream))
    stream.close()
    require(client.completions.create(**ask).choices[0].text == text, "an answer after a client that left")

    stranger = openai.OpenAI(base_url=url, api_key="another", max_retries=0)
    require(refused(lambda: stranger.models.list(), openai.AuthenticationError), "a wrong key")
    unknown = ask | dict(model="unknown")
    require(refused(lambda: client.completions.create(**unknown), openai.NotFoundError), "an unknown model")
    for field, value in dict(n=2, logprobs=3, max_tokens=-1, temperature=-1).items():
        wrong = ask | {field: value}
        require(refused(lambda: client.completions.create(**wrong), openai.BadRequestError), f"{field} = {value!r}")


if __name__ == "__main__":
    main()
