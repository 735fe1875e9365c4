//! Attention of one token over a KV cache, with its combine.

use crate::parameters::parameters;
use crate::{Any, Bf16, Signature};

parameters! {
    /// The parameters of [`DECODE_ATTENTION`] and [`DECODE_ATTENTION_BF16`].
    pub struct DecodeAttentionParameters {
        /// `batch × heads × head_dim` elements of the query, read.
        q: pointer<f32>,
        /// `batch × rank` elements of its LoRA update, read, or null.
        q_lora_t: pointer<f32>,
        /// B of its LoRA update, read, or null.
        q_lora_b: pointer<f32>,
        /// `batch × kv_heads × head_dim` elements of the key, read.
        k: pointer<f32>,
        /// `batch × rank` elements of its LoRA update, read, or null.
        k_lora_t: pointer<f32>,
        /// B of its LoRA update, read, or null.
        k_lora_b: pointer<f32>,
        /// `batch × kv_heads × head_dim` elements of the value, read.
        v: pointer<f32>,
        /// `batch × rank` elements of its LoRA update, read, or null.
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
        /// `[batch, cache_positions, kv_heads, head_dim]`, read, and written at `position`.
        key_cache: pointer<Any>,
        /// `[batch, cache_positions, kv_heads, head_dim]`, read, and written at `position`.
        value_cache: pointer<Any>,
        /// `[batch, heads, splits, head_dim]`, written.
        partials: pointer<f32>,
        /// `[batch, heads, splits, 2]`: maximum and sum, written.
        stats: pointer<f32>,
        /// The position of the token of each sequence, read.
        position: pointer<u32>,
        /// Positions that a token can attend to.
        capacity: u32,
        /// Positions of a sequence in the caches.
        cache_positions: u32,
        /// Key and value heads.
        kv_heads: u32,
        /// Query heads per key head.
        group: u32,
        /// Query heads of a block, all of one group; the last block of a group may have fewer.
        block_heads: u32,
        /// Blocks for the heads of a group.
        group_blocks: u32,
        /// Number of splits of the capacity.
        splits: u32,
        /// Positions of a split.
        split_len: u32,
        /// The most positions that the token attends to, itself included.
        window: u32,
        /// Elements per head.
        head_dim: u32,
        /// Rank of the LoRA updates.
        rank: u32,
        /// Rows of the tables of cosines and sines.
        positions: u32,
        /// The scale of the LoRA updates.
        lora_scale: f32,
        /// Added to the mean of squares of the norms.
        eps: f32,
        /// The softmax scale.
        scale: f32,
        /// The cap of the scores, read by the entries with a cap.
        softcap: f32,
    }
}

parameters! {
    /// The parameters of [`DECODE_ATTENTION_COMBINE`].
    pub struct DecodeCombineParameters {
        /// `[batch, heads, splits, head_dim]`, read.
        partials: pointer<f32>,
        /// `[batch, heads, splits, 2]`: maximum and sum, read.
        stats: pointer<f32>,
        /// `[batch, heads, head_dim]`, written, or null.
        out: pointer<f32>,
        /// The same rounded to bf16, written, or null.
        out_bf16: pointer<Bf16>,
        /// The position of the token of each sequence, read.
        position: pointer<u32>,
        /// Positions that a token can attend to.
        capacity: u32,
        /// Query heads.
        heads: u32,
        /// Elements per head.
        head_dim: u32,
        /// Positions of a split.
        split_len: u32,
        /// The most positions that the token attends to, itself included.
        window: u32,
        /// Number of splits.
        splits: u32,
    }
}

/// The largest head_dim of [`DECODE_ATTENTION`].
pub const DECODE_MAX_HEAD_DIM: u32 = 512;
/// The most positions of a split of [`DECODE_ATTENTION`].
pub const DECODE_MAX_SPLIT_LEN: u32 = 256;
/// The most query heads of a block of [`DECODE_ATTENTION`].
pub const DECODE_MAX_BLOCK_HEADS: u32 = 8;
/// Query heads whose values a block of [`DECODE_ATTENTION`] adds at a time without tensor cores.
pub const DECODE_HEADS_AT_ONCE: u32 = 4;
/// Elements of a head that a block of [`DECODE_ATTENTION`] handles at a time.
pub const DECODE_HEAD_CHUNK: u32 = 128;
/// Threads of a block of [`DECODE_ATTENTION`].
pub const DECODE_THREADS: u32 = 256;
/// Threads of a block of [`DECODE_ATTENTION_COMBINE`].
pub const DECODE_COMBINE_THREADS: u32 = 128;

/// Attention of one token per sequence over each split of its cache in f32; a block handles up to
/// [`DECODE_MAX_BLOCK_HEADS`] heads of a group, a split and a sequence. The second entry caps the
/// scores.
pub const DECODE_ATTENTION: Signature = Signature {
    image: "decode_attention",
    parameters: DecodeAttentionParameters::<()>::LIST,
    entries: &["decode_attention", "decode_attention_softcap"],
};

/// Bytes of dynamic shared memory of a block of [`DECODE_ATTENTION`].
///
/// ```text
/// queries    [block_heads, padded]         padded: head_dim as a multiple of four
/// key, value [2, padded]
/// cos, sin   [2, padded ÷ 2]
/// scores     [2, block_heads, split_len]
/// sums       [min(block_heads, DECODE_HEADS_AT_ONCE), warps, DECODE_HEAD_CHUNK]
/// ```
pub const fn decode_shared_bytes(block_heads: u32, head_dim: u32, split_len: u32) -> u32 {
    let padded = head_dim.next_multiple_of(4);
    let at_once =
        if block_heads < DECODE_HEADS_AT_ONCE { block_heads } else { DECODE_HEADS_AT_ONCE };
    let sums = at_once * (DECODE_THREADS / 32) * DECODE_HEAD_CHUNK;
    4 * ((block_heads + 3) * padded + 2 * block_heads * split_len + sums)
}

/// [`DECODE_ATTENTION`] over a cache in bf16.
pub const DECODE_ATTENTION_BF16: Signature = Signature {
    entries: &["decode_attention_bf16", "decode_attention_bf16_softcap"],
    ..DECODE_ATTENTION
};

/// Combines the splits; one block per head and sequence.
pub const DECODE_ATTENTION_COMBINE: Signature = Signature {
    image: DECODE_ATTENTION.image,
    parameters: DecodeCombineParameters::<()>::LIST,
    entries: &["decode_attention_combine"],
};
