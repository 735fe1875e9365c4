//! Copies of loss and gradient norm to the host, without waiting for steps.
//!
//! After each step, its stream copies the metrics to pinned memory and records an event. The host
//! reads the oldest step after its event is complete. It waits only if too many steps are in
//! flight.

use std::collections::VecDeque;

use retrograph_runtime::{Context, DeviceBuffer, Event, PinnedBuffer, Stream};

use crate::error::Result;
use crate::model::MetricsLayout;

/// Maximum number of steps in flight. Two keep a device busy: one runs, and one is queued.
pub(super) const IN_FLIGHT: usize = 3;

/// The results of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepMetrics {
    /// The step, counted from 0.
    pub step: u32,
    /// The mean cross-entropy of the tokens with loss, in nats.
    pub loss: f32,
    /// The norm of all gradients before clipping.
    pub grad_norm: f32,
    /// Tokens of the step, with padding.
    pub tokens: usize,
    /// Device time of the step between two events, in milliseconds.
    pub device_ms: f32,
    /// Rewards, if the step has preferences; its loss is then the mean of the pairs.
    pub preference: Option<DpoMetrics>,
}

/// The rewards of a step: β times the log-ratios to the reference, as in TRL.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DpoMetrics {
    /// The mean reward of chosen sequences.
    pub chosen: f32,
    /// The mean reward of rejected sequences.
    pub rejected: f32,
    /// The fraction of pairs whose chosen reward is larger.
    pub accuracy: f32,
}

impl DpoMetrics {
    /// The mean difference of the rewards of a pair.
    pub fn margin(&self) -> f32 {
        self.chosen - self.rejected
    }
}

#[derive(Debug)]
struct Slot {
    values: PinnedBuffer<f32>,
    start: Event,
    end: Event,
    /// Recorded after the copy.
    copied: Event,
    step: u32,
    tokens: usize,
}

/// The information that the ranks of a step exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FromRanks {
    /// The first rank whose part of the loss is not finite.
    pub(super) not_finite: Option<usize>,
    /// Whether a rank wants to stop.
    pub(super) stop: bool,
}

/// The steps in flight, oldest first.
#[derive(Debug)]
pub(super) struct MetricsQueue {
    layout: MetricsLayout,
    metrics: DeviceBuffer<f32>,
    free: Vec<Slot>,
    in_flight: VecDeque<Slot>,
}

impl MetricsQueue {
    /// Returns a queue that reads `metrics`, the buffer that each step writes in this `layout`.
    pub(super) fn new(
        context: &Context,
        metrics: DeviceBuffer<f32>,
        layout: MetricsLayout,
    ) -> Result<Self> {
        let slot = |_| -> Result<Slot> {
            Ok(Slot {
                values: PinnedBuffer::zeroed(context, layout.len())?,
                start: Event::new(context)?,
                end: Event::new(context)?,
                copied: Event::untimed(context)?,
                step: 0,
                tokens: 0,
            })
        };
        let free = (0..IN_FLIGHT).map(slot).collect::<Result<_>>()?;
        Ok(Self { layout, metrics, free, in_flight: VecDeque::new() })
    }

    /// Whether [`MetricsQueue::take`] must return a step before another can start.
    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Runs `enqueue` between two events, and enqueues the copy of the metrics of the step.
    pub(super) fn around(
        &mut self,
        stream: &Stream,
        step: u32,
        tokens: usize,
        enqueue: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut slot = self.free.pop().expect("the caller has checked that the queue is not full");
        (slot.step, slot.tokens) = (step, tokens);
        let done = slot.start.record(stream).map_err(Into::into).and_then(|()| enqueue());
        let done = done.and_then(|()| Ok(slot.end.record(stream)?));
        let outside = done.and_then(|()| Ok(stream.outside_capture("copying the metrics")?));
        let stream = match outside {
            Ok(stream) => stream,
            Err(error) => {
                self.free.push(slot);
                return Err(error);
            }
        };
        let target = slot.values.as_mut_ptr().cast();
        let bytes = self.layout.len() * size_of::<f32>();
        // SAFETY: both ranges have this many bytes. The host reads the slot only after the event of
        // the copy, and freeing pinned memory waits for the context.
        unsafe { stream.memcpy_dtoh(target, self.metrics.address(), bytes) }?;
        let copied = slot.copied.record(&stream);
        self.in_flight.push_back(slot);
        Ok(copied?)
    }

    /// Returns the metrics of the oldest step if it is complete; with `wait`, waits for it.
    pub(super) fn take(&mut self, wait: bool) -> Result<Option<(StepMetrics, FromRanks)>> {
        let Some(slot) = self.in_flight.front() else { return Ok(None) };
        if wait {
            slot.copied.synchronize()?;
        } else if !slot.copied.is_complete()? {
            return Ok(None);
        }
        let slot = self.in_flight.pop_front().expect("it was there a moment ago");
        let device_ms = slot.end.elapsed_ms(&slot.start)?;
        let (step, tokens, [loss, norm]) =
            (slot.step, slot.tokens, [slot.values[0], slot.values[1]]);
        let preference = match slot.values[self.layout.preference()] {
            [chosen, rejected, accuracy] => Some(DpoMetrics { chosen, rejected, accuracy }),
            _ => None,
        };
        let metrics = StepMetrics { step, loss, grad_norm: norm, tokens, device_ms, preference };
        let losses = &slot.values[self.layout.losses()];
        let stops = &slot.values[self.layout.stops()];
        let from_ranks = FromRanks {
            not_finite: losses.iter().position(|loss| !loss.is_finite()),
            stop: stops.iter().any(|wish| *wish != 0.0),
        };
        self.free.push(slot);
        Ok(Some((metrics, from_ranks)))
    }
}
