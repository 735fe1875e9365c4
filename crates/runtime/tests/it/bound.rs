//! Memory of external buffers, and builds that run out of memory.

use std::sync::Arc;

use retrograph_driver_sim::Config;
use retrograph_kernels::ops::Silu;
use retrograph_runtime::{
    Bindings, BuildError, BuildOptions, DeviceBuffer, Pass, Policy, Reuse, Slice,
};

use crate::device::{Device, device, device_of, simulated};
use crate::programs::build;

/// A pass that copies `x` to `y`.
fn copy() -> (Pass, Slice<f32>, Slice<f32>) {
    let mut pass = Pass::new("copy");
    let (x, y) = (pass.external("x", 4), pass.external("y", 4));
    pass.copy(x, y).unwrap();
    (pass, x, y)
}

fn floats(device: &Device, len: usize) -> DeviceBuffer<f32> {
    DeviceBuffer::zeroed(&device.context, len).unwrap()
}

#[test]
fn every_accessed_external_needs_memory() {
    let device = device();
    let (mut pass, x, y) = copy();
    let unused = pass.external::<f32>("unused", 9);
    let mut bindings = Bindings::new();
    bindings.bind(x, &floats(&device, 4));
    let error = build(&device, &pass, &bindings, Policy::Auto).unwrap_err();
    assert!(matches!(&error, BuildError::Unbound { buffer } if buffer == "y"), "{error}");
    bindings.bind(y, &floats(&device, 4));
    build(&device, &pass, &bindings, Policy::Auto).unwrap();
    bindings.bind(unused, &floats(&device, 9));
    build(&device, &pass, &bindings, Policy::Auto).unwrap();
}

#[test]
fn lengths_and_owners_of_bound_memory_are_checked() {
    let device = device();
    let (mut pass, x, y) = copy();
    let scratch = pass.transient::<f32>("scratch", 4);
    let mut bindings = Bindings::new();
    bindings.bind(x, &floats(&device, 4)).bind(y, &floats(&device, 5));
    let error = build(&device, &pass, &bindings, Policy::Auto).unwrap_err();
    assert!(matches!(error, BuildError::BoundLength { expected: 16, found: 20, .. }), "{error}");
    bindings.bind(y, &floats(&device, 4)).bind(scratch, &floats(&device, 4));
    let error = build(&device, &pass, &bindings, Policy::Auto).unwrap_err();
    assert!(matches!(&error, BuildError::NotExternal { buffer } if buffer == "scratch"), "{error}");
    let (_, wrong, _) = copy();
    let mut bindings = Bindings::new();
    bindings.bind(wrong, &floats(&device, 4));
    let error = build(&device, &pass, &bindings, Policy::Auto).unwrap_err();
    assert!(matches!(error, BuildError::WrongPass { .. }), "{error}");
}

#[test]
fn a_part_of_a_buffer_is_not_bound() {
    let device = device();
    let (pass, x, y) = copy();
    let (whole, half) = (floats(&device, 4), floats(&device, 2));
    for (slice, memory) in [(2..4, &half), (0..2, &half), (0..2, &whole), (2..2, &whole)] {
        let mut bindings = Bindings::new();
        bindings.bind(x.slice(slice.clone()), memory).bind(y, &floats(&device, 4));
        match build(&device, &pass, &bindings, Policy::Auto).unwrap_err() {
            BuildError::BoundSlice { buffer, slice: bound, expected: 16 } => {
                assert_eq!((buffer.as_str(), bound), ("x", 4 * slice.start..4 * slice.end));
            }
            error => panic!("{error}"),
        }
    }
}

#[test]
fn memory_from_which_kernels_cannot_load_vectors_is_refused() {
    let device = device();
    let whole = Arc::new(floats(&device, 16));
    let mut pass = Pass::new("silu");
    let (x, y) = (pass.external("x", 8), pass.external("y", 8));
    pass.launch(Silu { x, y }.launch().unwrap()).unwrap();
    let out = floats(&device, 8);
    for offset in [4, 8, 16] {
        let (address, owner) = (whole.address() + offset, whole.clone());
        // SAFETY: the range is inside the buffer, which is its owner.
        let part = unsafe { DeviceBuffer::<f32>::from_raw(&device.context, address, 8, owner) };
        let mut bindings = Bindings::new();
        bindings.bind(x, &part).bind(y, &out);
        match build(&device, &pass, &bindings, Policy::Auto) {
            Ok(mut program) => {
                assert_eq!(offset, 16);
                program.step(&device.stream, &pass.controls()).unwrap();
                assert_eq!(out.download(&device.stream).unwrap(), [0.0; 8]);
            }
            Err(BuildError::Misaligned { buffer, address: found, alignment: 16 }) => {
                assert_eq!((buffer.as_str(), found), ("x", address));
                assert_ne!(offset, 16);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn shared_memory_is_refused() {
    let device = device();
    let (mut pass, x, y) = copy();
    let again = pass.external::<f32>("again", 4);
    let out = pass.external::<f32>("out", 4);
    pass.copy(again, out).unwrap();
    let (from, to, last) = (floats(&device, 4), floats(&device, 4), floats(&device, 4));
    let mut bindings = Bindings::new();
    bindings.bind(x, &from).bind(y, &from).bind(again, &to).bind(out, &last);
    let error = build(&device, &pass, &bindings, Policy::Auto).unwrap_err();
    assert!(matches!(error, BuildError::SharedMemory { .. }), "{error}");
    // Two names for memory that is only read do no harm.
    bindings.bind(y, &to).bind(again, &from);
    build(&device, &pass, &bindings, Policy::Auto).unwrap();
}

/// Two branches whose transients are unordered: they may share bytes only in the order of the list.
pub(crate) fn branches(words: usize) -> (Pass, Vec<Slice<u32>>) {
    let mut pass = Pass::new("branches");
    let outs = (0..4).map(|branch| {
        let scratch = pass.transient::<u32>(format!("scratch {branch}"), words);
        let out = pass.external::<u32>(format!("out {branch}"), 8);
        pass.fill(scratch, branch + 1).unwrap();
        pass.copy(scratch.slice(0..8), out).unwrap();
        out
    });
    let outs = outs.collect();
    (pass, outs)
}

#[test]
fn transients_share_more_when_memory_is_short_before_a_build_fails() {
    let words = 3 << 18;
    let (pass, outs) = branches(words);
    let ordered = pass.plan_with(Reuse::WhenOrdered).peak_bytes();
    let full = pass.plan_with(Reuse::Full).peak_bytes();
    assert_eq!((ordered, full), (4 * 4 * words, 4 * words));
    for (memory_bytes, expected) in [
        (4 * ordered, Some(Reuse::WhenOrdered)),
        (ordered / 2, Some(Reuse::Full)),
        (full / 2, None),
    ] {
        let mut config = Config::default();
        config.memory_bytes = memory_bytes as u64;
        let device = device_of(&simulated(config));
        let buffers: Vec<DeviceBuffer<u32>> =
            outs.iter().map(|_| DeviceBuffer::zeroed(&device.context, 8).unwrap()).collect();
        let mut bindings = Bindings::new();
        for (out, buffer) in outs.iter().zip(&buffers) {
            bindings.bind(*out, buffer);
        }
        let built = build(&device, &pass, &bindings, Policy::Manual);
        let Some(reuse) = expected else {
            let error = built.unwrap_err();
            assert!(matches!(error, BuildError::OutOfMemory { needed, .. } if needed == full));
            continue;
        };
        let mut program = built.unwrap();
        assert_eq!(program.report().reuse, reuse);
        program.step(&device.stream, &pass.controls()).unwrap();
        for (branch, buffer) in (1..).zip(&buffers) {
            assert_eq!(buffer.download(&device.stream).unwrap(), [branch; 8]);
        }
    }
}

#[test]
fn sharing_in_list_order_costs_depth() {
    let (pass, _) = branches(64);
    let depth = |reuse| pass.edges_with(&pass.plan_with(reuse)).depth();
    assert_eq!((depth(Reuse::WhenOrdered), depth(Reuse::Full)), (2, 8));
    let options = BuildOptions::from(Policy::Manual);
    assert_eq!(options.reuse, None, "the choice is left to the memory that is there");
}
