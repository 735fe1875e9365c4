//! User objects: their references and destruction.

use retrograph_driver_sim::DiagnosticKind;
use retrograph_driver_sys::*;

use crate::capture_into::begin_into;
use crate::graph_nodes::{Entry, Log, log_entry};
use crate::machine::{Machine, cu};

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;

impl Machine {
    /// Creates an object whose destructor logs an entry, and moves it to a graph.
    pub(crate) fn hold(&self, graph: CUgraph, entry: &Entry<'_>) {
        let (mut object, data) = (CUuserObject::NULL, std::ptr::from_ref(entry).cast_mut().cast());
        let flags = CU_USER_OBJECT_NO_DESTRUCTOR_SYNC;
        let create = cu!(self, cuUserObjectCreate(&mut object, data, Some(log_entry), 1, flags));
        assert_eq!(create, SUCCESS);
        let moved = CU_GRAPH_USER_OBJECT_MOVE;
        assert_eq!(cu!(self, cuGraphRetainUserObject(graph, object, 1, moved)), SUCCESS);
    }
}

#[test]
fn an_object_lives_as_long_as_graphs_reference_it() {
    let (machine, log) = (Machine::new(), Log::default());
    let (stream, graph) = (machine.stream(), machine.graph());
    let entry = Entry { log: &log, number: 9 };
    machine.hold(graph, &entry);
    let exec = machine.instantiate(graph).unwrap();
    assert_eq!(cu!(machine, cuGraphDestroy(graph)), SUCCESS);
    assert_eq!(cu!(machine, cuGraphLaunch(exec, stream)), SUCCESS);
    assert_eq!(cu!(machine, cuGraphExecDestroy(exec)), SUCCESS);
    assert!(log.lock().unwrap().is_empty(), "the launch has not run");
    assert_eq!(cu!(machine, cuStreamSynchronize(stream)), SUCCESS);
    assert_eq!(*log.lock().unwrap(), [9]);
}

#[test]
fn each_destroyed_graph_waits_for_its_own_launch() {
    let (machine, log) = (Machine::new(), Log::default());
    let entries = [1, 2].map(|number| Entry { log: &log, number });
    let streams = entries.each_ref().map(|entry| {
        let (stream, graph) = (machine.stream(), machine.graph());
        machine.hold(graph, entry);
        let exec = machine.instantiate(graph).unwrap();
        assert_eq!(cu!(machine, cuGraphLaunch(exec, stream)), SUCCESS);
        assert_eq!(cu!(machine, cuGraphDestroy(graph)), SUCCESS);
        assert_eq!(cu!(machine, cuGraphExecDestroy(exec)), SUCCESS);
        stream
    });
    assert_eq!(machine.sync(streams[1]), SUCCESS);
    assert_eq!(*log.lock().unwrap(), [2]);
    assert_eq!(machine.sync(streams[0]), SUCCESS);
    assert_eq!(*log.lock().unwrap(), [2, 1]);
}

#[test]
fn an_update_retains_the_objects_of_the_new_graph() {
    let (machine, log) = (Machine::new(), Log::default());
    let (old, new) = (machine.graph(), machine.graph());
    let entries = [1, 2].map(|number| Entry { log: &log, number });
    machine.hold(old, &entries[0]);
    machine.hold(new, &entries[1]);
    let exec = machine.instantiate(old).unwrap();
    assert_eq!(cu!(machine, cuGraphDestroy(old)), SUCCESS);
    let mut info = CUgraphExecUpdateResultInfo::default();
    assert_eq!(cu!(machine, cuGraphExecUpdate_v2(exec, new, &mut info)), SUCCESS);
    assert_eq!(*log.lock().unwrap(), [1]);
    assert_eq!(cu!(machine, cuGraphDestroy(new)), SUCCESS);
    assert_eq!(*log.lock().unwrap(), [1], "the instantiated graph holds the other one");
    assert_eq!(cu!(machine, cuGraphExecDestroy(exec)), SUCCESS);
    assert_eq!(*log.lock().unwrap(), [1, 2]);
}

#[test]
fn a_graph_discarded_with_its_capture_releases_its_objects() {
    let (machine, log) = (Machine::new(), Log::default());
    let (stream, graph, word) = (machine.stream(), machine.graph(), machine.zero());
    let entry = Entry { log: &log, number: 5 };
    machine.hold(graph, &entry);
    let node = machine.add(graph, c"store", word, 1, &[]);
    assert_eq!(begin_into(&machine, stream, graph, &[]), SUCCESS);
    assert_eq!(cu!(machine, cuStreamDestroy_v2(stream)), SUCCESS);
    assert_eq!(*log.lock().unwrap(), [5]);
    let mut kind = CUgraphNodeType(99);
    assert_ne!(cu!(machine, cuGraphNodeGetType(node, &mut kind)), SUCCESS);
    assert_eq!(machine.diagnostics(DiagnosticKind::Undefined).len(), 1);
}
