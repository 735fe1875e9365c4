"""The golden models of `retrograph-finetune`, with a tokenizer."""

import json
import shutil
import struct

# Tokens of the prompt of a greedy text.
PROMPT = 5
# The words of Qwen2's tokenizer, by which llama.cpp knows it.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def read_tensors(path):
    """Shape and values of each f32 tensor of a safetensors file."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header, start = json.loads(data[8 : 8 + length]), 8 + length
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            values = struct.unpack_from(f"<{(last - first) // 4}f", data, start + first)
            tensors[name] = (entry["shape"], values)
    return tensors


class Golden:
    """A copy of a golden model with a byte-level tokenizer, and what transformers computes with it.

    Tokens are printable characters without the space. No greedy text has the end token.
    """

    def __init__(self, model, folder, template=None):
        shutil.copytree(model, folder)
        self.tensors = read_tensors(folder / "golden.safetensors")
        count = self.tensors["logits"][0][2]
        self.letters = [chr(code) for code in [*range(33, 127), *range(161, 173)]][:count]
        used = {token for prefix in ("", "adapter.") for token in self.greedy(prefix)}
        end = next(letter for at, letter in enumerate(self.letters) if at not in used)
        settings = dict(eos_token=end) | (dict(chat_template=template) if template else {})
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=False, use_regex=False)
        split = dict(type="Split", pattern=dict(Regex=WORDS), behavior="Isolated", invert=False)
        vocab = {letter: at for at, letter in enumerate(self.letters)}
        model = dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None,
                     end_of_word_suffix=None, fuse_unk=False, byte_fallback=False, vocab=vocab, merges=[])
        tokenizer = dict(version="1.0", truncation=None, padding=None, added_tokens=[], normalizer=None,
                         pre_tokenizer=dict(type="Sequence", pretokenizers=[split, level]), post_processor=None,
                         decoder=level, model=model)
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))

    def greedy(self, prefix=""):
        """A prompt and its greedy tokens; none with dynamic RoPE."""
        return [int(token) for token in self.tensors.get(prefix + "greedy", ([], []))[1]]
