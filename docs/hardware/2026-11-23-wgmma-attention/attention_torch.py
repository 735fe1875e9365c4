"""Times causal attention of PyTorch by backend, forward and backward, with grouped queries.

usage: attention_torch.py OUT.jsonl BATCHxSEQxHEADSxKV_HEADSxHEAD_DIM ...
"""
import json
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


def median_us(run, samples=12, batch=6):
    """Median of the samples. The sleep hides the time of the host."""
    for _ in range(3):
        run()
    times = []
    for _ in range(samples):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(2_000_000)
        start.record()
        for _ in range(batch):
            run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / batch)
    return statistics.median(times)


def main():
    out = open(sys.argv[1], "w")
    for size in sys.argv[2:]:
        batch, seq, heads, kv_heads, head_dim = map(int, size.split("x"))
        shape = lambda n: (batch, seq, n, head_dim)
        make = lambda n: torch.rand(shape(n), device="cuda").mul_(2).sub_(1).bfloat16().requires_grad_()
        q, k, v = make(heads), make(kv_heads), make(kv_heads)
        grad = torch.rand(shape(heads), device="cuda").mul_(2).sub_(1).bfloat16()
        for name, backend in BACKENDS.items():
            try:
                with sdpa_kernel([backend]):
                    attend = lambda: F.scaled_dot_product_attention(
                        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True,
                        enable_gqa=heads != kv_heads).transpose(1, 2)
                    forward = median_us(attend)

                    def both():
                        torch.autograd.grad(attend(), (q, k, v), grad)

                    total = median_us(both)
            except RuntimeError as error:
                print(size, name, "failed:", str(error).splitlines()[0])
                continue
            row = {"sizes": [batch, seq, heads, kv_heads, head_dim], "backend": name,
                   "forward_us": round(forward, 2), "backward_us": round(total - forward, 2)}
            print(json.dumps(row), file=out, flush=True)


main()
