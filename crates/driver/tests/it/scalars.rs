//! Device scalars: replays see the last value that was set before them.

use retrograph_driver::{
    CaptureMode, DeviceBuffer, DeviceScalar, Error, KernelArguments, KernelLaunch, LaunchGeometry,
};

use crate::device::{Device, device};
use crate::ptx::{SCALE, load};

/// More values than there are pinned slots.
const VALUES: u32 = 23;

#[test]
fn every_replay_sees_the_value_set_before_it() {
    let Device { context, stream } = device();
    let mut scalar = DeviceScalar::new(&stream, 100_u32).unwrap();
    let history = DeviceBuffer::<u32>::zeroed(&context, 64).unwrap();
    let shifted = DeviceBuffer::<u32>::zeroed(&context, 63).unwrap();
    let graph = stream
        .capture(CaptureMode::ThreadLocal, |capturing| {
            for owner in [history.owner(), shifted.owner(), scalar.owner()] {
                capturing.keep(owner);
            }
            let (stream, start) = (capturing.stream(), history.address());
            // SAFETY: the ranges are in the buffers, which the graph keeps.
            unsafe {
                stream.memcpy_dtod(shifted.address(), start, 63 * 4)?;
                stream.memcpy_dtod(start + 4, shifted.address(), 63 * 4)?;
                stream.memcpy_dtod(start, scalar.address(), 4)
            }
        })
        .unwrap();
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    for value in 1..=VALUES {
        scalar.set(value).unwrap();
        assert_eq!(scalar.value(), value);
        exec.launch(&stream).unwrap();
    }
    let seen = history.download(&stream).unwrap();
    let expected: Vec<u32> = (1..=VALUES).rev().chain([100]).collect();
    assert_eq!(seen[..expected.len()], expected);
}

#[test]
fn a_value_is_not_captured_but_refused() {
    let Device { context, stream } = device();
    let mut scalar = DeviceScalar::new(&stream, 1.5_f32).unwrap();
    let graph = stream
        .capture(CaptureMode::ThreadLocal, |_| {
            let refused = scalar.set(2.5).unwrap_err();
            assert!(matches!(refused, Error::RefusedDuringCapture { .. }), "{refused}");
            Ok::<(), Error>(())
        })
        .unwrap();
    assert_eq!(graph.nodes().unwrap().len(), 0);
    assert_eq!(scalar.value(), 1.5, "what was refused is not the value");
    assert_eq!(scalar.buffer().download(&stream).unwrap(), [1.5]);
    scalar.set(3.5).unwrap();
    assert_eq!(scalar.buffer().download(&stream).unwrap(), [3.5]);
    assert!(scalar.stream().context().raw() == context.raw());
}

#[test]
fn a_graph_keeps_the_memory_of_a_dropped_scalar() {
    let Device { context, stream } = device();
    let function = load(&context, SCALE, "scale");
    let scalar = DeviceScalar::new(&stream, 3.0_f32).unwrap();
    let view = scalar.buffer().clone();
    let arguments = KernelArguments::new().buffer(scalar.buffer()).u32(1).f32(2.0);
    let launch = KernelLaunch::new(&function, LaunchGeometry::linear(1, 32), &arguments);
    let graph = stream
        .capture(CaptureMode::ThreadLocal, |capturing| {
            // SAFETY: the arguments match the function; the graph keeps the scalar.
            unsafe { capturing.launch(&launch) }
        })
        .unwrap();
    drop(scalar);
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(view.download(&stream).unwrap(), [12.0]);
}
