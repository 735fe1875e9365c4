//! The gradients of attention with stored probabilities; see [`super::unfused`] for the layouts.
//!
//! Gradients of keys and values sum over the query heads of a group, in ascending order.

use super::shape::{AttentionShape, TensorLayout};
use super::unfused::AttentionProduct;
use crate::checks::Check;
use crate::gemm::kernels::gemm_kernels;
use crate::{DType, KernelError, Launch, View};

gemm_kernels! {
    /// `dprobs = dout·vᵀ`.
    GRAD_PROBS_KERNELS;
    /// Kernel of [`AttentionGradProbs`].
    GRAD_PROBS = "attention_grad_probs" in NT;
    /// [`GRAD_PROBS`] computed in bf16.
    GRAD_PROBS_BF16 = "attention_grad_probs_bf16" in BF16_NT;
}

gemm_kernels! {
    /// `dv = Σ probsᵀ·dout` over the heads of a group.
    GRAD_V_KERNELS;
    /// Kernel of [`AttentionGradV`].
    GRAD_V = "attention_grad_v" in TN;
    /// [`GRAD_V`] computed in bf16.
    GRAD_V_BF16 = "attention_grad_v_bf16" in BF16_TN;
}

gemm_kernels! {
    /// `dq = scale·dscores·k`.
    GRAD_Q_KERNELS;
    /// Kernel of [`AttentionGradQ`].
    GRAD_Q = "attention_grad_q" in NN;
    /// [`GRAD_Q`] computed in bf16.
    GRAD_Q_BF16 = "attention_grad_q_bf16" in BF16_NN;
}

gemm_kernels! {
    /// `dk = scale·Σ dscoresᵀ·q` over the heads of a group.
    GRAD_K_KERNELS;
    /// Kernel of [`AttentionGradK`].
    GRAD_K = "attention_grad_k" in TN;
    /// [`GRAD_K`] computed in bf16.
    GRAD_K_BF16 = "attention_grad_k_bf16" in BF16_TN;
}

/// `dprobs = dout·vᵀ` for every sequence and head.
#[derive(Clone, Copy, Debug)]
pub struct AttentionGradProbs<B> {
    /// `[batch, seq, heads, head_dim]`, read.
    pub grad_out: View<B, f32>,
    /// `[batch, seq, kv_heads, head_dim]`, read.
    pub v: View<B, f32>,
    /// `[batch, heads, seq, seq]`, written.
    pub grad_probs: View<B, f32>,
    /// The sizes.
    pub shape: AttentionShape,
}

impl<B: Copy> AttentionGradProbs<B> {
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
        let Self { grad_out, v, grad_probs, shape } = self;
        let operands =
            [("grad_out", grad_out, Query), ("v", v, KeyValue), ("grad_probs", grad_probs, Scores)];
        shape.check(Check(GRAD_PROBS.name), operands)?;
        AttentionProduct {
            kernels: GRAD_PROBS_KERNELS,
            compute,
            operands: operands.map(|(_, view, layout)| (view, shape.strides(layout))),
            sizes: shape.per_head([shape.seq, shape.seq, shape.head_dim]),
            alpha: 1.0,
        }
        .launch()
    }
}

/// `dv = Σ probsᵀ·dout` over the heads of a group, in ascending order.
#[derive(Clone, Copy, Debug)]
pub struct AttentionGradV<B> {
    /// `[batch, heads, seq, seq]`, read.
    pub probs: View<B, f32>,
    /// `[batch, seq, heads, head_dim]`, read.
    pub grad_out: View<B, f32>,
    /// `[batch, seq, kv_heads, head_dim]`, written.
    pub grad_v: View<B, f32>,
    /// The sizes.
    pub shape: AttentionShape,
}

impl<B: Copy> AttentionGradV<B> {
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
        let Self { probs, grad_out, grad_v, shape } = self;
        let operands =
            [("probs", probs, Scores), ("grad_out", grad_out, Query), ("grad_v", grad_v, KeyValue)];
        shape.check(Check(GRAD_V.name), operands)?;
        AttentionProduct {
            kernels: GRAD_V_KERNELS,
            compute,
            operands: [
                (probs, shape.grouped_strides(Scores)),
                (grad_out, shape.grouped_strides(Query)),
                (grad_v, shape.strides(KeyValue)),
            ],
            sizes: shape.per_group([shape.seq, shape.head_dim, shape.seq]),
            alpha: 1.0,
        }
        .launch()
    }
}

/// `dq = scale·dscores·k` for every sequence and head.
#[derive(Clone, Copy, Debug)]
pub struct AttentionGradQ<B> {
    /// `[batch, heads, seq, seq]`, read.
    pub grad_scores: View<B, f32>,
    /// `[batch, seq, kv_heads, head_dim]`, read.
    pub k: View<B, f32>,
    /// `[batch, seq, heads, head_dim]`, written.
    pub grad_q: View<B, f32>,
    /// The sizes.
    pub shape: AttentionShape,
    /// The factor of the scores in the forward pass.
    pub scale: f32,
}

impl<B: Copy> AttentionGradQ<B> {
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
        let Self { grad_scores, k, grad_q, shape, scale } = self;
        let operands =
            [("grad_scores", grad_scores, Scores), ("k", k, KeyValue), ("grad_q", grad_q, Query)];
        shape.check(Check(GRAD_Q.name), operands)?;
        AttentionProduct {
            kernels: GRAD_Q_KERNELS,
            compute,
            operands: operands.map(|(_, view, layout)| (view, shape.strides(layout))),
            sizes: shape.per_head([shape.seq, shape.head_dim, shape.seq]),
            alpha: scale,
        }
        .launch()
    }
}

/// `dk = scale·Σ dscoresᵀ·q` over the heads of a group, in ascending order.
#[derive(Clone, Copy, Debug)]
pub struct AttentionGradK<B> {
    /// `[batch, heads, seq, seq]`, read.
    pub grad_scores: View<B, f32>,
    /// `[batch, seq, heads, head_dim]`, read.
    pub q: View<B, f32>,
    /// `[batch, seq, kv_heads, head_dim]`, written.
    pub grad_k: View<B, f32>,
    /// The sizes.
    pub shape: AttentionShape,
    /// The factor of the scores in the forward pass.
    pub scale: f32,
}

impl<B: Copy> AttentionGradK<B> {
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
        let Self { grad_scores, q, grad_k, shape, scale } = self;
        let operands =
            [("grad_scores", grad_scores, Scores), ("q", q, Query), ("grad_k", grad_k, KeyValue)];
        shape.check(Check(GRAD_K.name), operands)?;
        AttentionProduct {
            kernels: GRAD_K_KERNELS,
            compute,
            operands: [
                (grad_scores, shape.grouped_strides(Scores)),
                (q, shape.grouped_strides(Query)),
                (grad_k, shape.strides(KeyValue)),
            ],
            sizes: shape.per_group([shape.seq, shape.head_dim, shape.seq]),
            alpha: scale,
        }
        .launch()
    }
}
