//! The gradients of the matrix products of attention; see [`super::attention`] for the layouts.

use super::attention::{AttentionShape, Role, Step};
use super::tiles::{self, Layout};
use crate::checks::Check;
use crate::{Kernel, KernelError, Launch, View};

/// dprobs = dout·vᵀ.
pub static GRAD_PROBS: Kernel = tiles::kernel("attention_grad_probs", Layout::Nt);
/// dv = Σ over the group of probsᵀ·dout.
pub static GRAD_V: Kernel = tiles::kernel("attention_grad_v", Layout::Tn);
/// dq = scale·dscores·k.
pub static GRAD_Q: Kernel = tiles::kernel("attention_grad_q", Layout::Nn);
/// dk = scale·Σ over the group of dscoresᵀ·q.
pub static GRAD_K: Kernel = tiles::kernel("attention_grad_k", Layout::Tn);

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
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { grad_out, v, grad_probs, shape } = self;
        let operands = [
            ("grad_out", grad_out, Role::Query),
            ("v", v, Role::Key),
            ("grad_probs", grad_probs, Role::Scores),
        ];
        shape.check(Check(GRAD_PROBS.name), operands)?;
        Step {
            kernel: &GRAD_PROBS,
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
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { probs, grad_out, grad_v, shape } = self;
        let operands = [
            ("probs", probs, Role::Scores),
            ("grad_out", grad_out, Role::Query),
            ("grad_v", grad_v, Role::Key),
        ];
        shape.check(Check(GRAD_V.name), operands)?;
        Step {
            kernel: &GRAD_V,
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
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { grad_scores, k, grad_q, shape, scale } = self;
        let operands = [
            ("grad_scores", grad_scores, Role::Scores),
            ("k", k, Role::Key),
            ("grad_q", grad_q, Role::Query),
        ];
        shape.check(Check(GRAD_Q.name), operands)?;
        Step {
            kernel: &GRAD_Q,
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
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { grad_scores, q, grad_k, shape, scale } = self;
        let operands = [
            ("grad_scores", grad_scores, Role::Scores),
            ("q", q, Role::Query),
            ("grad_k", grad_k, Role::Key),
        ];
        shape.check(Check(GRAD_K.name), operands)?;
        Step {
            kernel: &GRAD_K,
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
