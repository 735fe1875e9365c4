//! Library calls in a pass: captured into the graph or launched eagerly, with any number of nodes.

use std::sync::Arc;

use retrograph_driver_sim::Config;
use retrograph_kernels::ops::{Add, Silu};
use retrograph_runtime::{
    Bindings, BuildError, BuildOptions, DeviceBuffer, Event, Function, LibraryCall, LibraryScope,
    Pass, Policy, Program, Slice, Strategy, Stream, UpdateStrategy, WarmModules,
};

use crate::device::{Device, device, device_of, simulated};
use crate::programs::build;
use crate::ptx::{SCALE, warm};
use crate::support::with;

pub(crate) const LEN: usize = 96;

/// A pass in which two of five operations are library calls, with its bindings.
pub(crate) struct Mixed {
    pub(crate) pass: Pass,
    bias: Slice<f32>,
    x: Slice<f32>,
    y: Slice<f32>,
    _modules: WarmModules,
}

impl Mixed {
    /// `y = 3 · silu(x) + silu(x)`, preceded by `bias`. One library call scales, and `copy`, which
    /// gets two ranges, copies.
    pub(crate) fn new(device: &Device, copy: LibraryCall) -> Self {
        let (modules, scale) = warm(&device.context, SCALE, "scale");
        let mut pass = Pass::new("mixed");
        let (x, y) = (pass.external("x", LEN), pass.external("y", LEN + 1));
        let bias = pass.control("bias");
        let [left, right, copied] =
            ["left", "right", "copied"].map(|name| pass.transient(name, LEN));
        pass.launch(Silu { x, y: left }.launch().unwrap()).unwrap();
        let scaling = LibraryCall::new("library scale", move |scope| launch(scope, &scale));
        // SAFETY: the kernel scales the range that is declared, on the stream that it is given.
        unsafe { pass.library(scaling.updates(left)) }.unwrap();
        pass.launch(Silu { x, y: right }.launch().unwrap()).unwrap();
        // SAFETY: each caller gives a call that copies the one range to the other.
        unsafe { pass.library(copy.reads(left).writes(copied)) }.unwrap();
        let out = y.slice(1..LEN + 1);
        pass.launch(Add { a: copied, b: right, out }.launch().unwrap()).unwrap();
        pass.copy(bias, y.slice(0..1)).unwrap();
        Self { pass, bias, x, y, _modules: modules }
    }

    pub(crate) fn build(
        &self,
        device: &Device,
        options: impl Into<BuildOptions>,
    ) -> Result<(Program, DeviceBuffer<f32>), BuildError> {
        let values: Vec<f32> = (0..LEN).map(|at| at as f32 * 0.125 - 5.0).collect();
        let x = DeviceBuffer::from_slice(&device.stream, &values).unwrap();
        let y = DeviceBuffer::zeroed(&device.context, LEN + 1).unwrap();
        let mut bindings = Bindings::new();
        bindings.bind(self.x, &x).bind(self.y, &y);
        build(device, &self.pass, &bindings, options).map(|program| (program, y))
    }

    /// The bits after each of three steps.
    pub(crate) fn run(
        &self,
        stream: &Stream,
        program: &mut Program,
        y: &DeviceBuffer<f32>,
    ) -> Vec<u32> {
        let mut bits = Vec::new();
        for step in 0..3 {
            let mut controls = self.pass.controls();
            controls.set(self.bias, step as f32 + 0.5).unwrap();
            program.step(stream, &controls).unwrap();
            bits.extend(y.download(stream).unwrap().iter().map(|value| value.to_bits()));
        }
        bits
    }

    pub(crate) fn controls(&self) -> retrograph_runtime::Controls {
        let mut controls = self.pass.controls();
        controls.set(self.bias, 0.25).unwrap();
        controls
    }
}

/// Launches through the driver's table, as a library would.
fn launch(scope: &LibraryScope<'_>, scale: &Function) -> retrograph_runtime::error::Result<()> {
    let range = scope.range(0);
    let (address, words, factor) = (range.address, (range.bytes / 4) as u32, 3.0_f32);
    let mut arguments = [
        (&raw const address).cast_mut().cast(),
        (&raw const words).cast_mut().cast(),
        (&raw const factor).cast_mut().cast(),
    ];
    let (launch, none) = (scope.context().table().cuLaunchKernel, std::ptr::null_mut());
    let stream = scope.stream().raw();
    // SAFETY: these are the arguments of the kernel, which stays within the range.
    let code =
        unsafe { launch(scale.raw(), 1, 1, 1, 128, 1, 1, 0, stream, arguments.as_mut_ptr(), none) };
    scope.check("cuLaunchKernel", code)
}

/// Copies one half on the given stream and the other half on another stream.
pub(crate) fn forking(device: &Device) -> LibraryCall {
    let other = Stream::new(&device.context).unwrap();
    let events = [(); 2].map(|()| Event::untimed(&device.context).unwrap());
    LibraryCall::new("forking copy", move |scope| {
        let (from, to, half) = (scope.range(0), scope.range(1), scope.range(0).bytes / 2);
        let [forked, joined] = &events;
        forked.record(scope.stream())?;
        other.wait(forked)?;
        let (from_half, to_half) = (from.address + half as u64, to.address + half as u64);
        // SAFETY: the halves are in the ranges, which the program keeps.
        unsafe {
            scope.stream().memcpy_dtod(to.address, from.address, half)?;
            other.memcpy_dtod(to_half, from_half, from.bytes - half)?;
        }
        joined.record(&other)?;
        scope.stream().wait(joined)
    })
}

/// Copies in as many pieces as there are.
fn copying_in(pieces: usize) -> LibraryCall {
    LibraryCall::new("copy in pieces", move |scope| {
        let (from, to) = (scope.range(0), scope.range(1));
        let piece = from.bytes / pieces;
        for at in 0..pieces {
            let at = (at * piece) as u64;
            // SAFETY: the pieces are in the ranges, which the program keeps.
            unsafe {
                scope.stream().memcpy_dtod(to.address + at, from.address + at, piece)?;
            }
        }
        Ok(())
    })
}

#[test]
fn libraries_compute_the_same_bits_by_every_strategy() {
    let device = device();
    let mixed = Mixed::new(&device, forking(&device));
    let (mut eager, y) = mixed.build(&device, Policy::Eager).unwrap();
    let expected = mixed.run(&device.stream, &mut eager, &y);
    let silu = |x: f32| x / (1.0 + (-x).exp());
    let (x, found) = (-5.0 + 0.125 * 90.0, f32::from_bits(expected[91]));
    assert!((found - 4.0 * silu(x)).abs() < 1e-4, "{found}");
    for (policy, strategy) in [
        (Policy::Auto, Strategy::Hybrid),
        (Policy::Hybrid, Strategy::Hybrid),
        (Policy::Capture, Strategy::Capture),
    ] {
        let (mut program, y) = mixed.build(&device, policy).unwrap();
        let report = program.report().clone();
        assert_eq!((report.strategy, report.operations), (strategy, 7), "{report}");
        assert_eq!((report.nodes, report.library_nodes), (8, 3), "{report}");
        assert!(report.to_string().contains("3 of the nodes"), "{report}");
        assert_eq!(mixed.run(&device.stream, &mut program, &y), expected, "{policy:?}");
    }
}

/// A graph has the edges of the pass around the library's nodes, and no more.
#[test]
fn captured_work_is_ordered_by_its_reads_and_writes() {
    let device = device();
    let mixed = Mixed::new(&device, forking(&device));
    let (program, _) = mixed.build(&device, Policy::Hybrid).unwrap();
    // silu, scale, two copies and add; the other silu and the copy of the bias depend only on their
    // inputs.
    assert_eq!((program.report().depth, program.report().edges), (4, 7), "{}", program.report());
    let (captured, _) = mixed.build(&device, Policy::Capture).unwrap();
    assert_eq!(captured.report().depth, 7, "{}", captured.report());
}

#[test]
fn any_number_of_nodes_is_counted_and_ordered() {
    let device = device();
    for pieces in [1, 2, 8] {
        let mixed = Mixed::new(&device, copying_in(pieces));
        let (mut eager, y) = mixed.build(&device, Policy::Eager).unwrap();
        let expected = mixed.run(&device.stream, &mut eager, &y);
        for policy in [Policy::Hybrid, Policy::Capture] {
            let (mut program, y) = mixed.build(&device, policy).unwrap();
            assert_eq!(program.report().library_nodes, 1 + pieces, "{policy:?}");
            assert_eq!(program.report().nodes, 6 + pieces, "{policy:?}");
            assert_eq!(mixed.run(&device.stream, &mut program, &y), expected, "{policy:?}");
        }
    }
}

/// An operation without nodes still orders its successors after its predecessors.
#[test]
fn work_without_nodes_hands_its_dependencies_on() {
    let device = device();
    let mut pass = Pass::new("nothing in between");
    let (input, output) = (pass.external::<f32>("input", 8), pass.external::<f32>("output", 8));
    let inner = pass.transient::<f32>("inner", 8);
    pass.copy(input, inner).unwrap();
    let nothing = LibraryCall::new("nothing", |_| Ok(()));
    // SAFETY: it touches nothing.
    unsafe { pass.library(nothing.updates(inner)) }.unwrap();
    pass.copy(inner, output).unwrap();
    let from = DeviceBuffer::from_slice(&device.stream, &[2.5_f32; 8]).unwrap();
    for policy in [Policy::Hybrid, Policy::Capture] {
        let to = DeviceBuffer::zeroed(&device.context, 8).unwrap();
        let mut bindings = Bindings::new();
        bindings.bind(input, &from).bind(output, &to);
        let mut program = build(&device, &pass, &bindings, policy).unwrap();
        let report = program.report();
        assert_eq!((report.nodes, report.edges, report.library_nodes), (2, 1, 0), "{report}");
        program.step(&device.stream, &pass.controls()).unwrap();
        assert_eq!(to.download(&device.stream).unwrap(), [2.5; 8]);
    }
}

#[test]
fn every_order_that_the_edges_allow_gives_the_same_bits() {
    let run = |seed, policy| {
        let device = device_of(&simulated(with(Config::default(), |it| it.seed = seed)));
        let mixed = Mixed::new(&device, forking(&device));
        let mut options = BuildOptions::from(policy);
        options.nan_transients = true;
        let (mut program, y) = mixed.build(&device, options).unwrap();
        mixed.run(&device.stream, &mut program, &y)
    };
    let expected = run(0, Policy::Eager);
    for seed in 1..13 {
        assert_eq!(run(seed, Policy::Hybrid), expected, "seed {seed}");
    }
}

/// It is unknown which nodes of a library hold an address, so its work is captured again.
#[test]
fn a_program_with_libraries_is_bound_to_other_memory() {
    let device = device();
    let call = || {
        LibraryCall::new("copy", |scope| {
            let (from, to) = (scope.range(0), scope.range(1));
            // SAFETY: the ranges are of one length, and the program keeps them.
            unsafe { scope.stream().memcpy_dtod(to.address, from.address, from.bytes) }
        })
    };
    for (policy, update) in [
        (Policy::Eager, UpdateStrategy::KeepGraph),
        (Policy::Hybrid, UpdateStrategy::Rebuild),
        (Policy::Capture, UpdateStrategy::Rebuild),
    ] {
        let mut pass = Pass::new("moved");
        let (input, output) = (pass.external::<f32>("input", 8), pass.external::<f32>("output", 8));
        let inner = pass.transient::<f32>("inner", 8);
        pass.copy(input, inner).unwrap();
        // SAFETY: it copies the one range to the other.
        unsafe { pass.library(call().reads(inner).writes(output)) }.unwrap();
        let from = DeviceBuffer::from_slice(&device.stream, &[1.5_f32; 8]).unwrap();
        let [first, second] = [(); 2].map(|()| DeviceBuffer::zeroed(&device.context, 8).unwrap());
        let mut bindings = Bindings::new();
        bindings.bind(input, &from).bind(output, &first);
        let mut program = build(&device, &pass, &bindings, policy).unwrap();
        let mut moved = Bindings::new();
        moved.bind(output, &second);
        let rebound = program.rebind(&device.stream, &moved).unwrap();
        assert_eq!((rebound.update, rebound.buffers), (update, 1), "{rebound:?}");
        program.step(&device.stream, &pass.controls()).unwrap();
        assert_eq!(first.download(&device.stream).unwrap(), [0.0; 8], "{policy:?}");
        assert_eq!(second.download(&device.stream).unwrap(), [1.5; 8], "{policy:?}");
    }
}

#[test]
fn a_program_keeps_what_a_library_was_given() {
    let device = device();
    let kept = Arc::new(());
    let (held, copy) = (Arc::clone(&kept), copying_in(1));
    let mixed = Mixed::new(&device, copy);
    let mut pass = Pass::new("one");
    let word = pass.external::<u32>("word", 1);
    let call = LibraryCall::new("fill", move |scope| {
        let _ = &held;
        // SAFETY: the range is the program's.
        unsafe { scope.stream().memset_d32(scope.range(0).address, 9, 1) }
    });
    // SAFETY: it writes only the word.
    unsafe { pass.library(call.writes(word)) }.unwrap();
    let buffer = DeviceBuffer::zeroed(&device.context, 1).unwrap();
    let mut bindings = Bindings::new();
    bindings.bind(word, &buffer);
    let mut program = build(&device, &pass, &bindings, Policy::Auto).unwrap();
    assert_eq!(program.report().strategy, Strategy::Hybrid);
    drop((pass, mixed));
    assert_eq!(Arc::strong_count(&kept), 2, "the program keeps the code of the call");
    program.step(&device.stream, &program_controls()).unwrap_err();
    drop(program);
    assert_eq!(Arc::strong_count(&kept), 1);
}

/// Controls of another pass, which every program refuses.
fn program_controls() -> retrograph_runtime::Controls {
    Pass::new("another").controls()
}
