//! The strided operands and the sizes of a matrix product.

use crate::TensorView;

/// An operand and its strides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand<B> {
    pub(crate) view: TensorView<B>,
    pub(crate) strides: Strides,
}

impl<B> Operand<B> {
    /// A contiguous matrix with `columns` columns in memory.
    pub(crate) fn contiguous(view: TensorView<B>, columns: usize) -> Self {
        Self { view, strides: Strides::contiguous(columns) }
    }
}

/// The strides of one operand, in elements.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Strides {
    /// The leading dimension: from one row in memory to the next.
    pub(crate) leading: usize,
    /// From one batch to the next.
    pub(crate) batch: usize,
    /// From one head to the next.
    pub(crate) head: usize,
    /// From one index of the outer reduction to the next.
    pub(crate) reduce: usize,
}

impl Strides {
    /// The strides of a contiguous matrix.
    pub(crate) fn contiguous(leading: usize) -> Self {
        Self { leading, ..Self::default() }
    }

    /// The length of a row in memory, and all strides.
    pub(super) fn with_row(self, row: usize) -> [usize; 5] {
        [row, self.leading, self.batch, self.head, self.reduce]
    }
}

/// The sizes of a product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GemmSizes {
    /// Rows of c.
    pub(crate) m: usize,
    /// Columns of c.
    pub(crate) n: usize,
    /// Length of the contraction.
    pub(crate) k: usize,
    /// Outer batches.
    pub(crate) batches: usize,
    /// Inner batches.
    pub(crate) heads: usize,
    /// Number of consecutive heads that share one b.
    pub(crate) b_group: usize,
    /// Length of the outer reduction: products that are summed into each c, in order.
    pub(crate) reduce: usize,
}

impl GemmSizes {
    /// The sizes of a single product.
    pub(crate) fn single([m, n, k]: [usize; 3]) -> Self {
        Self { m, n, k, batches: 1, heads: 1, b_group: 1, reduce: 1 }
    }
}
