//! Fused causal attention (FlashAttention-2), with f32 or bf16 operands.
//!
//! [`FusedAttention`] computes scores, softmax and values in one kernel. It stores the log-sum-exp
//! of each row; the gradients recompute the probabilities from it. Layouts are as in
//! [`crate::attention`].
//!
//! A NaN or infinity of a token reaches every token that attends to it. It may also reach the other
//! tokens of its aligned block of 128 tokens, because masked scores are multiplied by zero. With
//! bounds it may also reach later blocks, if one of their tokens attends to its block. In f32, an
//! infinite operand gives NaN.
//!
//! Source: Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning",
//! 2023.

use retrograph_kernel_abi::attention::{self as abi, FLASH_ATTENTION_BF16, FLASH_ATTENTION_F32};

use super::bounds::AttentionBounds;
use super::fused::{by_dtype, check_forward, check_softcap, dispatch, optional, term_pointers};
use super::shape::{AttentionShape, TensorLayout};
use crate::checks::Check;
use crate::gemm::SplitMatrix;
use crate::launch::{ArgumentTypes, Pointer};
use crate::problem::AttentionProblem;
use crate::{Kernel, KernelError, Launch, Output, Problem, TensorView, View};

/// Kernel of [`FusedAttention`] with bf16 operands.
pub static FUSED_ATTENTION_BF16: Kernel =
    Kernel::new("flash_attention_bf16", &FLASH_ATTENTION_BF16.forward, |problem, target| {
        dispatch(problem, target, &FLASH_ATTENTION_BF16, &FLASH_ATTENTION_BF16.forward)
    });

/// Kernel of [`FusedAttention`] with f32 operands.
pub static FUSED_ATTENTION_F32: Kernel =
    Kernel::new("flash_attention_f32", &FLASH_ATTENTION_F32.forward, |problem, target| {
        dispatch(problem, target, &FLASH_ATTENTION_F32, &FLASH_ATTENTION_F32.forward)
    });

/// `out = softmax(scale · q·kᵀ)·v` for every sequence and head, with the causal mask and optional
/// bounds.
///
/// q, k and v are all f32 or all bf16, and are multiplied in that type. In bf16 the weights
/// `exp(score − max)` are rounded, but not their sum. A row whose scores have a NaN or a positive
/// infinity, or only negative infinities, becomes NaN; with a cap, only a NaN does that.
#[derive(Clone, Copy, Debug)]
pub struct FusedAttention<B, O = View<B, f32>> {
    /// `[batch, seq, heads, head_dim]`, read.
    pub q: TensorView<B>,
    /// `[batch, seq, kv_heads, head_dim]`, read.
    pub k: TensorView<B>,
    /// `[batch, seq, kv_heads, head_dim]`, read.
    pub v: TensorView<B>,
    /// `[batch, seq, heads, head_dim]`, written: f32, bf16, or both.
    pub out: O,
    /// `[batch, heads, seq]`, written: the log-sum-exp of the scores, to base 2.
    pub lse: View<B, f32>,
    /// f32 q, k and v, each split into two f16 terms by [`Split`](crate::gemm::Split), with one row
    /// per token. Devices with `wgmma` read them instead of q, k and v if head_dim is 64, 96 or
    /// 128.
    pub split_f16: Option<[SplitMatrix<B>; 3]>,
    /// Which earlier tokens each token attends to; all if `None`.
    pub bounds: Option<AttentionBounds<B>>,
    /// The sizes; see [`AttentionShape::can_be_fused`].
    pub shape: AttentionShape,
    /// The softmax scale, usually 1/√head_dim; finite and positive.
    pub scale: f32,
    /// The cap of the scores: with it, a score s is `softcap · tanh(s ÷ softcap)`. Finite and
    /// positive; only for operands in bf16.
    pub softcap: Option<f32>,
}

impl<B: Copy, O: Into<Output<B>>> FusedAttention<B, O> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If q, k and v are not of one type, a length does not match the shape, a view is not aligned
    /// to 16 bytes, head_dim is not supported, `split_f16` is given for bf16 operands or does not
    /// have two terms each, a size is too large, `scale` or `softcap` is not positive and finite,
    /// or `softcap` is given for f32 operands.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { q, k, v, out, lse, split_f16: terms, bounds, shape, scale, softcap } = self;
        let kernel = by_dtype(q.dtype(), [&FUSED_ATTENTION_F32, &FUSED_ATTENTION_BF16])?;
        let check = Check(kernel.name);
        let (query, key_value) = (TensorLayout::Query, TensorLayout::KeyValue);
        shape.check_tensors(check, [("q", q, query), ("k", k, key_value), ("v", v, key_value)])?;
        let out = out.into();
        check_forward(check, [q, k, v], out)?;
        // The maximum is taken before scaling.
        check.positive("scale", scale)?;
        let [batch, seq, heads, kv_heads, head_dim] = shape.fused_sizes(check, q.dtype())?;
        check.length("lse", lse, shape.lse_len(check)?)?;
        bounds.map_or(Ok(()), |bounds| bounds.check(check, shape))?;
        shape.check_terms(check, q.dtype(), terms.iter().flatten())?;
        let (out, out_bf16) = out.pointers();
        let [q_terms, k_terms, v_terms] = optional(terms);
        let tensors = [(q, q_terms, heads), (k, k_terms, kv_heads), (v, v_terms, kv_heads)];
        let [q_map, k_map, v_map] =
            tensors.map(|(tensor, terms, heads)| shape.tensor_map(tensor, terms, heads));
        let tensor_maps = q_map.is_some();
        let [(q_terms, q_scales), (k_terms, k_scales), (v_terms, v_scales)] =
            [q_terms, k_terms, v_terms].map(term_pointers);
        let parameters = abi::FlashForwardParameters::<ArgumentTypes<B>> {
            q: q.pointer(),
            keys: k.pointer(),
            values: v.pointer(),
            out,
            out_bf16,
            lse: Pointer::write(lse),
            first_keys: Pointer::read_optional(bounds.map(|bounds| bounds.first_keys)),
            batch,
            seq,
            heads,
            kv_heads,
            head_dim,
            scale,
            softcap: check_softcap(check, softcap, q.dtype())?,
            q_terms,
            k_terms,
            v_terms,
            q_scales,
            k_scales,
            v_scales,
            q_map,
            k_map,
            v_map,
        };
        let arguments = parameters.into_arguments();
        let planes = batch * heads;
        let problem = AttentionProblem {
            planes,
            seq,
            head_dim,
            tensor_maps,
            starts_in_tile: false,
            softcap: softcap.is_some(),
        };
        Ok(Launch { kernel, problem: Problem::Attention(problem), arguments })
    }
}
