//! Priorities of the nodes of a graph.

use std::cell::Cell;

use retrograph_driver_sys::{
    CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY, CUgraph, CUgraphExec, CUresult, DriverTable,
};
use retrograph_kernels::ops::Silu;
use retrograph_runtime::{
    Bindings, BuildError, BuildOptions, DeviceBuffer, Graph, NodeKind, Pass, Policy, Program, Slice,
};

use crate::device::{Device, device};
use crate::failing_programs::{Bench, UNKNOWN};
use crate::programs::build;
use crate::support::with;

const LEN: usize = 64;

/// A chain of kernels, and a kernel concurrent with the first whose result no other one reads.
fn pass(row: usize) -> (Pass, Vec<Slice<f32>>) {
    let mut pass = Pass::new("priorities");
    let chain: Vec<_> = (0..=row).map(|at| pass.external(format!("x{at}"), LEN)).collect();
    let aside = pass.external("aside", LEN);
    pass.fill(chain[0], 1.0_f32.to_bits()).unwrap();
    for pair in chain.windows(2) {
        pass.launch(Silu { x: pair[0], y: pair[1] }.launch().unwrap()).unwrap();
    }
    pass.launch(Silu { x: chain[0], y: aside }.launch().unwrap()).unwrap();
    (pass, chain.into_iter().chain([aside]).collect())
}

/// The program of the pass, after a step if it could be built, and its buffers.
fn run(
    device: &Device,
    row: usize,
    options: BuildOptions,
) -> (Result<Program, BuildError>, Vec<DeviceBuffer<f32>>) {
    let (pass, slices) = pass(row);
    let buffer = |_: &Slice<f32>| DeviceBuffer::<f32>::zeroed(&device.context, LEN).unwrap();
    let buffers: Vec<_> = slices.iter().map(buffer).collect();
    let mut bindings = Bindings::new();
    for (slice, buffer) in slices.into_iter().zip(&buffers) {
        bindings.bind(slice, buffer);
    }
    let mut program = build(device, &pass, &bindings, options);
    if let Ok(program) = &mut program {
        program.step(&device.stream, &pass.controls()).unwrap();
    }
    (program, buffers)
}

fn manual(uniform_priority: bool) -> BuildOptions {
    with(BuildOptions::from(Policy::Manual), |it| it.uniform_priority = uniform_priority)
}

/// The priorities of the kernels, least first.
fn priorities(graph: &Graph) -> Vec<i32> {
    let kernels = graph.nodes().unwrap().into_iter();
    let kernels = kernels.filter(|&node| graph.kind(node).unwrap() == NodeKind::Kernel);
    let mut found: Vec<_> = kernels.map(|node| graph.priority(node).unwrap()).collect();
    found.sort_unstable();
    found
}

#[test]
fn operations_with_slack_have_the_default_priority() {
    for (row, options, high_priority) in
        [(8, manual(false), 8), (8, manual(true), 0), (4, manual(false), 0)]
    {
        let device = device();
        let (program, buffers) = run(&device, row, options);
        let program = program.unwrap();
        // Both ends of the graph have the same numbers, whatever goes first.
        let [last, aside] = [row, row + 1].map(|at| buffers[at].download(&device.stream).unwrap());
        assert!(last.iter().all(|value| value.is_finite()) && aside[0] > 0.7);
        // SAFETY: the graph is not launched.
        let graph = unsafe { program.graph(&device.stream) }.unwrap();
        let expected = [vec![-1; high_priority], vec![0; row + 1 - high_priority]].concat();
        assert_eq!(priorities(&graph), expected, "{row} in a row");
        let report = program.report();
        assert_eq!(report.high_priority_nodes, high_priority);
        assert_eq!(
            report.to_string().contains("have a high priority"),
            high_priority > 0,
            "{report}"
        );
    }
}

thread_local! {
    static SEEN: Cell<Option<(DriverTable, u64)>> = const { Cell::new(None) };
}

/// Instantiates, and notes the flags.
unsafe extern "C" fn noting_flags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64) -> CUresult {
    let (table, _) = SEEN.get().unwrap();
    SEEN.set(Some((table, flags)));
    // SAFETY: the caller gives the arguments.
    unsafe { (table.cuGraphInstantiateWithFlags)(exec, graph, flags) }
}

#[test]
fn graphs_with_priorities_and_their_copies_are_instantiated_to_heed_them() {
    let bench = Bench::with_table(0, |table| table.cuGraphInstantiateWithFlags = noting_flags);
    let by_node = CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    for (options, expected) in [(manual(false), by_node), (manual(true), 0)] {
        let seen = || SEEN.replace(Some((*bench.simulator.table(), u64::MAX))).map(|it| it.1);
        seen();
        let (program, _buffers) = run(&bench.device, 8, options);
        assert_eq!(seen(), Some(expected));
        // SAFETY: the graphs are not launched.
        let graph = unsafe { program.unwrap().graph(&bench.device.stream) }.unwrap();
        let (copy, _) = graph.duplicate(&[]).unwrap();
        assert_eq!(priorities(&copy), priorities(&graph));
        drop(copy.instantiate().unwrap());
        assert_eq!(seen(), Some(expected), "of the copy");
        let mut parent = Graph::new(&bench.device.context).unwrap();
        parent.add_child_graph(&graph, &[]).unwrap();
        drop(parent.instantiate().unwrap());
        assert_eq!(seen(), Some(expected), "with the graph as a node");
    }
}

#[test]
fn a_priority_that_is_refused_fails_the_build_and_leaks_nothing() {
    let bench = Bench::new(0);
    drop(run(&bench.device, 8, manual(false)));
    let before = bench.simulator.live();
    bench.simulator.fail("cuGraphKernelNodeSetAttribute", 3, UNKNOWN).unwrap();
    let (program, buffers) = run(&bench.device, 8, manual(false));
    let error = program.unwrap_err();
    let text = std::error::Error::source(&error).map_or(error.to_string(), |it| it.to_string());
    assert!(text.contains("cuGraphKernelNodeSetAttribute"), "{error}: {text}");
    drop(buffers);
    assert_eq!(bench.simulator.live(), before);
}
