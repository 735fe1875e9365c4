//! Loss and gradient norm on their way to the host, without anybody waiting for a step.
//!
//! After each step the metrics are copied to pinned memory on the step's own stream, between two
//! events. The host looks at the oldest step when its event has passed, or waits for it when too
//! many are under way.

use std::collections::VecDeque;

use retrograph_runtime::{Context, DeviceBuffer, Event, PinnedBuffer, Stream};

use crate::error::Result;
use crate::model::METRICS;

/// Steps that may be under way at once. Two keep a device busy: one runs, one waits behind it.
const IN_FLIGHT: usize = 3;

/// What a step computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepMetrics {
    /// The step, counted from 0.
    pub step: u32,
    /// The mean cross-entropy over the tokens that are learned in the step, in nats.
    pub loss: f32,
    /// The norm of all gradients before clipping.
    pub norm: f32,
    /// Tokens of the step, with those that only fill up.
    pub tokens: usize,
    /// Milliseconds that the device took for the step, by events.
    pub device_ms: f32,
}

#[derive(Debug)]
struct Slot {
    values: PinnedBuffer<f32>,
    start: Event,
    end: Event,
    /// After the copy, which comes after the end of the step.
    copied: Event,
    step: u32,
    tokens: usize,
}

/// The steps under way, oldest first.
#[derive(Debug)]
pub(super) struct MetricsQueue {
    metrics: DeviceBuffer<f32>,
    free: Vec<Slot>,
    under_way: VecDeque<Slot>,
}

impl MetricsQueue {
    /// A queue that reads `metrics`, the buffer that each step writes.
    pub(super) fn new(context: &Context, metrics: DeviceBuffer<f32>) -> Result<Self> {
        let slot = |_| -> Result<Slot> {
            Ok(Slot {
                values: PinnedBuffer::zeroed(context, METRICS)?,
                start: Event::new(context)?,
                end: Event::new(context)?,
                copied: Event::untimed(context)?,
                step: 0,
                tokens: 0,
            })
        };
        let free = (0..IN_FLIGHT).map(slot).collect::<Result<_>>()?;
        Ok(Self { metrics, free, under_way: VecDeque::new() })
    }

    /// Whether no further step may start before [`MetricsQueue::take`] has given one back.
    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Runs `enqueue` for a step of so many tokens between two events, and enqueues the copy of its
    /// metrics.
    pub(super) fn around(
        &mut self,
        stream: &Stream,
        (step, tokens): (u32, usize),
        enqueue: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut slot = self.free.pop().expect("whoever starts a step asks whether there is room");
        (slot.step, slot.tokens) = (step, tokens);
        let done = slot.start.record(stream).map_err(Into::into).and_then(|()| enqueue());
        let done = done.and_then(|()| Ok(slot.end.record(stream)?));
        if let Err(error) = done {
            self.free.push(slot);
            return Err(error);
        }
        let target = slot.values.as_mut_ptr().cast();
        // SAFETY: both ranges have this many bytes. Nobody looks at the slot before the event
        // behind the copy has passed, and pinned memory waits for the context before it is freed.
        unsafe { stream.copy_to_host(target, self.metrics.address(), METRICS * size_of::<f32>()) }?;
        let copied = slot.copied.record(stream);
        self.under_way.push_back(slot);
        Ok(copied?)
    }

    /// The metrics of the oldest step: if it has ended, or after waiting for it if `wait` is set.
    pub(super) fn take(&mut self, wait: bool) -> Result<Option<StepMetrics>> {
        let Some(slot) = self.under_way.front() else { return Ok(None) };
        if wait {
            slot.copied.synchronize()?;
        } else if !slot.copied.is_complete()? {
            return Ok(None);
        }
        let slot = self.under_way.pop_front().expect("it was there a moment ago");
        let device_ms = slot.end.elapsed_ms(&slot.start)?;
        let (step, tokens, [loss, norm]) =
            (slot.step, slot.tokens, [slot.values[0], slot.values[1]]);
        let metrics = StepMetrics { step, loss, norm, tokens, device_ms };
        self.free.push(slot);
        Ok(Some(metrics))
    }
}
