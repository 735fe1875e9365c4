//! The sizes of attention and the layouts of its tensors.

use crate::checks::Check;
use crate::gemm::operand::{GemmSizes, Strides};
use crate::{KernelError, View};

/// The sizes of attention. `heads` is a multiple of `kv_heads` (grouped-query attention).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Sequences.
    pub batch: usize,
    /// Tokens per sequence.
    pub seq: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
}

/// The layout of a tensor of attention.
#[derive(Clone, Copy)]
pub(crate) enum TensorLayout {
    /// `[batch, seq, heads, head_dim]`.
    Query,
    /// `[batch, seq, kv_heads, head_dim]`.
    KeyValue,
    /// `[batch, heads, seq, seq]`.
    Scores,
}

impl AttentionShape {
    /// Query heads per key and value head.
    pub(crate) fn group(self) -> usize {
        self.heads / self.kv_heads.max(1)
    }

    /// Checks the head counts.
    pub(crate) fn check_heads(self, check: Check) -> Result<(), KernelError> {
        let Self { heads, kv_heads, .. } = self;
        let divides = kv_heads > 0 && heads.is_multiple_of(kv_heads);
        check.rule(divides, "heads must be a multiple of kv_heads, not 0", [heads, kv_heads])
    }

    /// Checks the head counts and the length of every operand, named by the field of the caller.
    pub(crate) fn check<B: Copy, const N: usize>(
        self,
        check: Check,
        operands: [(&'static str, View<B, f32>, TensorLayout); N],
    ) -> Result<(), KernelError> {
        self.check_heads(check)?;
        for (operand, view, layout) in operands {
            let elements = check.product("the number of elements", &self.dimensions(layout))?;
            check.length(operand, view, elements)?;
        }
        Ok(())
    }

    pub(super) fn dimensions(self, layout: TensorLayout) -> [usize; 4] {
        let Self { batch, seq, heads, kv_heads, head_dim } = self;
        match layout {
            TensorLayout::Query => [batch, seq, heads, head_dim],
            TensorLayout::KeyValue => [batch, seq, kv_heads, head_dim],
            TensorLayout::Scores => [batch, heads, seq, seq],
        }
    }

    /// The strides of a tensor with one plane per head.
    pub(crate) fn strides(self, layout: TensorLayout) -> Strides {
        let token = |heads| {
            let leading = heads * self.head_dim;
            Strides { leading, batch: self.seq * leading, head: self.head_dim, reduce: 0 }
        };
        match layout {
            TensorLayout::Query => token(self.heads),
            TensorLayout::KeyValue => token(self.kv_heads),
            TensorLayout::Scores => {
                let plane = self.seq * self.seq;
                Strides { leading: self.seq, batch: self.heads * plane, head: plane, reduce: 0 }
            }
        }
    }

    /// The strides of a tensor with one plane per key head; the contraction includes the heads of
    /// its group.
    pub(crate) fn grouped_strides(self, layout: TensorLayout) -> Strides {
        let strides = self.strides(layout);
        Strides { head: strides.head * self.group(), reduce: strides.head, ..strides }
    }

    /// One product per query head.
    pub(crate) fn per_head(self, sizes: [usize; 3]) -> GemmSizes {
        let (batches, heads, b_group) = (self.batch, self.heads, self.group());
        GemmSizes { batches, heads, b_group, ..GemmSizes::single(sizes) }
    }

    /// One sum of products per key head, over the query heads of its group.
    pub(crate) fn per_group(self, sizes: [usize; 3]) -> GemmSizes {
        let (batches, heads, reduce) = (self.batch, self.kv_heads, self.group());
        GemmSizes { batches, heads, reduce, ..GemmSizes::single(sizes) }
    }
}
