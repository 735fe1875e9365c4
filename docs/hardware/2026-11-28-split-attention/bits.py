# Times products of f16 whose elements have fewer bits, three (or two) per f32 product, and compares
# their errors with SGEMM's. Prints, per case: bits of the high and low parts, time, energy, power.
#
# python3 bits.py > bits.txt
import time

import torch
import pynvml
pynvml.nvmlInit(); H = pynvml.nvmlDeviceGetHandleByIndex(0)
torch.manual_seed(1)
dev = 'cuda'
def rnd(v, n):
    m, e = torch.frexp(v)
    return torch.ldexp(torch.round(m * 2.0**n), e - n)
def split(v, a, b):
    hi = rnd(v, a); lo = rnd(v - hi, b)
    return hi, lo
def err(K, kind, a, b):
    x = torch.randn(256, K, device=dev); w = torch.randn(256, K, device=dev)
    if kind == 'uni': x = torch.rand_like(x); w = torch.rand_like(w)
    ref = x.double() @ w.double().T
    out = x @ w.T
    xh, xl = (t.double() for t in split(x, a, b)); wh, wl = (t.double() for t in split(w, a, b))
    ours = xh @ wh.T + xh @ wl.T + xl @ wh.T
    # sums of 64 exactly, then f32
    acc = torch.zeros(256, 256, device=dev)
    for k in range(0, K, 64):
        s = slice(k, k+64)
        acc += (xh[:, s] @ wh[:, s].T + xh[:, s] @ wl[:, s].T + xl[:, s] @ wh[:, s].T).float()
    n = ref.norm()
    return ((out.double()-ref).norm()/n).item(), ((ours-ref).norm()/n).item(), ((acc.double()-ref).norm()/n).item()
torch.backends.cuda.matmul.allow_tf32 = False
cfgs = [(11,11),(11,9),(11,7),(10,10),(10,8),(9,9),(9,8),(9,7),(8,8)]
for kind in ('normal', 'uni'):
    for K in (64, 256, 896, 1536, 8960):
        row = [kind, K]
        for c in cfgs:
            s, o, t = err(K, kind, *c)
            row.append(f"{c[0]},{c[1]}:{o/s:.2f}/{t/s:.2f}")
        print(*row, f"sgemm {s:.2e}", flush=True)
M, N, K, L = 2048, 8960, 1536, 6
def bench(a, b, two, secs):
    ops = []
    for _ in range(L):
        x = torch.randn(M, K, device=dev); w = torch.randn(N, K, device=dev)
        if two: w = w.bfloat16().float()
        x *= 2**8
        xh, xl = (t.half() for t in split(x, a, b))
        if two: wh, wl = w.half(), None
        else: wh, wl = (t.half() for t in split(w, a, b))
        ops.append((xh, xl, wh, wl))
    outs = [torch.empty(M, N, device=dev, dtype=torch.half) for _ in range(3)]
    def step():
        for xh, xl, wh, wl in ops:
            torch.mm(xh, wh.T, out=outs[0])
            torch.mm(xl, wh.T, out=outs[1])
            if wl is not None: torch.mm(xh, wl.T, out=outs[2])
    step(); torch.cuda.synchronize()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g): step()
    for _ in range(150): g.replay()
    torch.cuda.synchronize()
    e0 = pynvml.nvmlDeviceGetTotalEnergyConsumption(H); t0 = time.time(); n = 0
    while time.time() - t0 < secs:
        for _ in range(40): g.replay()
        torch.cuda.synchronize(); n += 40
    dt = time.time() - t0; e = pynvml.nvmlDeviceGetTotalEnergyConsumption(H) - e0
    return dt / n / L * 1e6, e / 1e3 / n / L * 1e3, e / 1e3 / dt
for two in (False, True):
    for rep in range(2):
        for c in cfgs:
            us, mj, w = bench(*c, two, 2.0)
            print('two' if two else 'three', c, f"{us:.1f} us {mj:.1f} mJ {w:.0f} W", flush=True)
