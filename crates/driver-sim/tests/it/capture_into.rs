//! Captures into a given graph, after given nodes; captures of special streams.

use retrograph_driver_sys::*;

use crate::machine::{Machine, cu};

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;
const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
const ACTIVE: CUstreamCaptureStatus = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE;

/// A graph of two nodes without edges.
fn pair(machine: &Machine) -> (CUgraph, CUgraphNode, CUgraphNode) {
    let mut graph = CUgraph::NULL;
    assert_eq!(cu!(machine, cuGraphCreate(&mut graph, 0)), SUCCESS);
    (graph, empty(machine, graph), empty(machine, graph))
}

fn empty(machine: &Machine, graph: CUgraph) -> CUgraphNode {
    let mut node = CUgraphNode::NULL;
    let none = std::ptr::null();
    assert_eq!(cu!(machine, cuGraphAddEmptyNode(&mut node, graph, none, 0)), SUCCESS);
    node
}

/// The dependencies of the last node of a graph.
fn last_dependencies(machine: &Machine, graph: CUgraph) -> Vec<CUgraphNode> {
    let (mut nodes, mut count) = ([CUgraphNode::NULL; 8], 8);
    assert_eq!(cu!(machine, cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count)), SUCCESS);
    let last = nodes[count - 1];
    let (mut found, mut count) = ([CUgraphNode::NULL; 8], 8);
    let code = cu!(machine, cuGraphNodeGetDependencies(last, found.as_mut_ptr(), &mut count));
    assert_eq!(code, SUCCESS);
    found[..count].to_vec()
}

pub(crate) fn begin_into(
    machine: &Machine,
    stream: CUstream,
    graph: CUgraph,
    nodes: &[CUgraphNode],
) -> CUresult {
    let driver = machine.simulator.table();
    let begin = driver.cuStreamBeginCaptureToGraph.expect("the driver is new enough");
    // SAFETY: the list is valid during the call.
    unsafe { begin(stream, graph, nodes.as_ptr(), std::ptr::null(), nodes.len(), RELAXED) }
}

#[test]
fn a_capture_continues_a_graph_after_its_nodes() {
    let machine = Machine::new();
    let (word, stream) = (machine.zero(), machine.stream());
    let (graph, first, second) = pair(&machine);
    assert_eq!(begin_into(&machine, stream, graph, &[first, second]), SUCCESS);
    assert_eq!(machine.append(word, 1, stream), SUCCESS);
    assert_eq!(machine.end(stream), (SUCCESS, graph));
    assert_eq!(last_dependencies(&machine, graph), [first, second]);
    let exec = machine.instantiate(graph).unwrap();
    assert_eq!(cu!(machine, cuGraphLaunch(exec, stream)), SUCCESS);
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!(machine.peek(word), 1);
}

#[test]
fn captures_into_one_graph_share_an_id() {
    let machine = Machine::new();
    let [stream, other] = [machine.stream(), machine.stream()];
    let [(first, ..), (second, ..)] = [pair(&machine), pair(&machine)];
    let number = |stream, graph| {
        assert_eq!(begin_into(&machine, stream, graph, &[]), SUCCESS);
        let (mut status, mut id) = (ACTIVE, 0);
        let (mut found, mut nodes, mut count) = (CUgraph::NULL, std::ptr::null(), 0);
        let (status, nodes) = (&mut status, &mut nodes);
        let info = cu!(
            machine,
            cuStreamGetCaptureInfo_v2(stream, status, &mut id, &mut found, nodes, &mut count)
        );
        assert_eq!((info, found), (SUCCESS, graph));
        assert_eq!(machine.end(stream), (SUCCESS, graph));
        id
    };
    let one = number(stream, first);
    assert_eq!([number(stream, first), number(other, first)], [one; 2]);
    assert_ne!(number(stream, second), one);
}

#[test]
fn a_lost_capture_takes_the_given_graph_with_it() {
    let machine = Machine::new();
    let (graph, first, _) = pair(&machine);
    let stream = machine.stream();
    assert_eq!(begin_into(&machine, stream, graph, &[first]), SUCCESS);
    assert_ne!(machine.sync(stream), SUCCESS);
    assert_eq!(machine.end(stream).1, CUgraph::NULL);
    assert_eq!(machine.simulator.live().graphs, 0);
    let mut count = 0;
    let code = cu!(machine, cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count));
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(machine, cuGraphDestroy(graph)), CUresult::CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn dependencies_of_a_capture_are_replaced_or_added_to() {
    for (flags, expected) in
        [(CU_STREAM_SET_CAPTURE_DEPENDENCIES, 1), (CU_STREAM_ADD_CAPTURE_DEPENDENCIES, 2)]
    {
        let machine = Machine::new();
        let (graph, first, mut second) = pair(&machine);
        let (word, stream) = (machine.zero(), machine.stream());
        assert_eq!(begin_into(&machine, stream, graph, &[first]), SUCCESS);
        let code = cu!(machine, cuStreamUpdateCaptureDependencies(stream, &mut second, 1, flags));
        assert_eq!(code, SUCCESS);
        assert_eq!(machine.append(word, 1, stream), SUCCESS);
        assert_eq!(machine.end(stream), (SUCCESS, graph));
        let found = last_dependencies(&machine, graph);
        assert!(found.len() == expected && found.contains(&second), "{found:?}");
    }
}

#[test]
fn each_thread_has_a_per_thread_stream() {
    let machine = Machine::new();
    let own = CUstream::PER_THREAD;
    assert_eq!(cu!(machine, cuStreamBeginCapture_v2(own, RELAXED)), SUCCESS);
    assert_eq!(machine.status(own), ACTIVE);
    let elsewhere = std::thread::scope(|scope| {
        let ask = || {
            machine.enter();
            machine.status(own)
        };
        scope.spawn(ask).join().expect("the thread does not panic")
    });
    assert_ne!(elsewhere, ACTIVE);
    assert_eq!(machine.end(own).0, SUCCESS);
    assert_eq!(machine.simulator.live().streams, 0, "nobody has to destroy it");
}
