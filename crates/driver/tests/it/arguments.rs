//! The arguments of launches.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytemuck::{Pod, Zeroable};
use retrograph_driver::{DeviceBuffer, Error, KernelArguments, KernelLaunch, LaunchGeometry};

use crate::device::{Device, device};
use crate::ptx::load;

/// Stores its arguments to `to`, each converted to 64 bits.
const STORE_ARGUMENTS: &str = "
.version 6.3
.target sm_75
.address_size 64

.visible .entry store_arguments(
    .param .u64 to,
    .param .u8 byte,
    .param .s16 negative,
    .param .f64 real,
    .param .align 8 .b8 mixed[24],
    .param .align 64 .b8 wide[64],
    .param .s64 last
)
{
    .reg .b16 %h<1>;
    .reg .b32 %r<1>;
    .reg .b64 %rd<3>;

    ld.param.u64        %rd0, [to];
    cvta.to.global.u64  %rd1, %rd0;
    ld.param.u8         %h0, [byte];
    cvt.u64.u16         %rd2, %h0;
    st.global.u64       [%rd1], %rd2;
    ld.param.s16        %h0, [negative];
    cvt.s64.s16         %rd2, %h0;
    st.global.u64       [%rd1+8], %rd2;
    ld.param.b64        %rd2, [real];
    st.global.u64       [%rd1+16], %rd2;
    ld.param.u64        %rd2, [mixed];
    st.global.u64       [%rd1+24], %rd2;
    ld.param.u32        %r0, [mixed+8];
    cvt.u64.u32         %rd2, %r0;
    st.global.u64       [%rd1+32], %rd2;
    ld.param.u16        %h0, [mixed+14];
    cvt.u64.u16         %rd2, %h0;
    st.global.u64       [%rd1+40], %rd2;
    ld.param.b64        %rd2, [mixed+16];
    st.global.u64       [%rd1+48], %rd2;
    ld.param.b64        %rd2, [wide+56];
    st.global.u64       [%rd1+56], %rd2;
    ld.param.s64        %rd2, [last];
    st.global.u64       [%rd1+64], %rd2;
    ret;
}
";

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Mixed {
    long: u64,
    word: u32,
    halves: [u16; 2],
    real: f64,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Wide([u64; 8]);

#[test]
fn scalars_and_structs_reach_the_kernel_by_value() {
    let Device { context, stream } = device();
    let function = load(&context, STORE_ARGUMENTS, "store_arguments");
    let to = DeviceBuffer::<u64>::zeroed(&context, 9).unwrap();
    let mixed = Mixed { long: 1 << 40, word: 9, halves: [1, 7], real: 0.25 };
    let arguments = KernelArguments::new()
        .address(to.address())
        .value(200_u8)
        .value(-3_i16)
        .value(1.5_f64)
        .value(mixed)
        .value(Wide([0, 1, 2, 3, 4, 5, 6, 70]))
        .value(i64::MIN);
    let geometry = LaunchGeometry::linear(1, 1);
    let launch = KernelLaunch { function: &function, geometry, arguments: &arguments };
    // SAFETY: the kernel writes nine words, and the download waits for it.
    unsafe { stream.launch(&launch) }.unwrap();
    let [negative, least] = [-3, i64::MIN].map(i64::cast_unsigned);
    let [real, mixed_real] = [1.5_f64, 0.25].map(f64::to_bits);
    let expected = [200, negative, real, 1 << 40, 9, 7, mixed_real, 70, least];
    assert_eq!(to.download(&stream).unwrap(), expected);
}

#[test]
fn a_value_of_another_size_is_refused() {
    let Device { context, stream } = device();
    let function = load(&context, STORE_ARGUMENTS, "store_arguments");
    if function.parameter_sizes().is_none() {
        return; // The driver does not report them.
    }
    let arguments = KernelArguments::new().address(0).value(200_u16);
    let geometry = LaunchGeometry::linear(1, 1);
    let launch = KernelLaunch { function: &function, geometry, arguments: &arguments };
    // SAFETY: the launch is refused.
    let error = unsafe { stream.launch(&launch) }.unwrap_err();
    let Error::ArgumentMismatch { index, expected, found, .. } = error else { panic!("{error}") };
    assert_eq!((index, expected, found), (1, 1, 2));
}

/// Why a replacement panicked, if it did.
fn refusal(arguments: &mut KernelArguments, index: usize) -> Option<String> {
    let replaced = catch_unwind(AssertUnwindSafe(|| arguments.set_address(index, 7)));
    let panic = replaced.err()?;
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
}

#[test]
fn an_address_replaces_only_an_address() {
    let mut arguments = KernelArguments::new().address(1).u32(2).u64(3);
    assert_eq!(refusal(&mut arguments, 0), None);
    assert_eq!(arguments.bytes(0), 7u64.to_le_bytes());
    // The kernel would read four bytes of the next argument as the address.
    let refused = refusal(&mut arguments, 1).unwrap();
    assert!(refused.contains("an address has eight bytes"), "{refused}");
    assert!(refusal(&mut arguments, 3).unwrap().contains("index"));
    assert_eq!(arguments.sizes(), [8, 4, 8]);
    assert_eq!(arguments.bytes(1), 2u32.to_le_bytes());
    assert_eq!(arguments.bytes(2), 3u64.to_le_bytes());
}
