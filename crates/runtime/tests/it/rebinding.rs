//! Rebinding: with every update strategy, steps equal the steps of a program built for that memory,
//! and the old memory lives exactly as long as steps use it.

use std::sync::Arc;

use half::bf16;
use retrograph_driver_sim::Config;
use retrograph_kernels::Argument;
use retrograph_kernels::ops::{DType, Fprop, GemmShape};
use retrograph_runtime::{
    Bindings, BuildError, DeviceBuffer, Pass, Policy, Program, Slice, Strategy, Stream,
    UpdateStrategy,
};

use crate::device::{Device, device, device_of, simulated};
use crate::mlp::Mlp;
use crate::programs::build;
use crate::support::with;

const POLICIES: [Policy; 4] = [Policy::Eager, Policy::Manual, Policy::Capture, Policy::Auto];
const UPDATES: [UpdateStrategy; 3] =
    [UpdateStrategy::KeepGraph, UpdateStrategy::SetNodeParams, UpdateStrategy::Rebuild];

/// The result of two steps of a fresh program.
fn two_fresh_steps(device: &Device, mlp: &Mlp) -> Vec<u32> {
    let buffers = mlp.buffers(&device.stream);
    let mut program = build(device, &mlp.pass, &mlp.bindings(&buffers), Policy::Eager).unwrap();
    mlp.train(&mut program, &device.stream, &buffers, 0..2)
}

#[test]
fn with_every_update_steps_equal_those_of_a_fresh_program() {
    let (device, mlp) = (device(), Mlp::new());
    let expected = two_fresh_steps(&device, &mlp);
    for policy in POLICIES {
        let buffers = mlp.buffers(&device.stream);
        let mut program = build(&device, &mlp.pass, &mlp.bindings(&buffers), policy).unwrap();
        assert!(mlp.train(&mut program, &device.stream, &buffers, 0..2) == expected);
        let before = buffers.state(&device.stream);
        // Every update strategy follows every other.
        for least in UPDATES.into_iter().chain(UPDATES.into_iter().rev()) {
            let others = mlp.buffers(&device.stream);
            let bindings = mlp.bindings(&others);
            let rebound = program.rebind_from(least, &device.stream, &bindings).unwrap();
            let graph = program.report().strategy != Strategy::Eager;
            let update = if graph {
                least.max(UpdateStrategy::SetNodeParams)
            } else {
                UpdateStrategy::KeepGraph
            };
            assert_eq!((rebound.update, rebound.buffers), (update, 11), "{policy:?}");
            assert_eq!(rebound.strategy, program.report().strategy);
            assert!(rebound.failed.is_empty() && rebound.table_bytes > 0, "{rebound:?}");
            assert_eq!(rebound.nodes > 0, graph);
            let trained = mlp.train(&mut program, &device.stream, &others, 0..2);
            assert!(trained == expected, "{policy:?}, {least:?}");
            program.admit(&device.stream, &mlp.controls(2)).unwrap();
        }
        assert!(buffers.state(&device.stream) == before, "the old memory is not used any more");
    }
}

#[test]
fn a_rebind_costs_the_places_that_name_a_moved_buffer() {
    let (device, mlp) = (device(), Mlp::new());
    let buffers = mlp.buffers(&device.stream);
    let bindings = mlp.bindings(&buffers);
    let mut program = build(&device, &mlp.pass, &bindings, Policy::Manual).unwrap();
    let mut rebind = |bindings: &Bindings| {
        let rebound = program.rebind(&device.stream, bindings).unwrap();
        (rebound.update, rebound.buffers, rebound.nodes, rebound.table_bytes > 0)
    };
    assert_eq!(rebind(&bindings), (UpdateStrategy::KeepGraph, 0, 0, false), "nothing moved");
    assert_eq!(
        rebind(&Bindings::new()),
        (UpdateStrategy::KeepGraph, 0, 0, false),
        "nothing was named"
    );
    let others = mlp.buffers(&device.stream);
    assert_eq!(
        rebind(&mlp.some(true, false, &others)),
        (UpdateStrategy::SetNodeParams, 1, 2, false)
    );
    assert_eq!(rebind(&mlp.some(false, true, &others)), (UpdateStrategy::KeepGraph, 1, 0, true));
    assert_eq!(rebind(&mlp.some(true, true, &others)), (UpdateStrategy::KeepGraph, 0, 0, false));
    // Everything else is unchanged.
    mlp.train(&mut program, &device.stream, &buffers, 0..1);
    let both = mlp.buffers(&device.stream);
    let mut fresh = build(&device, &mlp.pass, &mlp.bindings(&both), Policy::Manual).unwrap();
    mlp.train(&mut fresh, &device.stream, &both, 0..1);
    let state = |first: &crate::mlp::MlpBuffers| first.loss().download(&device.stream).unwrap();
    assert_eq!(state(&others), state(&both));
}

/// A pass with a copy and a fill, for memory of `words` words.
fn copy_and_fill(words: usize) -> (Pass, [Slice<u32>; 3]) {
    let mut pass = Pass::new("copy and fill");
    let slices = ["from", "to", "filled"].map(|name| pass.external(name, words));
    let [from, to, filled] = slices;
    pass.copy(from.slice(1..words), to.slice(0..words - 1)).unwrap();
    pass.fill(filled.slice(2..3), 7).unwrap();
    (pass, slices)
}

fn bound(slices: [Slice<u32>; 3], buffers: &[DeviceBuffer<u32>; 3]) -> Bindings {
    let mut bindings = Bindings::new();
    for (slice, buffer) in slices.into_iter().zip(buffers) {
        bindings.bind(slice, buffer);
    }
    bindings
}

fn words(stream: &Stream, first: u32) -> [DeviceBuffer<u32>; 3] {
    let from = DeviceBuffer::from_slice(stream, &[first, first + 1, first + 2, first + 3]);
    let zeroed = || DeviceBuffer::zeroed(stream.context(), 4).unwrap();
    [from.unwrap(), zeroed(), zeroed()]
}

fn check(stream: &Stream, buffers: &[DeviceBuffer<u32>; 3], first: u32) {
    let held = [&buffers[1], &buffers[2]].map(|buffer| buffer.download(stream).unwrap());
    assert_eq!(held, [vec![first + 1, first + 2, first + 3, 0], vec![0, 0, 7, 0]]);
}

/// A product in bf16 whose operands are copied by TMA if the target has it, 64 elements into their
/// buffers.
fn product_by_tensor_maps() -> (Pass, [Slice<bf16>; 3]) {
    let shape = GemmShape { rows: 264, inputs: 128, outputs: 264 };
    let mut pass = Pass::new("product");
    let slices = [("x", 264 * 128), ("w", 264 * 128), ("y", 264 * 264)]
        .map(|(name, len)| pass.external::<bf16>(name, 64 + len));
    let [x, w, y] = slices.map(|slice| slice.slice(64..slice.len()));
    let fprop = Fprop { x, w, bias: None, y, shape, alpha: 1.0, accumulate: false };
    let launch = fprop.launch_in(DType::Bf16).unwrap();
    let maps = launch.arguments().iter().filter(|it| matches!(it, Argument::TensorMap(Some(_))));
    assert_eq!(maps.count(), 3, "x, w and y");
    pass.launch(launch).unwrap();
    (pass, slices)
}

#[test]
fn tensor_maps_follow_at_their_offsets() {
    let device = device();
    let (pass, slices) = product_by_tensor_maps();
    let stream = &device.stream;
    let buffers = |seed: usize| {
        slices.map(|slice| {
            let value = |i: usize| bf16::from_f32(((i * 7 + seed) % 13) as f32 - 6.0);
            let values: Vec<bf16> = (0..slice.len()).map(value).collect();
            DeviceBuffer::from_slice(stream, &values).unwrap()
        })
    };
    let bind = |buffers: &[DeviceBuffer<bf16>; 3]| {
        let mut bindings = Bindings::new();
        for (slice, buffer) in slices.into_iter().zip(buffers) {
            bindings.bind(slice, buffer);
        }
        bindings
    };
    let result = |buffers: &[DeviceBuffer<bf16>; 3]| buffers[2].download(stream).unwrap();
    for policy in POLICIES {
        let first = buffers(1);
        let mut program = build(&device, &pass, &bind(&first), policy).unwrap();
        program.step(stream, &pass.controls()).unwrap();
        let before = result(&first);
        for (seed, least) in (2..).zip(UPDATES) {
            let (next, fresh) = (buffers(seed), buffers(seed));
            program.rebind_from(least, stream, &bind(&next)).unwrap();
            program.step(stream, &pass.controls()).unwrap();
            let mut other = build(&device, &pass, &bind(&fresh), Policy::Eager).unwrap();
            other.step(stream, &pass.controls()).unwrap();
            assert!(result(&next) == result(&fresh), "{policy:?}, {least:?}");
            assert!(result(&next) != before, "the operands differ");
        }
        assert!(result(&first) == before, "the old memory is not used any more");
    }
}

#[test]
fn copies_and_fills_follow_at_their_offsets() {
    let device = device();
    let (pass, slices) = copy_and_fill(4);
    for policy in POLICIES {
        let first = words(&device.stream, 10);
        let mut program = build(&device, &pass, &bound(slices, &first), policy).unwrap();
        program.step(&device.stream, &pass.controls()).unwrap();
        for least in UPDATES {
            let next = words(&device.stream, 20);
            program.rebind_from(least, &device.stream, &bound(slices, &next)).unwrap();
            program.step(&device.stream, &pass.controls()).unwrap();
            check(&device.stream, &next, 20);
        }
        check(&device.stream, &first, 10);
    }
}

#[test]
fn steps_in_flight_use_the_memory_that_they_were_bound_to() {
    for seed in 0..3 {
        let device = device_of(&simulated(with(Config::default(), |it| it.seed = seed)));
        let other = Stream::new(&device.context).unwrap();
        let mlp = Mlp::new();
        let expected = two_fresh_steps(&device, &mlp);
        for policy in POLICIES {
            let buffers = UPDATES.map(|_| mlp.buffers(&device.stream));
            let first = mlp.bindings(&buffers[0]);
            let mut program = build(&device, &mlp.pass, &first, policy).unwrap();
            for (at, (least, held)) in UPDATES.into_iter().zip(&buffers).enumerate() {
                let streams = [&device.stream, &other];
                let bindings = mlp.bindings(held);
                program.rebind_from(least, streams[at % 2], &bindings).unwrap();
                for step in 0..2 {
                    let stream = streams[(at + step as usize) % 2];
                    program.step(stream, &mlp.controls(step)).unwrap();
                }
            }
            other.synchronize().unwrap();
            for held in &buffers {
                let state = held.state(&device.stream);
                assert!(expected.ends_with(&state), "seed {seed}, {policy:?}");
            }
        }
    }
}

#[test]
fn old_memory_is_released_after_the_last_step_that_uses_it() {
    let device = device_of(&simulated(Config::default()));
    let (pass, slices) = copy_and_fill(4);
    for policy in POLICIES {
        for least in UPDATES {
            let first = words(&device.stream, 10);
            let owners = first.each_ref().map(|buffer| Arc::downgrade(&buffer.owner()));
            let alive = || owners.iter().filter(|owner| owner.upgrade().is_some()).count();
            let mut program = build(&device, &pass, &bound(slices, &first), policy).unwrap();
            drop(first);
            program.step(&device.stream, &pass.controls()).unwrap();
            let next = words(&device.stream, 20);
            program.step(&device.stream, &pass.controls()).unwrap();
            program.rebind_from(least, &device.stream, &bound(slices, &next)).unwrap();
            assert_eq!(alive(), 3, "a step in flight uses it: {policy:?}, {least:?}");
            program.step(&device.stream, &pass.controls()).unwrap();
            device.stream.synchronize().unwrap();
            program.step(&device.stream, &pass.controls()).unwrap();
            assert_eq!(alive(), 0, "nothing uses it any more: {policy:?}, {least:?}");
            check(&device.stream, &next, 20);
        }
    }
}

#[test]
fn memory_that_cannot_be_bound_is_refused_and_changes_nothing() {
    let device = device();
    let (pass, slices) = copy_and_fill(4);
    let (other_pass, other_slices) = copy_and_fill(4);
    let first = words(&device.stream, 10);
    let mut program: Program =
        build(&device, &pass, &bound(slices, &first), Policy::Manual).unwrap();
    let mut refused = |bindings: &Bindings| {
        let error = program.rebind(&device.stream, bindings).unwrap_err();
        program.step(&device.stream, &pass.controls()).unwrap();
        check(&device.stream, &first, 10);
        error
    };
    // Where the other buffers are counts as well.
    let mut shared = Bindings::new();
    shared.bind(slices[1], &first[0]);
    let error = refused(&shared);
    assert!(matches!(error, BuildError::SharedMemory { .. }), "{error}");
    let mut short = Bindings::new();
    short.bind(slices[1], &DeviceBuffer::zeroed(&device.context, 3).unwrap());
    let error = refused(&short);
    assert!(matches!(error, BuildError::BoundLength { expected: 16, found: 12, .. }), "{error}");
    let error = refused(&bound(other_slices, &words(&device.stream, 20)));
    assert!(matches!(error, BuildError::WrongPass { .. }), "{error}");
    drop(other_pass);
}
