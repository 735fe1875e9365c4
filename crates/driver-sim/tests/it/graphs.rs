//! Graphs built by API calls: structure, instantiation and the order of nodes.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};

use retrograph_driver_sim::DiagnosticKind;
use retrograph_driver_sys::*;

use crate::machine::{Machine, cu};

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;
const INVALID_VALUE: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

impl Machine {
    pub(crate) fn graph(&self) -> CUgraph {
        let mut graph = CUgraph::NULL;
        assert_eq!(cu!(self, cuGraphCreate(&mut graph, 0)), SUCCESS);
        graph
    }

    /// Adds a launch of one thread of a kernel with parameters address and word.
    pub(crate) fn add(
        &self,
        graph: CUgraph,
        kernel: &CStr,
        address: CUdeviceptr,
        word: u32,
        dependencies: &[CUgraphNode],
    ) -> CUgraphNode {
        let (mut address, mut word, mut node) = (address, word, CUgraphNode::NULL);
        let mut list = [(&raw mut address).cast(), (&raw mut word).cast()];
        let func = self.function(kernel);
        let kernelParams = list.as_mut_ptr();
        let parameters = CUDA_KERNEL_NODE_PARAMS { func, kernelParams, ..Default::default() };
        let (first, count) = (dependencies.as_ptr(), dependencies.len());
        let code = cu!(self, cuGraphAddKernelNode_v2(&mut node, graph, first, count, &parameters));
        assert_eq!(code, SUCCESS);
        node
    }

    pub(crate) fn run(&self, exec: CUgraphExec) {
        let stream = self.stream();
        assert_eq!(cu!(self, cuGraphLaunch(exec, stream)), SUCCESS);
        assert_eq!(self.sync(stream), SUCCESS);
    }
}

#[test]
fn nodes_run_in_all_topological_orders_and_no_other() {
    let run = |seed, edges: bool| {
        let machine = Machine::seeded(seed);
        let (graph, word) = (machine.graph(), machine.zero());
        let first = machine.add(graph, c"append", word, 1, &[]);
        let dependencies: &[_] = if edges { &[first] } else { &[] };
        machine.add(graph, c"append", word, 2, dependencies);
        machine.add(graph, c"append", word, 3, dependencies);
        machine.run(machine.instantiate(graph).unwrap());
        machine.peek(word)
    };
    let with: BTreeSet<_> = (0..64).map(|seed| run(seed, true)).collect();
    assert_eq!(with, BTreeSet::from([0x123, 0x132]));
    let without: BTreeSet<_> = (0..64).map(|seed| run(seed, false)).collect();
    assert_eq!(without.len(), 6, "a missing edge shows: {without:x?}");
}

#[test]
fn a_graph_returns_its_nodes_and_edges() {
    let machine = Machine::new();
    let (graph, word) = (machine.graph(), machine.zero());
    let first = machine.add(graph, c"append", word, 1, &[]);
    let second = machine.add(graph, c"append", word, 2, &[first]);
    let mut third = CUgraphNode::NULL;
    let none = std::ptr::null();
    assert_eq!(cu!(machine, cuGraphAddEmptyNode(&mut third, graph, none, 0)), SUCCESS);
    assert_eq!(cu!(machine, cuGraphAddDependencies(graph, &second, &third, 1)), SUCCESS);
    let again = cu!(machine, cuGraphAddDependencies(graph, &second, &third, 1));
    assert_eq!(again, INVALID_VALUE, "an edge exists once");

    let (mut nodes, mut count) = ([CUgraphNode::NULL; 4], 4);
    assert_eq!(cu!(machine, cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count)), SUCCESS);
    assert_eq!((count, nodes), (3, [first, second, third, CUgraphNode::NULL]));
    let (mut from, mut to, mut count) = ([CUgraphNode::NULL; 2], [CUgraphNode::NULL; 2], 2);
    let (starts, ends) = (from.as_mut_ptr(), to.as_mut_ptr());
    assert_eq!(cu!(machine, cuGraphGetEdges(graph, starts, ends, &mut count)), SUCCESS);
    assert_eq!((count, from, to), (2, [first, second], [second, third]));
    let (mut roots, mut count) = ([CUgraphNode::NULL; 1], 1);
    assert_eq!(cu!(machine, cuGraphGetRootNodes(graph, roots.as_mut_ptr(), &mut count)), SUCCESS);
    assert_eq!((count, roots), (1, [first]));
    let mut kind = CUgraphNodeType(99);
    assert_eq!(cu!(machine, cuGraphNodeGetType(third, &mut kind)), SUCCESS);
    assert_eq!(kind, CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY);
}

#[test]
fn a_cycle_is_detected_at_instantiation() {
    let machine = Machine::new();
    let (graph, word) = (machine.graph(), machine.zero());
    let first = machine.add(graph, c"append", word, 1, &[]);
    let second = machine.add(graph, c"append", word, 2, &[first]);
    assert_eq!(cu!(machine, cuGraphAddDependencies(graph, &second, &first, 1)), SUCCESS);
    assert_eq!(machine.instantiate(graph), Err(INVALID_VALUE));
    let instantiate = machine.simulator.table().cuGraphInstantiateWithParams;
    let mut exec = CUgraphExec::NULL;
    let mut parameters = CUDA_GRAPH_INSTANTIATE_PARAMS {
        flags: 0,
        hUploadStream: CUstream::NULL,
        hErrNode_out: CUgraphNode::NULL,
        result_out: CUgraphInstantiateResult(99),
    };
    // SAFETY: the pointers are valid during the call.
    assert_eq!(unsafe { instantiate(&mut exec, graph, &mut parameters) }, INVALID_VALUE);
    let invalid = CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
    assert_eq!((parameters.result_out, parameters.hErrNode_out), (invalid, second));
}

#[test]
fn copies_and_fills_are_nodes() {
    let machine = Machine::new();
    let (graph, words) = (machine.graph(), machine.words(&[0; 4]));
    let host = machine.pinned(&[5]);
    let (mut fill, mut copy, mut back) = (CUgraphNode::NULL, CUgraphNode::NULL, CUgraphNode::NULL);
    let none = std::ptr::null();
    let context = machine.context;
    let parameters = CUDA_MEMSET_NODE_PARAMS {
        dst: words,
        pitch: 8,
        value: 3,
        elementSize: 4,
        width: 1,
        height: 2,
    };
    let code = cu!(machine, cuGraphAddMemsetNode(&mut fill, graph, none, 0, &parameters, context));
    assert_eq!(code, SUCCESS);
    let to_device = CUDA_MEMCPY3D::host_to_device(words + 4, host.cast(), 4);
    let code = cu!(machine, cuGraphAddMemcpyNode(&mut copy, graph, none, 0, &to_device, context));
    assert_eq!(code, SUCCESS);
    let inside = CUDA_MEMCPY3D::device_to_device(words + 12, words + 8, 4);
    let code = cu!(machine, cuGraphAddMemcpyNode(&mut back, graph, &fill, 1, &inside, context));
    assert_eq!(code, SUCCESS);
    let exec = machine.instantiate(graph).unwrap();
    // SAFETY: the pinned word lives. The copy reads it at replay.
    unsafe { host.write(6) };
    machine.run(exec);
    let read: Vec<_> = (0..4).map(|index| machine.peek(words + 4 * index)).collect();
    assert_eq!(read, [3, 6, 3, 3]);
    let mut asked = CUDA_MEMCPY3D::device_to_device(0, 0, 0);
    assert_eq!(cu!(machine, cuGraphMemcpyNodeGetParams(copy, &mut asked)), SUCCESS);
    assert_eq!(asked, to_device);
}

#[test]
fn a_child_graph_is_a_copy() {
    let machine = Machine::new();
    let (graph, child, word) = (machine.graph(), machine.graph(), machine.zero());
    machine.add(child, c"append", word, 1, &[]);
    let mut node = CUgraphNode::NULL;
    let none = std::ptr::null();
    let code = cu!(machine, cuGraphAddChildGraphNode(&mut node, graph, none, 0, child));
    assert_eq!(code, SUCCESS);
    machine.add(child, c"append", word, 2, &[]);
    machine.add(graph, c"append", word, 3, &[node]);
    assert_eq!(cu!(machine, cuGraphDestroy(child)), SUCCESS);
    machine.run(machine.instantiate(graph).unwrap());
    assert_eq!(machine.peek(word), 0x13);
    let mut inner = CUgraph::NULL;
    assert_eq!(cu!(machine, cuGraphChildGraphNodeGetGraph(node, &mut inner)), SUCCESS);
    assert_eq!(cu!(machine, cuGraphDestroy(inner)), INVALID_VALUE, "the node owns it");
    assert_eq!(cu!(machine, cuGraphDestroy(graph)), SUCCESS);
    let undefined = machine.simulator.diagnostics();
    assert!(undefined.is_empty(), "{undefined:?}");
    let _ = cu!(machine, cuGraphDestroy(inner));
    assert_eq!(machine.simulator.diagnostics()[0].kind, DiagnosticKind::Undefined);
}

#[test]
fn launches_of_one_graph_do_not_overlap_even_on_two_streams() {
    for seed in 0..8 {
        let machine = Machine::seeded(seed);
        let (graph, word) = (machine.graph(), machine.zero());
        let first = machine.add(graph, c"append", word, 1, &[]);
        machine.add(graph, c"append", word, 2, &[first]);
        let exec = machine.instantiate(graph).unwrap();
        for _ in 0..2 {
            assert_eq!(cu!(machine, cuGraphLaunch(exec, machine.stream())), SUCCESS);
        }
        assert_eq!(cu!(machine, cuGraphExecDestroy(exec)), SUCCESS);
        assert_eq!(cu!(machine, cuCtxSynchronize()), SUCCESS);
        assert_eq!(machine.peek(word), 0x1212);
    }
}

#[test]
fn dot_output_has_kernels_edges_and_child_graphs() {
    let machine = Machine::new();
    let (graph, inner, word) = (machine.graph(), machine.graph(), machine.zero());
    let first = machine.add(graph, c"append", word, 1, &[]);
    machine.add(graph, c"store", word, 2, &[first]);
    machine.add(inner, c"append", word, 3, &[]);
    let (mut node, none) = (CUgraphNode::NULL, std::ptr::null());
    assert_eq!(cu!(machine, cuGraphAddChildGraphNode(&mut node, graph, none, 0, inner)), SUCCESS);
    let path = std::env::temp_dir().join(format!("simulated-{}.dot", std::process::id()));
    let text = CString::new(path.to_str().expect("a plain path")).expect("no zero byte");
    assert_eq!(cu!(machine, cuGraphDebugDotPrint(graph, text.as_ptr(), 1)), SUCCESS);
    let drawn = std::fs::read_to_string(&path).expect("the file was written");
    std::fs::remove_file(&path).expect("the file can be removed");
    assert!(drawn.contains("append grid") && drawn.matches("->").count() == 1, "{drawn}");
    assert_eq!(drawn.matches("append grid").count(), 2, "one of them inside of the child: {drawn}");
    let mut open = 0;
    for brace in drawn.chars().filter(|letter| "{}".contains(*letter)) {
        open += if brace == '{' { 1 } else { -1 };
    }
    assert_eq!(open, 0, "every part is closed: {drawn}");
}

#[test]
fn a_graph_for_device_launches_cannot_free_its_memory_at_a_launch() {
    let machine = Machine::new();
    let graph = machine.graph();
    let flags =
        CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
    let mut exec = CUgraphExec::NULL;
    assert_eq!(cu!(machine, cuGraphInstantiateWithFlags(&mut exec, graph, flags)), INVALID_VALUE);
    assert_eq!(exec, CUgraphExec::NULL);
}
