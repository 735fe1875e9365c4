//! The last use of memory, and ordering streams after it.
//!
//! No event is recorded per step: that would cost half a launch, and most steps follow each other
//! on one stream. An event is recorded only when another stream must wait. Freeing waits for the
//! stream.

use retrograph_driver::{Error, Event, OutsideCapture, Owner, Result, Stream};

/// The stream of the last use of memory.
#[derive(Default)]
pub(super) struct LastUse {
    stream: Option<Stream>,
    /// Created when a second stream is used, and kept for later changes.
    event: Option<Event>,
}

impl LastUse {
    /// Records that work enqueued on `stream` uses the memory.
    pub(super) fn on(&mut self, stream: &Stream) {
        if self.stream.as_ref().is_none_or(|last| last.raw() != stream.raw()) {
            self.stream = Some(stream.clone());
        }
    }

    /// Makes `stream` wait for the last use, possibly on another stream.
    ///
    /// # Errors
    /// [`Error::RefusedDuringCapture`] if another thread captures the stream of the last use, or
    /// a failed driver call. Nothing was enqueued on `stream` then.
    pub(super) fn order_after(&mut self, stream: &OutsideCapture<'_>) -> Result<()> {
        let Some(last) = self.stream.as_ref().filter(|last| last.raw() != stream.raw()) else {
            return Ok(());
        };
        let event = match self.event.take() {
            Some(event) => event,
            None => Event::untimed(last.context())?,
        };
        let event = self.event.insert(event);
        let last_outside = last.outside_capture("a step after one on a captured stream");
        match last_outside.and_then(|last| event.record(&last)) {
            Ok(()) => {}
            Err(error @ Error::RefusedDuringCapture { .. }) => return Err(error),
            // A retired stream accepts no event.
            Err(error) => {
                tracing::warn!(%error, "no event can be recorded; waiting for the context instead");
                last.context().synchronize()?;
            }
        }
        stream.wait(event)
    }

    /// Waits for the last use.
    ///
    /// # Errors
    /// [`Error::RefusedDuringCapture`], or a failed driver call.
    pub(super) fn wait(&self) -> Result<()> {
        self.stream.as_ref().map_or(Ok(()), Stream::synchronize)
    }

    /// Drops `owners` after the last use, once a wait for it is possible.
    pub(super) fn release_after(&self, mut owners: Vec<Owner>) {
        let Some(stream) = self.stream.clone() else { return };
        let context = stream.context().clone();
        let mut stream = Some(stream);
        context.release(move |driver| {
            if let Some(stream) = &stream {
                stream.wait_to_release(driver)?;
            }
            owners.clear();
            stream = None;
            Ok(())
        });
    }
}
