//! The lock between captures in progress and actions that would break them, independent of any
//! driver.
//!
//! Freeing memory or unloading a module on a capturing thread breaks the capture; waiting for the
//! context breaks the captures of all threads. Such actions run while no capture is in progress and
//! none can begin, or they are deferred until the last capture has ended.
//!
//! Work that any thread enqueues on a capturing stream becomes part of the capture. A thread that
//! enqueues other work holds the lock while it queries the stream and enqueues, so that the stream
//! does not begin or join a capture in between.
//!
//! This file uses only locks; `tests/models` checks all its interleavings.

use super::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The captures in progress in a context, on any thread, and the deferred
/// actions of type `A`.
pub(crate) struct CaptureLock<A> {
    state: Mutex<State<A>>,
    /// Write-locked while a stream begins or joins a capture; read-locked by actions that would
    /// break a capture or become part of it.
    begin: RwLock<()>,
}

/// While this lives, no stream begins or joins a capture.
pub(crate) type CaptureGuard<'a> = RwLockReadGuard<'a, ()>;

struct State<A> {
    captures: usize,
    deferred: Vec<A>,
}

impl<A> Default for CaptureLock<A> {
    fn default() -> Self {
        let state = State { captures: 0, deferred: Vec::new() };
        Self { state: Mutex::new(state), begin: RwLock::new(()) }
    }
}

impl<A> CaptureLock<A> {
    /// Begins a capture by `begin` after actions in progress, and counts it.
    pub(crate) fn begin_capture<E>(&self, begin: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let lock = self.begin.write();
        let begun = begin();
        if begun.is_ok() {
            self.state.lock().captures += 1;
        }
        // A thread that begins one capture after another must not starve readers.
        RwLockWriteGuard::unlock_fair(lock);
        begun
    }

    /// Runs `join`, which may make a stream part of a capture in progress, after actions in
    /// progress.
    pub(crate) fn join_capture<R>(&self, join: impl FnOnce() -> R) -> R {
        let lock = self.begin.write();
        let joined = join();
        RwLockWriteGuard::unlock_fair(lock);
        joined
    }

    /// Prevents captures from beginning until the guard is dropped. Recursive: dropping one owner
    /// may drop others.
    pub(crate) fn no_capture_begins(&self) -> CaptureGuard<'_> {
        self.begin.read_recursive()
    }

    /// As [`Self::no_capture_begins`], but waits for captures that are about to begin. Otherwise
    /// threads that enqueue all the time would starve them. Not recursive.
    pub(crate) fn no_capture_begins_in_turn(&self) -> CaptureGuard<'_> {
        self.begin.read()
    }

    /// Whether any thread captures in the context.
    pub(crate) fn capturing(&self) -> bool {
        self.state.lock().captures > 0
    }

    /// Returns `action` if it can run now; otherwise defers it to the end of the captures in
    /// progress. The caller holds [`Self::no_capture_begins`].
    pub(crate) fn ready_or_defer(&self, action: A) -> Option<A> {
        let mut state = self.state.lock();
        if state.captures == 0 {
            return Some(action);
        }
        state.deferred.push(action);
        None
    }

    /// Defers `action`.
    pub(crate) fn defer(&self, action: A) {
        self.state.lock().deferred.push(action);
    }

    /// Takes the deferred actions, unless a capture is in progress. The caller holds
    /// [`Self::no_capture_begins`] until it has run them.
    pub(crate) fn take_ready(&self) -> Vec<A> {
        let mut state = self.state.lock();
        if state.captures > 0 { Vec::new() } else { std::mem::take(&mut state.deferred) }
    }

    /// Counts the end of a capture. The caller then runs the actions that are due.
    pub(crate) fn capture_ends(&self) {
        self.state.lock().captures -= 1;
    }

    /// Number of deferred actions.
    pub(crate) fn deferred(&self) -> usize {
        self.state.lock().deferred.len()
    }
}
