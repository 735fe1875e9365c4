//! The matrix products of attention, batched over sequences and heads.
//!
//! Queries and outputs are `[batch, seq, heads, head_dim]`, keys and values
//! `[batch, seq, kv_heads, head_dim]`, scores and probabilities `[batch, heads, seq, seq]`. Head h
//! uses key and value head h ÷ (heads ÷ kv_heads); gradients of keys and values sum over the heads
//! of a group in ascending order. Softmax and its mask are kernels of their own.

use crate::checks::Check;
use crate::gemm::config::product_kernels;
use crate::gemm::heuristic::Layout;
use crate::gemm::launch::{Product, Sizes, Strides};
use crate::tensor::{Compute, Family};
use crate::{KernelError, Launch, View};

product_kernels! {
    /// scores = scale·q·kᵀ.
    SCORES = "attention_scores" in NT;
    /// The same computed in bf16.
    SCORES_BF16 = "attention_scores_bf16" in BF16_NT;
    /// out = probs·v.
    VALUES = "attention_values" in NN;
    /// The same computed in bf16.
    VALUES_BF16 = "attention_values_bf16" in BF16_NN;
}

/// The sizes of attention. `heads` is a multiple of `kv_heads`.
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

/// The tensors that attention works on.
pub(crate) enum Role {
    /// `[batch, seq, heads, head_dim]`.
    Query,
    /// `[batch, seq, kv_heads, head_dim]`.
    Key,
    /// `[batch, heads, seq, seq]`.
    Scores,
}

impl AttentionShape {
    /// Query heads per key and value head.
    pub(crate) fn group(self) -> usize {
        self.heads / self.kv_heads.max(1)
    }

    /// Checks the head counts and the length of every operand.
    pub(crate) fn check<B: Copy>(
        self,
        check: Check,
        operands: [(&'static str, View<B, f32>, Role); 3],
    ) -> Result<(), KernelError> {
        let Self { batch, seq, heads, kv_heads, head_dim } = self;
        let divides = kv_heads > 0 && heads % kv_heads == 0;
        let rule = "heads must be a multiple of kv_heads, which must not be 0";
        check.rule(divides, rule, (heads, kv_heads))?;
        for (operand, view, role) in operands {
            let sizes = match role {
                Role::Query => [batch, seq, heads, head_dim],
                Role::Key => [batch, seq, kv_heads, head_dim],
                Role::Scores => [batch, heads, seq, seq],
            };
            check.length(operand, view, check.product("the number of elements", &sizes)?)?;
        }
        Ok(())
    }

    /// The strides of a query-shaped tensor, one plane per query head.
    pub(crate) fn query(self) -> Strides {
        let leading = self.heads * self.head_dim;
        Strides { leading, batch: self.seq * leading, head: self.head_dim, reduce: 0 }
    }

    /// The strides of a key-shaped tensor, one plane per key head.
    pub(crate) fn key(self) -> Strides {
        let leading = self.kv_heads * self.head_dim;
        Strides { leading, batch: self.seq * leading, head: self.head_dim, reduce: 0 }
    }

    /// The strides of a scores-shaped tensor, one plane per query head.
    pub(crate) fn scores(self) -> Strides {
        let plane = self.seq * self.seq;
        Strides { leading: self.seq, batch: self.heads * plane, head: plane, reduce: 0 }
    }

    /// The same tensor with one plane per key head and the heads of its group as summands.
    pub(crate) fn grouped(self, strides: Strides) -> Strides {
        Strides { head: strides.head * self.group(), reduce: strides.head, ..strides }
    }

    /// One product per query head.
    pub(crate) fn per_head(self, [m, n, k]: [usize; 3]) -> Sizes {
        let (batches, heads) = (self.batch, self.heads);
        Sizes { m, n, k, batches, heads, b_group: self.group(), reduce: 1 }
    }

    /// One sum of products per key head, over the query heads of its group.
    pub(crate) fn per_group(self, [m, n, k]: [usize; 3]) -> Sizes {
        let (batches, heads) = (self.batch, self.kv_heads);
        Sizes { m, n, k, batches, heads, b_group: 1, reduce: self.group() }
    }
}

/// A product of attention: which of the operands is which.
pub(crate) struct Step<B> {
    pub(crate) family: Family,
    pub(crate) compute: Compute,
    pub(crate) layout: Layout,
    pub(crate) operands: [(View<B, f32>, Strides); 3],
    pub(crate) sizes: Sizes,
    pub(crate) alpha: f32,
}

impl<B: Copy> Step<B> {
    pub(crate) fn launch(self) -> Result<Launch<B>, KernelError> {
        let [a, b, c] = self.operands;
        Product {
            family: self.family,
            compute: self.compute,
            layout: self.layout,
            a: (a.0.into(), a.1),
            b: (b.0.into(), b.1),
            c: (c.0.into(), c.1),
            bias: None,
            sizes: self.sizes,
            alpha: self.alpha,
            accumulate: false,
        }
        .launch()
    }
}

/// scores = scale·q·kᵀ for every sequence and head, masked or not: the softmax ignores what its
/// mask hides.
#[derive(Clone, Copy, Debug)]
pub struct AttentionScores<B> {
    /// `[batch, seq, heads, head_dim]`.
    pub q: View<B, f32>,
    /// `[batch, seq, kv_heads, head_dim]`.
    pub k: View<B, f32>,
    /// `[batch, heads, seq, seq]`.
    pub scores: View<B, f32>,
    /// The sizes.
    pub shape: AttentionShape,
    /// The factor, by custom 1/√head_dim.
    pub scale: f32,
}

impl<B: Copy> AttentionScores<B> {
    /// Checks the operands and describes the launch of products in f32.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        self.launch_in(Compute::F32)
    }

    /// Checks the operands and describes the launch of products in `compute`.
    pub fn launch_in(self, compute: Compute) -> Result<Launch<B>, KernelError> {
        let Self { q, k, scores, shape, scale } = self;
        let operands =
            [("q", q, Role::Query), ("k", k, Role::Key), ("scores", scores, Role::Scores)];
        shape.check(Check(SCORES.name), operands)?;
        Step {
            family: Family::of(&SCORES, &SCORES_BF16),
            compute,
            layout: Layout::Nt,
            operands: [(q, shape.query()), (k, shape.key()), (scores, shape.scores())],
            sizes: shape.per_head([shape.seq, shape.seq, shape.head_dim]),
            alpha: scale,
        }
        .launch()
    }
}

/// out = probs·v for every sequence and head.
#[derive(Clone, Copy, Debug)]
pub struct AttentionValues<B> {
    /// `[batch, heads, seq, seq]`.
    pub probs: View<B, f32>,
    /// `[batch, seq, kv_heads, head_dim]`.
    pub v: View<B, f32>,
    /// `[batch, seq, heads, head_dim]`.
    pub out: View<B, f32>,
    /// The sizes.
    pub shape: AttentionShape,
}

impl<B: Copy> AttentionValues<B> {
    /// Checks the operands and describes the launch of products in f32.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        self.launch_in(Compute::F32)
    }

    /// Checks the operands and describes the launch of products in `compute`.
    pub fn launch_in(self, compute: Compute) -> Result<Launch<B>, KernelError> {
        let Self { probs, v, out, shape } = self;
        let operands =
            [("probs", probs, Role::Scores), ("v", v, Role::Key), ("out", out, Role::Query)];
        shape.check(Check(VALUES.name), operands)?;
        Step {
            family: Family::of(&VALUES, &VALUES_BF16),
            compute,
            layout: Layout::Nn,
            operands: [(probs, shape.scores()), (v, shape.key()), (out, shape.query())],
            sizes: shape.per_head([shape.seq, shape.head_dim, shape.seq]),
            alpha: 1.0,
        }
        .launch()
    }
}
