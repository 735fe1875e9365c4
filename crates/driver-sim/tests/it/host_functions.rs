//! Host functions in streams and in captures, and calls forbidden in them.

use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use retrograph_driver_sim::{Config, DiagnosticKind, Order};
use retrograph_driver_sys::*;

use crate::machine::{Machine, cu};

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;

/// Counts how often it was called.
pub(crate) unsafe extern "C" fn count(counter: *mut c_void) {
    // SAFETY: the tests hand over a counter that lives until the function has run.
    unsafe { &*counter.cast::<AtomicUsize>() }.fetch_add(1, Ordering::Relaxed);
}

/// Counts like [`count`], if the stream's work went well.
unsafe extern "C" fn count_success(_stream: CUstream, code: CUresult, counter: *mut c_void) {
    if code == SUCCESS {
        // SAFETY: the obligations are the same.
        unsafe { count(counter) }
    }
}

/// Calls the driver that its data points to.
pub(crate) unsafe extern "C" fn ask(driver: *mut c_void) {
    // SAFETY: the test hands over a table that lives until the function has run.
    let driver = unsafe { &*driver.cast::<DriverTable>() };
    let mut count = 0;
    // SAFETY: the pointer is valid during the call.
    let code = unsafe { (driver.cuDeviceGetCount)(&mut count) };
    assert_ne!(code, SUCCESS);
}

pub(crate) fn data(counter: &AtomicUsize) -> *mut c_void {
    std::ptr::from_ref(counter).cast_mut().cast()
}

#[test]
fn a_host_function_runs_when_its_stream_is_waited_for() {
    let (machine, counter) = (Machine::new(), AtomicUsize::new(0));
    let stream = machine.stream();
    assert_eq!(cu!(machine, cuLaunchHostFunc(stream, Some(count), data(&counter))), SUCCESS);
    let code = cu!(machine, cuStreamAddCallback(stream, Some(count_success), data(&counter), 0));
    assert_eq!(code, SUCCESS);
    assert_eq!(counter.load(Ordering::Relaxed), 0, "as late as is legal");
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!(counter.load(Ordering::Relaxed), 2);
}

#[test]
fn a_captured_host_function_runs_at_each_launch() {
    let (machine, counter) = (Machine::new(), AtomicUsize::new(0));
    let stream = machine.stream();
    assert_eq!(machine.begin(stream), SUCCESS);
    assert_eq!(cu!(machine, cuLaunchHostFunc(stream, Some(count), data(&counter))), SUCCESS);
    let (code, graph) = machine.end(stream);
    assert_eq!(code, SUCCESS);
    let (mut node, mut found) = (CUgraphNode::NULL, 1);
    assert_eq!(cu!(machine, cuGraphGetNodes(graph, &mut node, &mut found)), SUCCESS);
    let mut kind = CUgraphNodeType(99);
    assert_eq!(cu!(machine, cuGraphNodeGetType(node, &mut kind)), SUCCESS);
    assert_eq!(kind, CUgraphNodeType::CU_GRAPH_NODE_TYPE_HOST);
    let exec = machine.instantiate(graph).unwrap();
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!(counter.load(Ordering::Relaxed), 0);
    for _ in 0..3 {
        assert_eq!(cu!(machine, cuGraphLaunch(exec, stream)), SUCCESS);
    }
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!(counter.load(Ordering::Relaxed), 3);
}

#[test]
fn a_host_function_that_calls_the_driver_stops_the_world() {
    let machine = Machine::new();
    let stream = machine.stream();
    let table = std::ptr::from_ref(machine.simulator.table()).cast_mut().cast();
    assert_eq!(cu!(machine, cuLaunchHostFunc(stream, Some(ask), table)), SUCCESS);
    assert_ne!(machine.sync(stream), SUCCESS);
    let said = machine.diagnostics(DiagnosticKind::Undefined);
    assert!(said.iter().any(|text| text.contains("cuDeviceGetCount")), "{said:?}");
    let mut count = 0;
    assert_ne!(cu!(machine, cuDeviceGetCount(&mut count)), SUCCESS, "the world has stopped");
}

/// Waits until the other end is dropped, then counts.
unsafe extern "C" fn wait_and_count(data: *mut c_void) {
    // SAFETY: the test hands over a pair that lives until the function has run.
    let (receiver, counter) = unsafe { &*data.cast::<(Mutex<Receiver<()>>, AtomicUsize)>() };
    let waited = receiver.lock().map(|receiver| receiver.recv_timeout(Duration::from_secs(60)));
    assert_eq!(waited.ok(), Some(Err(RecvTimeoutError::Disconnected)), "the caller went on");
    counter.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn a_host_function_may_wait_for_the_thread_that_queries() {
    for order in [Order::Adversarial, Order::Prompt] {
        let config = Config { memory_bytes: 1 << 24, threads: 1, order, ..Config::default() };
        let machine = Machine::with(config);
        let stream = machine.stream();
        let (sender, receiver) = channel::<()>();
        let shared = (Mutex::new(receiver), AtomicUsize::new(0));
        let data = std::ptr::from_ref(&shared).cast_mut().cast();
        let event = machine.event();
        assert_eq!(cu!(machine, cuLaunchHostFunc(stream, Some(wait_and_count), data)), SUCCESS);
        assert_eq!(cu!(machine, cuEventRecord(event, stream)), SUCCESS);
        for _ in 0..3 {
            let code = cu!(machine, cuEventQuery(event));
            assert_eq!(code, CUresult::CUDA_ERROR_NOT_READY, "{order:?}");
            let code = cu!(machine, cuStreamQuery(stream));
            assert_eq!(code, CUresult::CUDA_ERROR_NOT_READY, "{order:?}");
        }
        drop(sender);
        assert_eq!(cu!(machine, cuEventSynchronize(event)), SUCCESS);
        assert_eq!(shared.1.load(Ordering::Relaxed), 1);
        assert_eq!(cu!(machine, cuStreamQuery(stream)), SUCCESS);
    }
}

#[test]
fn queries_end_host_functions_in_stream_order() {
    let (machine, counter) = (Machine::new(), AtomicUsize::new(0));
    let stream = machine.stream();
    for _ in 0..3 {
        assert_eq!(cu!(machine, cuLaunchHostFunc(stream, Some(count), data(&counter))), SUCCESS);
    }
    while cu!(machine, cuStreamQuery(stream)) == CUresult::CUDA_ERROR_NOT_READY {}
    assert_eq!(counter.load(Ordering::Relaxed), 3);
    assert_eq!(cu!(machine, cuStreamQuery(stream)), SUCCESS);
}

#[test]
fn a_host_function_of_a_query_that_calls_the_driver_stops_the_world() {
    let machine = Machine::new();
    let stream = machine.stream();
    let table = std::ptr::from_ref(machine.simulator.table()).cast_mut().cast();
    assert_eq!(cu!(machine, cuLaunchHostFunc(stream, Some(ask), table)), SUCCESS);
    while cu!(machine, cuStreamQuery(stream)) == CUresult::CUDA_ERROR_NOT_READY {}
    let said = machine.diagnostics(DiagnosticKind::Undefined);
    assert!(said.iter().any(|text| text.contains("cuDeviceGetCount")), "{said:?}");
}
