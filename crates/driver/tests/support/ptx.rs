//! Small PTX images for the tests, for every SM target.

use retrograph_driver::{Context, Function, Module};

/// Multiplies `n` floats at `x` by `a`, one thread per float.
pub const SCALE: &str = "
.version 6.3
.target sm_75
.address_size 64

.visible .entry scale(
    .param .u64 x,
    .param .u32 n,
    .param .f32 a
)
{
    .reg .pred %p<1>;
    .reg .f32 %f<3>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<3>;

    ld.param.u64        %rd0, [x];
    cvta.to.global.u64  %rd1, %rd0;
    ld.param.u32        %r0, [n];
    ld.param.f32        %f0, [a];
    mov.u32             %r1, %ctaid.x;
    mov.u32             %r2, %ntid.x;
    mov.u32             %r3, %tid.x;
    mul.lo.u32          %r4, %r1, %r2;
    add.u32             %r5, %r4, %r3;
    setp.ge.u32         %p0, %r5, %r0;
    @%p0 ret;
    mad.wide.u32        %rd2, %r5, 4, %rd1;
    ld.global.f32       %f1, [%rd2];
    mul.rn.f32          %f2, %f1, %f0;
    st.global.f32       [%rd2], %f2;
    ret;
}
";

/// Stores to the given address.
pub const STORE: &str = "
.version 6.3
.target sm_75
.address_size 64

.visible .entry store(
    .param .u64 x
)
{
    .reg .b32 %r<1>;
    .reg .b64 %rd<2>;

    ld.param.u64        %rd0, [x];
    cvta.to.global.u64  %rd1, %rd0;
    mov.u32             %r0, 7;
    st.global.u32       [%rd1], %r0;
    ret;
}
";

/// Invalid from its seventh line on.
pub const BROKEN: &str = "
.version 6.3
.target sm_75
.address_size 64
.visible .entry broken()
{
    this.is.no.instruction %r0;
    ret;
}
";

/// Loads an image and returns its entry point.
pub fn load(context: &Context, ptx: &str, entry: &str) -> Function {
    Module::load_ptx(context, ptx).unwrap().function(entry).unwrap()
}
