//! Where memory was last used, and how others come behind that.
//!
//! Nothing is recorded behind each step: an event costs the host as much as half a launch, and most
//! steps follow each other on one stream, which is order enough. An event is recorded only when
//! another stream is to come behind, and whoever frees the memory waits for the stream.

use retrograph_driver::{Error, Event, Result, Stream};

/// The stream on which memory was last used.
#[derive(Default)]
pub(super) struct LastUse {
    stream: Option<Stream>,
    /// Made when a second stream comes, and kept for the next change.
    event: Option<Event>,
}

impl LastUse {
    /// Notes that the memory is used by what was enqueued on `stream` so far.
    pub(super) fn on(&mut self, stream: &Stream) {
        if self.stream.as_ref().is_none_or(|last| last.raw() != stream.raw()) {
            self.stream = Some(stream.clone());
        }
    }

    /// Makes `stream` wait for the last use, which may have been on another one.
    ///
    /// # Errors
    /// [`Error::RefusedDuringCapture`] when another thread captures the stream of the last use, or
    /// a failed driver call. Nothing was enqueued on `stream` then.
    pub(super) fn come_behind(&mut self, stream: &Stream) -> Result<()> {
        let Some(last) = self.stream.as_ref().filter(|last| last.raw() != stream.raw()) else {
            return Ok(());
        };
        let _lock = last.context().no_capture_begins();
        not_capturing(last, "a step behind one on a stream that is captured")?;
        let event = match self.event.take() {
            Some(event) => event,
            None => Event::untimed(last.context())?,
        };
        // A stream that a capture left unusable takes no event any more.
        let outcome = event.record(last).or_else(|error| {
            tracing::warn!(%error, "no event can be recorded; waiting for the context instead");
            last.context().synchronize()
        });
        let event = self.event.insert(event);
        outcome?;
        stream.wait(event)
    }

    /// Waits for the last use.
    ///
    /// # Errors
    /// [`Error::RefusedDuringCapture`], or a failed driver call.
    pub(super) fn wait(&self) -> Result<()> {
        let Some(last) = &self.stream else { return Ok(()) };
        let _lock = last.context().no_capture_begins();
        not_capturing(last, "waiting for a stream that is captured")?;
        last.synchronize()
    }
}

fn not_capturing(stream: &Stream, operation: &'static str) -> Result<()> {
    if stream.is_capturing()? { Err(Error::RefusedDuringCapture { operation }) } else { Ok(()) }
}
