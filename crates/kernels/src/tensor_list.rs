//! Tables for kernels over lists of tensors: one row of cells for each chunk, one block for each
//! row.

use crate::checks::Check;
use crate::geometry::{MOST_BLOCKS, linear};
use crate::{Access, BufferArgument, Cell, Dispatch, KernelError, View};

/// Elements of one chunk. A multiple of four, so that chunks keep the alignment of their tensor.
pub(crate) const CHUNK: usize = 16_384;

/// Threads of the block of a chunk.
const THREADS: u32 = 512;

/// One block for each of `chunks` rows of the table.
pub(crate) fn dispatch(entry: &'static str, chunks: u32) -> Dispatch {
    linear(entry, chunks, THREADS)
}

/// How many chunks tensors of these lengths have. A tensor without elements has none.
pub(crate) fn count(lens: impl IntoIterator<Item = usize>) -> usize {
    lens.into_iter().map(|len| len.div_ceil(CHUNK)).sum()
}

/// The number of chunks as the x extent of a grid.
pub(crate) fn grid(check: Check, chunks: usize) -> Result<u32, KernelError> {
    check.at_most("the number of chunks", chunks, MOST_BLOCKS)
}

/// A tensor of a list: its views, all of one length, and what is constant for it.
pub(crate) struct Listed<'a, B> {
    /// The views and how the kernel touches them.
    pub(crate) views: &'a [(View<B, f32>, Access)],
    /// A word at the end of each row, where the kernel takes one.
    pub(crate) constant: Option<u64>,
}

impl<B: Copy> Listed<'_, B> {
    /// Adds a row for each chunk: the address of each view, the element count, the constant.
    pub(crate) fn add_rows(&self, table: &mut Vec<Cell<B>>) {
        let len = self.views[0].0.len();
        for start in (0..len).step_by(CHUNK) {
            let range = start..len.min(start + CHUNK);
            let addresses = self.views.iter().map(|&(view, access)| {
                Cell::Address(BufferArgument::new(view.slice(range.clone()), access))
            });
            table.extend(addresses);
            table.push(Cell::Word(range.len() as u64));
            table.extend(self.constant.map(Cell::Word));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_each_tensor_once() {
        let view = View::<u8, f32>::new(7, 2 * CHUNK + 3);
        let listed = Listed { views: &[(view, Access::Read)], constant: Some(9) };
        let mut table = Vec::new();
        listed.add_rows(&mut table);
        assert_eq!(table.len(), 3 * count([view.len()]));
        let bytes = |cell: &Cell<u8>| match cell {
            Cell::Address(argument) => argument.bytes.clone(),
            Cell::Word(_) => unreachable!("the first cell of a row is an address"),
        };
        let ranges: Vec<_> = table.iter().step_by(3).map(bytes).collect();
        assert_eq!(ranges, [0..4 * CHUNK, 4 * CHUNK..8 * CHUNK, 8 * CHUNK..8 * CHUNK + 12]);
        assert_eq!(table[7..], [Cell::Word(3), Cell::Word(9)]);
        assert_eq!(count([0, 1, CHUNK, CHUNK + 1]), 4);
    }
}
