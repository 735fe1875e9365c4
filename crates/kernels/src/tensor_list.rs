//! Tables for kernels over lists of tensors: one row of cells per chunk, one block per row.

use retrograph_kernel_abi::{Signature, optimizer as abi};

use crate::checks::Check;
use crate::geometry::{MAX_GRID_X, linear};
use crate::{Access, BufferArgument, Cell, Dispatch, KernelError, Problem, View};

/// Elements of one chunk.
const CHUNK: usize = abi::CHUNK as usize;

/// One block for each row of the table.
pub(crate) fn dispatch(kernel: &Signature, problem: &Problem) -> Option<Dispatch> {
    problem.items().map(|chunks| linear(kernel.entry(), chunks, abi::CHUNK_THREADS))
}

/// Number of chunks of tensors of these lengths. A tensor without elements has none.
pub(crate) fn chunks(lens: impl IntoIterator<Item = usize>) -> usize {
    lens.into_iter().map(|len| len.div_ceil(CHUNK)).sum()
}

/// The problem of a kernel over `chunks` chunks.
pub(crate) fn problem(check: Check, chunks: usize) -> Result<Problem, KernelError> {
    Ok(Problem::Items(check.at_most("the number of chunks", chunks, MAX_GRID_X)?))
}

/// One tensor of a list: its views, all of one length, and its constants, as many as
/// [`abi::TableRow`] says.
pub(crate) struct ListedTensor<'a, B, const ARRAYS: usize, const CONSTANTS: usize> {
    /// The views and how the kernel accesses them.
    pub(crate) views: &'a [(View<B, f32>, Access); ARRAYS],
    /// Words at the end of each row.
    pub(crate) constants: [u64; CONSTANTS],
}

impl<B: Copy, const ARRAYS: usize, const CONSTANTS: usize> ListedTensor<'_, B, ARRAYS, CONSTANTS> {
    /// Adds a row for each chunk: the address of each view, the element count, the constants.
    pub(crate) fn add_rows(&self, table: &mut Vec<Cell<B>>) {
        let len = self.views[0].0.len();
        for start in (0..len).step_by(CHUNK) {
            let range = start..len.min(start + CHUNK);
            let addresses = self.views.iter().map(|&(view, access)| {
                Cell::Address(BufferArgument::new(view.slice(range.clone()), access))
            });
            table.extend(addresses);
            table.push(Cell::Word(range.len() as u64));
            table.extend(self.constants.map(Cell::Word));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_each_tensor_once() {
        let view = View::<u8, f32>::new(7, 2 * CHUNK + 3);
        let listed = ListedTensor { views: &[(view, Access::Read)], constants: [9] };
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
