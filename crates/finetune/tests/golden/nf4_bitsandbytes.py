#!/usr/bin/env python3
"""Golden codes and scales of NF4, made by bitsandbytes on a GPU.

    python3 crates/finetune/tests/golden/nf4_bitsandbytes.py

writes nf4.safetensors next to this file, a few kB. It needs torch with CUDA, bitsandbytes and
safetensors, and says so and writes nothing where one of them is missing. Weights are not stored:
both sides compute them from the hash of make_golden.py.

For each case of `CASES`: `<case>.codes` (u8) and `<case>.absmax` (f32) as quantize_4bit gives them,
and `<case>.f32` and `<case>.bf16`, the first 256 numbers that dequantize_4bit makes of them. With
compress_statistics also `<case>.nested.absmax` (u8), `<case>.nested.nested_absmax`,
`<case>.nested.quant_map` and `<case>.nested.offset` (f32). `quant_map` is the table of values.
"""

import pathlib
import sys

try:
    import bitsandbytes
    import torch
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit
    from safetensors.torch import save_file
except ImportError as missing:
    sys.exit(f"nothing is written: {missing}")
if not torch.cuda.is_available():
    sys.exit("nothing is written: bitsandbytes quantizes by its CUDA kernels, and there is no GPU")

from make_golden import value

# Name, rows, columns, type. The last block of `tail` has 40 elements, the second of `zeros` is zero,
# and `many` has more than 256 blocks, so that its scales have two scales.
CASES = [
    ("plain", 24, 64, torch.float32),
    ("tail", 25, 40, torch.float32),
    ("zeros", 4, 64, torch.float32),
    ("halves", 24, 64, torch.bfloat16),
    ("many", 300, 64, torch.float32),
]


def weights(name, rows, columns, dtype):
    values = [value(name, index) for index in range(rows * columns)]
    if name == "zeros":
        values[64:128] = [0.0] * 64
    return torch.tensor(values, dtype=torch.float32).reshape(rows, columns).to("cuda", dtype)


def main():
    tensors = {}
    for name, rows, columns, dtype in CASES:
        w = weights(name, rows, columns, dtype)
        quantize = dict(blocksize=64, quant_type="nf4")
        codes, state = quantize_4bit(w, compress_statistics=False, **quantize)
        tensors[f"{name}.codes"] = codes.flatten()
        tensors[f"{name}.absmax"] = state.absmax
        tensors["quant_map"] = state.code
        for dtype, suffix in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
            state.dtype = dtype
            back = dequantize_4bit(codes, state).flatten()[:256]
            tensors[f"{name}.{suffix}"] = back.float()
        codes, state = quantize_4bit(w, compress_statistics=True, **quantize)
        assert torch.equal(codes.flatten(), tensors[f"{name}.codes"])
        tensors[f"{name}.nested.absmax"] = state.absmax
        tensors[f"{name}.nested.nested_absmax"] = state.state2.absmax
        tensors[f"{name}.nested.quant_map"] = state.state2.code
        tensors[f"{name}.nested.offset"] = state.offset.reshape(1)
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    path = pathlib.Path(__file__).with_name("nf4.safetensors")
    about = {"bitsandbytes": bitsandbytes.__version__, "torch": torch.__version__,
             "device": torch.cuda.get_device_name()}
    save_file(tensors, str(path), metadata=about)
    print(f"{path}: {path.stat().st_size} bytes, {about}")


if __name__ == "__main__":
    main()
