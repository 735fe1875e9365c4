//! Attention with stored probabilities: batched matrix products over sequences and heads.
//!
//! Queries and outputs are `[batch, seq, heads, head_dim]`, keys and values
//! `[batch, seq, kv_heads, head_dim]`, scores and probabilities `[batch, heads, seq, seq]`. Head h
//! uses key and value head h ÷ (heads ÷ kv_heads). [`Softmax`](crate::attention::Softmax) computes
//! probabilities from scores and applies the causal mask.

use super::shape::{AttentionShape, TensorLayout};
use crate::checks::Check;
use crate::gemm::kernels::{GemmKernels, gemm_kernels};
use crate::gemm::launch::Gemm;
use crate::gemm::operand::{GemmSizes, Operand, Strides};
use crate::{DType, KernelError, Launch, View};

gemm_kernels! {
    /// `scores = scale·q·kᵀ`.
    SCORES_KERNELS;
    /// Kernel of [`AttentionScores`].
    SCORES = "attention_scores" in NT;
    /// [`SCORES`] computed in bf16.
    SCORES_BF16 = "attention_scores_bf16" in BF16_NT;
}

gemm_kernels! {
    /// `out = probs·v`.
    VALUES_KERNELS;
    /// Kernel of [`AttentionValues`].
    VALUES = "attention_values" in NN;
    /// [`VALUES`] computed in bf16.
    VALUES_BF16 = "attention_values_bf16" in BF16_NN;
}

/// A matrix product of attention; all operands are f32.
pub(super) struct AttentionProduct<B> {
    pub(super) kernels: GemmKernels,
    pub(super) compute: DType,
    pub(super) operands: [(View<B, f32>, Strides); 3],
    pub(super) sizes: GemmSizes,
    pub(super) alpha: f32,
}

impl<B: Copy> AttentionProduct<B> {
    pub(super) fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { kernels, compute, operands, sizes, alpha } = self;
        let [a, b, c] = operands.map(|(view, strides)| Operand { view: view.into(), strides });
        Gemm { kernels, compute, a, b, c, bias: None, sizes, alpha, accumulate: false }.launch()
    }
}

/// `scores = scale·q·kᵀ` for every sequence and head, without a mask.
#[derive(Clone, Copy, Debug)]
pub struct AttentionScores<B> {
    /// `[batch, seq, heads, head_dim]`, read.
    pub q: View<B, f32>,
    /// `[batch, seq, kv_heads, head_dim]`, read.
    pub k: View<B, f32>,
    /// `[batch, heads, seq, seq]`, written.
    pub scores: View<B, f32>,
    /// The sizes.
    pub shape: AttentionShape,
    /// The softmax scale, usually 1/√head_dim.
    pub scale: f32,
}

impl<B: Copy> AttentionScores<B> {
    /// Checks the operands and describes a launch that computes in f32.
    ///
    /// # Errors
    /// The errors of [`Self::launch_in`].
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        self.launch_in(DType::F32)
    }

    /// Checks the operands and describes a launch that computes in `compute`: f32 or bf16.
    ///
    /// # Errors
    /// If the head counts do not fit, a length does not match the shape, a size is out of range, or
    /// `compute` is neither f32 nor bf16.
    pub fn launch_in(self, compute: DType) -> Result<Launch<B>, KernelError> {
        use TensorLayout::{KeyValue, Query, Scores};
        let Self { q, k, scores, shape, scale } = self;
        let operands = [("q", q, Query), ("k", k, KeyValue), ("scores", scores, Scores)];
        shape.check(Check(SCORES.name), operands)?;
        AttentionProduct {
            kernels: SCORES_KERNELS,
            compute,
            operands: operands.map(|(_, view, layout)| (view, shape.strides(layout))),
            sizes: shape.per_head([shape.seq, shape.seq, shape.head_dim]),
            alpha: scale,
        }
        .launch()
    }
}

/// `out = probs·v` for every sequence and head.
#[derive(Clone, Copy, Debug)]
pub struct AttentionValues<B> {
    /// `[batch, heads, seq, seq]`, read.
    pub probs: View<B, f32>,
    /// `[batch, seq, kv_heads, head_dim]`, read.
    pub v: View<B, f32>,
    /// `[batch, seq, heads, head_dim]`, written.
    pub out: View<B, f32>,
    /// The sizes.
    pub shape: AttentionShape,
}

impl<B: Copy> AttentionValues<B> {
    /// Checks the operands and describes a launch that computes in f32.
    ///
    /// # Errors
    /// The errors of [`Self::launch_in`].
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        self.launch_in(DType::F32)
    }

    /// Checks the operands and describes a launch that computes in `compute`: f32 or bf16.
    ///
    /// # Errors
    /// If the head counts do not fit, a length does not match the shape, a size is out of range, or
    /// `compute` is neither f32 nor bf16.
    pub fn launch_in(self, compute: DType) -> Result<Launch<B>, KernelError> {
        use TensorLayout::{KeyValue, Query, Scores};
        let Self { probs, v, out, shape } = self;
        let operands = [("probs", probs, Scores), ("v", v, KeyValue), ("out", out, Query)];
        shape.check(Check(VALUES.name), operands)?;
        AttentionProduct {
            kernels: VALUES_KERNELS,
            compute,
            operands: operands.map(|(_, view, layout)| (view, shape.strides(layout))),
            sizes: shape.per_head([shape.seq, shape.head_dim, shape.seq]),
            alpha: 1.0,
        }
        .launch()
    }
}
