//! The operations: one file per kernel with its descriptor and its typed constructors.

use crate::{Kernel, Parameter, ParameterKind};

// One line per kernel file, in alphabetical order.

mod adamw;
mod attention;
mod attention_backward;
mod cache;
mod cache_append;
mod cache_attention;
mod cache_attention_sum;
mod chunks;
mod clip;
mod column_sum;
mod cross_entropy;
mod dropout;
mod embedding;
mod fused_attention;
mod fused_attention_backward;
mod gemm;
mod gemv;
mod geometry;
mod images;
mod low_rank;
mod mean;
mod parts;
mod product;
mod rms_norm;
mod rms_norm_backward;
mod rope;
mod sample;
mod schedule;
mod softmax;
mod stored;
mod streams;
mod take_controls;
mod tiles;

// One line per kernel file, in alphabetical order.

pub use adamw::{ADAMW, AdamW, AdamWTensor};
pub use attention::{AttentionScores, AttentionShape, AttentionValues};
pub use attention::{SCORES, SCORES_BF16, VALUES, VALUES_BF16};
pub use attention_backward::{AttentionGradK, AttentionGradProbs, AttentionGradQ, AttentionGradV};
pub use attention_backward::{GRAD_K, GRAD_PROBS, GRAD_Q, GRAD_V};
pub use attention_backward::{GRAD_K_BF16, GRAD_PROBS_BF16, GRAD_Q_BF16, GRAD_V_BF16};
pub use cache::{CACHE_SCORES_BF16, CACHE_VALUES_BF16, CacheScores, CacheShape, CacheValues};
pub use cache_append::{CACHE_APPEND, CACHE_APPEND_BF16, CacheAppend, CachePair};
pub use cache_attention::{CACHE_ATTENTION, CACHE_ATTENTION_BF16, CacheAttention, LowRankUp};
pub use cache_attention::{Projected, Turned};
pub use cache_attention_sum::{CACHE_ATTENTION_SUM, CacheAttentionSum};
pub use clip::{CLIP, CLIP_SCALE, Clip, ClipScale, Guard, SQUARED_SUMS};
pub use clip::{SquaredSums, squared_sums_partials};
pub use column_sum::{COLUMN_SUM, ColumnSum};
pub use cross_entropy::{CROSS_ENTROPY, CrossEntropy, GradLogits, IGNORED_TARGET};
pub use dropout::{DROPOUT, Dropout};
pub use embedding::{EMBEDDING, EMBEDDING_BACKWARD, EMBEDDING_BF16};
pub use embedding::{Embedding, EmbeddingBackward};
pub use fused_attention::{FUSED_ATTENTION, FUSED_ATTENTION_F32, FusedAttention};
pub use fused_attention_backward::{FUSED_ATTENTION_F32_GRAD_KV, FUSED_ATTENTION_F32_GRAD_Q};
pub use fused_attention_backward::{FUSED_ATTENTION_F32_ROWS, FUSED_ATTENTION_GRAD_KV};
pub use fused_attention_backward::{FUSED_ATTENTION_GRAD_Q, FUSED_ATTENTION_ROWS};
pub use fused_attention_backward::{FusedAttentionGradKv, FusedAttentionGradQ};
pub use fused_attention_backward::{FusedAttentionGrads, FusedAttentionRows};
pub use gemm::{DGRAD, DGRAD_BF16, DGRAD_BF16_BF16, DGRAD_BF16_NF4, DGRAD_NF4, Dgrad};
pub use gemm::{DGRAD_STREAM, DGRAD_STREAM_NF4, Fprop, GemmShape, WGRAD, WGRAD_BF16};
pub use gemm::{FPROP, FPROP_BF16, FPROP_BF16_BF16, FPROP_BF16_NF4, FPROP_NF4, FPROP_STREAM};
pub use gemm::{FPROP_STREAM_NF4, WGRAD_STREAM, Wgrad};
pub use gemv::{GEMV, GEMV_BF16, GEMV_NF4, GEMV_PARTS, GatedGemv, Gemv, GemvPart, Gemvs, Normed};
pub use low_rank::{LOW_RANK_ADD, LOW_RANK_DOWN, LOW_RANK_GRAD, LOW_RANK_MOST, LOW_RANK_UPDATES};
pub use low_rank::{LowRankAdd, LowRankAdded, LowRankDown, LowRankGrad, LowRankGraded};
pub use low_rank::{LowRankShape, LowRankSide, LowRankTaken};
pub use mean::{MEAN, Mean};
pub use parts::{DgradParts, FpropParts, Manner, PARTS_SUM, PartsSum};
pub use rms_norm::{Addend, RMS_NORM, RmsNorm};
pub use rms_norm_backward::{RMS_NORM_BACKWARD, RMS_NORM_GAMMA_REDUCE};
pub use rms_norm_backward::{RmsNormBackward, RmsNormGammaReduce};
pub use rope::{ROPE, Rope, Turn, rope_frequencies, rope_tables, rope_tables_of};
pub use sample::{MARK_TOKENS, SAMPLE_ADJUST, SAMPLE_DRAW, SAMPLE_PICK, SAMPLE_THRESHOLD};
pub use sample::{MarkTokens, Sample, SamplingWords, sample_chunks};
pub use schedule::{SCHEDULE, Schedule};
pub use softmax::SoftmaxInPlace;
pub use softmax::{CacheSoftmax, SOFTMAX, SOFTMAX_BACKWARD, Softmax, SoftmaxBackward};
pub use stored::{Compute, NF4_BLOCK, NF4_NESTED_BLOCK, Nf4, Nf4Scales, Stored, Written};
pub use streams::{ADD, Add, CAST, Cast, SILU, SILU_BACKWARD, SWIGLU, SWIGLU_BACKWARD};
pub use streams::{Silu, SiluBackward, SwiGlu, SwiGluBackward};
pub use take_controls::{TAKE_CONTROLS, TakeControls};

/// Every kernel. One line each, in alphabetical order of files.
static ALL: &[&Kernel] = &[
    &ADAMW,
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
    &CLIP,
    &CLIP_SCALE,
    &SQUARED_SUMS,
    &COLUMN_SUM,
    &CROSS_ENTROPY,
    &DROPOUT,
    &EMBEDDING,
    &EMBEDDING_BACKWARD,
    &EMBEDDING_BF16,
    &FUSED_ATTENTION,
    &FUSED_ATTENTION_F32,
    &FUSED_ATTENTION_F32_GRAD_KV,
    &FUSED_ATTENTION_F32_GRAD_Q,
    &FUSED_ATTENTION_F32_ROWS,
    &FUSED_ATTENTION_GRAD_KV,
    &FUSED_ATTENTION_GRAD_Q,
    &FUSED_ATTENTION_ROWS,
    &DGRAD,
    &DGRAD_BF16,
    &DGRAD_BF16_BF16,
    &DGRAD_BF16_NF4,
    &DGRAD_NF4,
    &FPROP,
    &FPROP_BF16,
    &FPROP_BF16_BF16,
    &FPROP_STREAM,
    &FPROP_STREAM_NF4,
    &DGRAD_STREAM,
    &DGRAD_STREAM_NF4,
    &FPROP_BF16_NF4,
    &FPROP_NF4,
    &WGRAD,
    &GEMV,
    &GEMV_BF16,
    &GEMV_NF4,
    &WGRAD_BF16,
    &WGRAD_STREAM,
    &LOW_RANK_ADD,
    &LOW_RANK_DOWN,
    &LOW_RANK_GRAD,
    &MEAN,
    &PARTS_SUM,
    &RMS_NORM,
    &RMS_NORM_BACKWARD,
    &RMS_NORM_GAMMA_REDUCE,
    &ROPE,
    &MARK_TOKENS,
    &SAMPLE_ADJUST,
    &SAMPLE_DRAW,
    &SAMPLE_PICK,
    &SAMPLE_THRESHOLD,
    &SCHEDULE,
    &SOFTMAX,
    &SOFTMAX_BACKWARD,
    &ADD,
    &CAST,
    &SILU,
    &SILU_BACKWARD,
    &SWIGLU,
    &SWIGLU_BACKWARD,
    &TAKE_CONTROLS,
];

/// Every kernel.
pub fn all() -> &'static [&'static Kernel] {
    ALL
}

/// A pointer parameter.
const fn pointer(name: &'static str) -> Parameter {
    Parameter { name, kind: ParameterKind::Pointer }
}

/// A `.u32` parameter.
const fn u32(name: &'static str) -> Parameter {
    Parameter { name, kind: ParameterKind::U32 }
}

/// A `.f32` parameter.
const fn f32(name: &'static str) -> Parameter {
    Parameter { name, kind: ParameterKind::F32 }
}

/// A `.u64` parameter.
const fn u64(name: &'static str) -> Parameter {
    Parameter { name, kind: ParameterKind::U64 }
}
