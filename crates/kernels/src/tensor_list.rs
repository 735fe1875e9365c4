//! Tables for kernels over lists of tensors: one row of cells per chunk, one block per row.

use crate::checks::Check;
use crate::geometry::{MAX_GRID_X, linear};
use crate::{Access, BufferArgument, Cell, Dispatch, KernelError, Problem, View};

/// Elements of one chunk. A multiple of four, so that chunks keep the alignment of their tensor.
pub(crate) const CHUNK: usize = 16_384;

/// Threads of the block of a chunk.
const THREADS: u32 = 512;

/// One block for each row of the table.
pub(crate) fn dispatch(entry: &'static str, problem: &Problem) -> Option<Dispatch> {
    problem.items().map(|chunks| linear(entry, chunks, THREADS))
}

/// Number of chunks of tensors of these lengths. A tensor without elements has none.
pub(crate) fn chunks(lens: impl IntoIterator<Item = usize>) -> usize {
    lens.into_iter().map(|len| len.div_ceil(CHUNK)).sum()
}

/// The problem of a kernel over `chunks` chunks.
pub(crate) fn problem(check: Check, chunks: usize) -> Result<Problem, KernelError> {
    Ok(Problem::Items(check.at_most("the number of chunks", chunks, MAX_GRID_X)?))
}

/// One tensor of a list: its views, all of one length, and its constant.
pub(crate) struct ListedTensor<'a, B> {
    /// The views and how the kernel accesses them.
    pub(crate) views: &'a [(View<B, f32>, Access)],
    /// A word at the end of each row, if the kernel takes one.
    pub(crate) constant: Option<u64>,
}

impl<B: Copy> ListedTensor<'_, B> {
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
        let listed = ListedTensor { views: &[(view, Access::Read)], constant: Some(9) };
        let mut table = Vec::new();
        listed.add_rows(&mut table);
        assert_eq!(table.len(), 3 * chunks([view.len()]));
        let bytes = |cell: &Cell<u8>| match cell {
            Cell::Address(argument) => argument.bytes.clone(),
            Cell::Word(_) => unreachable!("the first cell of a row is an address"),
        };
        let ranges: Vec<_> = table.iter().step_by(3).map(bytes).collect();
        assert_eq!(ranges, [0..4 * CHUNK, 4 * CHUNK..8 * CHUNK, 8 * CHUNK..8 * CHUNK + 12]);
        assert_eq!(table[7..], [Cell::Word(3), Cell::Word(9)]);
        assert_eq!(chunks([0, 1, CHUNK, CHUNK + 1]), 4);
    }
}
