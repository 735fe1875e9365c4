//! What an entry is made for, and what follows from that.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Shared};

/// The type of the factors of products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Factors {
    /// Rounded to bf16.
    Brain,
    /// f32.
    Single,
}

/// The widest heads of the entries.
const WIDTHS: [u32; 2] = [64, 128];

/// What an entry is made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) target: SmTarget,
    pub(super) factors: Factors,
    /// The widest head.
    pub(super) width: u32,
}

impl Shape {
    /// One for each width.
    pub(super) fn all(target: SmTarget, factors: Factors) -> [Self; WIDTHS.len()] {
        WIDTHS.map(|width| Self { target, factors, width })
    }

    /// The name of the entry that does `part`.
    pub(super) fn named(self, part: &str) -> String {
        let factors = match self.factors {
            Factors::Brain => "",
            Factors::Single => "_f32",
        };
        format!("fused_attention{factors}{part}")
    }

    /// Whether there are tensor cores for the factors, and copies behind the backs of threads.
    pub(super) fn has_tensor_cores(self) -> bool {
        self.target.features().bf16_mma
    }

    /// Rows that a block keeps, 16 for each warp. `retrograph-kernels` counts on the same.
    pub(super) fn rows(self) -> u32 {
        if self.factors == Factors::Single && !self.has_tensor_cores() { 32 } else { 64 }
    }

    /// Threads of a block.
    pub(super) fn threads(self) -> u32 {
        self.rows() / 16 * 32
    }

    /// Words of a row in shared memory.
    pub(super) fn row_words(self) -> u32 {
        match self.factors {
            Factors::Brain => self.width / 2,
            Factors::Single => self.width,
        }
    }

    /// Rows of a contraction that tensor cores take at a time.
    pub(super) fn step(self) -> u32 {
        match self.factors {
            Factors::Brain => 16,
            Factors::Single => 8,
        }
    }

    /// Shared memory of `words`: more than an entry may declare is that of the launch.
    pub(super) fn memory<'k>(self, k: &Kernel<'k>, words: u32) -> Shared<'k, u32> {
        match self.factors {
            Factors::Brain => k.shared("panels", words as usize),
            Factors::Single => k.dynamic_shared(),
        }
    }
}
