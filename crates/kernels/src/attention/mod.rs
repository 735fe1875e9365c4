//! Attention: fused, with stored probabilities, and over a cache of keys and values.
//!
//! | Form | Launches |
//! |---|---|
//! | fused, causal, optionally with [`AttentionBounds`] | [`FusedAttention`] and its gradients |
//! | unfused | [`AttentionScores`], [`Softmax`], [`AttentionValues`] and their gradients |
//! | prefill | [`KvCacheAppend`], [`PrefillAttention`] |
//! | unfused prefill | [`KvCacheAppend`], [`CacheScores`], [`CacheSoftmax`], [`CacheValues`] |
//! | decode | [`DecodeAttention`], [`DecodeAttentionCombine`] |
//!
//! Queries and outputs are `[batch, seq, heads, head_dim]`, keys and values
//! `[batch, seq, kv_heads, head_dim]`, scores `[batch, heads, seq, seq]`, and caches
//! `[capacity, kv_heads, head_dim]`. Query head h uses key and value head h ÷ (heads ÷ kv_heads)
//! (grouped-query attention). Fused attention multiplies operands in their type, f32 or bf16.
//! Elsewhere tensors are f32, caches f32 or bf16, and `launch_in` selects the compute type.
//! Accumulators and softmax are f32.
//!
//! **Errors.** Every launch fails if a length does not match the shape, if `heads` is not a
//! multiple of `kv_heads`, or if a size exceeds 32-bit indices. Fused attention needs operands
//! aligned to 16 bytes and [`AttentionShape::can_be_fused`]; decode attention needs an even
//! head_dim of at most 512.
//!
//! **Determinism.** Sums have a fixed order that depends only on the sizes. Each gradient kernel
//! recomputes the probabilities, so no kernel needs atomics.
//!
//! Sources: Vaswani et al., "Attention Is All You Need", 2017; Dao, "FlashAttention-2", arXiv
//! 2307.08691; Ainslie et al., "GQA", arXiv 2305.13245.

mod backward;
mod bounds;
mod cache;
mod decode;
mod forward;
mod fused;
mod kv_cache_append;
mod prefill;
mod shape;
mod softmax;
mod unfused;
mod unfused_backward;

pub use backward::{AttentionBackwardInputs, AttentionBackwardPreprocess};
pub use backward::{AttentionRope, FusedAttentionGradKv, FusedAttentionGradQ};
pub use backward::{FUSED_ATTENTION_BF16_GRAD_KV, FUSED_ATTENTION_F32_PREPROCESS};
pub use backward::{FUSED_ATTENTION_BF16_GRAD_Q, FUSED_ATTENTION_BF16_PREPROCESS};
pub use backward::{FUSED_ATTENTION_F32_GRAD_KV, FUSED_ATTENTION_F32_GRAD_Q};
pub use bounds::{AttentionBounds, first_keys, query_ends};
pub use cache::{CACHE_SCORES_BF16, CACHE_VALUES_BF16, CacheScores, CacheValues, KvCacheShape};
pub use decode::{DECODE_ATTENTION, DECODE_ATTENTION_BF16, DECODE_ATTENTION_COMBINE};
pub use decode::{DecodeAttention, DecodeAttentionCombine, LoraUpdate, QkNormRope, QkvProjection};
pub use forward::{FUSED_ATTENTION_BF16, FUSED_ATTENTION_F32, FusedAttention};
pub use fused::supports_softcap;
pub use kv_cache_append::{KV_CACHE_APPEND, KV_CACHE_APPEND_BF16, KvCache, KvCacheAppend};
pub use prefill::{PREFILL_ATTENTION_BF16, PREFILL_ATTENTION_F32, PrefillAttention};
pub use shape::AttentionShape;
pub use softmax::{CacheSoftmax, SOFTMAX, SOFTMAX_BACKWARD};
pub use softmax::{Softmax, SoftmaxBackward, SoftmaxInPlace, SoftmaxMask};
pub use unfused::{AttentionScores, AttentionValues, SCORES, SCORES_BF16, VALUES, VALUES_BF16};
pub use unfused_backward::{AttentionGradK, AttentionGradProbs, AttentionGradQ, AttentionGradV};
pub use unfused_backward::{GRAD_K, GRAD_K_BF16, GRAD_PROBS, GRAD_PROBS_BF16};
pub use unfused_backward::{GRAD_Q, GRAD_Q_BF16, GRAD_V, GRAD_V_BF16};

use crate::Kernel;

/// References in f64.
pub mod reference {
    pub mod decode;
    pub mod forward;
    pub mod softmax;
    pub mod unfused;
}

/// The kernels of this family.
pub(crate) static KERNELS: &[&Kernel] = &[
    &SCORES,
    &SCORES_BF16,
    &VALUES,
    &VALUES_BF16,
    &GRAD_K,
    &GRAD_K_BF16,
    &GRAD_PROBS,
    &GRAD_PROBS_BF16,
    &GRAD_Q,
    &GRAD_Q_BF16,
    &GRAD_V,
    &GRAD_V_BF16,
    &KV_CACHE_APPEND,
    &KV_CACHE_APPEND_BF16,
    &DECODE_ATTENTION,
    &DECODE_ATTENTION_BF16,
    &DECODE_ATTENTION_COMBINE,
    &CACHE_SCORES_BF16,
    &CACHE_VALUES_BF16,
    &FUSED_ATTENTION_BF16,
    &FUSED_ATTENTION_F32,
    &FUSED_ATTENTION_F32_GRAD_KV,
    &FUSED_ATTENTION_F32_GRAD_Q,
    &FUSED_ATTENTION_F32_PREPROCESS,
    &FUSED_ATTENTION_BF16_GRAD_KV,
    &FUSED_ATTENTION_BF16_GRAD_Q,
    &FUSED_ATTENTION_BF16_PREPROCESS,
    &PREFILL_ATTENTION_BF16,
    &PREFILL_ATTENTION_F32,
    &SOFTMAX,
    &SOFTMAX_BACKWARD,
];
