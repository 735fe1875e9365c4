//! Changing the parameters of templates and of instantiated graphs.

use retrograph_driver_sim::DiagnosticKind;
use retrograph_driver_sys::*;

use crate::machine::{Machine, cu};

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;
const INVALID_VALUE: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

impl Machine {
    /// The parameters of `store` for an address and a word, which must outlive them.
    fn store(&self, list: &mut [*mut std::ffi::c_void; 2]) -> CUDA_KERNEL_NODE_PARAMS {
        let (func, kernelParams) = (self.function(c"store"), list.as_mut_ptr());
        CUDA_KERNEL_NODE_PARAMS { func, kernelParams, ..Default::default() }
    }

    fn set_exec(
        &self,
        exec: CUgraphExec,
        node: CUgraphNode,
        mut address: u64,
        mut word: u32,
    ) -> CUresult {
        let mut list = [(&raw mut address).cast(), (&raw mut word).cast()];
        let parameters = self.store(&mut list);
        cu!(self, cuGraphExecKernelNodeSetParams_v2(exec, node, &parameters))
    }

    fn update(&self, exec: CUgraphExec, graph: CUgraph) -> (CUresult, CUgraphExecUpdateResultInfo) {
        let mut info = CUgraphExecUpdateResultInfo::default();
        (cu!(self, cuGraphExecUpdate_v2(exec, graph, &mut info)), info)
    }
}

#[test]
fn an_instantiated_graph_is_a_copy_of_the_template() {
    let machine = Machine::new();
    let (graph, word) = (machine.graph(), machine.zero());
    let node = machine.add(graph, c"store", word, 1, &[]);
    let exec = machine.instantiate(graph).unwrap();
    let (mut address, mut value) = (word, 2u32);
    let mut list = [(&raw mut address).cast(), (&raw mut value).cast()];
    let parameters = machine.store(&mut list);
    assert_eq!(cu!(machine, cuGraphKernelNodeSetParams_v2(node, &parameters)), SUCCESS);
    machine.run(exec);
    assert_eq!(machine.peek(word), 1, "the template changed, not the instantiated graph");
    machine.run(machine.instantiate(graph).unwrap());
    assert_eq!(machine.peek(word), 2);
}

#[test]
fn node_parameters_can_be_queried() {
    let machine = Machine::new();
    let (graph, word) = (machine.graph(), machine.zero());
    let node = machine.add(graph, c"store", word, 0xabcd, &[]);
    let mut asked = CUDA_KERNEL_NODE_PARAMS::default();
    assert_eq!(cu!(machine, cuGraphKernelNodeGetParams_v2(node, &mut asked)), SUCCESS);
    assert_eq!(asked.func, machine.function(c"store"));
    // SAFETY: the pointers are valid for the values of the node, a u64 and a u32, while the node
    // lives.
    let (address, value) = unsafe {
        let list = std::slice::from_raw_parts(asked.kernelParams, 2);
        (list[0].cast::<u64>().read_unaligned(), list[1].cast::<u32>().read_unaligned())
    };
    assert_eq!((address, value), (word, 0xabcd));

    let (mut address, mut value) = (word, 0x1234u32);
    let mut list = [(&raw mut address).cast(), (&raw mut value).cast()];
    let parameters = machine.store(&mut list);
    assert_eq!(cu!(machine, cuGraphKernelNodeSetParams_v2(node, &parameters)), SUCCESS);
    assert_eq!(cu!(machine, cuGraphKernelNodeGetParams_v2(node, &mut asked)), SUCCESS);
    // SAFETY: as above, for the values that the node was set to.
    let value = unsafe { asked.kernelParams.add(1).read().cast::<u32>().read_unaligned() };
    assert_eq!(value, 0x1234);
}

#[test]
fn new_parameters_hold_for_later_launches_only() {
    let machine = Machine::new();
    let (graph, first, second) = (machine.graph(), machine.zero(), machine.zero());
    let node = machine.add(graph, c"store", first, 1, &[]);
    let exec = machine.instantiate(graph).unwrap();
    let stream = machine.stream();
    assert_eq!(cu!(machine, cuGraphLaunch(exec, stream)), SUCCESS);
    assert_eq!(machine.set_exec(exec, node, second, 2), SUCCESS);
    assert_eq!(cu!(machine, cuGraphLaunch(exec, stream)), SUCCESS);
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!((machine.peek(first), machine.peek(second)), (1, 2));
}

#[test]
fn nodes_of_other_graphs_and_of_destroyed_ones_are_refused() {
    let machine = Machine::new();
    let (graph, other, word) = (machine.graph(), machine.graph(), machine.zero());
    let node = machine.add(graph, c"store", word, 1, &[]);
    let other_graph = machine.add(other, c"store", word, 1, &[]);
    let exec = machine.instantiate(graph).unwrap();
    assert_eq!(machine.set_exec(exec, other_graph, word, 2), INVALID_VALUE);
    assert_eq!(cu!(machine, cuGraphDestroy(graph)), SUCCESS);
    assert_eq!(machine.set_exec(exec, node, word, 2), CUresult::CUDA_ERROR_UNKNOWN);
    assert_eq!(machine.diagnostics(DiagnosticKind::Undefined).len(), 1);
}

#[test]
fn copy_and_fill_nodes_take_new_parameters_of_the_same_kind() {
    let machine = Machine::new();
    let (graph, words, context) = (machine.graph(), machine.words(&[1, 2, 3]), machine.context);
    let (mut copy, mut fill, none) = (CUgraphNode::NULL, CUgraphNode::NULL, std::ptr::null());
    let old = CUDA_MEMCPY3D::device_to_device(words, words + 4, 4);
    let code = cu!(machine, cuGraphAddMemcpyNode(&mut copy, graph, none, 0, &old, context));
    assert_eq!(code, SUCCESS);
    let row = |value| CUDA_MEMSET_NODE_PARAMS {
        dst: words + 8,
        value,
        elementSize: 4,
        width: 1,
        height: 1,
        ..Default::default()
    };
    let code = cu!(machine, cuGraphAddMemsetNode(&mut fill, graph, &copy, 1, &row(8), context));
    assert_eq!(code, SUCCESS);
    let exec = machine.instantiate(graph).unwrap();
    let new = CUDA_MEMCPY3D::device_to_device(words, words + 8, 4);
    assert_eq!(cu!(machine, cuGraphExecMemcpyNodeSetParams(exec, copy, &new, context)), SUCCESS);
    let set = cu!(machine, cuGraphExecMemsetNodeSetParams(exec, fill, &row(9), context));
    assert_eq!(set, SUCCESS);
    let host = machine.pinned(&[0]);
    let other = CUDA_MEMCPY3D::host_to_device(words, host.cast(), 4);
    let set = cu!(machine, cuGraphExecMemcpyNodeSetParams(exec, copy, &other, context));
    assert_eq!(set, INVALID_VALUE, "the kind of memory cannot change");
    machine.run(exec);
    assert_eq!((machine.peek(words), machine.peek(words + 8)), (3, 9));
}

#[test]
fn an_update_copies_the_parameters_of_a_graph_of_the_same_shape() {
    let machine = Machine::new();
    let word = machine.zero();
    let make = |digits: [u32; 2]| {
        let graph = machine.graph();
        let first = machine.add(graph, c"append", word, digits[0], &[]);
        machine.add(graph, c"append", word, digits[1], &[first]);
        graph
    };
    let exec = machine.instantiate(make([1, 2])).unwrap();
    let (code, info) = machine.update(exec, make([3, 4]));
    assert_eq!(code, SUCCESS);
    assert_eq!(info.result, CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_SUCCESS);
    machine.run(exec);
    assert_eq!(machine.peek(word), 0x34);
}

#[test]
fn an_update_to_another_shape_is_refused_and_changes_nothing() {
    use CUgraphExecUpdateResult as R;
    let machine = Machine::new();
    let (graph, word) = (machine.graph(), machine.zero());
    let first = machine.add(graph, c"append", word, 1, &[]);
    machine.add(graph, c"append", word, 2, &[first]);
    let exec = machine.instantiate(graph).unwrap();
    let refused = CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;

    let fewer = machine.graph();
    machine.add(fewer, c"append", word, 3, &[]);
    let (code, info) = machine.update(exec, fewer);
    let topology = R::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    assert_eq!((code, info.result), (refused, topology));

    let no_edge = machine.graph();
    let loose = machine.add(no_edge, c"append", word, 3, &[]);
    machine.add(no_edge, c"append", word, 4, &[]);
    let (code, info) = machine.update(exec, no_edge);
    assert_eq!((code, info.result, info.errorNode), (refused, topology, loose));

    let other_type = machine.graph();
    let first = machine.add(other_type, c"append", word, 3, &[]);
    let mut empty = CUgraphNode::NULL;
    assert_eq!(cu!(machine, cuGraphAddEmptyNode(&mut empty, other_type, &first, 1)), SUCCESS);
    let (code, info) = machine.update(exec, other_type);
    let kind = R::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    assert_eq!((code, info.result, info.errorNode), (refused, kind, empty));

    machine.run(exec);
    assert_eq!(machine.peek(word), 0x12);
}

#[test]
fn a_replaced_child_graph_is_destroyed() {
    let machine = Machine::new();
    let (graph, first, second) = (machine.graph(), machine.graph(), machine.graph());
    let (mut node, mut inside, none) = (CUgraphNode::NULL, CUgraph::NULL, std::ptr::null());
    assert_eq!(cu!(machine, cuGraphAddChildGraphNode(&mut node, graph, none, 0, first)), SUCCESS);
    assert_eq!(cu!(machine, cuGraphChildGraphNodeGetGraph(node, &mut inside)), SUCCESS);
    let r#type = CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH;
    let mut parameters = CUgraphNodeParams { r#type, ..Default::default() };
    parameters.anonymous.graph =
        CUDA_CHILD_GRAPH_NODE_PARAMS { graph: second, ..Default::default() };
    let set = machine.simulator.table().cuGraphNodeSetParams.expect("driver 13.0 has it");
    // SAFETY: the pointer is valid during the call.
    assert_eq!(unsafe { set(node, &mut parameters) }, SUCCESS);
    let (mut count, nowhere) = (0, std::ptr::null_mut());
    let code = cu!(machine, cuGraphGetNodes(inside, nowhere, &mut count));
    assert_eq!(code, CUresult::CUDA_ERROR_UNKNOWN, "the first graph of the node is gone");
}
