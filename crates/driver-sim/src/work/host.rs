//! Host functions: calls back into the program, in stream order.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use retrograph_driver_sys::{CUDA_HOST_NODE_PARAMS, CUresult, CUstream};

use crate::state::State;

/// The target of a host call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HostTarget {
    /// A host function.
    Function(unsafe extern "C" fn(*mut c_void)),
    /// A callback, which receives the stream and its status.
    Callback(unsafe extern "C" fn(CUstream, CUresult, *mut c_void), CUstream),
}

/// A call of a host function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostCall {
    pub(crate) target: HostTarget,
    /// The user data.
    pub(crate) data: *mut c_void,
}

// SAFETY: the pointer belongs to the program and is only passed back to it. By their contract, host
// functions may be called on any thread.
unsafe impl Send for HostCall {}
// SAFETY: as above.
unsafe impl Sync for HostCall {}

impl HostCall {
    /// The node parameters of the function; callbacks are never nodes.
    pub(crate) fn node_parameters(&self) -> CUDA_HOST_NODE_PARAMS {
        let r#fn = match self.target {
            HostTarget::Function(function) => Some(function),
            HostTarget::Callback(..) => None,
        };
        CUDA_HOST_NODE_PARAMS { r#fn, userData: self.data }
    }

    fn run(&self) {
        match self.target {
            // SAFETY: the caller that queued a host function guarantees that it can be called with
            // its data until it runs.
            HostTarget::Function(function) => unsafe { function(self.data) },
            // SAFETY: as above.
            HostTarget::Callback(function, stream) => unsafe {
                function(stream, CUresult::CUDA_SUCCESS, self.data)
            },
        }
    }
}

/// The maximum number of worlds in nested host functions of one thread.
const NESTED: usize = 8;

thread_local! {
    /// The worlds whose host functions this thread executes, innermost first. It has no destructor,
    /// so a report at process exit can still read it.
    static INSIDE: Cell<[usize; NESTED]> = const { Cell::new([0; NESTED]) };
}

/// Detects driver calls from inside host functions of a world.
///
/// CUDA forbids them: a host function runs on a thread of the driver. Every driver call checks this
/// first.
#[derive(Default)]
pub(crate) struct Hosting {
    /// One more than the number of the first function called from inside, or 0.
    called: AtomicUsize,
}

impl Hosting {
    fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Whether the calling thread is inside a host function of this world.
    pub(crate) fn is_here(&self) -> bool {
        INSIDE.get().contains(&self.number())
    }

    /// Records a driver call from inside a host function.
    pub(crate) fn note(&self, function: usize) {
        let _ = self.called.compare_exchange(0, function + 1, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Calls a host function. Returns the number of the first driver function that it called.
    fn during(&self, call: &HostCall) -> Option<usize> {
        let outer = INSIDE.get();
        let mut inner = outer;
        inner.rotate_right(1);
        inner[0] = self.number();
        INSIDE.set(inner);
        call.run();
        INSIDE.set(outer);
        self.called.swap(0, Ordering::Relaxed).checked_sub(1)
    }
}

/// The result of a host function.
#[derive(Clone, Copy)]
struct HostResult {
    /// The number of the driver function that it called, if any.
    called: Option<usize>,
    /// The real time that it took.
    duration: Duration,
}

/// A host function that runs on its own thread.
pub(crate) struct HostRun {
    /// Its result, once it has ended.
    result: Mutex<Option<HostResult>>,
    ended: Condvar,
    /// Whether a wait for it has timed out.
    is_long: AtomicBool,
}

impl HostRun {
    pub(super) fn start(hosting: &Arc<Hosting>, call: HostCall) -> Arc<Self> {
        let (result, ended) = (Mutex::new(None), Condvar::new());
        let run = Arc::new(Self { result, ended, is_long: AtomicBool::new(false) });
        let (hosting, shared) = (Arc::clone(hosting), Arc::clone(&run));
        std::thread::spawn(move || {
            let started = Instant::now();
            let called = hosting.during(&call);
            *shared.result.lock() = Some(HostResult { called, duration: started.elapsed() });
            shared.ended.notify_all();
        });
        run
    }

    /// The time that it took, once it has ended. Calling the driver is an error of the program,
    /// which this describes.
    pub(super) fn outcome(&self) -> Option<Result<Duration, String>> {
        let HostResult { called, duration } = (*self.result.lock())?;
        Some(described(called).map(|()| duration))
    }

    /// Waits until it ends, at most for `most`.
    pub(super) fn wait(&self, most: Option<Duration>) {
        let mut result = self.result.lock();
        let is_running = |result: &mut Option<_>| result.is_none();
        match most {
            None => self.ended.wait_while(&mut result, is_running),
            Some(most) => {
                let waited = self.ended.wait_while_for(&mut result, is_running, most);
                self.is_long.store(waited.timed_out(), Ordering::Relaxed);
            }
        }
    }

    /// Whether a wait for it has timed out.
    pub(super) fn is_long(&self) -> bool {
        self.is_long.load(Ordering::Relaxed)
    }
}

fn described(called: Option<usize>) -> Result<(), String> {
    let Some(function) = called else { return Ok(()) };
    let name = crate::trampoline::function_name(function);
    Err(format!("a host function called {name}; none may call the driver"))
}

impl State {
    /// Calls the destructor of a user object.
    pub(crate) fn run_destructor(&mut self, call: &HostCall) {
        let hosting = Arc::clone(&self.hosting);
        if let Err(message) = described(hosting.during(call)) {
            // The call that released the last reference does not fail.
            let _ = self.undefined(message);
        }
    }
}
