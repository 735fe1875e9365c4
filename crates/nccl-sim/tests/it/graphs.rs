//! Collectives in captures and graphs.

use retrograph_driver_sys::{CUgraph, CUgraphExec, CUstreamCaptureMode};
use retrograph_nccl_sys::ncclResult_t;

use crate::rank::{Rank, run, unique_id};

/// Captures a sum of two elements.
fn captured(rank: &Rank) -> (CUgraph, CUgraphExec) {
    let driver = rank.simulator.table();
    let (mut graph, mut exec) = (CUgraph::NULL, CUgraphExec::NULL);
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: the places are valid, and the buffer outlives the graph.
    unsafe {
        (driver.cuStreamBeginCapture_v2)(rank.stream, mode).ok().unwrap();
        rank.all_reduce(0, 2).ok().unwrap();
        (driver.cuStreamEndCapture)(rank.stream, &mut graph).ok().unwrap();
        (driver.cuGraphInstantiateWithFlags)(&mut exec, graph, 0).ok().unwrap();
    }
    (graph, exec)
}

#[test]
fn a_captured_collective_runs_with_every_launch_of_its_graph() {
    run(2, unique_id(), |rank| {
        rank.write(0, &[1.0, rank.rank as f32]);
        let (_, exec) = captured(rank);
        assert_eq!(rank.read(0, 2), [1.0, rank.rank as f32], "a capture runs nothing");
        for expected in [[2.0, 1.0], [4.0, 2.0], [8.0, 4.0]] {
            // SAFETY: the graph lives.
            unsafe { (rank.simulator.table().cuGraphLaunch)(exec, rank.stream) }.ok().unwrap();
            rank.synchronize().ok().unwrap();
            assert_eq!(rank.read(0, 2), expected);
        }
    });
}

/// As with NCCL 2.28: both captures have the number of the graph.
#[test]
fn a_second_capture_into_the_same_graph_fails() {
    run(2, unique_id(), |rank| {
        let driver = rank.simulator.table();
        let begin = driver.cuStreamBeginCaptureToGraph.unwrap();
        let (mut graph, mode) =
            (CUgraph::NULL, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED);
        // SAFETY: the places are valid.
        unsafe { (driver.cuGraphCreate)(&mut graph, 0) }.ok().unwrap();
        let mut captured = |times: usize| {
            let none = (std::ptr::null(), std::ptr::null());
            // SAFETY: the graph lives, and the buffer outlives it.
            unsafe { begin(rank.stream, graph, none.0, none.1, 0, mode) }.ok().unwrap();
            let codes: Vec<_> = (0..times).map(|_| rank.all_reduce(0, 2)).collect();
            // SAFETY: the place is valid.
            unsafe { (driver.cuStreamEndCapture)(rank.stream, &mut graph) }.ok().unwrap();
            codes
        };
        assert_eq!(captured(2), [ncclResult_t::ncclSuccess; 2]);
        assert_eq!(captured(1), [ncclResult_t::ncclUnhandledCudaError]);
        // SAFETY: the graph is not used afterwards.
        unsafe { (driver.cuGraphDestroy)(graph) }.ok().unwrap();
    });
}

#[test]
fn a_communicator_cannot_be_destroyed_before_its_graphs() {
    run(2, unique_id(), |rank| {
        let driver = rank.simulator.table();
        let (graph, exec) = captured(rank);
        assert_eq!(rank.destroy(), ncclResult_t::ncclInvalidUsage);
        assert!(rank.error().1.contains("graphs still hold 1 operations"), "{}", rank.error().1);
        // SAFETY: the graph is not used afterwards.
        unsafe { (driver.cuGraphDestroy)(graph) }.ok().unwrap();
        assert_eq!(rank.destroy(), ncclResult_t::ncclInvalidUsage, "the exec still has it");
        // SAFETY: as above.
        unsafe { (driver.cuGraphExecDestroy)(exec) }.ok().unwrap();
        assert_eq!(rank.destroy(), ncclResult_t::ncclSuccess);
    });
}
