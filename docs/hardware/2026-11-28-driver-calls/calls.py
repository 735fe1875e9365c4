"""On a GPU: what cudaCGGetIntrinsicHandle and cudaCGSynchronize of libcudadevrt return in
cooperative and ordinary launches, what an undefined function says in the linker's log, and what
cuProfilerStart returns without a context. Needs cuda-bindings 13 and libcudadevrt.a (argument)."""
import ctypes, sys
from cuda.bindings import driver as d
PTX = b""".version 7.0
.target sm_80
.address_size 64
.extern .func (.param .b64 r) cudaCGGetIntrinsicHandle (.param .b32 scope);
.extern .func (.param .b32 r) cudaCGSynchronize (.param .b64 grid, .param .b32 flags);
.visible .entry meet (.param .u64 out, .param .u32 scope)
{
    .reg .b32 %r<4>; .reg .b64 %rd<4>;
    .param .b32 s; .param .b64 g; .param .b32 f; .param .b32 c;
    ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [scope];
    st.param.b32 [s], %r1;
    call.uni (g), cudaCGGetIntrinsicHandle, (s);
    ld.param.b64 %rd2, [g];
    st.param.b64 [g], %rd2; st.param.b32 [f], 0;
    st.global.u64 [%rd1], %rd2;
    call.uni (c), cudaCGSynchronize, (g, f);
    ld.param.b32 %r2, [c];
    st.global.u32 [%rd1+8], %r2;
    ret;
}
\0"""
def ok(r):
    assert r[0] == 0, r
    return r[1] if len(r) > 1 else None
print("profiler before cuInit", d.cuProfilerStart())
ok(d.cuInit(0)); print("profiler without context", d.cuProfilerStart(), d.cuProfilerStop())
ctx = ok(d.cuDevicePrimaryCtxRetain(0)); ok(d.cuCtxSetCurrent(ctx))
print("profiler", d.cuProfilerStart(), d.cuProfilerStop())
E_BUF, E_LEN = d.CUjit_option.CU_JIT_ERROR_LOG_BUFFER, d.CUjit_option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
def link(library, names=(b"first",)):
    log = bytearray(4096)
    state = ok(d.cuLinkCreate(2, [E_BUF, E_LEN], [log, len(log)]))
    if library: print("add library", d.cuLinkAddData(state, d.CUjitInputType.CU_JIT_INPUT_LIBRARY, library, len(library), b"devrt", 0, [], []))
    for name in names: print("add", d.cuLinkAddData(state, d.CUjitInputType.CU_JIT_INPUT_PTX, PTX, len(PTX), name, 0, [], []))
    done = d.cuLinkComplete(state)
    print("complete", done[0], log.rstrip(b"\0"))
    return done
link(None); link(None, (b"",))
library = open(sys.argv[1], "rb").read()
image = ok((lambda r: (r[0], r[1]))(link(library)))
for scope in (1, 2, 0, 7):
    for cooperative in (True, False):
        module = ok(d.cuModuleLoadData(image)); f = ok(d.cuModuleGetFunction(module, b"meet"))
        p = ok(d.cuMemAlloc(16)); ok(d.cuMemsetD8(p, 0xEE, 16))
        args = ((int(p), scope), (ctypes.c_uint64, ctypes.c_uint32))
        call = d.cuLaunchCooperativeKernel(f, 2, 1, 1, 32, 1, 1, 0, 0, args) if cooperative else \
            d.cuLaunchKernel(f, 2, 1, 1, 32, 1, 1, 0, 0, args, 0)
        done = d.cuCtxSynchronize()
        out = bytearray(16); copied = d.cuMemcpyDtoH(out, p, 16)
        print("scope", scope, "cooperative", cooperative, call, done, copied, "handle", out[:8].hex(), "code", int.from_bytes(out[8:12], "little"))
        if done[0] != 0: sys.exit("the context is lost; run the other cases in a new process")
