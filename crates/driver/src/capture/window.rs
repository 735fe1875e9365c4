//! The captures that the current thread has begun, each with its first failure.
//!
//! A capture can end before its body does: an end on another thread, for instance, returns 908 and
//! leaves a stream that runs work at once. Work that the body enqueues afterwards would run outside
//! the graph, and again in every replay. Before each enqueue, the context therefore checks that the
//! thread's capture is still active (`Context::require_active_capture`).
//!
//! The driver restricts a capturing thread on every device. Calls that would break a capture are
//! therefore refused, and releases deferred, in every context.
//!
//! This module identifies contexts by an integer, so that the context itself can use it.

use std::cell::RefCell;

use retrograph_driver_sys::CUstream;

use super::invalidation::{CaptureInvalidation, FirstFailure};
use crate::call::CallError;

struct Window {
    context: usize,
    /// The stream of the capture, which the capture's guard keeps alive.
    origin: CUstream,
    place: String,
    loss: Option<CaptureInvalidation>,
}

/// The capture that this thread has begun in a context.
pub(crate) enum OpenCapture {
    /// Active, as far as known.
    Active {
        /// The stream of the capture.
        origin: CUstream,
    },
    /// Lost.
    Lost(CaptureInvalidation),
}

thread_local! {
    /// At most one window per context: a second capture on the same thread is refused.
    static WINDOWS: RefCell<Vec<Window>> = const { RefCell::new(Vec::new()) };
    /// The actions of this thread after its last capture.
    static AFTERWARDS: RefCell<Vec<Box<dyn FnOnce()>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `visit` on this thread's window in `context`, if there is one. An ending thread has none:
/// guards end captures before the thread's locals are destroyed.
fn with<R>(context: usize, visit: impl FnOnce(&mut Window) -> R) -> Option<R> {
    let visited = WINDOWS.try_with(|windows| {
        let mut windows = windows.borrow_mut();
        windows.iter_mut().find(|window| window.context == context).map(visit)
    });
    visited.ok().flatten()
}

/// Whether this thread captures, in any context.
pub(crate) fn is_open() -> bool {
    WINDOWS.try_with(|windows| !windows.borrow().is_empty()).unwrap_or(false)
}

/// Whether this thread captures in `context`.
pub(super) fn is_open_in(context: usize) -> bool {
    with(context, |_| ()).is_some()
}

/// Runs `action` after the last capture of this thread, or now if there is none.
pub(crate) fn after_captures(action: impl FnOnce() + 'static) {
    if is_open() {
        AFTERWARDS.with_borrow_mut(|actions| actions.push(Box::new(action)));
    } else {
        action();
    }
}

/// Runs the deferred actions if this was the last capture of this thread.
pub(super) fn captures_ended() {
    if !is_open() {
        AFTERWARDS.take().into_iter().for_each(|action| action());
    }
}

/// The capture of this thread in `context`.
pub(crate) fn open_capture(context: usize) -> Option<OpenCapture> {
    with(context, |window| match &window.loss {
        Some(loss) => OpenCapture::Lost(loss.clone()),
        None => OpenCapture::Active { origin: window.origin },
    })
}

/// Opens the window of a capture on `origin`.
pub(super) fn open(context: usize, origin: CUstream) {
    let place = "the captured work".to_owned();
    let window = Window { context, origin, place, loss: None };
    WINDOWS.with_borrow_mut(|windows| windows.push(window));
}

/// Names the work that the following calls belong to.
pub(super) fn set_place(context: usize, place: String) {
    with(context, |window| window.place = place);
}

/// Names `place` for the following calls, with the last place before it.
pub(super) fn set_place_after(context: usize, place: &str) {
    with(context, |window| window.place = format!("{place}, after {}", window.place));
}

/// Records `error` if it is the first in this thread's capture. Later errors are mostly 901, which
/// carries no new information.
pub(crate) fn record_failure(context: usize, error: &CallError) {
    with(context, |window| {
        let place = &window.place;
        window.loss.get_or_insert_with(|| {
            CaptureInvalidation::Failed(FirstFailure { error: error.clone(), place: place.clone() })
        });
    });
}

/// Records that the stream of this thread's capture does not capture, and returns the loss.
pub(crate) fn record_inactive(context: usize) -> CaptureInvalidation {
    let place = with(context, |window| window.place.clone()).unwrap_or_default();
    let loss = CaptureInvalidation::NotActive { place };
    with(context, |window| window.loss = Some(loss.clone()));
    loss
}

/// Closes the window and returns why the capture was lost, if it was.
pub(super) fn close(context: usize) -> Option<CaptureInvalidation> {
    WINDOWS.with_borrow_mut(|windows| {
        let index = windows.iter().position(|window| window.context == context)?;
        windows.swap_remove(index).loss
    })
}
