//! Operands of a matrix product with their strides, and its sizes.

use crate::TensorView;

/// An operand and its strides.
pub(crate) type Operand<B> = (TensorView<B>, Strides);

/// The strides of one operand, in elements.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Strides {
    /// From one row, as stored, to the next: the leading dimension.
    pub(crate) leading: usize,
    /// From one batch to the next.
    pub(crate) batch: usize,
    /// From one head to the next.
    pub(crate) head: usize,
    /// From one summand to the next.
    pub(crate) reduce: usize,
}

impl Strides {
    /// A contiguous matrix.
    pub(crate) fn contiguous(leading: usize) -> Self {
        Self { leading, ..Self::default() }
    }

    /// The length of a row, as stored, and all strides.
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
    /// Number of products that are summed, in order, into each c.
    pub(crate) reduce: usize,
}

impl GemmSizes {
    /// One product.
    pub(crate) fn single([m, n, k]: [usize; 3]) -> Self {
        Self { m, n, k, batches: 1, heads: 1, b_group: 1, reduce: 1 }
    }
}
