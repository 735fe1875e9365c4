//! The step parameters, which the device fetches from a ring in pinned host memory.
//!
//! This module has the source of its kernel as well, because a program of `retrograph-runtime`
//! launches it also if no other kernel of the workspace is built.

mod source;

use crate::parameters::parameters;
use crate::{Argument, ArgumentTypes, Pointer, Signature, View};

pub use source::module;

parameters! {
    /// The parameters of [`FETCH_STEP_PARAMETERS`].
    pub struct FetchStepParametersParameters {
        /// The ring in pinned host memory, read; its first word is written.
        ring: pointer<u32>,
        /// The parameters, written if there is a new slot.
        block: pointer<u32>,
        /// The count of fetched slots, updated.
        taken: pointer<u32>,
        /// Words from the start of a slot to the next.
        slot_words: u32,
        /// Vec4s of parameters.
        vec4s: u32,
        /// Number of slots, a power of two.
        slots: u32,
    }
}

/// The layout of the ring of [`FETCH_STEP_PARAMETERS`].
pub mod ring {
    /// Slots of a ring: a power of two.
    pub const SLOTS: u32 = 16;
    /// Words before the first slot: a cache line of the host.
    pub const HEADER_WORDS: u32 = 16;
    /// Words of a slot before its parameters.
    pub const SLOT_HEADER_WORDS: u32 = 4;

    /// Words from the start of a slot to the next, for `block` words of parameters. No two slots
    /// share a cache line.
    pub const fn slot_words(block: usize) -> usize {
        (SLOT_HEADER_WORDS as usize + block).next_multiple_of(HEADER_WORDS as usize)
    }

    /// Words of a ring, for `block` words of parameters.
    pub const fn words(block: usize) -> usize {
        HEADER_WORDS as usize + SLOTS as usize * slot_words(block)
    }
}

/// The most threads of the one block of [`FETCH_STEP_PARAMETERS`].
pub const MAX_THREADS: u32 = 256;

/// Threads of the block for `vec4s` vec4s of parameters: a power of two, and at least a warp.
///
/// There is one block, because the count may change only after all parameters are copied.
pub fn threads(vec4s: u32) -> u32 {
    vec4s.clamp(32, MAX_THREADS).next_power_of_two()
}

/// The arguments of a launch. `ring` has [`ring::words`] for the words of `block`, which are a
/// multiple of four, not 0; `taken` has one word.
pub fn arguments<B: Copy>(
    ring: View<B, u32>,
    block: View<B, u32>,
    taken: View<B, u32>,
) -> Vec<Argument<B>> {
    let words = block.len();
    let parameters = FetchStepParametersParameters::<ArgumentTypes<B>> {
        ring: Pointer::update(ring),
        block: Pointer::update(block),
        taken: Pointer::update(taken),
        slot_words: ring::slot_words(words) as u32,
        vec4s: (words / 4) as u32,
        slots: ring::SLOTS,
    };
    parameters.into_arguments()
}

/// Fetches the parameters of a step.
pub const FETCH_STEP_PARAMETERS: Signature = Signature {
    image: "fetch_step_parameters",
    parameters: FetchStepParametersParameters::<()>::LIST,
    entries: &["fetch_step_parameters"],
};
