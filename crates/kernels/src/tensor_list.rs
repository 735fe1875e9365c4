//! Tables for kernels over lists of tensors: one row of cells per chunk, one block per row.

use std::ops::Range;

use retrograph_kernel_abi::{Signature, optimizer as abi};

use crate::checks::Check;
use crate::geometry::{MAX_GRID_X, linear};
use crate::{BufferArgument, Cell, Dispatch, KernelError, Problem};

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

/// One tensor of a list: its arrays, all of one length, and its constants, in the numbers that
/// [`abi::TableRow`] defines.
pub(crate) struct ListedTensor<B, const ARRAYS: usize, const CONSTANTS: usize> {
    /// Elements of each array.
    pub(crate) len: usize,
    /// The arrays; `None` for a null pointer.
    pub(crate) arrays: [Option<BufferArgument<B>>; ARRAYS],
    /// Words at the end of each row.
    pub(crate) constants: [u64; CONSTANTS],
}

impl<B: Copy, const ARRAYS: usize, const CONSTANTS: usize> ListedTensor<B, ARRAYS, CONSTANTS> {
    /// Adds a row for each chunk: the address of each array, the element count, the constants.
    pub(crate) fn add_rows(&self, table: &mut Vec<Cell<B>>) {
        for start in (0..self.len).step_by(CHUNK) {
            let range = start..self.len.min(start + CHUNK);
            table.extend(self.arrays.iter().map(|array| self.cell(array.as_ref(), &range)));
            table.push(Cell::Word(range.len() as u64));
            table.extend(self.constants.map(Cell::Word));
        }
    }

    /// Returns the address of the elements `range` of `array`.
    fn cell(&self, array: Option<&BufferArgument<B>>, range: &Range<usize>) -> Cell<B> {
        let Some(array) = array else { return Cell::Word(0) };
        let element = array.bytes.len() / self.len;
        let at = |index: usize| array.bytes.start + index * element;
        Cell::Address(BufferArgument { bytes: at(range.start)..at(range.end), ..array.clone() })
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;
    use crate::{Access, View};

    const LEN: usize = 2 * CHUNK + 3;

    fn rows<const ARRAYS: usize>(arrays: [Option<BufferArgument<u8>>; ARRAYS]) -> Vec<Cell<u8>> {
        let mut table = Vec::new();
        ListedTensor { len: LEN, arrays, constants: [9] }.add_rows(&mut table);
        table
    }

    #[test]
    fn chunks_cover_each_tensor_once() {
        let view = View::<u8, f32>::new(7, LEN);
        let table = rows([Some(BufferArgument::new(view, Access::Read))]);
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

    #[test]
    fn arrays_of_a_tensor_differ_in_dtype_and_may_be_null() {
        let view = View::<u8, bf16>::new(7, LEN + 1).slice(1..LEN + 1);
        let table = rows([None, Some(BufferArgument::new(view, Access::Write))]);
        let last = BufferArgument { buffer: 7, bytes: 65_538..65_544, access: Access::Write };
        assert_eq!(table[8..10], [Cell::Word(0), Cell::Address(last)]);
    }
}
