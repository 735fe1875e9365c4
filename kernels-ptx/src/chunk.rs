//! Chunks: the part of a tensor that one block of a kernel over a list of tensors handles.
//!
//! The table has one row of eight-byte cells for each block: the addresses of the arrays, then the
//! number of elements, then what is constant for the tensor.

use retrograph_ptx::build::{Kernel, Pred, Ptr, Value};

use crate::quad::{Quad, aligned, block_quads};

/// Threads of the block of a chunk.
pub(crate) const THREADS: u32 = 512;

/// The row of the table that belongs to this block.
pub(crate) struct Chunk<'k, const ARRAYS: usize> {
    k: Kernel<'k>,
    row: Ptr<'k, u64>,
    /// The arrays of the chunk.
    pub(crate) arrays: [Ptr<'k, f32>; ARRAYS],
    len: Value<'k, u32>,
    aligned: Pred<'k>,
}

impl<'k, const ARRAYS: usize> Chunk<'k, ARRAYS> {
    /// Reads the row of this block from the parameter `table`, whose rows have `cells` cells.
    pub(crate) fn read(k: &Kernel<'k>, table: Ptr<'k, u64>, cells: u32) -> Self {
        let row = table.at(k.ctaid_x().mul_wide(cells));
        let arrays = std::array::from_fn(|array| Ptr::from_address(row.load(array as u32)));
        let len = row.load(ARRAYS as u32).cast::<u32>();
        Self { k: *k, row, arrays, len, aligned: aligned(&arrays) }
    }

    /// The constant of the tensor, the cell behind the number of elements.
    pub(crate) fn constant(&self) -> Value<'k, u64> {
        self.row.load(ARRAYS as u32 + 1)
    }

    /// Runs `body` for each quad of the chunk that belongs to this thread.
    pub(crate) fn quads(&self, body: impl Fn(Quad<'k>)) {
        block_quads(&self.k, self.len, self.aligned, body);
    }
}
