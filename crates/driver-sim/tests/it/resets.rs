//! Resets of a context: the objects that a reset destroys, and the objects that it keeps.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use retrograph_driver_sim::DiagnosticKind;
use retrograph_driver_sys::*;

use crate::graph_nodes::{Entry, Log};
use crate::host_functions::{ask, count, data};
use crate::machine::{Machine, cu};

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;

impl Machine {
    fn reset(&self) {
        assert_eq!(cu!(self, cuDevicePrimaryCtxReset_v2(0)), SUCCESS);
    }

    /// Recreates the context and makes it current.
    fn renew(&self) {
        let mut context = CUcontext::NULL;
        assert_eq!(cu!(self, cuDevicePrimaryCtxRetain(&mut context, 0)), SUCCESS);
        assert_eq!(context, self.context, "a primary context has one handle for ever");
        self.enter();
    }
}

#[test]
fn a_reset_frees_all_objects_of_the_context() {
    let machine = Machine::new();
    let (graph, stream) = (machine.graph(), machine.stream());
    machine.allocate_in(graph, 4);
    let exec = machine.instantiate(graph).unwrap();
    machine.run(exec);
    let (mut ordered, _event) = (0, machine.event());
    assert_eq!(cu!(machine, cuMemAllocAsync(&mut ordered, 4, stream)), SUCCESS);
    let (_word, _host) = (machine.zero(), machine.pinned(&[1]));
    assert_eq!(machine.begin(stream), SUCCESS);
    let before = machine.simulator.live();
    assert_eq!((before.allocations, before.pinned, before.captures), (3, 1, 1));

    machine.reset();
    let left = machine.simulator.live();
    assert_eq!((left.allocations, left.allocated_bytes, left.pinned), (0, 0, 0));
    assert_eq!((left.streams, left.events, left.captures), (0, 0, 0));
    assert_eq!((left.modules, left.graph_execs), (0, 0));
    assert_eq!((left.graphs, left.contexts), (1, 1), "graphs are of no context, references stay");

    // Variables of modules are not counted as allocations.
    machine.renew();
    let (mut free, mut total) = (0, 0);
    assert_eq!(cu!(machine, cuMemGetInfo_v2(&mut free, &mut total)), SUCCESS);
    assert_eq!(free, total);
    let mut address = 0;
    assert_eq!(cu!(machine, cuMemAlloc_v2(&mut address, 4)), SUCCESS, "no capture forbids it");
}

#[test]
fn a_thread_has_a_new_per_thread_stream_after_a_reset() {
    let machine = Machine::new();
    let fill = |value| {
        let word = machine.zero();
        assert_eq!(cu!(machine, cuMemsetD32Async(word, value, 1, CUstream::PER_THREAD)), SUCCESS);
        assert_eq!(machine.sync(CUstream::PER_THREAD), SUCCESS);
        machine.peek(word)
    };
    assert_eq!(fill(3), 3);
    machine.reset();
    machine.renew();
    assert_eq!(fill(4), 4);
}

#[test]
fn functions_are_invalid_after_a_reset() {
    let machine = Machine::new();
    let (function, none) = (machine.function(c"stop"), std::ptr::null_mut());
    machine.reset();
    machine.renew();
    let stream = CUstream::NULL;
    let code = cu!(machine, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, none, none));
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_HANDLE);
}

#[test]
fn work_queued_after_a_fault_never_runs() {
    let (machine, counter) = (Machine::new(), AtomicUsize::new(0));
    let (stream, stop, none) = (machine.stream(), machine.function(c"stop"), std::ptr::null_mut());
    let code = cu!(machine, cuLaunchKernel(stop, 1, 1, 1, 1, 1, 1, 0, stream, none, none));
    assert_eq!(code, SUCCESS);
    assert_eq!(cu!(machine, cuLaunchHostFunc(stream, Some(count), data(&counter))), SUCCESS);
    assert_eq!(machine.sync(stream), CUresult::CUDA_ERROR_LAUNCH_FAILED);
    machine.reset();
    assert_eq!(counter.load(Ordering::Relaxed), 0);
}

/// Undefined behaviour in queued work discards the rest of a destroyed context's queue. Objects
/// retained for that work are still released.
#[test]
fn waiters_for_work_of_a_reset_context_are_released() {
    let (machine, log) = (Machine::new(), Log::default());
    let (stream, graph) = (machine.stream(), machine.graph());
    let entry = Entry { log: &log, number: 1 };
    machine.hold(graph, &entry);
    let exec = machine.instantiate(graph).unwrap();
    let table: *mut c_void = std::ptr::from_ref(machine.simulator.table()).cast_mut().cast();
    assert_eq!(cu!(machine, cuLaunchHostFunc(stream, Some(ask), table)), SUCCESS);
    let counter = AtomicUsize::new(0);
    assert_eq!(cu!(machine, cuLaunchHostFunc(stream, Some(count), data(&counter))), SUCCESS);
    assert_eq!(cu!(machine, cuGraphLaunch(exec, stream)), SUCCESS);
    assert_eq!(cu!(machine, cuGraphExecDestroy(exec)), SUCCESS);
    assert_eq!(cu!(machine, cuGraphDestroy(graph)), SUCCESS);
    machine.reset();
    assert_eq!(machine.diagnostics(DiagnosticKind::Undefined).len(), 1);
    machine.renew();
    assert!(log.lock().unwrap().is_empty());
    assert_eq!(cu!(machine, cuCtxSynchronize()), SUCCESS);
    assert_eq!(*log.lock().unwrap(), [1]);
    assert_eq!(counter.load(Ordering::Relaxed), 0, "the rest of the queue is gone");
}
