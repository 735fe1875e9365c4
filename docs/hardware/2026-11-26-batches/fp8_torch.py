"""Times frozen products of a Llama-3.1-8B layer, forward and input gradients of 2048 rows, in bf16 and FP8 by cuBLAS.

Prints milliseconds and TFLOP/s of each product and scaling. Scales are 1: their values change no time.
"""

import torch

ROWS = 2048
# Outputs and inputs; the second four are gradients. o is square, so that it counts twice.
PRODUCTS = {
    "qkv": (6144, 4096), "o": (4096, 4096), "gateup": (28672, 4096), "down": (4096, 14336),
    "d_qkv": (4096, 6144), "d_gateup": (4096, 28672), "d_down": (14336, 4096),
}


def repeat(run, times):
    for _ in range(times):
        run()


def timed(run, seconds=1.5):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    repeat(run, 3)
    times = 10
    for _ in range(2):
        start.record()
        repeat(run, times)
        end.record()
        end.synchronize()
        each = start.elapsed_time(end) / times
        times = max(10, int(seconds * 1000 / each))
    return each


def ones(*shape):
    return torch.ones(*shape, device="cuda")


def main():
    torch.manual_seed(0)
    print(torch.__version__, torch.cuda.get_device_name())
    total = {}
    for name, (outputs, inputs) in PRODUCTS.items():
        x = torch.randn(ROWS, inputs, device="cuda", dtype=torch.bfloat16)
        w = (torch.randn(outputs, inputs, device="cuda") * 0.02).bfloat16()
        x8, w8 = x.to(torch.float8_e4m3fn), w.to(torch.float8_e4m3fn)
        blocks = inputs // 128
        # Scales of x and w, and whether sums stay in the tensor cores.
        scalings = {
            "tensor": (ones(()), ones(()), True),
            "tensor_exact": (ones(()), ones(()), False),
            "row": (ones(ROWS, 1), ones(1, outputs), True),
            "row_exact": (ones(ROWS, 1), ones(1, outputs), False),
            "b1x128_128x128": (ones(blocks, ROWS).t(), ones(outputs // 128, blocks).t(), False),
            "b1x128_1x128": (ones(blocks, ROWS).t(), ones(blocks, outputs), False),
        }
        found = {"bf16": timed(lambda: x @ w.t())}
        for scaling, (a, b, fast) in scalings.items():
            options = dict(scale_a=a, scale_b=b, out_dtype=torch.bfloat16, use_fast_accum=fast)
            found[scaling] = timed(lambda: torch._scaled_mm(x8, w8.t(), **options))
        work = 2 * ROWS * outputs * inputs
        print(name, {key: (round(ms, 4), round(work / ms / 1e9)) for key, ms in found.items()}, flush=True)
        for key, ms in found.items():
            total[key] = total.get(key, 0) + ms * (2 if name == "o" else 1)
    print("ms per layer", {key: round(ms, 3) for key, ms in total.items()})


if __name__ == "__main__":
    main()
