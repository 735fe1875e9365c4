//! Host functions: calls back into the program, in stream order.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use retrograph_driver_sys::{CUDA_HOST_NODE_PARAMS, CUresult, CUstream};

use crate::state::State;

/// The target of a host call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HostTarget {
    /// A host function.
    Function(unsafe extern "C" fn(*mut c_void)),
    /// A callback, which is told the stream and how its work went.
    Callback(unsafe extern "C" fn(CUstream, CUresult, *mut c_void), CUstream),
}

/// A call of a host function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostCall {
    pub(crate) target: HostTarget,
    /// The user data.
    pub(crate) data: *mut c_void,
}

// SAFETY: the pointer is the program's and only handed back to it. By the contract of host
// functions they may be called on any thread.
unsafe impl Send for HostCall {}
// SAFETY: as above.
unsafe impl Sync for HostCall {}

impl HostCall {
    /// The function as node parameters name it; callbacks are never nodes.
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
            // its data until it has run.
            HostTarget::Function(function) => unsafe { function(self.data) },
            // SAFETY: as above.
            HostTarget::Callback(function, stream) => unsafe {
                function(stream, CUresult::CUDA_SUCCESS, self.data)
            },
        }
    }
}

/// How many worlds may wait for each other in host functions of one thread.
const NESTED: usize = 8;

thread_local! {
    /// The worlds whose host functions this thread is inside of, innermost first. It has no
    /// destructor, so that a report at the end of the process can still ask.
    static INSIDE: Cell<[usize; NESTED]> = const { Cell::new([0; NESTED]) };
}

/// The calls of the driver from inside of host functions of a world.
///
/// CUDA forbids them: a host function runs on a thread of the driver. The entry to the world asks
/// here first.
#[derive(Default)]
pub(crate) struct Hosting {
    /// One more than the number of the function that was called from inside, or 0.
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

    /// Notes a call of the driver from inside a host function.
    pub(crate) fn note(&self, function: usize) {
        let _ = self.called.compare_exchange(0, function + 1, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Calls a host function; gives the number of the first function that it called.
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

/// A host function that runs on a thread of its own.
pub(crate) struct HostRun {
    /// Once it has ended, the number of the function that it called, if it called one.
    result: Mutex<Option<Option<usize>>>,
    ended: Condvar,
    /// Whether a wait for it ended before it did.
    is_long: AtomicBool,
}

impl HostRun {
    pub(super) fn start(hosting: &Arc<Hosting>, call: HostCall) -> Arc<Self> {
        let (result, ended) = (Mutex::new(None), Condvar::new());
        let run = Arc::new(Self { result, ended, is_long: AtomicBool::new(false) });
        let (hosting, shared) = (Arc::clone(hosting), Arc::clone(&run));
        std::thread::spawn(move || {
            let called = hosting.during(&call);
            *shared.result.lock() = Some(called);
            shared.ended.notify_all();
        });
        run
    }

    /// How it ended, if it has. One that called the driver is an error of the program, of which
    /// this gives the description.
    pub(super) fn outcome(&self) -> Option<Result<(), String>> {
        self.result.lock().map(described)
    }

    /// Waits for its end, or for `most`.
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

    /// Whether a wait for it ended before it did.
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
    /// Calls the destructor of an object of the user.
    pub(crate) fn run_destructor(&mut self, call: &HostCall) {
        let hosting = Arc::clone(&self.hosting);
        if let Err(message) = described(hosting.during(call)) {
            // The call that gave the last reference up is not at fault.
            let _ = self.undefined(message);
        }
    }
}
