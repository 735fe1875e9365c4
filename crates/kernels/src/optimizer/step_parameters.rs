//! The parameters of a step, fetched by the device from pinned memory of the host.

use crate::checks::Check;
use crate::geometry::{linear, row_threads};
use crate::params::{pointer, u32};
use crate::{Argument, Kernel, KernelError, Launch, Problem, View};

/// Kernel of [`FetchStepParameters`].
pub static FETCH_STEP_PARAMETERS: Kernel = Kernel {
    name: "fetch_step_parameters",
    image: "fetch_step_parameters",
    parameters: &[
        pointer("ring"),
        pointer("block"),
        pointer("taken"),
        u32("slot_words"),
        u32("quads"),
        u32("slots"),
    ],
    entries: &["fetch_step_parameters"],
    // One block, because the count may change only after all parameters are copied.
    dispatch: |problem, _| {
        let vectors = problem.items()?;
        Some(linear(
            "fetch_step_parameters",
            vectors.min(1),
            row_threads(vectors.saturating_mul(4)),
        ))
    },
};

/// Fetches the parameters of the next step from a ring that the host writes, and counts them.
///
/// The ring is in pinned memory; stores of the host before the launch are visible to it. It starts
/// with the count of fetched slots, in [`Self::HEADER_WORDS`] words. [`Self::SLOTS`] slots follow,
/// which the host fills in turn. A slot starts with its sequence number, counted from 1; the
/// parameters follow after [`Self::SLOT_HEADER_WORDS`] words. If the next slot does not have the
/// next sequence number, nothing is fetched and `block` keeps its values.
#[derive(Clone, Copy, Debug)]
pub struct FetchStepParameters<B> {
    /// `[ring_words(block.len())]`, read; its first word is written.
    pub ring: View<B, u32>,
    /// The parameters: a multiple of four words, not empty. Written if there is a new slot.
    pub block: View<B, u32>,
    /// `[1]`, updated: the count of fetched slots modulo 2³², in device memory.
    pub taken: View<B, u32>,
}

impl<B> FetchStepParameters<B> {
    /// Slots of a ring: a power of two.
    pub const SLOTS: usize = 16;
    /// Words before the first slot: a cache line of the host.
    pub const HEADER_WORDS: usize = 16;
    /// Words of a slot before its parameters.
    pub const SLOT_HEADER_WORDS: usize = 4;

    /// Words from slot to slot, for `block` words of parameters. No two slots share a cache line.
    pub fn slot_words(block: usize) -> usize {
        (Self::SLOT_HEADER_WORDS + block).next_multiple_of(Self::HEADER_WORDS)
    }

    /// Words of a ring, for `block` words of parameters.
    pub fn ring_words(block: usize) -> usize {
        Self::HEADER_WORDS + Self::SLOTS * Self::slot_words(block)
    }
}

impl<B: Copy> FetchStepParameters<B> {
    /// Checks the operands and describes the launch.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let check = Check(FETCH_STEP_PARAMETERS.name);
        let words = self.block.len();
        let whole = words > 0 && words.is_multiple_of(4);
        check.rule(
            whole,
            "the parameters must be whole vectors of 16 bytes, at least one",
            (words, 4),
        )?;
        check.length("ring", self.ring, Self::ring_words(words))?;
        check.length("taken", self.taken, 1)?;
        check.size("the words of the ring", self.ring.len())?;
        let vectors = check.size("the vectors of 16 bytes", words / 4)?;
        let arguments = vec![
            Argument::update(self.ring),
            Argument::update(self.block),
            Argument::update(self.taken),
            Argument::U32(Self::slot_words(words) as u32),
            Argument::U32(vectors),
            Argument::U32(Self::SLOTS as u32),
        ];
        Ok(Launch { kernel: &FETCH_STEP_PARAMETERS, problem: Problem::Items(vectors), arguments })
    }
}
