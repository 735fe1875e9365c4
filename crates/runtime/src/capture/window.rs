//! The captures that the current thread has begun: what is refused meanwhile, and the first
//! failure in each.

use std::cell::RefCell;
use std::fmt;

use crate::context::Context;
use crate::error::CallError;

/// The first driver call that failed in a capture, and where in the captured work it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstFailure {
    /// The call.
    pub error: CallError,
    /// What [`super::Capturing::at`] named last.
    pub place: String,
}

impl fmt::Display for FirstFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.error, self.place)
    }
}

struct Window {
    context: usize,
    place: String,
    first: Option<FirstFailure>,
}

thread_local! {
    /// At most one window for each context: a second capture on the same thread is refused.
    static WINDOWS: RefCell<Vec<Window>> = const { RefCell::new(Vec::new()) };
}

/// Runs `visit` on this thread's window in `context`, if there is one. A thread that is ending has
/// none, since guards end captures before the thread's own values go.
fn with<R>(context: &Context, visit: impl FnOnce(&mut Window) -> R) -> Option<R> {
    let identity = context.identity();
    let visited = WINDOWS.try_with(|windows| {
        let mut windows = windows.borrow_mut();
        windows.iter_mut().find(|window| window.context == identity).map(visit)
    });
    visited.ok().flatten()
}

/// Whether this thread captures in `context`.
pub(crate) fn is_open(context: &Context) -> bool {
    with(context, |_| ()).is_some()
}

pub(super) fn open(context: &Context) {
    let window =
        Window { context: context.identity(), place: "the captured work".to_owned(), first: None };
    WINDOWS.with_borrow_mut(|windows| windows.push(window));
}

/// Says where the following calls belong.
pub(super) fn set_place(context: &Context, place: String) {
    with(context, |window| window.place = place);
}

/// Keeps `error` if it is the first one in this thread's capture. Later ones are mostly 901, which
/// only says that there was a first one.
pub(crate) fn note_failure(context: &Context, error: &CallError) {
    with(context, |window| {
        let place = &window.place;
        window
            .first
            .get_or_insert_with(|| FirstFailure { error: error.clone(), place: place.clone() });
    });
}

/// Ends the window and returns its first failure.
pub(super) fn close(context: &Context) -> Option<FirstFailure> {
    let identity = context.identity();
    WINDOWS.with_borrow_mut(|windows| {
        let index = windows.iter().position(|window| window.context == identity)?;
        windows.swap_remove(index).first
    })
}
