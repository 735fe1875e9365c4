//! The values of a step on their way from the host, see `kernels-ptx/src/take_controls.rs`.

use crate::checks::Check;
use crate::geometry::{linear, row_threads};
use crate::params::{pointer, u32};
use crate::{Argument, Kernel, KernelError, Launch, Problem, View};

/// Kernel of [`TakeControls`].
pub static TAKE_CONTROLS: Kernel = Kernel {
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
    // One block: the last of several would have to know that it is.
    dispatch: |problem, _| {
        let quads = problem.sizes[0];
        linear("fetch_step_parameters", quads.min(1), row_threads(quads.saturating_mul(4)))
    },
};

/// Takes the next values out of a ring that the host writes, and counts them.
///
/// The ring is in pinned memory, and the host's stores in front of the launch are seen by it. It
/// begins with the count of values that were taken, in [`TakeControls::HEAD`] words; then come
/// [`TakeControls::SLOTS`] slots, one for each of the values in turn. A slot has the number of its
/// values, from 1 on, and [`TakeControls::NUMBER`] words behind its start the values. Where the
/// next slot has not the next number, nothing is taken and the block keeps what it has.
#[derive(Clone, Copy, Debug)]
pub struct TakeControls<B> {
    /// `[ring_words(block)]`, read, and its first word written.
    pub ring: View<B, u32>,
    /// The values, a multiple of four words, not empty; written where there are new ones.
    pub block: View<B, u32>,
    /// `[1]`, in device memory: how many values were taken, modulo 2^32. Updated.
    pub taken: View<B, u32>,
}

impl<B> TakeControls<B> {
    /// Slots of a ring: a power of two.
    pub const SLOTS: usize = 16;
    /// Words in front of the first slot: a line of the host's processor.
    pub const HEAD: usize = 16;
    /// Words of a slot in front of its values.
    pub const NUMBER: usize = 4;

    /// Words from slot to slot, for values of `block` words. No two slots share a line.
    pub fn slot_words(block: usize) -> usize {
        (Self::NUMBER + block).next_multiple_of(Self::HEAD)
    }

    /// Words of a ring for values of `block` words.
    pub fn ring_words(block: usize) -> usize {
        Self::HEAD + Self::SLOTS * Self::slot_words(block)
    }
}

impl<B: Copy> TakeControls<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// When a length is not as said above.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let check = Check(TAKE_CONTROLS.name);
        let words = self.block.len();
        let whole = words > 0 && words.is_multiple_of(4);
        check.rule(whole, "the block is whole groups of 16 bytes, at least one", (words, 4))?;
        check.length("ring", self.ring, Self::ring_words(words))?;
        check.length("taken", self.taken, 1)?;
        check.size("the words of the ring", self.ring.len())?;
        let quads = check.size("the groups of 16 bytes", words / 4)?;
        let arguments = vec![
            Argument::update(self.ring),
            Argument::update(self.block),
            Argument::update(self.taken),
            Argument::U32(Self::slot_words(words) as u32),
            Argument::U32(quads),
            Argument::U32(Self::SLOTS as u32),
        ];
        Ok(Launch { kernel: &TAKE_CONTROLS, problem: Problem::from([quads]), arguments })
    }
}
