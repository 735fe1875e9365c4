//! The arguments of launches.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use bytemuck::{Pod, Zeroable};
use retrograph_driver::{
    CaptureMode, DeviceBuffer, Error, Event, Graph, GraphExec, KernelArguments, KernelLaunch,
    LaunchGeometry, Stream,
};

use crate::device::{Device, device};
use crate::ptx::{SCALE, load};

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
        .buffer(&to)
        .value(200_u8)
        .value(-3_i16)
        .value(1.5_f64)
        .value(mixed)
        .value(Wide([0, 1, 2, 3, 4, 5, 6, 70]))
        .value(i64::MIN);
    let geometry = LaunchGeometry::linear(1, 1);
    let launch = KernelLaunch::new(&function, geometry, &arguments);
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
    let launch = KernelLaunch::new(&function, geometry, &arguments);
    // SAFETY: the launch is refused.
    let error = unsafe { stream.launch(&launch) }.unwrap_err();
    let Error::ArgumentMismatch { index, expected, found, .. } = error else { panic!("{error}") };
    assert_eq!((index, expected, found), (1, 1, 2));
}

/// An exec that doubles the buffer among `arguments`, whose memory only it keeps, for each way to
/// make its node.
fn execs(
    device: &Device,
    arguments: impl Fn(&DeviceBuffer<f32>) -> KernelArguments,
) -> [(GraphExec, u64, Weak<dyn Any + Send + Sync>); 4] {
    let Device { context, stream } = device;
    let function = load(context, SCALE, "scale");
    let geometry = LaunchGeometry::linear(1, 32);
    let made = |make: &dyn Fn(&KernelLaunch<'_>) -> GraphExec| {
        let buffer = DeviceBuffer::from_slice(stream, &[1.0_f32; 4]).unwrap();
        let arguments = arguments(&buffer);
        let launch = KernelLaunch::new(&function, geometry, &arguments);
        (make(&launch), buffer.address(), Arc::downgrade(&buffer.owner()))
    };
    let captured = |launch: &KernelLaunch<'_>| {
        // SAFETY: the arguments match the function, and the graph keeps the buffer.
        stream.capture(CaptureMode::ThreadLocal, |capturing| unsafe { capturing.launch(launch) })
    };
    [
        made(&|launch| captured(launch).unwrap().instantiate().unwrap()),
        made(&|launch| {
            let [fork, join] = [(); 2].map(|()| Event::untimed(context).unwrap());
            let side = Stream::new(context).unwrap();
            let graph = stream.capture(CaptureMode::ThreadLocal, |capturing| {
                fork.record(capturing.stream())?;
                side.wait(&fork)?;
                // SAFETY: as above.
                unsafe { capturing.launch_on(&side, launch) }?;
                join.record(&side)?;
                capturing.stream().wait(&join)
            });
            graph.unwrap().instantiate().unwrap()
        }),
        made(&|launch| {
            let mut graph = Graph::new(context).unwrap();
            // SAFETY: as above.
            unsafe { graph.add_kernel(launch, &[]) }.unwrap();
            graph.instantiate().unwrap()
        }),
        made(&|launch| {
            let first = DeviceBuffer::<f32>::zeroed(context, 4).unwrap();
            let arguments = arguments(&first);
            let mut graph = Graph::new(context).unwrap();
            // SAFETY: as above, and the exec keeps the buffer of the parameters that are set.
            unsafe {
                let first = KernelLaunch { arguments: &arguments, ..*launch };
                let node = graph.add_kernel(&first, &[]).unwrap();
                let mut exec = graph.instantiate().unwrap();
                exec.set_kernel_params(node, launch).unwrap();
                exec
            }
        }),
    ]
}

#[test]
fn graphs_keep_the_buffers_of_their_launches() {
    let device = device();
    let Device { context, stream } = &device;
    let launched = |buffer: &DeviceBuffer<f32>| {
        KernelArguments::new().buffer(&buffer.slice(2..4).unwrap()).u32(2).f32(2.0)
    };
    for (mut exec, address, owner) in execs(&device, launched) {
        assert!(owner.upgrade().is_some(), "nothing else keeps the buffer");
        exec.launch(stream).unwrap();
        let mut values = [0.0_f32; 4];
        // SAFETY: the exec keeps the memory at the address, and the wait comes before the read.
        unsafe { stream.memcpy_dtoh(values.as_mut_ptr().cast(), address, 16) }.unwrap();
        stream.synchronize().unwrap();
        assert_eq!(values, [1.0, 1.0, 2.0, 2.0]);
        drop(exec);
        // On a GPU another test may be capturing, which defers the release.
        if context.driver().is_simulated() {
            assert!(owner.upgrade().is_none(), "the memory outlives its last user");
        }
    }
}

#[test]
fn arguments_keep_their_buffers_and_other_owners() {
    let Device { context, .. } = device();
    let (buffer, other) = (DeviceBuffer::<u32>::zeroed(&context, 4).unwrap(), Arc::new(0));
    let kept = Arc::downgrade(&buffer.owner());
    let arguments = KernelArguments::new().buffer(&buffer).keep(other.clone());
    assert_eq!(arguments.sizes(), [8], "an owner is not an argument");
    assert_eq!(arguments.bytes(0), buffer.address().to_ne_bytes());
    drop(buffer);
    let copied = arguments.clone();
    drop(arguments);
    assert!(kept.upgrade().is_some() && Arc::strong_count(&other) == 2);
    drop(copied);
    assert!(kept.upgrade().is_none() && Arc::strong_count(&other) == 1);
}

#[test]
fn memory_dropped_after_an_eager_launch_is_not_reused_before_it() {
    let Device { context, stream } = device();
    let function = load(&context, SCALE, "scale");
    let geometry = LaunchGeometry::linear(1, 32);
    for round in 0..20 {
        let buffer = DeviceBuffer::from_slice(&stream, &[1.0_f32; 8]).unwrap();
        let arguments = KernelArguments::new().buffer(&buffer).u32(8).f32(2.0);
        let launch = KernelLaunch::new(&function, geometry, &arguments);
        // SAFETY: the arguments match the function, and freeing the buffer waits for the launch.
        unsafe { stream.launch(&launch) }.unwrap();
        drop((buffer, arguments));
        let next = DeviceBuffer::from_slice(&stream, &[round as f32; 8]).unwrap();
        assert_eq!(next.download(&stream).unwrap(), [round as f32; 8]);
    }
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
