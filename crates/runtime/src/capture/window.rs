//! The captures that the current thread has begun: what is refused meanwhile, and the first
//! failure in each.
//!
//! A capture can end before its body does: an end on another thread, for instance, returns 908 and
//! leaves a stream on which work runs at once. What the body enqueues after that would be done
//! outside of the graph, and once more by every replay. [`require_active`] is therefore asked in
//! front of everything that this thread enqueues.

use std::cell::RefCell;
use std::fmt;

use retrograph_driver_sys::{CUstream, CUstreamCaptureStatus};

use crate::context::Context;
use crate::error::{CallError, Error, Result};

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

/// Why a capture can give no graph any more.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// A driver call failed.
    Failed(FirstFailure),
    /// No call is known to have failed, but the driver says that the stream does not capture.
    NotActive {
        /// What [`super::Capturing::at`] named last.
        place: String,
    },
}

impl Loss {
    /// The first driver call that failed, if one did.
    pub fn first(&self) -> Option<&FirstFailure> {
        match self {
            Self::Failed(first) => Some(first),
            Self::NotActive { .. } => None,
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(first) => first.fmt(f),
            Self::NotActive { place } => {
                write!(f, "the stream was found not to capture any more at {place}")
            }
        }
    }
}

struct Window {
    context: usize,
    /// Where the capture was begun. The guard keeps it alive.
    origin: CUstream,
    place: String,
    loss: Option<Loss>,
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

pub(super) fn open(context: &Context, origin: CUstream) {
    let place = "the captured work".to_owned();
    let window = Window { context: context.identity(), origin, place, loss: None };
    WINDOWS.with_borrow_mut(|windows| windows.push(window));
}

/// Says where the following calls belong.
pub(super) fn set_place(context: &Context, place: String) {
    with(context, |window| window.place = place);
}

/// Says that the following calls belong to `place`, behind the work that was named last.
pub(super) fn set_place_behind(context: &Context, place: &str) {
    with(context, |window| window.place = format!("{place}, behind {}", window.place));
}

/// Keeps `error` if it is the first one in this thread's capture. Later ones are mostly 901, which
/// only says that there was a first one.
pub(crate) fn note_failure(context: &Context, error: &CallError) {
    with(context, |window| {
        let place = &window.place;
        window.loss.get_or_insert_with(|| {
            Loss::Failed(FirstFailure { error: error.clone(), place: place.clone() })
        });
    });
}

/// Fails when this thread has begun a capture in `context` that can give no graph any more, on
/// whichever stream work is to be enqueued: streams that were forked left the capture with it.
/// The context must be current.
pub(crate) fn require_active(context: &Context) -> Result<()> {
    let found = with(context, |window| (window.origin, window.loss.clone()));
    let Some((origin, loss)) = found else { return Ok(()) };
    if let Some(loss) = loss {
        return Err(Error::CaptureLost { loss: Box::new(loss) });
    }
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the guard keeps the stream alive, and the place is valid.
    unsafe { call!(context, cuStreamIsCapturing(origin, &mut status)) }?;
    if status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE {
        return Ok(());
    }
    let place = with(context, |window| window.place.clone()).unwrap_or_default();
    let loss = Loss::NotActive { place };
    with(context, |window| window.loss = Some(loss.clone()));
    Err(Error::CaptureLost { loss: Box::new(loss) })
}

/// Ends the window and returns why the capture was lost, if it was.
pub(super) fn close(context: &Context) -> Option<Loss> {
    let identity = context.identity();
    WINDOWS.with_borrow_mut(|windows| {
        let index = windows.iter().position(|window| window.context == identity)?;
        windows.swap_remove(index).loss
    })
}
