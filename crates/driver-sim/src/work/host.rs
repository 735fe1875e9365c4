//! Host functions: calls back into the program, in stream order.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use retrograph_driver_sys::{CUDA_HOST_NODE_PARAMS, CUresult, CUstream};

use super::{Operation, TaskId, Work};
use crate::refusal::Refusal;
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
/// A world is locked while its host functions run, so that a call from inside one would wait for
/// itself. The entry to the world asks here first.
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

    /// Runs a host function; gives the number of the first function that it called.
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

/// How long a query waits for a host function that it has started. Most are short; the program may
/// have to go on for others to end.
const QUERY_WAIT: Duration = Duration::from_millis(100);

/// A host function that runs on a thread of its own.
pub(crate) struct HostRun {
    /// Once it has ended, the number of the function that it called, if it called one.
    result: Mutex<Option<Option<usize>>>,
    ended: Condvar,
}

impl HostRun {
    fn start(hosting: &Arc<Hosting>, call: HostCall) -> Arc<Self> {
        let run = Arc::new(Self { result: Mutex::new(None), ended: Condvar::new() });
        let (hosting, shared) = (Arc::clone(hosting), Arc::clone(&run));
        std::thread::spawn(move || {
            let called = hosting.during(&call);
            *shared.result.lock() = Some(called);
            shared.ended.notify_all();
        });
        run
    }

    /// Whether it has ended, after waiting for a short time.
    fn has_ended(&self) -> bool {
        let mut result = self.result.lock();
        let running = |result: &mut Option<_>| result.is_none();
        !self.ended.wait_while_for(&mut result, running, QUERY_WAIT).timed_out() || result.is_some()
    }

    /// Waits for its end; gives the number of the function that it called.
    fn wait(&self) -> Option<usize> {
        let mut result = self.result.lock();
        self.ended.wait_while(&mut result, |result| result.is_none());
        result.flatten()
    }
}

/// The description of a host function that called the driver.
fn called(function: Option<usize>) -> Result<(), String> {
    let Some(function) = function else { return Ok(()) };
    let name = crate::trampoline::function_name(function);
    Err(format!("a host function called {name}; none may call the driver"))
}

impl State {
    /// Calls a host function. One that calls the driver is an error of the program, of which this
    /// gives the description.
    pub(super) fn run_host(&mut self, call: &HostCall) -> Result<(), String> {
        let hosting = Arc::clone(&self.hosting);
        called(hosting.during(call))
    }

    /// Waits for a host function that a query has started.
    pub(super) fn end_host(run: &HostRun) -> Result<(), String> {
        called(run.wait())
    }

    /// Runs tasks and what they depend on, except what depends on host functions. These start on
    /// threads of their own, as the thread that queries may be the one that they wait for. Returns
    /// whether all tasks have ended.
    pub(crate) fn advance(&mut self, targets: Vec<TaskId>) -> Result<bool, Refusal> {
        loop {
            let needed = self.needed(targets.clone());
            let is_host = |id: &TaskId| match &self.tasks[id].work {
                Work::Operation(Operation::Host(_)) => true,
                Work::Hosting(run) => !run.has_ended(),
                _ => false,
            };
            let mut held: BTreeSet<TaskId> = BTreeSet::new();
            let mut ready = Vec::new();
            // Tasks depend on earlier ones only.
            for id in needed {
                let waits = self.tasks[&id].dependencies.iter().any(|other| held.contains(other));
                if waits || is_host(&id) {
                    held.insert(id);
                } else {
                    ready.push(id);
                }
            }
            self.complete(ready)?;
            if held.is_empty() {
                return Ok(true);
            }
            if !self.start_hosts(&held) {
                return Ok(false);
            }
        }
    }

    /// Starts the host functions that nothing queued must precede; whether there were any.
    fn start_hosts(&mut self, held: &BTreeSet<TaskId>) -> bool {
        let mut started = false;
        for id in held {
            let task = &self.tasks[id];
            let is_ready = task.dependencies.iter().all(|other| !self.tasks.contains_key(other));
            let Work::Operation(Operation::Host(call)) = task.work else { continue };
            if is_ready {
                let run = HostRun::start(&self.hosting, call);
                if let Some(task) = self.tasks.get_mut(id) {
                    task.work = Work::Hosting(run);
                }
                started = true;
            }
        }
        started
    }

    /// Calls the destructor of an object of the user.
    pub(crate) fn run_destructor(&mut self, call: &HostCall) {
        if let Err(message) = self.run_host(call) {
            // The call that gave the last reference up is not at fault.
            let _ = self.undefined(message);
        }
    }
}
