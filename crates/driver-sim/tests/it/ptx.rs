//! Hand-written kernels of the tests.

use std::ffi::CString;

/// `store(u64 address, u32 value)`: one thread writes one word.
const STORE: &str = "
.visible .entry store(.param .u64 address, .param .u32 value)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [address];
    ld.param.u32 %r1, [value];
    cvta.to.global.u64 %rd2, %rd1;
    st.global.u32 [%rd2], %r1;
    ret;
}
";

/// `append(u64 address, u32 digit)`: one thread replaces `word` by `16 · word + digit`, so a word
/// records the order of kernels.
const APPEND: &str = "
.visible .entry append(.param .u64 address, .param .u32 digit)
{
    .reg .b32 %r<5>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [address];
    ld.param.u32 %r1, [digit];
    cvta.to.global.u64 %rd2, %rd1;
    ld.global.u32 %r2, [%rd2];
    shl.b32 %r3, %r2, 4;
    add.u32 %r4, %r3, %r1;
    st.global.u32 [%rd2], %r4;
    ret;
}
";

/// `tile()`: uses 1024 bytes of static shared memory and needs exactly 64 threads.
const TILE: &str = "
.visible .entry tile()
.reqntid 64, 1, 1
{
    .reg .b32 %r<2>;
    .shared .align 4 .b8 buffer[1024];
    mov.u32 %r1, 0;
    st.shared.u32 [buffer], %r1;
    ret;
}
";

/// `spin(u64 address, u32 rounds)`: executes three instructions in each round. Ignores the address.
const SPIN: &str = "
.visible .entry spin(.param .u64 address, .param .u32 rounds)
{
    .reg .pred %p<2>;
    .reg .b32 %r<2>;
    ld.param.u32 %r1, [rounds];
LOOP:
    sub.u32 %r1, %r1, 1;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra LOOP;
    ret;
}
";

/// `stop()`: traps.
const STOP: &str = "
.visible .entry stop()
{
    trap;
    ret;
}
";

/// A module with all kernels.
pub(crate) fn module() -> CString {
    let variable = ".visible .global .align 4 .u32 counter = 7;\n";
    image("7.0", "sm_80", &[variable, STORE, APPEND, TILE, SPIN, STOP].concat())
}

/// A module of given version and target.
pub(crate) fn image(version: &str, target: &str, body: &str) -> CString {
    let text = format!(".version {version}\n.target {target}\n.address_size 64\n{body}");
    CString::new(text).expect("PTX holds no zero byte")
}

/// A module with one small kernel of given version and target.
pub(crate) fn small(version: &str, target: &str) -> CString {
    image(version, target, STORE)
}
