//! Capture: the captured nodes, and every way to break a capture.

use retrograph_driver_sim::DiagnosticKind;
use retrograph_driver_sys::*;

use crate::machine::{Machine, cu};

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;
const INVALIDATED: CUresult = CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;

/// Checks a broken capture: `reason` once, then 901 until it is ended; then the stream works,
/// eagerly and captured.
fn assert_broken(machine: &Machine, stream: CUstream, reason: CUresult) {
    let word = machine.zero_without_waiting();
    assert_eq!(machine.status(stream), CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    assert_eq!(machine.append(word, 1, stream), INVALIDATED);
    assert_eq!(machine.end(stream), (INVALIDATED, CUgraph::NULL));
    assert_recovered(machine, stream, reason);
}

/// Checks that a stream has left a capture that was broken for `reason`: new work runs immediately,
/// and another capture returns a graph.
fn assert_recovered(machine: &Machine, stream: CUstream, reason: CUresult) {
    assert_eq!(machine.status(stream), CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE);
    let word = machine.zero();
    assert_eq!(machine.append(word, 1, stream), SUCCESS);
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!(machine.peek(word), 1, "it is eager");
    assert_eq!(machine.begin(stream), SUCCESS);
    assert_eq!(machine.append(word, 1, stream), SUCCESS);
    let (code, graph) = machine.end(stream);
    assert_eq!((code, graph.is_null()), (SUCCESS, false));
    let causes = machine.diagnostics(DiagnosticKind::Capture);
    assert!(causes.iter().any(|cause| cause.contains(&reason.to_string())), "{causes:?}");
    let live = machine.simulator.live();
    assert_eq!((live.captures, live.graphs), (0, 1), "nothing of the broken capture is left");
}

impl Machine {
    /// A word allocated in relaxed mode, which does not break captures.
    fn zero_without_waiting(&self) -> CUdeviceptr {
        let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        assert_eq!(cu!(self, cuThreadExchangeStreamCaptureMode(&mut mode)), SUCCESS);
        let mut word = 0;
        assert_eq!(cu!(self, cuMemAlloc_v2(&mut word, 4)), SUCCESS);
        assert_eq!(cu!(self, cuThreadExchangeStreamCaptureMode(&mut mode)), SUCCESS);
        assert_eq!(mode, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED);
        word
    }
}

#[test]
fn captured_work_does_not_run_until_its_graph_is_launched() {
    let machine = Machine::new();
    let (word, stream) = (machine.zero(), machine.stream());
    assert_eq!(machine.begin(stream), SUCCESS);
    assert_eq!(machine.status(stream), CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE);
    for digit in [1, 2, 3] {
        assert_eq!(machine.append(word, digit, stream), SUCCESS);
    }
    let (code, graph) = machine.end(stream);
    assert_eq!(code, SUCCESS);
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!(machine.peek(word), 0, "the step during which a graph is captured does not happen");
    let exec = machine.instantiate(graph).unwrap();
    for _ in 0..2 {
        assert_eq!(cu!(machine, cuGraphLaunch(exec, stream)), SUCCESS);
    }
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!(machine.peek(word), 0x123_123);
}

#[test]
fn a_fork_and_join_become_edges() {
    let machine = Machine::new();
    let (word, side_word) = (machine.zero(), machine.zero());
    let (stream, side) = (machine.stream(), machine.stream());
    let (fork, join) = (machine.event(), machine.event());
    assert_eq!(machine.begin(stream), SUCCESS);
    assert_eq!(machine.append(word, 1, stream), SUCCESS);
    assert_eq!(cu!(machine, cuEventRecord(fork, stream)), SUCCESS);
    assert_eq!(cu!(machine, cuStreamWaitEvent(side, fork, 0)), SUCCESS);
    assert_eq!(machine.append(side_word, 2, side), SUCCESS);
    assert_eq!(machine.append(word, 3, stream), SUCCESS);
    assert_eq!(cu!(machine, cuEventRecord(join, side)), SUCCESS);
    assert_eq!(cu!(machine, cuStreamWaitEvent(stream, join, 0)), SUCCESS);
    assert_eq!(machine.append(word, 4, stream), SUCCESS);
    let (code, graph) = machine.end(stream);
    assert_eq!(code, SUCCESS);
    let (mut nodes, mut edges, mut roots) = (0, 0, 0);
    let null = std::ptr::null_mut();
    assert_eq!(cu!(machine, cuGraphGetNodes(graph, null, &mut nodes)), SUCCESS);
    assert_eq!(cu!(machine, cuGraphGetEdges(graph, null, null, &mut edges)), SUCCESS);
    assert_eq!(cu!(machine, cuGraphGetRootNodes(graph, null, &mut roots)), SUCCESS);
    assert_eq!((nodes, edges, roots), (4, 4, 1));
    let none = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    assert_eq!((machine.status(stream), machine.status(side)), (none, none));
}

#[test]
fn capture_info_returns_the_dependencies_of_the_next_node() {
    let machine = Machine::new();
    let (word, stream) = (machine.zero(), machine.stream());
    assert_eq!(machine.begin(stream), SUCCESS);
    assert_eq!(machine.append(word, 1, stream), SUCCESS);
    let mut status = CUstreamCaptureStatus(9);
    let (mut id, mut graph, mut count) = (0, CUgraph::NULL, 0);
    let mut list = std::ptr::null();
    let code = cu!(
        machine,
        cuStreamGetCaptureInfo_v2(stream, &mut status, &mut id, &mut graph, &mut list, &mut count)
    );
    assert_eq!(code, SUCCESS);
    assert_eq!(status, CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE);
    assert!(count == 1 && !list.is_null() && id != 0);
    assert_eq!(machine.end(stream), (SUCCESS, graph));
}

#[test]
fn synchronizing_or_querying_a_captured_stream_breaks_its_capture() {
    let unsupported = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    let machine = Machine::new();
    let stream = machine.stream();
    assert_eq!(machine.begin(stream), SUCCESS);
    assert_eq!(machine.sync(stream), unsupported);
    assert_broken(&machine, stream, unsupported);

    let machine = Machine::new();
    let stream = machine.stream();
    assert_eq!(machine.begin(stream), SUCCESS);
    assert_eq!(cu!(machine, cuStreamQuery(stream)), unsupported);
    assert_broken(&machine, stream, unsupported);
}

#[test]
fn querying_an_event_of_captured_work_breaks_the_capture() {
    let machine = Machine::new();
    let (stream, event) = (machine.stream(), machine.event());
    assert_eq!(machine.begin(stream), SUCCESS);
    assert_eq!(cu!(machine, cuEventRecord(event, stream)), SUCCESS);
    let reason = CUresult::CUDA_ERROR_CAPTURED_EVENT;
    assert_eq!(cu!(machine, cuEventQuery(event)), reason);
    let gone = CUresult::CUDA_ERROR_INVALID_VALUE;
    assert_eq!(cu!(machine, cuEventSynchronize(event)), gone, "what it stood for is lost");
    assert_broken(&machine, stream, reason);
}

#[test]
fn the_legacy_stream_breaks_captures_of_blocking_streams_only() {
    let machine = Machine::new();
    let (word, stream) = (machine.zero(), machine.stream_with(CU_STREAM_DEFAULT));
    assert_eq!(machine.begin(stream), SUCCESS);
    let reason = CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    assert_eq!(machine.append(word, 1, CUstream::NULL), reason);
    assert_broken(&machine, stream, reason);

    let machine = Machine::new();
    let (word, stream) = (machine.zero(), machine.stream());
    assert_eq!(machine.begin(stream), SUCCESS);
    assert_eq!(machine.append(word, 1, CUstream::NULL), SUCCESS);
    assert_eq!(machine.end(stream).0, SUCCESS);
}

#[test]
fn an_unjoined_stream_ends_the_capture_without_a_graph() {
    let machine = Machine::new();
    let (word, event) = (machine.zero(), machine.event());
    let (stream, side) = (machine.stream(), machine.stream());
    assert_eq!(machine.begin(stream), SUCCESS);
    assert_eq!(cu!(machine, cuEventRecord(event, stream)), SUCCESS);
    assert_eq!(cu!(machine, cuStreamWaitEvent(side, event, 0)), SUCCESS);
    assert_eq!(machine.append(word, 1, side), SUCCESS);
    let unjoined = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    assert_eq!(machine.end(stream), (unjoined, CUgraph::NULL));
    assert_eq!(machine.append(word, 1, side), SUCCESS, "the side stream is free again");
    assert_eq!(machine.sync(side), SUCCESS);
    assert_eq!(machine.peek(word), 1);
    assert_eq!(machine.simulator.live().graphs, 0);
}

#[test]
fn ending_on_a_forked_stream_is_unmatched() {
    let machine = Machine::new();
    let (stream, side, event) = (machine.stream(), machine.stream(), machine.event());
    assert_eq!(machine.begin(stream), SUCCESS);
    assert_eq!(cu!(machine, cuEventRecord(event, stream)), SUCCESS);
    assert_eq!(cu!(machine, cuStreamWaitEvent(side, event, 0)), SUCCESS);
    let reason = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    assert_eq!(machine.end(side), (reason, CUgraph::NULL));
    assert_broken(&machine, stream, reason);
}

#[test]
fn two_captures_cannot_be_joined() {
    let machine = Machine::new();
    let (first, second, event) = (machine.stream(), machine.stream(), machine.event());
    assert_eq!(machine.begin(first), SUCCESS);
    assert_eq!(machine.begin(second), SUCCESS);
    assert_eq!(cu!(machine, cuEventRecord(event, first)), SUCCESS);
    let reason = CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE;
    assert_eq!(cu!(machine, cuStreamWaitEvent(second, event, 0)), reason);
    assert_eq!(machine.end(second), (INVALIDATED, CUgraph::NULL));
    assert_broken(&machine, first, reason);
}

#[test]
fn captured_work_cannot_depend_on_work_outside() {
    let machine = Machine::new();
    let (word, stream, other) = (machine.zero(), machine.stream(), machine.stream());
    let event = machine.event();
    assert_eq!(machine.append(word, 1, other), SUCCESS);
    assert_eq!(cu!(machine, cuEventRecord(event, other)), SUCCESS);
    assert_eq!(machine.begin(stream), SUCCESS);
    let reason = CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    assert_eq!(cu!(machine, cuStreamWaitEvent(stream, event, 0)), reason);
    assert_broken(&machine, stream, reason);
}

#[test]
fn another_thread_cannot_end_a_capture_unless_it_is_relaxed() {
    let machine = Machine::new();
    let stream = machine.stream();
    let end_elsewhere = || {
        std::thread::scope(|scope| {
            let end = || {
                machine.enter();
                machine.end(stream).0
            };
            scope.spawn(end).join().expect("the thread does not panic")
        })
    };
    assert_eq!(machine.begin(stream), SUCCESS);
    let reason = CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    assert_eq!(end_elsewhere(), reason);
    assert_recovered(&machine, stream, reason);
    let relaxed = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    assert_eq!(cu!(machine, cuStreamBeginCapture_v2(stream, relaxed)), SUCCESS);
    assert_eq!(end_elsewhere(), SUCCESS);
}

#[test]
fn invalid_begins_and_ends_of_captures_are_refused() {
    let machine = Machine::new();
    let stream = machine.stream();
    let illegal = CUresult::CUDA_ERROR_ILLEGAL_STATE;
    assert_eq!(machine.end(stream), (illegal, CUgraph::NULL));
    let legacy = machine.begin(CUstream::LEGACY);
    assert_eq!(legacy, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_eq!(machine.begin(stream), SUCCESS);
    assert_eq!(machine.begin(stream), illegal);
    let (code, graph) = machine.end(stream);
    assert_eq!(code, SUCCESS);
    let mut nodes = 9;
    let null = std::ptr::null_mut();
    assert_eq!(cu!(machine, cuGraphGetNodes(graph, null, &mut nodes)), SUCCESS);
    assert_eq!(nodes, 0);
}
