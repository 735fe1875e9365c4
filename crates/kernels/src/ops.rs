//! Every operation under one path; each family has its own module beside this one.

use std::sync::LazyLock;

use crate::Kernel;
use crate::{
    attention, elementwise, embedding, gemm, gemv, lora, loss, norm, optimizer, rope, sampling,
};

pub use crate::attention::SoftmaxInPlace;
pub use crate::attention::{AttentionGradK, AttentionGradProbs, AttentionGradQ, AttentionGradV};
pub use crate::attention::{AttentionScores, AttentionShape, AttentionValues};
pub use crate::attention::{CACHE_APPEND, CACHE_APPEND_BF16, CacheAppend, CachePair};
pub use crate::attention::{CACHE_ATTENTION, CACHE_ATTENTION_BF16, CacheAttention, LowRankUp};
pub use crate::attention::{CACHE_ATTENTION_SUM, CacheAttentionSum};
pub use crate::attention::{
    CACHE_SCORES_BF16, CACHE_VALUES_BF16, CacheScores, CacheShape, CacheValues,
};
pub use crate::attention::{CacheSoftmax, SOFTMAX, SOFTMAX_BACKWARD, Softmax, SoftmaxBackward};
pub use crate::attention::{FUSED_ATTENTION, FUSED_ATTENTION_F32, FusedAttention};
pub use crate::attention::{FUSED_ATTENTION_F32_GRAD_KV, FUSED_ATTENTION_F32_GRAD_Q};
pub use crate::attention::{FUSED_ATTENTION_F32_ROWS, FUSED_ATTENTION_GRAD_KV};
pub use crate::attention::{FUSED_ATTENTION_GRAD_Q, FUSED_ATTENTION_ROWS};
pub use crate::attention::{FusedAttentionGradKv, FusedAttentionGradQ};
pub use crate::attention::{FusedAttentionGrads, FusedAttentionRows};
pub use crate::attention::{GRAD_K, GRAD_PROBS, GRAD_Q, GRAD_V};
pub use crate::attention::{GRAD_K_BF16, GRAD_PROBS_BF16, GRAD_Q_BF16, GRAD_V_BF16};
pub use crate::attention::{Projected, Turned};
pub use crate::attention::{SCORES, SCORES_BF16, VALUES, VALUES_BF16};
pub use crate::elementwise::{ADD, Add, CAST, Cast, SILU, SILU_BACKWARD, SWIGLU, SWIGLU_BACKWARD};
pub use crate::elementwise::{DROPOUT, Dropout};
pub use crate::elementwise::{Silu, SiluBackward, SwiGlu, SwiGluBackward};
pub use crate::embedding::{EMBEDDING, EMBEDDING_BACKWARD, EMBEDDING_BF16};
pub use crate::embedding::{Embedding, EmbeddingBackward};
pub use crate::gemm::{DGRAD, DGRAD_BF16, DGRAD_BF16_BF16, DGRAD_BF16_NF4, DGRAD_NF4, Dgrad};
pub use crate::gemm::{DGRAD_STREAM, DGRAD_STREAM_NF4, Fprop, GemmShape, WGRAD, WGRAD_BF16};
pub use crate::gemm::{DgradParts, FpropParts, Manner, PARTS_SUM, PartsSum};
pub use crate::gemm::{
    FPROP, FPROP_BF16, FPROP_BF16_BF16, FPROP_BF16_NF4, FPROP_NF4, FPROP_STREAM,
};
pub use crate::gemm::{FPROP_STREAM_NF4, WGRAD_STREAM, Wgrad};
pub use crate::gemv::{
    GEMV, GEMV_BF16, GEMV_NF4, GEMV_PARTS, GatedGemv, Gemv, GemvPart, Gemvs, Normed,
};
pub use crate::lora::{
    LOW_RANK_ADD, LOW_RANK_DOWN, LOW_RANK_GRAD, LOW_RANK_MOST, LOW_RANK_UPDATES,
};
pub use crate::lora::{LowRankAdd, LowRankAdded, LowRankDown, LowRankGrad, LowRankGraded};
pub use crate::lora::{LowRankShape, LowRankSide, LowRankTaken};
pub use crate::loss::{CROSS_ENTROPY, CrossEntropy, GradLogits, IGNORED_TARGET};
pub use crate::norm::{Addend, RMS_NORM, RmsNorm};
pub use crate::norm::{COLUMN_SUM, ColumnSum};
pub use crate::norm::{MEAN, Mean};
pub use crate::norm::{RMS_NORM_BACKWARD, RMS_NORM_GAMMA_REDUCE};
pub use crate::norm::{RmsNormBackward, RmsNormGammaReduce};
pub use crate::optimizer::{ADAMW, AdamW, AdamWTensor};
pub use crate::optimizer::{CLIP, CLIP_SCALE, Clip, ClipScale, Guard, SQUARED_SUMS};
pub use crate::optimizer::{SCHEDULE, Schedule};
pub use crate::optimizer::{SquaredSums, squared_sums_partials};
pub use crate::optimizer::{TAKE_CONTROLS, TakeControls};
pub use crate::rope::{ROPE, Rope, Turn, rope_frequencies, rope_tables, rope_tables_of};
pub use crate::sampling::{MARK_TOKENS, SAMPLE_ADJUST, SAMPLE_DRAW, SAMPLE_PICK, SAMPLE_THRESHOLD};
pub use crate::sampling::{MarkTokens, Sample, SamplingWords, sample_chunks};
pub use crate::tensor::{Compute, NF4_BLOCK, NF4_NESTED_BLOCK, Nf4, Nf4Scales, Stored, Written};

/// Every kernel, family by family.
pub fn all() -> &'static [&'static Kernel] {
    static ALL: LazyLock<Vec<&'static Kernel>> = LazyLock::new(|| {
        let families = [
            attention::KERNELS,
            elementwise::KERNELS,
            embedding::KERNELS,
            gemm::KERNELS,
            gemv::KERNELS,
            lora::KERNELS,
            loss::KERNELS,
            norm::KERNELS,
            optimizer::KERNELS,
            rope::KERNELS,
            sampling::KERNELS,
        ];
        families.concat()
    });
    &ALL
}
