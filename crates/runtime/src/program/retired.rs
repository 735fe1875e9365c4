//! Memory that a program is no longer bound to, but that its steps in flight may still use.

use retrograph_driver::{Event, Owner, Result, Stream};

/// Owners with the event behind the last step that may use what they own.
#[derive(Default)]
pub(super) struct Retired {
    waiting: Vec<(Event, Vec<Owner>)>,
    /// What could not be given an event stays until the program ends.
    until_the_end: Vec<Owner>,
    /// Events that were used before, since making one costs more than recording it.
    events: Vec<Event>,
}

impl Retired {
    /// Lets go of `owners` after everything that is enqueued on `stream` so far. The caller has
    /// ordered `stream` behind all steps that use what they own.
    pub(super) fn retire(&mut self, stream: &Stream, owners: Vec<Owner>) {
        if owners.is_empty() {
            return;
        }
        match self.marked(stream) {
            Ok(event) => self.waiting.push((event, owners)),
            Err(error) => {
                tracing::warn!(%error, "buffers are kept until the program ends");
                self.until_the_end.extend(owners);
            }
        }
    }

    fn marked(&mut self, stream: &Stream) -> Result<Event> {
        let event = match self.events.pop() {
            Some(event) => event,
            None => Event::untimed(stream.context())?,
        };
        event.record(stream)?;
        Ok(event)
    }

    /// Lets go of everything whose last step has run. Nothing is lost when the device cannot be
    /// asked at the moment: it is asked again later.
    pub(super) fn release_finished(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let finished = |(event, _): &mut (Event, Vec<Owner>)| event.is_complete().unwrap_or(false);
        let finished = self.waiting.extract_if(.., finished);
        self.events.extend(finished.map(|(event, _)| event));
    }
}
