//! Kernels over a list of tensors: one block handles one chunk of one tensor.
//!
//! A table in global memory has one row of eight-byte cells per block: the addresses of the
//! arrays, the number of elements, and the constants of the tensor.

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::optimizer::TableRow;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Value};

use super::vec4::{Vec4, aligned, for_each_vec4};

/// The chunk of this block: its row of the table.
pub(crate) struct Chunk<'k, const ARRAYS: usize> {
    k: Kernel<'k>,
    row: Ptr<'k, u64>,
    pub(crate) arrays: [Ptr<'k, f32>; ARRAYS],
    len: Value<'k, u32>,
    aligned: Pred<'k>,
}

impl<'k, const ARRAYS: usize> Chunk<'k, ARRAYS> {
    /// Reads the row of this block from `table`.
    pub(crate) fn read(k: &Kernel<'k>, table: Ptr<'k, u64>, layout: TableRow) -> Self {
        let row = table.at(k.ctaid_x().mul_wide(layout.cells() as u32));
        let arrays = std::array::from_fn(|array| Ptr::from_address(row.load(array as u32)));
        let len = row.load(ARRAYS as u32).cast::<u32>();
        Self { k: *k, row, arrays, len, aligned: aligned(&arrays) }
    }

    /// A constant of the tensor, of the cells after the number of elements.
    pub(crate) fn constant(&self, index: u32) -> Value<'k, u64> {
        self.row.load(ARRAYS as u32 + 1 + index)
    }

    /// Runs `body` for each vec4 of the chunk that belongs to this thread.
    pub(crate) fn for_each_vec4(&self, body: impl Fn(Vec4<'k>)) {
        for_each_vec4(&self.k, self.len, self.aligned, body);
    }

    /// As [`Self::for_each_vec4`], with [`DType::Bf16`] if the constant `index` is not 0 and
    /// [`DType::F32`] otherwise. Each type has its own loop.
    pub(crate) fn for_each_vec4_as(&self, index: u32, body: impl Fn(DType, Vec4<'k>)) {
        let of = |dtype| self.for_each_vec4(|vec4| body(dtype, vec4));
        let is_bf16 = self.constant(index).ne(0);
        self.k.when_else(is_bf16, || of(DType::Bf16), || of(DType::F32));
    }
}
