//! Nodes with effects outside their graph: host functions, events, memory; the objects that they
//! retain.

use std::ffi::c_void;
use std::sync::Mutex;

use retrograph_driver_sim::DiagnosticKind;
use retrograph_driver_sys::*;

use crate::machine::{Machine, cu};

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;
const INVALID_VALUE: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// The values written by host functions.
pub(crate) type Log = Mutex<Vec<u32>>;

/// A number for a log, the data of a host function.
pub(crate) struct Entry<'a> {
    pub(crate) log: &'a Log,
    pub(crate) number: u32,
}

/// # Safety
/// The data is a live entry.
pub(crate) unsafe extern "C" fn log_entry(data: *mut c_void) {
    // SAFETY: by the contract of the function.
    let entry = unsafe { &*data.cast::<Entry<'_>>() };
    entry.log.lock().unwrap().push(entry.number);
}

fn call_of(entry: &Entry<'_>) -> CUDA_HOST_NODE_PARAMS {
    let userData = std::ptr::from_ref(entry).cast_mut().cast();
    CUDA_HOST_NODE_PARAMS { r#fn: Some(log_entry), userData }
}

impl Machine {
    /// Adds a node that allocates bytes on the first device. Returns the node and the address.
    pub(crate) fn allocate_in(&self, graph: CUgraph, bytes: usize) -> (CUgraphNode, u64) {
        self.allocate_on(0, graph, bytes)
    }

    /// Adds a node that allocates bytes on a device. Returns the node and the address.
    pub(crate) fn allocate_on(
        &self,
        device: i32,
        graph: CUgraph,
        bytes: usize,
    ) -> (CUgraphNode, u64) {
        let (mut node, mut parameters) = (CUgraphNode::NULL, CUDA_MEM_ALLOC_NODE_PARAMS::default());
        let properties = &mut parameters.poolProps;
        properties.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.r#type = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        properties.location.id = device;
        parameters.bytesize = bytes;
        let (none, place) = (std::ptr::null(), &mut parameters);
        assert_eq!(cu!(self, cuGraphAddMemAllocNode(&mut node, graph, none, 0, place)), SUCCESS);
        (node, parameters.dptr)
    }

    /// Launches on a new stream and waits. Returns the code of the launch.
    fn try_launch(&self, exec: CUgraphExec) -> CUresult {
        let stream = self.stream();
        let code = cu!(self, cuGraphLaunch(exec, stream));
        assert_eq!(cu!(self, cuStreamSynchronize(stream)), SUCCESS);
        code
    }
}

#[test]
fn host_nodes_run_in_the_order_of_their_edges() {
    let machine = Machine::new();
    let (graph, log) = (machine.graph(), Log::default());
    let entries = [1, 2].map(|number| Entry { log: &log, number });
    let (mut first, mut second) = (CUgraphNode::NULL, CUgraphNode::NULL);
    let (none, call) = (std::ptr::null(), call_of(&entries[1]));
    assert_eq!(cu!(machine, cuGraphAddHostNode(&mut second, graph, none, 0, &call)), SUCCESS);
    let call = call_of(&entries[0]);
    assert_eq!(cu!(machine, cuGraphAddHostNode(&mut first, graph, none, 0, &call)), SUCCESS);
    assert_eq!(cu!(machine, cuGraphAddDependencies(graph, &first, &second, 1)), SUCCESS);
    let exec = machine.instantiate(graph).unwrap();
    machine.run(exec);
    machine.run(exec);
    assert_eq!(*log.lock().unwrap(), [1, 2, 1, 2]);
}

#[test]
fn memory_of_a_graph_is_allocated_from_a_launch_to_a_free() {
    let machine = Machine::new();
    let graph = machine.graph();
    let (node, address) = machine.allocate_in(graph, 4);
    machine.add(graph, c"append", address, 7, &[node]);
    let exec = machine.instantiate(graph).unwrap();
    let before = machine.simulator.live().allocations;
    assert_eq!(machine.try_launch(exec), SUCCESS);
    assert_eq!(machine.simulator.live().allocations, before + 1);
    assert_eq!(machine.peek(address) & 0xf, 7);
    // The allocation of the last launch was not freed.
    assert_eq!(machine.try_launch(exec), INVALID_VALUE);
    let stream = machine.stream();
    assert_eq!(cu!(machine, cuMemFreeAsync(address, stream)), SUCCESS);
    assert_eq!(cu!(machine, cuStreamSynchronize(stream)), SUCCESS);
    assert_eq!(machine.try_launch(exec), SUCCESS);
    assert_eq!(cu!(machine, cuMemFree_v2(address)), SUCCESS);
    assert_eq!(cu!(machine, cuMemFree_v2(address)), INVALID_VALUE);
    assert_eq!(machine.simulator.live().allocations, before);
}

#[test]
fn a_graph_can_free_memory_of_its_last_launch() {
    let machine = Machine::new();
    let graph = machine.graph();
    let (_, address) = machine.allocate_in(graph, 4);
    let mut exec = CUgraphExec::NULL;
    let flags = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    assert_eq!(cu!(machine, cuGraphInstantiateWithFlags(&mut exec, graph, flags)), SUCCESS);
    let before = machine.simulator.live().allocations;
    for _ in 0..3 {
        assert_eq!(machine.try_launch(exec), SUCCESS);
        assert_eq!(machine.simulator.live().allocations, before + 1);
    }
    assert_eq!(cu!(machine, cuMemFree_v2(address)), SUCCESS);
}

#[test]
fn a_stream_waits_for_the_event_that_a_graph_records() {
    let machine = Machine::new();
    let stream = machine.stream();
    let (graph, word) = (machine.graph(), machine.zero());
    let (mut event, mut node, mut other) = (CUevent::NULL, CUgraphNode::NULL, CUstream::NULL);
    assert_eq!(cu!(machine, cuEventCreate(&mut event, 0)), SUCCESS);
    assert_eq!(cu!(machine, cuStreamCreate(&mut other, 1)), SUCCESS);
    let written = machine.add(graph, c"append", word, 5, &[]);
    let code = cu!(machine, cuGraphAddEventRecordNode(&mut node, graph, &written, 1, event));
    assert_eq!(code, SUCCESS);
    let exec = machine.instantiate(graph).unwrap();
    assert_eq!(cu!(machine, cuGraphLaunch(exec, stream)), SUCCESS);
    assert_eq!(cu!(machine, cuStreamWaitEvent(other, event, 0)), SUCCESS);
    assert_eq!(cu!(machine, cuStreamSynchronize(other)), SUCCESS);
    assert_eq!(machine.peek(word), 5);
}

#[test]
fn the_high_watermark_of_graph_memory_is_kept_until_reset() {
    let (machine, stream) = (Machine::new(), CUstream::NULL);
    let ask = |attribute| {
        let mut value = u64::MAX;
        let place = (&raw mut value).cast();
        assert_eq!(cu!(machine, cuDeviceGetGraphMemAttribute(0, attribute, place)), SUCCESS);
        value
    };
    let now = CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT;
    let high = CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
    let graph = machine.graph();
    let (_, address) = machine.allocate_in(graph, 4);
    assert_eq!((ask(now), ask(high)), (0, 0));
    assert_eq!(machine.try_launch(machine.instantiate(graph).unwrap()), SUCCESS);
    assert_eq!((ask(now), ask(high)), (32 << 20, 32 << 20));
    assert_eq!(cu!(machine, cuMemFreeAsync(address, stream)), SUCCESS);
    assert_eq!(cu!(machine, cuDeviceGraphMemTrim(0)), SUCCESS);
    assert_eq!((ask(now), ask(high)), (0, 32 << 20));
}

#[test]
fn a_destroyed_node_is_removed_from_its_neighbours() {
    let machine = Machine::new();
    let (graph, word) = (machine.graph(), machine.zero());
    let first = machine.add(graph, c"store", word, 1, &[]);
    let second = machine.add(graph, c"store", word, 2, &[first]);
    let third = machine.add(graph, c"store", word, 3, &[first, second]);
    assert_eq!(cu!(machine, cuGraphDestroyNode(second)), SUCCESS);
    let (mut nodes, mut count) = ([CUgraphNode::NULL; 4], 4);
    let place = nodes.as_mut_ptr();
    assert_eq!(cu!(machine, cuGraphNodeGetDependentNodes(first, place, &mut count)), SUCCESS);
    assert_eq!(nodes[..count], [third]);
    count = 4;
    assert_eq!(cu!(machine, cuGraphNodeGetDependencies(third, place, &mut count)), SUCCESS);
    assert_eq!(nodes[..count], [first]);
}

#[test]
fn a_clone_has_the_kinds_of_edges_and_the_attributes_of_the_original() {
    let machine = Machine::new();
    let (graph, word) = (machine.graph(), machine.zero());
    let first = machine.add(graph, c"store", word, 1, &[]);
    let second = machine.add(graph, c"store", word, 2, &[]);
    let kind = CUgraphEdgeData { from_port: 1, r#type: 1, ..Default::default() };
    let driver = machine.simulator.table();
    let depend = driver.cuGraphAddDependencies_v2.expect("a driver of today has it");
    // SAFETY: every pointer is valid during the call.
    assert_eq!(unsafe { depend(graph, &first, &second, &kind, 1) }, SUCCESS);
    let priority = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY;
    let high = CUlaunchAttributeValue { priority: -1 };
    assert_eq!(cu!(machine, cuGraphKernelNodeSetAttribute(second, priority, &high)), SUCCESS);

    let (mut clone, mut twin) = (CUgraph::NULL, CUgraphNode::NULL);
    assert_eq!(cu!(machine, cuGraphClone(&mut clone, graph)), SUCCESS);
    assert_eq!(cu!(machine, cuGraphNodeFindInClone(&mut twin, second, clone)), SUCCESS);
    let (mut from, mut found, mut count) = (CUgraphNode::NULL, CUgraphEdgeData::default(), 1);
    let ask = driver.cuGraphNodeGetDependencies_v2.expect("a driver of today has it");
    // SAFETY: as above.
    let asked = unsafe { ask(twin, &mut from, &mut found, &mut count) };
    assert_eq!((asked, count, found), (SUCCESS, 1, kind));
    let mut value = CUlaunchAttributeValue { priority: 0 };
    assert_eq!(cu!(machine, cuGraphKernelNodeGetAttribute(twin, priority, &mut value)), SUCCESS);
    // SAFETY: the driver wrote this field.
    assert_eq!(unsafe { value.priority }, -1);
}

#[test]
fn nodes_for_a_context_that_does_not_exist_are_undefined() {
    let copy = |machine: &Machine, graph, words, context| {
        let (mut node, none) = (CUgraphNode::NULL, std::ptr::null());
        let copy = CUDA_MEMCPY3D::device_to_device(words, words + 4, 4);
        cu!(machine, cuGraphAddMemcpyNode(&mut node, graph, none, 0, &copy, context))
    };
    let fill = |machine: &Machine, graph, words, context| {
        let (mut node, none) = (CUgraphNode::NULL, std::ptr::null());
        let mut fill = CUDA_MEMSET_NODE_PARAMS { dst: words, value: 7, ..Default::default() };
        (fill.elementSize, fill.width, fill.height) = (4, 1, 1);
        cu!(machine, cuGraphAddMemsetNode(&mut node, graph, none, 0, &fill, context))
    };
    type Add = dyn Fn(&Machine, CUgraph, u64, CUcontext) -> CUresult;
    for add in [&copy as &Add, &fill] {
        let machine = Machine::new();
        let (graph, words) = (machine.graph(), machine.words(&[1, 2]));
        assert_eq!(add(&machine, graph, words, machine.context), SUCCESS);
        assert_eq!(add(&machine, graph, words, CUcontext::NULL), SUCCESS);
        let never = CUcontext(std::ptr::without_provenance_mut(64));
        assert_eq!(add(&machine, graph, words, never), CUresult::CUDA_ERROR_UNKNOWN);
        assert_eq!(machine.diagnostics(DiagnosticKind::Undefined).len(), 1);
    }
}

#[test]
fn memory_that_a_graph_frees_and_allocates_again_is_fresh() {
    let machine = Machine::new();
    let graph = machine.graph();
    let (_, address) = machine.allocate_in(graph, 4);
    let mut exec = CUgraphExec::NULL;
    let flags = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    assert_eq!(cu!(machine, cuGraphInstantiateWithFlags(&mut exec, graph, flags)), SUCCESS);
    assert_eq!(machine.try_launch(exec), SUCCESS);
    let fresh = machine.peek(address);
    assert_eq!(cu!(machine, cuMemsetD32_v2(address, 5, 1)), SUCCESS);
    assert_eq!(machine.peek(address), 5);
    assert_eq!(machine.try_launch(exec), SUCCESS);
    assert_eq!(machine.peek(address), fresh, "what was there before is poisoned");
}

#[test]
fn a_free_waits_for_the_launch_that_allocates() {
    let machine = Machine::new();
    let (graph, stream, word) = (machine.graph(), machine.stream(), machine.zero());
    let (node, address) = machine.allocate_in(graph, 4);
    let written = machine.add(graph, c"store", address, 3, &[node]);
    machine.add(graph, c"store", word, 3, &[written]);
    let exec = machine.instantiate(graph).unwrap();
    assert_eq!(cu!(machine, cuGraphLaunch(exec, stream)), SUCCESS);
    assert_eq!(cu!(machine, cuMemFree_v2(address)), SUCCESS);
    assert_eq!(machine.peek(word), 3, "the launch ran before its memory went");
}

#[test]
fn graph_memory_is_reported_with_address_and_high_watermark() {
    let machine = Machine::new();
    let graph = machine.graph();
    let (node, address) = machine.allocate_in(graph, 4);
    let mut told = CUDA_MEM_ALLOC_NODE_PARAMS::default();
    assert_eq!(cu!(machine, cuGraphMemAllocNodeGetParams(node, &mut told)), SUCCESS);
    assert_eq!((told.dptr, told.bytesize), (address, 4));

    let high = CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH;
    let highest = || {
        let mut bytes = 0u64;
        let place = (&raw mut bytes).cast();
        assert_eq!(cu!(machine, cuDeviceGetGraphMemAttribute(0, high, place)), SUCCESS);
        bytes
    };
    let exec = machine.instantiate(graph).unwrap();
    assert_eq!(machine.try_launch(exec), SUCCESS);
    assert_eq!(cu!(machine, cuMemFree_v2(address)), SUCCESS);
    assert_eq!(cu!(machine, cuDeviceGraphMemTrim(0)), SUCCESS);
    assert!(highest() > 0, "what was in use once");
    let mut zero = 0u64;
    let place = (&raw mut zero).cast();
    assert_eq!(cu!(machine, cuDeviceSetGraphMemAttribute(0, high, place)), SUCCESS);
    assert_eq!(highest(), 0, "what is in use now");
}
