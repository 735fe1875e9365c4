//! Attention: fused, over a cache, and the softmax of the unfused form.

use crate::parameters::parameters;
use crate::{Any, Bf16, DType, RowKernel, Signature};

parameters! {
    /// The parameters of [`FlashAttention::forward`]. Operands have the type of the factors.
    pub struct FlashForwardParameters {
        /// `[batch, seq, heads, head_dim]`, read.
        q: pointer<Any>,
        /// `[batch, seq, kv_heads, head_dim]`, read.
        keys: pointer<Any>,
        /// `[batch, seq, kv_heads, head_dim]`, read.
        values: pointer<Any>,
        /// `[batch, seq, heads, head_dim]` in f32, written, or null.
        out: pointer<f32>,
        /// The same in bf16, written, or null.
        out_bf16: pointer<Bf16>,
        /// `[batch, heads, seq]`: log-sum-exp of the scores to base 2, written.
        lse: pointer<f32>,
        /// Tokens per sequence.
        seq: u32,
        /// Query heads.
        heads: u32,
        /// Key and value heads.
        kv_heads: u32,
        /// Elements per head.
        head_dim: u32,
        /// The factor of the scores.
        scale: f32,
        /// The map of q, for entries that copy by TMA.
        q_map: tensor_map,
        /// The map of the keys, for entries that copy by TMA.
        k_map: tensor_map,
        /// The map of the values, for entries that copy by TMA.
        v_map: tensor_map,
    }
}

parameters! {
    /// The parameters of [`FlashAttention::preprocess`].
    pub struct FlashPreprocessParameters {
        /// `[batch, seq, heads, head_dim]` in f32, read, or null.
        out: pointer<f32>,
        /// The same in bf16, read, or null; one of both is given.
        out_bf16: pointer<Bf16>,
        /// `[batch, seq, heads, head_dim]` in the type of the factors, read.
        grad_out: pointer<Any>,
        /// `[batch, heads, seq]`, read.
        lse: pointer<f32>,
        /// `[batch, heads, padded seq, 2]`: log-sum-exp and delta, written; see
        /// [`LSE_DELTA_ROWS`].
        lse_delta: pointer<f32>,
        /// Batch × padded seq × heads.
        count: u32,
        /// Tokens per sequence.
        seq: u32,
        /// Query heads.
        heads: u32,
        /// Elements per head.
        head_dim: u32,
    }
}

parameters! {
    /// The parameters of [`FlashAttention::grad_q`] and [`FlashAttention::grad_kv`]. Operands have
    /// the type of the factors.
    pub struct FlashBackwardParameters {
        /// `[batch, seq, heads, head_dim]`, read.
        q: pointer<Any>,
        /// `[batch, seq, kv_heads, head_dim]`, read.
        keys: pointer<Any>,
        /// `[batch, seq, kv_heads, head_dim]`, read.
        values: pointer<Any>,
        /// `[batch, seq, heads, head_dim]`, read.
        grad_out: pointer<Any>,
        /// `[batch, heads, padded seq, 2]`: log-sum-exp and delta, read.
        lse_delta: pointer<f32>,
        /// The gradient of q, or the gradients of k and v of each split, written.
        grads: pointer<f32>,
        /// Sequences.
        batch: u32,
        /// Tokens per sequence.
        seq: u32,
        /// Query heads.
        heads: u32,
        /// Key and value heads.
        kv_heads: u32,
        /// Elements per head.
        head_dim: u32,
        /// Splits of the heads of a group.
        splits: u32,
        /// The factor of the scores.
        scale: f32,
        /// The map of q, for entries that copy by TMA.
        q_map: tensor_map,
        /// The map of the keys, for entries that copy by TMA.
        k_map: tensor_map,
        /// The map of the values, for entries that copy by TMA.
        v_map: tensor_map,
        /// The map of `grad_out`, for entries that copy by TMA.
        grad_out_map: tensor_map,
    }
}

/// Sequences of `lse_delta` are padded to multiples of these rows, with a log-sum-exp of infinity,
/// which makes probabilities 0.
pub const LSE_DELTA_ROWS: u32 = WGMMA_ROWS;

/// Rows of a block of the `wgmma` entries: 64 per warpgroup.
pub const WGMMA_ROWS: u32 = 128;
/// Threads of a block of the `wgmma` entries: two warpgroups.
pub const WGMMA_THREADS: u32 = 256;

/// The widest heads of the entries of fused attention, in the order of the entries. In bf16 the
/// `wgmma` entries of sm_90a follow, for heads of just these widths.
pub const MAX_HEAD_DIMS: [u32; 2] = [64, 128];

/// Warps of a block of [`FlashAttention::preprocess`], each with a row of its own.
pub const PREPROCESS_WARPS: u32 = 4;

/// Fused causal attention (FlashAttention-2) with factors of one type.
#[derive(Clone, Copy, Debug)]
pub struct FlashAttention {
    /// The type of the factors: f32 or bf16.
    pub dtype: DType,
    /// The forward pass; entries as in [`MAX_HEAD_DIMS`].
    pub forward: Signature,
    /// Log-sum-exp and delta for the backward pass.
    pub preprocess: Signature,
    /// The gradient of q; entries as in [`MAX_HEAD_DIMS`].
    pub grad_q: Signature,
    /// The gradients of k and v; entries as in [`MAX_HEAD_DIMS`].
    pub grad_kv: Signature,
}

impl FlashAttention {
    /// Rows of a block, one warp for each 16. In f32 without tensor cores shared memory holds only
    /// 32.
    pub const fn block_rows(&self, has_tensor_cores: bool) -> u32 {
        if matches!(self.dtype, DType::F32) && !has_tensor_cores { 32 } else { 64 }
    }
}

macro_rules! flash_attention {
    ($(#[$doc:meta])* $constant:ident = $name:literal, $dtype:ident, [$($entry:literal),*]) => {
        $(#[$doc])*
        pub const $constant: FlashAttention = FlashAttention {
            dtype: DType::$dtype,
            forward: Signature {
                image: $name,
                parameters: FlashForwardParameters::<()>::LIST,
                entries: &[$(concat!($name, $entry)),*],
            },
            preprocess: Signature {
                image: concat!($name, "_backward"),
                parameters: FlashPreprocessParameters::<()>::LIST,
                entries: &[concat!($name, "_preprocess")],
            },
            grad_q: Signature {
                image: concat!($name, "_backward"),
                parameters: FlashBackwardParameters::<()>::LIST,
                entries: &[$(concat!($name, "_grad_q", $entry)),*],
            },
            grad_kv: Signature {
                image: concat!($name, "_backward"),
                parameters: FlashBackwardParameters::<()>::LIST,
                entries: &[$(concat!($name, "_grad_kv", $entry)),*],
            },
        };
    };
}

flash_attention! {
    /// Factors in f32.
    FLASH_ATTENTION_F32 = "flash_attention_f32", F32, ["_hd64", "_hd128"]
}
flash_attention! {
    /// Factors in bf16.
    FLASH_ATTENTION_BF16 = "flash_attention_bf16", Bf16,
        ["_hd64", "_hd128", "_wgmma_hd64", "_wgmma_hd128"]
}

parameters! {
    /// The parameters of [`SOFTMAX`].
    pub struct SoftmaxParameters {
        /// `rows × width` elements, read.
        input: pointer<f32>,
        /// `rows × width` elements, written; it may be the input.
        output: pointer<f32>,
        /// The position of the first of `queries` rows, read; null for 0.
        start: pointer<u32>,
        /// Number of rows.
        rows: u32,
        /// Elements in a row.
        width: u32,
        /// Number of consecutive rows with consecutive positions.
        queries: u32,
        /// Whether a row keeps only the columns up to its position.
        causal: bool,
    }
}

/// Softmax of each row.
pub const SOFTMAX: RowKernel = RowKernel {
    signature: Signature {
        image: "softmax",
        parameters: SoftmaxParameters::<()>::LIST,
        entries: &["softmax_warp_per_row", "softmax_block_per_row"],
    },
    warps: 4,
    block_threads: 256,
};

parameters! {
    /// The parameters of [`SOFTMAX_BACKWARD`].
    pub struct SoftmaxBackwardParameters {
        /// `rows × width` probabilities, read.
        probs: pointer<f32>,
        /// `rows × width` gradients, read.
        grad_out: pointer<f32>,
        /// `rows × width` gradients, written.
        grad_input: pointer<f32>,
        /// Number of rows.
        rows: u32,
        /// Elements in a row.
        width: u32,
        /// Whether row r has only the columns up to r mod width.
        causal: bool,
    }
}

/// The gradient of softmax.
pub const SOFTMAX_BACKWARD: RowKernel = RowKernel {
    signature: Signature {
        image: "softmax_backward",
        parameters: SoftmaxBackwardParameters::<()>::LIST,
        entries: &["softmax_backward_warp_per_row", "softmax_backward_block_per_row"],
    },
    warps: 4,
    block_threads: 256,
};

parameters! {
    /// The parameters of [`KV_CACHE_APPEND`] and [`KV_CACHE_APPEND_BF16`].
    pub struct KvCacheAppendParameters {
        /// `elements` elements of new keys, read.
        keys: pointer<f32>,
        /// `elements` elements of new values, read.
        values: pointer<f32>,
        /// `capacity × width` elements, written in part.
        key_cache: pointer<Any>,
        /// `capacity × width` elements, written in part.
        value_cache: pointer<Any>,
        /// The position of the first token, read.
        start: pointer<u32>,
        /// The number of tokens to append, read; null for all.
        count: pointer<u32>,
        /// Elements of the new keys.
        elements: u32,
        /// Elements of a token.
        width: u32,
        /// Positions of the cache.
        capacity: u32,
    }
}

/// Threads of a block of [`KV_CACHE_APPEND`].
pub const KV_CACHE_APPEND_THREADS: u32 = 256;

/// The append to caches in f32: one element per thread.
pub const KV_CACHE_APPEND: Signature = Signature {
    image: "kv_cache_append",
    parameters: KvCacheAppendParameters::<()>::LIST,
    entries: &["kv_cache_append"],
};

/// The append to caches in bf16: [`KV_CACHE_APPEND_BF16_ELEMENTS`] elements per thread.
pub const KV_CACHE_APPEND_BF16: Signature =
    Signature { entries: &["kv_cache_append_bf16"], ..KV_CACHE_APPEND };

/// Elements of a thread of [`KV_CACHE_APPEND_BF16`].
pub const KV_CACHE_APPEND_BF16_ELEMENTS: u32 = 2;

parameters! {
    /// The parameters of [`DECODE_ATTENTION`] and [`DECODE_ATTENTION_BF16`].
    pub struct DecodeAttentionParameters {
        /// `heads × head_dim` elements of the query, read.
        q: pointer<f32>,
        /// `rank` elements of its LoRA update, read, or null.
        q_lora_t: pointer<f32>,
        /// B of its LoRA update, read, or null.
        q_lora_b: pointer<f32>,
        /// `kv_heads × head_dim` elements of the key, read.
        k: pointer<f32>,
        /// `rank` elements of its LoRA update, read, or null.
        k_lora_t: pointer<f32>,
        /// B of its LoRA update, read, or null.
        k_lora_b: pointer<f32>,
        /// `kv_heads × head_dim` elements of the value, read.
        v: pointer<f32>,
        /// `rank` elements of its LoRA update, read, or null.
        v_lora_t: pointer<f32>,
        /// B of its LoRA update, read, or null.
        v_lora_b: pointer<f32>,
        /// `head_dim` gains of the query norm, read, or null.
        q_gamma: pointer<f32>,
        /// `head_dim` gains of the key norm, read, or null.
        k_gamma: pointer<f32>,
        /// `positions × head_dim ÷ 2` cosines, read.
        cos: pointer<f32>,
        /// `positions × head_dim ÷ 2` sines, read.
        sin: pointer<f32>,
        /// `[capacity, kv_heads, head_dim]`, read, and written at the position.
        key_cache: pointer<Any>,
        /// `[capacity, kv_heads, head_dim]`, read, and written at the position.
        value_cache: pointer<Any>,
        /// `[heads, splits, head_dim]`, written.
        partials: pointer<f32>,
        /// `[heads, splits, 2]`: maximum and sum, written.
        stats: pointer<f32>,
        /// The position of the token, read.
        position: pointer<u32>,
        /// Positions of the cache.
        capacity: u32,
        /// Key and value heads.
        kv_heads: u32,
        /// Query heads per key head.
        group: u32,
        /// Positions of a split.
        split_len: u32,
        /// Elements per head.
        head_dim: u32,
        /// Rank of the LoRA updates.
        rank: u32,
        /// Rows of the tables of cosines and sines.
        positions: u32,
        /// The factor of the LoRA updates.
        lora_scale: f32,
        /// Added to the mean of squares of the norms.
        eps: f32,
        /// The factor of the scores.
        scale: f32,
    }
}

parameters! {
    /// The parameters of [`DECODE_ATTENTION_COMBINE`].
    pub struct DecodeCombineParameters {
        /// `[heads, splits, head_dim]`, read.
        partials: pointer<f32>,
        /// `[heads, splits, 2]`: maximum and sum, read.
        stats: pointer<f32>,
        /// `[heads, head_dim]`, written.
        out: pointer<f32>,
        /// The position of the token, read.
        position: pointer<u32>,
        /// Positions of the cache.
        capacity: u32,
        /// Elements per head.
        head_dim: u32,
        /// Positions of a split.
        split_len: u32,
        /// Number of splits.
        splits: u32,
    }
}

/// The widest heads of [`DECODE_ATTENTION`].
pub const DECODE_MAX_HEAD_DIM: u32 = 512;
/// The most positions of a split of [`DECODE_ATTENTION`].
pub const DECODE_MAX_SPLIT_LEN: u32 = 256;
/// Threads of a block of [`DECODE_ATTENTION`].
pub const DECODE_THREADS: u32 = 256;
/// Threads of a block of [`DECODE_ATTENTION_COMBINE`].
pub const DECODE_COMBINE_THREADS: u32 = 128;

/// Attention of one token over each split of a cache in f32; one block per head and split.
pub const DECODE_ATTENTION: Signature = Signature {
    image: "decode_attention",
    parameters: DecodeAttentionParameters::<()>::LIST,
    entries: &["decode_attention"],
};

/// [`DECODE_ATTENTION`] over a cache in bf16.
pub const DECODE_ATTENTION_BF16: Signature =
    Signature { entries: &["decode_attention_bf16"], ..DECODE_ATTENTION };

/// The sum of the splits; one block per head.
pub const DECODE_ATTENTION_COMBINE: Signature = Signature {
    image: DECODE_ATTENTION.image,
    parameters: DecodeCombineParameters::<()>::LIST,
    entries: &["decode_attention_combine"],
};
