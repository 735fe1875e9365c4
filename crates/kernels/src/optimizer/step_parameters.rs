//! Step parameters, which the device fetches from pinned host memory.

use retrograph_kernel_abi::step_parameters::{self as abi, ring};

use crate::checks::Check;
use crate::geometry::linear;
use crate::{Kernel, KernelError, Launch, Problem, View};

/// Kernel of [`FetchStepParameters`].
pub static FETCH_STEP_PARAMETERS: Kernel =
    Kernel::new("fetch_step_parameters", &abi::FETCH_STEP_PARAMETERS, |problem, _| {
        let vec4s = problem.items()?;
        let (entry, blocks) = (abi::FETCH_STEP_PARAMETERS.entry(), vec4s.min(1));
        Some(linear(entry, blocks, abi::threads(vec4s)))
    });

/// Fetches the parameters of the next step from a ring that the host writes, and counts the fetched
/// slots.
///
/// The ring is in pinned memory; the kernel sees host stores that precede the launch. The ring
/// starts with the count of fetched slots, in [`Self::HEADER_WORDS`] words, followed by
/// [`Self::SLOTS`] slots, which the host fills in turn. A slot starts with its sequence number,
/// counted from 1; the parameters start after [`Self::SLOT_HEADER_WORDS`] words. If the next slot
/// does not have the next sequence number, nothing is fetched and `block` keeps its values.
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
    pub const SLOTS: usize = ring::SLOTS as usize;
    /// Words before the first slot: a cache line of the host.
    pub const HEADER_WORDS: usize = ring::HEADER_WORDS as usize;
    /// Words of a slot before its parameters.
    pub const SLOT_HEADER_WORDS: usize = ring::SLOT_HEADER_WORDS as usize;

    /// Words from the start of a slot to the next, for `block` words of parameters. No two slots
    /// share a cache line.
    pub fn slot_words(block: usize) -> usize {
        ring::slot_words(block)
    }

    /// Words of a ring, for `block` words of parameters.
    pub fn ring_words(block: usize) -> usize {
        ring::words(block)
    }
}

impl<B: Copy> FetchStepParameters<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If the block is empty or not a multiple of 16 bytes, or the ring or `taken` has another
    /// length.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let check = Check(FETCH_STEP_PARAMETERS.name);
        let words = self.block.len();
        let whole = words > 0 && words.is_multiple_of(4);
        let rule = "the words of the parameters must be a multiple of 4, not 0";
        check.rule(whole, rule, words)?;
        check.length("ring", self.ring, Self::ring_words(words))?;
        check.length("taken", self.taken, 1)?;
        check.size("the words of the ring", self.ring.len())?;
        let vec4s = check.size("the vectors of 16 bytes", words / 4)?;
        let arguments = abi::arguments(self.ring, self.block, self.taken);
        Ok(Launch { kernel: &FETCH_STEP_PARAMETERS, problem: Problem::Items(vec4s), arguments })
    }
}
