//! Nodes of graphs that reach outside: host functions, events, memory of graphs, objects of users.

use std::ffi::c_void;
use std::sync::Mutex;

use retrograph_driver_sys::*;

use crate::machine::{Machine, cu};

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;
const INVALID_VALUE: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// What host functions wrote.
type Log = Mutex<Vec<u32>>;

/// A number for a log, as the data of a host function.
struct Entry<'a> {
    log: &'a Log,
    number: u32,
}

/// # Safety
/// The data is an entry that lives.
unsafe extern "C" fn write_down(data: *mut c_void) {
    // SAFETY: by the contract of the function.
    let entry = unsafe { &*data.cast::<Entry<'_>>() };
    entry.log.lock().unwrap().push(entry.number);
}

fn call_of(entry: &Entry<'_>) -> CUDA_HOST_NODE_PARAMS {
    let userData = std::ptr::from_ref(entry).cast_mut().cast();
    CUDA_HOST_NODE_PARAMS { r#fn: Some(write_down), userData }
}

impl Machine {
    /// Adds a node that allocates bytes on the first device; gives it and the address.
    fn allocate_in(&self, graph: CUgraph, bytes: usize) -> (CUgraphNode, u64) {
        let (mut node, mut parameters) = (CUgraphNode::NULL, CUDA_MEM_ALLOC_NODE_PARAMS::default());
        let properties = &mut parameters.poolProps;
        properties.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.r#type = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        parameters.bytesize = bytes;
        let (none, place) = (std::ptr::null(), &mut parameters);
        assert_eq!(cu!(self, cuGraphAddMemAllocNode(&mut node, graph, none, 0, place)), SUCCESS);
        (node, parameters.dptr)
    }

    /// Launches on a stream of its own and waits; gives the code of the launch.
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
    machine.add(graph, (c"append", address, 7), &[node]);
    let exec = machine.instantiate(graph).unwrap();
    let before = machine.simulator.live().allocations;
    assert_eq!(machine.try_launch(exec), SUCCESS);
    assert_eq!(machine.simulator.live().allocations, before + 1);
    assert_eq!(machine.peek(address) & 0xf, 7);
    // Nobody freed what the last launch allocated.
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
fn a_graph_can_free_what_its_last_launch_left() {
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
fn an_object_lives_as_long_as_graphs_that_hold_it() {
    let machine = Machine::new();
    let stream = machine.stream();
    let (graph, log) = (machine.graph(), Log::default());
    let entry = Entry { log: &log, number: 9 };
    let (mut object, data) = (CUuserObject::NULL, std::ptr::from_ref(&entry).cast_mut().cast());
    let flags = CU_USER_OBJECT_NO_DESTRUCTOR_SYNC;
    let destroy = Some(write_down as unsafe extern "C" fn(*mut c_void));
    assert_eq!(cu!(machine, cuUserObjectCreate(&mut object, data, destroy, 1, flags)), SUCCESS);
    let moved = CU_GRAPH_USER_OBJECT_MOVE;
    assert_eq!(cu!(machine, cuGraphRetainUserObject(graph, object, 1, moved)), SUCCESS);
    let exec = machine.instantiate(graph).unwrap();
    assert_eq!(cu!(machine, cuGraphDestroy(graph)), SUCCESS);
    assert_eq!(cu!(machine, cuGraphLaunch(exec, stream)), SUCCESS);
    assert_eq!(cu!(machine, cuGraphExecDestroy(exec)), SUCCESS);
    assert!(log.lock().unwrap().is_empty(), "the launch has not run");
    assert_eq!(cu!(machine, cuStreamSynchronize(stream)), SUCCESS);
    assert_eq!(*log.lock().unwrap(), [9]);
}

#[test]
fn a_stream_waits_for_the_event_that_a_graph_records() {
    let machine = Machine::new();
    let stream = machine.stream();
    let (graph, word) = (machine.graph(), machine.zero());
    let (mut event, mut node, mut other) = (CUevent::NULL, CUgraphNode::NULL, CUstream::NULL);
    assert_eq!(cu!(machine, cuEventCreate(&mut event, 0)), SUCCESS);
    assert_eq!(cu!(machine, cuStreamCreate(&mut other, 1)), SUCCESS);
    let written = machine.add(graph, (c"append", word, 5), &[]);
    let code = cu!(machine, cuGraphAddEventRecordNode(&mut node, graph, &written, 1, event));
    assert_eq!(code, SUCCESS);
    let exec = machine.instantiate(graph).unwrap();
    assert_eq!(cu!(machine, cuGraphLaunch(exec, stream)), SUCCESS);
    assert_eq!(cu!(machine, cuStreamWaitEvent(other, event, 0)), SUCCESS);
    assert_eq!(cu!(machine, cuStreamSynchronize(other)), SUCCESS);
    assert_eq!(machine.peek(word), 5);
}
