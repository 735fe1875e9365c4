//! Batched generation: each step computes one row per sequence.

use std::collections::VecDeque;

use retrograph_runtime::Profile;

use super::request::{Request, Sampling};
use super::ring::{AHEAD, Ring};
use super::tokens::Sequence;
use super::workload::Step;
use super::{Generator, GeneratorOptions};
use crate::error::{Error, Result};

/// Continuous batching of up to [`GeneratorOptions::batch`] sequences.
///
/// A sequence starts as soon as a slot is free, and ends independently of the others. Every step
/// computes the rows of all slots, used or not, so the tokens of a sequence do not depend on the
/// other sequences. Prefill runs alone, between two steps.
///
/// ```
/// # #[cfg(feature = "sim")] {
/// use retrograph_finetune::generate::{Advance, GenerationBatch, Event};
/// use retrograph_finetune::{
///     Device, DeviceChoice, GenerationPlan, GeneratorOptions, InferenceConfig, Precision, Preset,
///     Request, Sampling, Source,
/// };
///
/// let config = InferenceConfig::frozen(Preset::Tiny.model(), Precision::F32);
/// let mut options = GeneratorOptions::new(64);
/// options.batch = 2;
/// let device = Device::open(DeviceChoice::Simulated)?;
/// let plan = GenerationPlan::new(&config, options)?;
/// let generator = plan.start(&device.modules(), Source::Seed, &mut |_| ())?;
/// let mut batch = GenerationBatch::new(generator)?;
/// for prompt in [&[104, 105][..], &[121, 111, 117]] {
///     batch.start(&Request { max_tokens: 5, ..Request::new(prompt, Sampling::greedy()) })?;
/// }
/// let mut sequences = [Vec::new(), Vec::new()];
/// while batch.is_active() {
///     for Advance { slot, event } in batch.step()? {
///         if let Event::Token(token) = event {
///             sequences[slot].push(token);
///         }
///     }
/// }
/// assert_eq!(sequences.map(|sequence| sequence.len()), [5, 5]);
/// # }
/// # Ok::<(), retrograph_finetune::Error>(())
/// ```
#[derive(Debug)]
pub struct GenerationBatch {
    generator: Generator,
    slots: Vec<Option<Sequence>>,
    ring: Ring,
    /// For each copy in the ring, the slots for which it has a new token.
    in_flight: VecDeque<Vec<usize>>,
    device_ms: Option<f32>,
}

/// The result of a step for a sequence.
#[derive(Debug)]
pub struct Advance {
    /// The slot of the sequence.
    pub slot: usize,
    /// Its next token, or its end.
    pub event: Event,
}

/// The next token of a sequence, or its end.
#[derive(Debug, PartialEq)]
pub enum Event {
    /// The next token.
    Token(u32),
    /// A token of [`Request::eos`].
    EndedBy(u32),
    /// The sequence has all its tokens, or fills its KV cache.
    Full,
    /// A logit is NaN or infinite. No token follows.
    NotFinite {
        /// The position of the token without finite logits.
        position: usize,
    },
}

impl GenerationBatch {
    /// Returns a batch with the [`GeneratorOptions::batch`] slots of a generator.
    ///
    /// # Errors
    /// If the device fails.
    pub fn new(generator: Generator) -> Result<Self> {
        let GeneratorOptions { batch, .. } = generator.options;
        let ring = Ring::new(generator.context(), AHEAD + batch, batch)?;
        let slots = (0..batch).map(|_| None).collect();
        Ok(Self { generator, slots, ring, in_flight: VecDeque::new(), device_ms: None })
    }

    /// The generator.
    pub fn generator(&self) -> &Generator {
        &self.generator
    }

    /// The generator, whose prefills do not change the sequences of the slots.
    pub(crate) fn generator_mut(&mut self) -> &mut Generator {
        &mut self.generator
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Whether a sequence is not finished, or a step is in flight.
    pub fn is_active(&self) -> bool {
        !self.in_flight.is_empty() || self.slots.iter().any(Option::is_some)
    }

    /// Returns a slot without a sequence and without a step in flight.
    pub fn free_slot(&self) -> Option<usize> {
        let in_flight = |slot: &usize| self.in_flight.iter().any(|slots| slots.contains(slot));
        (0..self.slots.len()).find(|slot| self.slots[*slot].is_none() && !in_flight(slot))
    }

    /// Computes a prompt and starts a sequence in a free slot, which it returns.
    ///
    /// # Errors
    /// As [`Generator::tokens`], or [`Error::NoFreeSlot`].
    pub fn start(&mut self, request: &Request<'_>) -> Result<usize> {
        let slots = self.slots.len();
        let slot = self.free_slot().ok_or(Error::NoFreeSlot { slots })?;
        let generator = &mut self.generator;
        generator.require(request)?;
        let mut sequence = Sequence::new(request, generator.capacity);
        if sequence.limit > 0 {
            generator.prefill(request)?;
            let Generator { programs, several, stream, .. } = &*generator;
            let several = several.iter().flat_map(|several| several.each());
            for (to, from) in several.zip(programs.each()) {
                to.workload().take_over(stream, from.workload(), sequence.prompt, slot)?;
            }
            sequence.enqueued = 1;
            self.send(vec![slot])?;
        }
        self.slots[slot] = Some(sequence);
        Ok(slot)
    }

    /// Ends the sequence of a slot, if there is one. The slot is free after the steps in flight.
    pub fn stop(&mut self, slot: usize) {
        if let Some(sequence) = self.slots.get_mut(slot) {
            *sequence = None;
        }
    }

    /// Returns the device time in milliseconds between the last results and the results before
    /// them; `None` for the first results.
    pub fn device_ms(&self) -> Option<f32> {
        self.device_ms
    }

    /// Waits for the oldest step, while the next one runs. Returns a token, the end, or both, for
    /// each sequence in that step.
    ///
    /// # Errors
    /// With verification, [`Error::NotBitEqual`]; or if the device fails.
    pub fn step(&mut self) -> Result<Vec<Advance>> {
        let mut advances = Vec::new();
        for (slot, sequence) in self.slots.iter_mut().enumerate() {
            if sequence.as_ref().is_some_and(|sequence| sequence.limit == 0) {
                *sequence = None;
                advances.push(Advance { slot, event: Event::Full });
            }
        }
        while self.in_flight.len() < AHEAD && self.enqueue()? {}
        let Some((words, device_ms)) = self.ring.take()? else { return Ok(advances) };
        self.device_ms = device_ms;
        for slot in self.in_flight.pop_front().unwrap_or_default() {
            let place = &mut self.slots[slot];
            let Some(sequence) = place else { continue };
            let event = match words[slot] {
                [token, 0] if sequence.ends.contains(&token) => Event::EndedBy(token),
                [token, 0] => Event::Token(token),
                _ => Event::NotFinite { position: sequence.prompt + sequence.handed_out },
            };
            sequence.handed_out += 1;
            let full = sequence.handed_out == sequence.limit;
            let goes_on = matches!(event, Event::Token(_));
            advances.push(Advance { slot, event });
            if goes_on && full {
                advances.push(Advance { slot, event: Event::Full });
            }
            if full || !goes_on {
                *place = None;
            }
        }
        Ok(advances)
    }

    /// Enqueues a step, if a sequence needs one.
    fn enqueue(&mut self) -> Result<bool> {
        let next = |slot: &Option<Sequence>| slot.as_ref().and_then(Sequence::next_position);
        let next: Vec<_> = self.slots.iter().map(next).collect();
        if next.iter().all(Option::is_none) {
            return Ok(false);
        }
        // A slot without a next token computes an unused token at position 0. Its sequence, if any,
        // no longer needs its KV cache.
        let positions: Vec<u32> = next.iter().map(|next| next.unwrap_or(0) as u32).collect();
        let sampling = self.slots.iter().zip(&next).flat_map(|(sequence, next)| {
            let sequence = sequence.as_ref().zip(*next);
            sequence.map_or(Sampling::greedy().words(0), |(sequence, at)| {
                sequence.sampling.words(at + 1)
            })
        });
        let sampling: Vec<u32> = sampling.collect();
        let step = Step { tokens: &[], positions: &positions, sampling: &sampling };
        let Generator { programs, several, stream, .. } = &mut self.generator;
        several.as_mut().unwrap_or(programs).run(stream, step)?;
        let mut advanced = Vec::new();
        for (slot, sequence) in self.slots.iter_mut().enumerate() {
            if let Some((sequence, _)) = sequence.as_mut().zip(next[slot]) {
                sequence.enqueued += 1;
                advanced.push(slot);
            }
        }
        self.send(advanced)?;
        Ok(true)
    }

    /// Profiles the operations of a step in which all sequences are at `position`, see
    /// [`retrograph_runtime::profile`]. No step may be in flight. Sequences are unchanged.
    ///
    /// # Errors
    /// If the position is not below the capacity, a graph with events cannot be built, or the
    /// device fails.
    pub fn profile(&mut self, position: usize, replays: usize) -> Result<Profile> {
        let (slots, capacity) = (self.slots(), self.generator.capacity());
        if position >= capacity {
            return Err(Error::PromptTooLong { tokens: position, capacity });
        }
        let positions = vec![position as u32; slots];
        let sampling = Sampling::greedy().words(position + 1).repeat(slots);
        let step = Step { tokens: &[], positions: &positions, sampling: &sampling };
        let Generator { programs, several, stream, .. } = &mut self.generator;
        several.as_mut().unwrap_or(programs).replayed_mut().profile(stream, step, replays)
    }

    /// Copies the tokens of the last step to the host; the tokens of some slots are new.
    fn send(&mut self, advanced: Vec<usize>) -> Result<()> {
        let Generator { programs, several, stream, .. } = &self.generator;
        let decode = several.as_ref().unwrap_or(programs);
        self.ring.push(stream, decode.replayed().workload().sampled())?;
        self.in_flight.push_back(advanced);
        Ok(())
    }
}
