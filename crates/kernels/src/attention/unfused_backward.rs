//! The gradients of the matrix products of attention; see [`super::unfused`] for the layouts.

use super::unfused::{AttentionShape, Role, Step};
use crate::checks::Check;
use crate::gemm::config::product_kernels;
use crate::gemm::heuristic::Layout;
use crate::tensor::{Compute, Family};
use crate::{KernelError, Launch, View};

product_kernels! {
    /// dprobs = dout·vᵀ.
    GRAD_PROBS = "attention_grad_probs" in NT;
    /// The same computed in bf16.
    GRAD_PROBS_BF16 = "attention_grad_probs_bf16" in BF16_NT;
    /// dv = Σ over the group of probsᵀ·dout.
    GRAD_V = "attention_grad_v" in TN;
    /// The same computed in bf16.
    GRAD_V_BF16 = "attention_grad_v_bf16" in BF16_TN;
    /// dq = scale·dscores·k.
    GRAD_Q = "attention_grad_q" in NN;
    /// The same computed in bf16.
    GRAD_Q_BF16 = "attention_grad_q_bf16" in BF16_NN;
    /// dk = scale·Σ over the group of dscoresᵀ·q.
    GRAD_K = "attention_grad_k" in TN;
    /// The same computed in bf16.
    GRAD_K_BF16 = "attention_grad_k_bf16" in BF16_TN;
}

/// dprobs = dout·vᵀ for every sequence and head.
#[derive(Clone, Copy, Debug)]
pub struct AttentionGradProbs<B> {
    /// `[batch, seq, heads, head_dim]`.
    pub grad_out: View<B, f32>,
    /// `[batch, seq, kv_heads, head_dim]`.
    pub v: View<B, f32>,
    /// `[batch, heads, seq, seq]`.
    pub grad_probs: View<B, f32>,
    /// The sizes.
    pub shape: AttentionShape,
}

impl<B: Copy> AttentionGradProbs<B> {
    /// Checks the operands and describes the launch of products in f32.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        self.launch_in(Compute::F32)
    }

    /// Checks the operands and describes the launch of products in `compute`.
    pub fn launch_in(self, compute: Compute) -> Result<Launch<B>, KernelError> {
        let Self { grad_out, v, grad_probs, shape } = self;
        let operands = [
            ("grad_out", grad_out, Role::Query),
            ("v", v, Role::Key),
            ("grad_probs", grad_probs, Role::Scores),
        ];
        shape.check(Check(GRAD_PROBS.name), operands)?;
        Step {
            family: Family::of(&GRAD_PROBS, &GRAD_PROBS_BF16),
            compute,
            layout: Layout::Nt,
            operands: [(grad_out, shape.query()), (v, shape.key()), (grad_probs, shape.scores())],
            sizes: shape.per_head([shape.seq, shape.seq, shape.head_dim]),
            alpha: 1.0,
        }
        .launch()
    }
}

/// dv = Σ over the heads of a group, in ascending order, of probsᵀ·dout.
#[derive(Clone, Copy, Debug)]
pub struct AttentionGradV<B> {
    /// `[batch, heads, seq, seq]`.
    pub probs: View<B, f32>,
    /// `[batch, seq, heads, head_dim]`.
    pub grad_out: View<B, f32>,
    /// `[batch, seq, kv_heads, head_dim]`.
    pub grad_v: View<B, f32>,
    /// The sizes.
    pub shape: AttentionShape,
}

impl<B: Copy> AttentionGradV<B> {
    /// Checks the operands and describes the launch of products in f32.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        self.launch_in(Compute::F32)
    }

    /// Checks the operands and describes the launch of products in `compute`.
    pub fn launch_in(self, compute: Compute) -> Result<Launch<B>, KernelError> {
        let Self { probs, grad_out, grad_v, shape } = self;
        let operands = [
            ("probs", probs, Role::Scores),
            ("grad_out", grad_out, Role::Query),
            ("grad_v", grad_v, Role::Key),
        ];
        shape.check(Check(GRAD_V.name), operands)?;
        Step {
            family: Family::of(&GRAD_V, &GRAD_V_BF16),
            compute,
            layout: Layout::Tn,
            operands: [
                (probs, shape.grouped(shape.scores())),
                (grad_out, shape.grouped(shape.query())),
                (grad_v, shape.key()),
            ],
            sizes: shape.per_group([shape.seq, shape.head_dim, shape.seq]),
            alpha: 1.0,
        }
        .launch()
    }
}

/// dq = scale·dscores·k for every sequence and head.
#[derive(Clone, Copy, Debug)]
pub struct AttentionGradQ<B> {
    /// `[batch, heads, seq, seq]`.
    pub grad_scores: View<B, f32>,
    /// `[batch, seq, kv_heads, head_dim]`.
    pub k: View<B, f32>,
    /// `[batch, seq, heads, head_dim]`.
    pub grad_q: View<B, f32>,
    /// The sizes.
    pub shape: AttentionShape,
    /// The factor that the scores were multiplied by.
    pub scale: f32,
}

impl<B: Copy> AttentionGradQ<B> {
    /// Checks the operands and describes the launch of products in f32.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        self.launch_in(Compute::F32)
    }

    /// Checks the operands and describes the launch of products in `compute`.
    pub fn launch_in(self, compute: Compute) -> Result<Launch<B>, KernelError> {
        let Self { grad_scores, k, grad_q, shape, scale } = self;
        let operands = [
            ("grad_scores", grad_scores, Role::Scores),
            ("k", k, Role::Key),
            ("grad_q", grad_q, Role::Query),
        ];
        shape.check(Check(GRAD_Q.name), operands)?;
        Step {
            family: Family::of(&GRAD_Q, &GRAD_Q_BF16),
            compute,
            layout: Layout::Nn,
            operands: [(grad_scores, shape.scores()), (k, shape.key()), (grad_q, shape.query())],
            sizes: shape.per_head([shape.seq, shape.head_dim, shape.seq]),
            alpha: scale,
        }
        .launch()
    }
}

/// dk = scale·Σ over the heads of a group, in ascending order, of dscoresᵀ·q.
#[derive(Clone, Copy, Debug)]
pub struct AttentionGradK<B> {
    /// `[batch, heads, seq, seq]`.
    pub grad_scores: View<B, f32>,
    /// `[batch, seq, heads, head_dim]`.
    pub q: View<B, f32>,
    /// `[batch, seq, kv_heads, head_dim]`.
    pub grad_k: View<B, f32>,
    /// The sizes.
    pub shape: AttentionShape,
    /// The factor that the scores were multiplied by.
    pub scale: f32,
}

impl<B: Copy> AttentionGradK<B> {
    /// Checks the operands and describes the launch of products in f32.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        self.launch_in(Compute::F32)
    }

    /// Checks the operands and describes the launch of products in `compute`.
    pub fn launch_in(self, compute: Compute) -> Result<Launch<B>, KernelError> {
        let Self { grad_scores, q, grad_k, shape, scale } = self;
        let operands = [
            ("grad_scores", grad_scores, Role::Scores),
            ("q", q, Role::Query),
            ("grad_k", grad_k, Role::Key),
        ];
        shape.check(Check(GRAD_K.name), operands)?;
        Step {
            family: Family::of(&GRAD_K, &GRAD_K_BF16),
            compute,
            layout: Layout::Tn,
            operands: [
                (grad_scores, shape.grouped(shape.scores())),
                (q, shape.grouped(shape.query())),
                (grad_k, shape.key()),
            ],
            sizes: shape.per_group([shape.seq, shape.head_dim, shape.seq]),
            alpha: scale,
        }
        .launch()
    }
}
