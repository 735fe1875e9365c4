//! Attention: fused, unfused, and over a cache of keys and values.

mod cache;
mod cache_append;
mod decode;
mod decode_combine;
mod fused;
mod fused_backward;
mod softmax;
mod unfused;
mod unfused_backward;

pub use cache::{CACHE_SCORES_BF16, CACHE_VALUES_BF16, CacheScores, CacheShape, CacheValues};
pub use cache_append::{CACHE_APPEND, CACHE_APPEND_BF16, CacheAppend, CachePair};
pub use decode::{CACHE_ATTENTION, CACHE_ATTENTION_BF16, CacheAttention, LowRankUp};
pub use decode::{Projected, Turned};
pub use decode_combine::{CACHE_ATTENTION_SUM, CacheAttentionSum};
pub use fused::{FUSED_ATTENTION, FUSED_ATTENTION_F32, FusedAttention};
pub use fused_backward::{FUSED_ATTENTION_F32_GRAD_KV, FUSED_ATTENTION_F32_GRAD_Q};
pub use fused_backward::{FUSED_ATTENTION_F32_ROWS, FUSED_ATTENTION_GRAD_KV};
pub use fused_backward::{FUSED_ATTENTION_GRAD_Q, FUSED_ATTENTION_ROWS};
pub use fused_backward::{FusedAttentionGradKv, FusedAttentionGradQ};
pub use fused_backward::{FusedAttentionGrads, FusedAttentionRows};
pub use softmax::SoftmaxInPlace;
pub use softmax::{CacheSoftmax, SOFTMAX, SOFTMAX_BACKWARD, Softmax, SoftmaxBackward};
pub use unfused::{AttentionScores, AttentionShape, AttentionValues};
pub use unfused::{SCORES, SCORES_BF16, VALUES, VALUES_BF16};
pub use unfused_backward::{AttentionGradK, AttentionGradProbs, AttentionGradQ, AttentionGradV};
pub use unfused_backward::{GRAD_K, GRAD_PROBS, GRAD_Q, GRAD_V};
pub use unfused_backward::{GRAD_K_BF16, GRAD_PROBS_BF16, GRAD_Q_BF16, GRAD_V_BF16};

use crate::Kernel;

/// References in f64.
pub mod reference {
    pub mod cache;
    pub mod fused;
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
    &CACHE_APPEND,
    &CACHE_APPEND_BF16,
    &CACHE_ATTENTION,
    &CACHE_ATTENTION_BF16,
    &CACHE_ATTENTION_SUM,
    &CACHE_SCORES_BF16,
    &CACHE_VALUES_BF16,
    &FUSED_ATTENTION,
    &FUSED_ATTENTION_F32,
    &FUSED_ATTENTION_F32_GRAD_KV,
    &FUSED_ATTENTION_F32_GRAD_Q,
    &FUSED_ATTENTION_F32_ROWS,
    &FUSED_ATTENTION_GRAD_KV,
    &FUSED_ATTENTION_GRAD_Q,
    &FUSED_ATTENTION_ROWS,
    &SOFTMAX,
    &SOFTMAX_BACKWARD,
];
