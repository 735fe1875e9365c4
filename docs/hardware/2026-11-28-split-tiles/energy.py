# Times products of PyTorch by element type, with sums in f32 or f16, and their energy.
#
# python3 energy.py > energy.txt
import time

import pynvml
import torch

pynvml.nvmlInit()
gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
torch.manual_seed(1)
COPIES = 6
CONVERSIONS = {
    "f16": lambda x: x.half(),
    "f16acc": lambda x: x.half(),
    "bf16": lambda x: x.bfloat16(),
    "int8": lambda x: (x * 30).clamp(-127, 127).to(torch.int8),
    "fp8": lambda x: x.to(torch.float8_e4m3fn),
}
RESULTS = {"int8": torch.int32, "bf16": torch.bfloat16, "fp8": torch.bfloat16}


def bench(m, n, k, kind, seconds=1.0):
    convert = CONVERSIONS[kind]
    x = [convert(torch.randn(m, k, device="cuda")) for _ in range(COPIES)]
    w = [convert(torch.randn(n, k, device="cuda")) for _ in range(COPIES)]
    torch.backends.cuda.matmul.allow_fp16_accumulation = kind == "f16acc"
    one = torch.ones((), device="cuda")
    out = torch.empty(m, n, device="cuda", dtype=RESULTS.get(kind, torch.half))

    def products():
        for a, b in zip(x, w):
            if kind == "int8":
                torch._int_mm(a, b.T, out=out)
            elif kind == "fp8":
                torch._scaled_mm(a, b.T, one, one, out=out, out_dtype=out.dtype, use_fast_accum=True)
            else:
                torch.mm(a, b.T, out=out)

    products()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        products()
    for _ in range(150):
        graph.replay()
    torch.cuda.synchronize()
    clocks, replays = [], 0
    joules, start = pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu), time.time()
    while time.time() - start < seconds:
        for _ in range(40):
            graph.replay()
        clocks.append(pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM))
        torch.cuda.synchronize()
        replays += 40
    elapsed = time.time() - start
    joules = (pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) - joules) / 1e3
    each = replays * COPIES
    us, mj, flop = elapsed / each * 1e6, joules / each * 1e3, 2 * m * n * k
    print(
        f"{m}x{n}x{k} {kind:7s} {us:8.1f} us {flop / us / 1e6:7.1f} TFLOP/s {mj:7.2f} mJ "
        f"{mj * 1e9 / flop:.3f} pJ/FLOP {joules / elapsed:.0f} W {sum(clocks) / len(clocks):.0f} MHz",
        flush=True,
    )


for _ in range(2):
    for sizes in ((2048, 8960, 1536), (2048, 1536, 8960), (4096, 4096, 4096)):
        for kind in CONVERSIONS:
            bench(*sizes, kind)
