//! Operands of `wgmma`: swizzled bf16 tiles in shared memory.

use retrograph_ptx::build::{MatrixDescriptor, Shared};

use super::smem_tile::{Major, SmemLayout, SmemTile};
use super::swizzle::LINE_WORDS;

/// Threads of a warpgroup.
pub(crate) const WARPGROUP_THREADS: u32 = 128;
/// Rows of an instruction.
pub(crate) const ROWS: u32 = 64;
/// Steps of K of an instruction.
pub(crate) const STEPS: u32 = 16;
/// The terms of split operands a and b in each of their products, the small products first:
/// `(aₕ + aₗ)·(bₕ + bₗ) ≈ aₗ·bₕ + aₕ·bₗ + aₕ·bₕ`.
pub(crate) const SPLIT_PRODUCTS: &[[usize; 2]] = &[[1, 0], [0, 1], [0, 0]];
/// The same if b has no lo term.
pub(crate) const SPLIT_PRODUCTS_WITH_HIGH_B: &[[usize; 2]] = &[[1, 0], [0, 0]];
/// Bytes of a line.
const LINE_BYTES: u32 = LINE_WORDS * 4;

impl SmemTile {
    /// The descriptor of the tile at `smem`, or of its last runs if these go along K.
    pub(crate) fn descriptor<'k>(
        self,
        smem: Shared<'k, u32>,
        major: Major,
    ) -> MatrixDescriptor<'k> {
        assert_eq!(self.layout, SmemLayout::Swizzled, "descriptors are of swizzled tiles");
        match major {
            Major::K => smem.k_major_descriptor(),
            Major::Mn => smem.mn_major_descriptor(self.runs * LINE_BYTES),
        }
    }

    /// Bytes from the start of the tile to the steps of K of instruction number `step`: within
    /// lines if runs go along K, whole lines otherwise.
    pub(crate) fn step_bytes(self, major: Major, step: u32) -> u32 {
        let steps_per_line = self.line_len() / STEPS;
        match major {
            Major::K => {
                let lines = step / steps_per_line * self.runs;
                lines * LINE_BYTES + step % steps_per_line * STEPS * self.dtype.bytes()
            }
            Major::Mn => step * STEPS * LINE_BYTES,
        }
    }
}
