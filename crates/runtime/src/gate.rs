//! Captures in progress, and what must not happen meanwhile: the rule, apart from any driver.
//!
//! Freeing memory or unloading a module on a thread that captures breaks the capture, and so does
//! waiting for the context on any thread. What would break a capture is done while no capture is in
//! progress and none can begin, or put off until the last one has ended.
//!
//! The file uses nothing but locks, and `tests/models` has all its interleavings checked.

use crate::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The captures in progress in the primary context of a device, on any thread, and the actions of
/// type `A` that wait for their end.
pub(crate) struct Gate<A> {
    state: Mutex<State<A>>,
    /// Held for reading by what would break a capture on any thread, so that none begins
    /// meanwhile, and for writing while one begins.
    door: RwLock<()>,
}

struct State<A> {
    captures: usize,
    deferred: Vec<A>,
}

impl<A> Default for Gate<A> {
    fn default() -> Self {
        let state = State { captures: 0, deferred: Vec::new() };
        Self { state: Mutex::new(state), door: RwLock::new(()) }
    }
}

impl<A> Gate<A> {
    /// Begins a capture by `begin`, after releases and waits in progress, and counts it.
    pub(crate) fn begin_capture<E>(&self, begin: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let door = self.door.write();
        let begun = begin();
        if begun.is_ok() {
            self.state.lock().captures += 1;
        }
        // Captures may follow one another without a pause, and threads that wait to release
        // something get their turn in between.
        RwLockWriteGuard::unlock_fair(door);
        begun
    }

    /// Lets no capture begin until the guard is dropped. Releases nest, since owners own others.
    pub(crate) fn no_capture_begins(&self) -> RwLockReadGuard<'_, ()> {
        self.door.read_recursive()
    }

    /// Whether any thread captures in the context.
    pub(crate) fn capturing(&self) -> bool {
        self.state.lock().captures > 0
    }

    /// Gives `action` back to be done now, or keeps it for the end of the captures in progress.
    /// The caller lets no capture begin meanwhile.
    pub(crate) fn now_or_later(&self, action: A) -> Option<A> {
        let mut state = self.state.lock();
        if state.captures == 0 {
            return Some(action);
        }
        state.deferred.push(action);
        None
    }

    /// Keeps `action`, which could not be done now.
    pub(crate) fn later(&self, action: A) {
        self.state.lock().deferred.push(action);
    }

    /// Takes what waits, unless a capture is in progress. The caller lets no capture begin until it
    /// is done.
    pub(crate) fn due(&self) -> Vec<A> {
        let mut state = self.state.lock();
        if state.captures > 0 { Vec::new() } else { std::mem::take(&mut state.deferred) }
    }

    /// Counts the end of a capture. What is due then must be done by the caller.
    pub(crate) fn capture_ends(&self) {
        self.state.lock().captures -= 1;
    }

    /// How many actions wait.
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().deferred.len()
    }
}
