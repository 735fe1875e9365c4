//! Host functions in streams and in captures, and calls forbidden in them.

use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use retrograph_driver_sim::{Config, DiagnosticKind, Order};
use retrograph_driver_sys::*;

use crate::machine::with;
use crate::machine::{Machine, cu};

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;

/// Counts its calls.
pub(crate) unsafe extern "C" fn count(counter: *mut c_void) {
    // SAFETY: the tests pass a counter that lives until the function has run.
    unsafe { &*counter.cast::<AtomicUsize>() }.fetch_add(1, Ordering::Relaxed);
}

/// Counts like [`count`], if the stream has no error.
unsafe extern "C" fn count_success(_stream: CUstream, code: CUresult, counter: *mut c_void) {
    if code == SUCCESS {
        // SAFETY: the obligations are the same.
        unsafe { count(counter) }
    }
}

/// Calls the driver whose table is its data.
pub(crate) unsafe extern "C" fn ask(driver: *mut c_void) {
    // SAFETY: the test passes a table that lives until the function has run.
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
fn a_host_function_runs_at_the_wait_for_its_stream() {
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
    // SAFETY: the test passes a pair that lives until the function has run.
    let (receiver, counter) = unsafe { &*data.cast::<(Mutex<Receiver<()>>, AtomicUsize)>() };
    let waited = receiver.lock().map(|receiver| receiver.recv_timeout(Duration::from_secs(60)));
    assert_eq!(waited.ok(), Some(Err(RecvTimeoutError::Disconnected)), "the caller went on");
    counter.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn a_host_function_may_wait_for_the_thread_that_queries() {
    for order in [Order::Adversarial, Order::Prompt] {
        let mut config = Config::default();
        config.memory_bytes = 1 << 24;
        config.threads = 1;
        config.order = order;
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

/// A host function that signals that it runs and then waits for its release.
struct Latch {
    started: Mutex<Sender<()>>,
    release: Mutex<Receiver<()>>,
    ended: AtomicUsize,
}

/// The other side of a [`Latch`].
struct Key {
    started: Mutex<Receiver<()>>,
    release: Sender<()>,
}

impl Latch {
    fn new() -> (Self, Key) {
        let ((says, started), (release, waits)) = (channel(), channel());
        let (says, started, waits) = (Mutex::new(says), Mutex::new(started), Mutex::new(waits));
        (
            Self { started: says, release: waits, ended: AtomicUsize::new(0) },
            Key { started, release },
        )
    }

    fn data(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed) > 0
    }

    unsafe extern "C" fn run(data: *mut c_void) {
        // SAFETY: the tests pass a latch that lives until the function has run.
        let latch = unsafe { &*data.cast::<Self>() };
        let sent = latch.started.lock().is_ok_and(|started| started.send(()).is_ok());
        let waited = latch.release.lock().map(|release| release.recv_timeout(LIMIT));
        assert!(sent && matches!(waited, Ok(Ok(()))), "another thread goes on meanwhile");
        latch.ended.fetch_add(1, Ordering::Relaxed);
    }

    unsafe extern "C" fn run_callback(_stream: CUstream, _code: CUresult, data: *mut c_void) {
        // SAFETY: the obligations are the same.
        unsafe { Self::run(data) }
    }
}

impl Key {
    /// Waits until the host function runs.
    fn wait(&self) {
        let started = self.started.lock().map(|started| started.recv_timeout(LIMIT));
        assert_eq!(started.ok(), Some(Ok(())), "the host function runs");
    }

    fn release(&self) {
        self.release.send(()).expect("the host function waits");
    }
}

/// How long a test waits before it fails.
const LIMIT: Duration = Duration::from_secs(60);

/// The call of the main thread while another thread uses the driver and then releases the host
/// function.
type Waits = fn(&Machine, CUstream) -> CUresult;

const WAITS: [(&str, Waits); 10] = [
    ("cuStreamSynchronize", |machine, stream| machine.sync(stream)),
    ("cuCtxSynchronize", |machine, _| cu!(machine, cuCtxSynchronize())),
    ("cuEventSynchronize", |machine, stream| {
        let event = machine.event();
        assert_eq!(cu!(machine, cuEventRecord(event, stream)), SUCCESS);
        cu!(machine, cuEventSynchronize(event))
    }),
    ("cuMemcpyDtoH_v2", |machine, _| {
        let (mut word, source) = (0u32, machine.reserved());
        cu!(machine, cuMemcpyDtoH_v2((&raw mut word).cast(), source, 4))
    }),
    ("cuMemcpyHtoD_v2 of pinned memory", |machine, _| {
        let (source, target) = (machine.pinned(&[1]), machine.reserved());
        cu!(machine, cuMemcpyHtoD_v2(target, source.cast(), 4))
    }),
    ("cuMemsetD32_v2 of pinned memory", |machine, _| {
        let target = machine.pinned(&[1]).expose_provenance() as u64;
        cu!(machine, cuMemsetD32_v2(target, 1, 1))
    }),
    ("cuMemFree_v2", |machine, _| cu!(machine, cuMemFree_v2(machine.reserved()))),
    ("cuMemFreeHost", |machine, _| cu!(machine, cuMemFreeHost(machine.pinned(&[1]).cast()))),
    ("cuModuleUnload", |machine, _| {
        let module = machine.load(&crate::ptx::small("7.0", "sm_80")).unwrap();
        cu!(machine, cuModuleUnload(module))
    }),
    ("cuDevicePrimaryCtxReset_v2", |machine, _| cu!(machine, cuDevicePrimaryCtxReset_v2(0))),
];

impl Machine {
    /// A word of device memory, without a call that waits.
    fn reserved(&self) -> CUdeviceptr {
        let mut address = 0;
        assert_eq!(cu!(self, cuMemAlloc_v2(&mut address, 4)), SUCCESS);
        address
    }

    /// Calls that another thread makes while a host function runs.
    fn use_from_another_thread(&self) {
        self.enter();
        let (word, stream, mut count) = (self.zero_on_its_own(), self.stream(), 0);
        assert_eq!(cu!(self, cuDeviceGetCount(&mut count)), SUCCESS);
        assert_eq!(self.append(word, 5, stream), SUCCESS);
        while cu!(self, cuStreamQuery(stream)) == CUresult::CUDA_ERROR_NOT_READY {}
        assert_eq!(self.append(word, 6, stream), SUCCESS);
        assert_eq!(self.sync(stream), SUCCESS);
        let target = self.pinned(&[0]);
        let code = cu!(self, cuMemcpyDtoHAsync_v2(target.cast(), word, 4, stream));
        assert_eq!((code, self.sync(stream)), (SUCCESS, SUCCESS));
        // SAFETY: the word lives, and the copy has ended.
        assert_eq!(unsafe { target.read() }, 0x56);
    }

    /// A word that holds 0, written on a stream without host functions.
    fn zero_on_its_own(&self) -> CUdeviceptr {
        let (word, stream) = (self.reserved(), self.stream());
        assert_eq!(cu!(self, cuMemsetD32Async(word, 0, 1, stream)), SUCCESS);
        assert_eq!(self.sync(stream), SUCCESS);
        word
    }
}

fn machine_in(order: Order) -> Machine {
    Machine::with(with(Config::default(), |it| {
        it.memory_bytes = 1 << 24;
        it.threads = 1;
        it.order = order;
    }))
}

#[test]
fn a_call_waits_for_a_host_function_that_waits_for_another_thread() {
    for order in [Order::Adversarial, Order::Prompt] {
        for (name, wait) in WAITS {
            let ((latch, key), machine) = (Latch::new(), machine_in(order));
            let stream = machine.stream_with(CU_STREAM_DEFAULT);
            let code = cu!(machine, cuLaunchHostFunc(stream, Some(Latch::run), latch.data()));
            assert_eq!(code, SUCCESS);
            std::thread::scope(|threads| {
                let (machine, latch) = (&machine, &latch);
                threads.spawn(move || {
                    key.wait();
                    machine.use_from_another_thread();
                    assert!(!latch.has_ended());
                    key.release();
                });
                assert_eq!(wait(machine, stream), SUCCESS, "{name}, {order:?}");
                assert!(latch.has_ended(), "{name}, {order:?}");
            });
        }
    }
}

#[test]
fn a_callback_of_a_stream_may_wait_for_another_thread() {
    let ((latch, key), machine) = (Latch::new(), Machine::new());
    let stream = machine.stream();
    let callback = Some(Latch::run_callback as unsafe extern "C" fn(_, _, _));
    assert_eq!(cu!(machine, cuStreamAddCallback(stream, callback, latch.data(), 0)), SUCCESS);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            key.wait();
            machine.use_from_another_thread();
            key.release();
        });
        assert_eq!(machine.sync(stream), SUCCESS);
        assert!(latch.has_ended());
    });
}

#[test]
fn a_graph_continues_after_its_host_node() {
    let ((latch, key), machine) = (Latch::new(), Machine::new());
    let (stream, word) = (machine.stream(), machine.zero());
    assert_eq!(machine.begin(stream), SUCCESS);
    assert_eq!(machine.append(word, 1, stream), SUCCESS);
    let code = cu!(machine, cuLaunchHostFunc(stream, Some(Latch::run), latch.data()));
    assert_eq!((code, machine.append(word, 2, stream)), (SUCCESS, SUCCESS));
    let (_, inner) = machine.end(stream);
    // The graph is a child between two other nodes.
    let (mut graph, mut first, mut child, mut last) =
        (CUgraph::NULL, CUgraphNode::NULL, CUgraphNode::NULL, CUgraphNode::NULL);
    assert_eq!(cu!(machine, cuGraphCreate(&mut graph, 0)), SUCCESS);
    let fill = CUDA_MEMSET_NODE_PARAMS {
        dst: word,
        value: 7,
        elementSize: 4,
        width: 1,
        height: 1,
        ..Default::default()
    };
    let (none, context) = (std::ptr::null(), machine.context);
    let code = cu!(machine, cuGraphAddMemsetNode(&mut first, graph, none, 0, &fill, context));
    assert_eq!(code, SUCCESS);
    let code = cu!(machine, cuGraphAddChildGraphNode(&mut child, graph, &first, 1, inner));
    assert_eq!(code, SUCCESS);
    let counter = AtomicUsize::new(0);
    let host = CUDA_HOST_NODE_PARAMS { r#fn: Some(count), userData: data(&counter) };
    assert_eq!(cu!(machine, cuGraphAddHostNode(&mut last, graph, &child, 1, &host)), SUCCESS);
    let exec = machine.instantiate(graph).unwrap();
    for launch in 1..=2 {
        assert_eq!(cu!(machine, cuGraphLaunch(exec, stream)), SUCCESS);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                key.wait();
                machine.use_from_another_thread();
                assert_eq!(machine.peek(word), 0x71, "the second kernel waits");
                assert_eq!(counter.load(Ordering::Relaxed), launch - 1);
                key.release();
            });
            assert_eq!(machine.sync(stream), SUCCESS);
        });
        assert_eq!(machine.peek(word), 0x712);
        assert_eq!(counter.load(Ordering::Relaxed), launch);
    }
}

#[test]
fn a_wait_ends_although_another_thread_queues_more_work() {
    let ((first, first_key), (second, second_key)) = (Latch::new(), Latch::new());
    let machine = Machine::new();
    let stream = machine.stream();
    let code = cu!(machine, cuLaunchHostFunc(stream, Some(Latch::run), first.data()));
    assert_eq!(code, SUCCESS);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            first_key.wait();
            machine.enter();
            let code = cu!(machine, cuLaunchHostFunc(stream, Some(Latch::run), second.data()));
            assert_eq!(code, SUCCESS);
            first_key.release();
        });
        assert_eq!(machine.sync(stream), SUCCESS);
        assert!(first.has_ended() && !second.has_ended());
    });
    second_key.release();
    assert_eq!(machine.sync(stream), SUCCESS);
    assert!(second.has_ended());
}

#[test]
fn threads_wait_for_the_same_host_function_and_for_several() {
    let (machine, latches) = (Machine::new(), [Latch::new(), Latch::new()]);
    let streams = latches.each_ref().map(|(latch, _)| {
        let stream = machine.stream();
        let code = cu!(machine, cuLaunchHostFunc(stream, Some(Latch::run), latch.data()));
        assert_eq!(code, SUCCESS);
        stream
    });
    std::thread::scope(|threads| {
        for stream in [streams[0], streams[0], streams[1]] {
            let machine = &machine;
            threads.spawn(move || {
                machine.enter();
                assert_eq!(machine.sync(stream), SUCCESS);
            });
        }
        // Both run at the same time, each on its own thread.
        latches.iter().for_each(|(_, key)| key.wait());
        latches.iter().for_each(|(_, key)| key.release());
    });
    assert!(latches.iter().all(|(latch, _)| latch.ended.load(Ordering::Relaxed) == 1));
}

#[test]
fn a_wait_returns_the_fault_that_another_thread_found() {
    let ((latch, key), machine) = (Latch::new(), Machine::new());
    let (stream, other) = (machine.stream(), machine.stream());
    let code = cu!(machine, cuLaunchHostFunc(stream, Some(Latch::run), latch.data()));
    assert_eq!(code, SUCCESS);
    let fault = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;
    std::thread::scope(|threads| {
        threads.spawn(|| {
            key.wait();
            machine.enter();
            assert_eq!(machine.append(8, 1, other), SUCCESS);
            assert_eq!(machine.sync(other), fault);
            key.release();
        });
        assert_eq!(machine.sync(stream), fault);
    });
}

#[test]
fn a_repeated_call_copies_once() {
    let ((latch, key), machine) = (Latch::new(), Machine::new());
    let (stream, word) = (machine.stream_with(CU_STREAM_DEFAULT), machine.words(&[5]));
    let code = cu!(machine, cuLaunchHostFunc(stream, Some(Latch::run), latch.data()));
    assert_eq!(code, SUCCESS);
    let source = machine.pinned(&[1]);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            key.wait();
            machine.enter();
            // Queued after the copy, which the host function blocks.
            assert_eq!(machine.append(word, 2, stream), SUCCESS);
            key.release();
        });
        assert_eq!(cu!(machine, cuMemcpyHtoD_v2(word, source.cast(), 4)), SUCCESS);
    });
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!(machine.peek(word), 0x12);
}
