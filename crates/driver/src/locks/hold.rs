//! The capture locks that this thread holds, to avoid deadlocks.

use std::cell::RefCell;
use std::marker::PhantomData;

use super::capture_lock::{CaptureGuard, CaptureLock};

thread_local! {
    /// The address of a lock for each guard of this thread.
    static HELD: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// While this lives, no stream begins or joins a capture in the context.
pub(crate) struct Hold<'a> {
    _guard: CaptureGuard<'a>,
    lock: usize,
    stays_on_its_thread: PhantomData<*const ()>,
}

impl<'a> Hold<'a> {
    fn new(guard: CaptureGuard<'a>, lock: usize) -> Self {
        // An ending thread has no list any more, and begins no capture either.
        let _ = HELD.try_with(|held| held.borrow_mut().push(lock));
        Self { _guard: guard, lock, stays_on_its_thread: PhantomData }
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(at) = held.iter().rposition(|lock| *lock == self.lock) {
                held.swap_remove(at);
            }
        });
    }
}

impl<A> CaptureLock<A> {
    /// Excludes captures, to release an object.
    pub(crate) fn hold(&self) -> Hold<'_> {
        Hold::new(self.no_capture_begins(), self.address())
    }

    /// Excludes captures, to enqueue work or to wait.
    pub(crate) fn hold_in_turn(&self) -> Hold<'_> {
        let again = self.is_held_here();
        let guard = if again { self.no_capture_begins() } else { self.no_capture_begins_in_turn() };
        Hold::new(guard, self.address())
    }

    /// Whether this thread excludes captures, so that it would deadlock if it began one.
    pub(crate) fn is_held_here(&self) -> bool {
        HELD.try_with(|held| held.borrow().contains(&self.address())).unwrap_or(false)
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
