//! Host functions: calls back into the program, in stream order.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use retrograph_driver_sys::{CUDA_HOST_NODE_PARAMS, CUresult, CUstream};

use crate::state::{State, this_thread};

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

/// The thread that runs a host function now, and the calls of that function.
///
/// A world is locked while its host functions run, so that a call from inside one would wait for
/// itself. The entry to the world asks here first.
pub(crate) struct Hosting {
    thread: AtomicU64,
    /// One more than the number of the function that was called from inside, or 0.
    called: AtomicUsize,
}

impl Default for Hosting {
    fn default() -> Self {
        Self { thread: AtomicU64::new(u64::MAX), called: AtomicUsize::new(0) }
    }
}

impl Hosting {
    /// Whether the calling thread is inside a host function of this world.
    pub(crate) fn is_here(&self) -> bool {
        self.thread.load(Ordering::Relaxed) == this_thread()
    }

    /// Notes a call of the driver from inside a host function.
    pub(crate) fn note(&self, function: usize) {
        let _ = self.called.compare_exchange(0, function + 1, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Runs a host function; gives the number of the first function that it called.
    fn during(&self, call: &HostCall) -> Option<usize> {
        self.thread.store(this_thread(), Ordering::Relaxed);
        call.run();
        self.thread.store(u64::MAX, Ordering::Relaxed);
        self.called.swap(0, Ordering::Relaxed).checked_sub(1)
    }
}

impl State {
    /// Calls a host function. One that calls the driver is an error of the program, of which this
    /// gives the description.
    pub(super) fn run_host(&mut self, call: &HostCall) -> Result<(), String> {
        let hosting = std::sync::Arc::clone(&self.hosting);
        let Some(function) = hosting.during(call) else {
            return Ok(());
        };
        let name = crate::trampoline::function_name(function);
        Err(format!("a host function called {name}; none may call the driver"))
    }

    /// Calls the destructor of an object of the user.
    pub(crate) fn run_destructor(&mut self, call: &HostCall) {
        if let Err(message) = self.run_host(call) {
            // The call that gave the last reference up is not at fault.
            let _ = self.undefined(message);
        }
    }
}
