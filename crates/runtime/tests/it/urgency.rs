//! Which nodes of a graph go first.

use retrograph_kernels::ops::Silu;
use retrograph_runtime::{
    Bindings, BuildOptions, DeviceBuffer, EdgeMode, NodeKind, Pass, Policy, Slice,
};

use crate::device::device;
use crate::failing_programs::{Bench, UNKNOWN};
use crate::programs::build;

const LEN: usize = 64;

/// A row of kernels, and one beside the first of them for whose result nobody waits.
fn pass(row: usize) -> (Pass, Vec<Slice<f32>>) {
    let mut pass = Pass::new("urgency");
    let chain: Vec<_> = (0..=row).map(|at| pass.external(format!("x{at}"), LEN)).collect();
    let aside = pass.external("aside", LEN);
    pass.fill(chain[0], 1.0_f32.to_bits()).unwrap();
    for pair in chain.windows(2) {
        pass.launch(Silu { x: pair[0], y: pair[1] }.launch().unwrap()).unwrap();
    }
    pass.launch(Silu { x: chain[0], y: aside }.launch().unwrap()).unwrap();
    (pass, chain.into_iter().chain([aside]).collect())
}

/// The priorities of the kernels of the graph, in the order of the pass, and what the program says.
fn priorities(row: usize, options: BuildOptions) -> (Vec<i32>, String) {
    let device = device();
    let (pass, slices) = pass(row);
    let buffer = |_: &Slice<f32>| DeviceBuffer::<f32>::zeroed(&device.context, LEN).unwrap();
    let buffers: Vec<_> = slices.iter().map(buffer).collect();
    let mut bindings = Bindings::new();
    for (slice, buffer) in slices.into_iter().zip(&buffers) {
        bindings.bind(slice, buffer);
    }
    let mut program = build(&device, &pass, &bindings, options).unwrap();
    program.step(&device.stream, &pass.controls()).unwrap();
    // Both ends of the graph have the same numbers, whatever goes first.
    let [last, aside] = [row, row + 1].map(|at| buffers[at].download(&device.stream).unwrap());
    assert!(last.iter().all(|value| value.is_finite()) && aside[0] > 0.7);
    // SAFETY: the graph is not launched.
    let graph = unsafe { program.graph(&device.stream) }.unwrap();
    let kernels = graph.nodes().unwrap().into_iter();
    let kernels = kernels.filter(|&node| graph.kind(node).unwrap() == NodeKind::Kernel);
    let found = kernels.map(|node| graph.priority(node).unwrap()).collect();
    (found, program.report().to_string())
}

fn manual(equally_urgent: bool) -> BuildOptions {
    let edges = EdgeMode::Inferred;
    BuildOptions { edges, equally_urgent, ..BuildOptions::from(Policy::Manual) }
}

#[test]
fn what_nobody_waits_for_soon_is_not_urgent() {
    let (mut found, report) = priorities(8, manual(false));
    found.sort_unstable();
    assert_eq!(found, [-1, -1, -1, -1, -1, -1, -1, -1, 0]);
    assert!(report.contains("urgent      8 of the nodes"), "{report}");
}

#[test]
fn where_all_are_equally_urgent_no_node_has_a_priority() {
    for (row, options) in [(8, manual(true)), (4, manual(false))] {
        let (found, report) = priorities(row, options);
        assert_eq!(found, vec![0; row + 1]);
        assert!(!report.contains("urgent"), "{report}");
    }
}

#[test]
fn a_node_that_cannot_be_made_urgent_fails_the_build_and_leaks_nothing() {
    let bench = Bench::new(0);
    let (pass, slices) = pass(8);
    let context = &bench.device.context;
    let buffer = |_: &Slice<f32>| DeviceBuffer::<f32>::zeroed(context, LEN).unwrap();
    let buffers: Vec<_> = slices.iter().map(buffer).collect();
    let mut bindings = Bindings::new();
    for (slice, buffer) in slices.into_iter().zip(&buffers) {
        bindings.bind(slice, buffer);
    }
    drop(build(&bench.device, &pass, &bindings, manual(false)).unwrap());
    let before = bench.simulator.live();
    bench.simulator.fail("cuGraphKernelNodeSetAttribute", 3, UNKNOWN).unwrap();
    let error = build(&bench.device, &pass, &bindings, manual(false)).unwrap_err();
    let text = std::error::Error::source(&error).map_or(error.to_string(), |it| it.to_string());
    assert!(text.contains("cuGraphKernelNodeSetAttribute"), "{error}: {text}");
    assert_eq!(bench.simulator.live(), before);
}
