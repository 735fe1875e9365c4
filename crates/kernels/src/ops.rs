//! Every operation under one path. Each family has a module of its own, with references in f64.

use std::sync::LazyLock;

use crate::Kernel;
use crate::{
    attention, elementwise, embedding, gemm, gemv, lora, loss, nf4, norm, optimizer, rope, sampling,
};

pub use crate::attention::{
    AttentionBackwardInputs, AttentionBackwardPreprocess, AttentionBounds, AttentionGradK,
    AttentionGradProbs, AttentionGradQ, AttentionGradV, AttentionRope, AttentionScores,
    AttentionShape, AttentionValues, CACHE_SCORES_BF16, CACHE_VALUES_BF16, CacheScores,
    CacheSoftmax, CacheValues, DECODE_ATTENTION, DECODE_ATTENTION_BF16, DECODE_ATTENTION_COMBINE,
    DecodeAttention, DecodeAttentionCombine, FUSED_ATTENTION_BF16, FUSED_ATTENTION_BF16_GRAD_KV,
    FUSED_ATTENTION_BF16_GRAD_Q, FUSED_ATTENTION_BF16_PREPROCESS, FUSED_ATTENTION_F32,
    FUSED_ATTENTION_F32_GRAD_KV, FUSED_ATTENTION_F32_GRAD_Q, FUSED_ATTENTION_F32_PREPROCESS,
    FusedAttention, FusedAttentionGradKv, FusedAttentionGradQ, GRAD_K, GRAD_K_BF16, GRAD_PROBS,
    GRAD_PROBS_BF16, GRAD_Q, GRAD_Q_BF16, GRAD_V, GRAD_V_BF16, KV_CACHE_APPEND,
    KV_CACHE_APPEND_BF16, KvCache, KvCacheAppend, KvCacheShape, LoraUpdate, PREFILL_ATTENTION_BF16,
    PREFILL_ATTENTION_F32, PrefillAttention, QkNormRope, QkvProjection, SCORES, SCORES_BF16,
    SOFTMAX, SOFTMAX_BACKWARD, Softmax, SoftmaxBackward, SoftmaxInPlace, SoftmaxMask, VALUES,
    VALUES_BF16,
};
pub use crate::elementwise::{
    ADD, Add, CAST, Cast, DROPOUT, Dropout, GEGLU, GEGLU_BACKWARD, Glu, GluBackward, SILU,
    SILU_BACKWARD, SOFTCAP, SOFTCAP_BACKWARD, SWIGLU, SWIGLU_BACKWARD, Silu, SiluBackward, Softcap,
    SoftcapBackward,
};
pub use crate::embedding::{
    EMBEDDING, EMBEDDING_BACKWARD, EMBEDDING_BF16, Embedding, EmbeddingBackward,
};
pub use crate::gemm::{
    DGRAD, DGRAD_BF16, DGRAD_BF16_BF16, DGRAD_BF16_NF4, DGRAD_MULTISTAGE, DGRAD_MULTISTAGE_NF4,
    DGRAD_NF4, DGRAD_SPLIT, Dgrad, DgradOperands, DgradSplitK, DgradSum, FPROP, FPROP_BF16,
    FPROP_BF16_BF16, FPROP_BF16_NF4, FPROP_MULTISTAGE, FPROP_MULTISTAGE_NF4, FPROP_NF4,
    FPROP_SPLIT, Fprop, FpropSplitK, FpropSum, GEGLU_DGRAD, GEGLU_FPROP, GemmConfig, GemmProblem,
    GemmShape, GluDgrad, GluFprop, NotInF16, QKV_ROPE_FPROP, QkvRopeFprop, QkvRopeProjection,
    SKINNY, SPLIT, SPLIT_K_SUM, SPLIT_SWIGLU, SPLIT_SWIGLU_BACKWARD, SWIGLU_DGRAD, SWIGLU_FPROP,
    SkinnyForm, SkinnyFprop, SkinnyLayer, SkinnyProblem, SkinnySwiGlu, Split, SplitGradient,
    SplitKSum, SplitMatrix, SplitSwiGlu, SplitSwiGluBackward, WGRAD, WGRAD_BF16, WGRAD_MULTISTAGE,
    Wgrad, WgradSplitK, WgradSquares, split_rows,
};
pub use crate::gemv::{
    GEMV, GEMV_BF16, GEMV_MAX_LAYERS, GEMV_NF4, GatedGemv, Gemv, GemvForm, GemvLayer, GemvProblem,
    GroupedGemv, NormPrologue,
};
pub use crate::lora::{
    DORA_NORMS, DORA_SCALE, DORA_SCALE_BACKWARD, DoraNorms, DoraScale, DoraScaleBackward,
    DoraScaleShape, LORA_EXPAND, LORA_GRAD, LORA_MAX_ADAPTERS, LORA_MAX_RANK, LORA_SHRINK,
    LoraExpand, LoraExpandAdapter, LoraGrad, LoraGradAdapter, LoraMatrix, LoraShape, LoraShrink,
    LoraShrinkAdapter,
};
pub use crate::loss::{
    CROSS_ENTROPY, CROSS_ENTROPY_BF16, CROSS_ENTROPY_SOFTCAP, CROSS_ENTROPY_SOFTCAP_BF16,
    CrossEntropy, GATHER_ROWS, GradLogits, IGNORED_TARGET, LOG_RATIOS, LogRatios, MEAN, Mean,
    PREFERENCE, Preference, ReorderRows, SCALE_ROWS, SCATTER_ROWS, SPLIT_CROSS_ENTROPY, ScaleRows,
};
pub use crate::nf4::{Dequantize, NF4_DEQUANTIZE};
pub use crate::norm::{
    COLUMN_SUM, ColumnSum, RMS_NORM, RMS_NORM_BACKWARD, RMS_NORM_GAMMA_REDUCE, ResidualAdd,
    RmsNorm, RmsNormBackward, RmsNormGammaReduce, SPLIT_RMS_NORM, SPLIT_RMS_NORM_BACKWARD,
    SplitRmsNorm, SplitRmsNormBackward,
};
pub use crate::optimizer::{
    ADAMW, AdamW, AdamWTensor, CLIP_FACTOR, CLIP_GRADS, ClipFactor, ClipGrads, Decay,
    FETCH_STEP_PARAMETERS, FetchStepParameters, GRAD_NORM_PARTIALS, GradNormPartials, Guard,
    LR_SCHEDULE, LrSchedule, grad_norm_partials_len,
};
pub use crate::rope::{
    ROPE, Rope, RopeTensor, TokenPositions, rope_frequencies, rope_tables, rope_tables_from,
    rope_tables_scaled,
};
pub use crate::sampling::{
    MARK_SEEN_TOKENS, MarkSeenTokens, SAMPLE_ADJUST, SAMPLE_DRAW, SAMPLE_PICK, SAMPLE_THRESHOLD,
    Sample, SamplingParameters, sample_chunks,
};
pub use crate::tensor::{NF4_BLOCK, NF4_NESTED_BLOCK, Nf4, Nf4Scales, Output, TensorView};
pub use retrograph_kernel_abi::DType;
pub use retrograph_kernel_abi::elementwise::GatedActivation;

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
            nf4::KERNELS,
            norm::KERNELS,
            optimizer::KERNELS,
            rope::KERNELS,
            sampling::KERNELS,
        ];
        families.concat()
    });
    &ALL
}
