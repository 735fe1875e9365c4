//! Retired buffers: no longer bound, but possibly used by steps in flight.

use retrograph_driver::{Event, Owner, Result, Stream};

/// Owners, each with an event recorded after the last step that may use them.
#[derive(Default)]
pub(super) struct Retired {
    waiting: Vec<(Event, Vec<Owner>)>,
    /// Owners for which no event could be recorded, kept until the program ends.
    until_the_end: Vec<Owner>,
    /// Reusable events: creating an event costs more than recording it.
    events: Vec<Event>,
}

impl Retired {
    /// Drops `owners` after all work enqueued on `stream`, which the caller has ordered after all
    /// steps that use them.
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

    /// All owners that are not dropped yet.
    pub(super) fn owners(&self) -> impl Iterator<Item = Owner> {
        let waiting = self.waiting.iter().flat_map(|(_, owners)| owners);
        waiting.chain(&self.until_the_end).cloned()
    }

    fn marked(&mut self, stream: &Stream) -> Result<Event> {
        let event = match self.events.pop() {
            Some(event) => event,
            None => Event::untimed(stream.context())?,
        };
        event.record(stream)?;
        Ok(event)
    }

    /// Drops owners whose last step has finished. If an event cannot be queried now, it is queried
    /// again later.
    pub(super) fn release_finished(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let finished = |(event, _): &mut (Event, Vec<Owner>)| event.is_complete().unwrap_or(false);
        let finished = self.waiting.extract_if(.., finished);
        self.events.extend(finished.map(|(event, _)| event));
    }
}
