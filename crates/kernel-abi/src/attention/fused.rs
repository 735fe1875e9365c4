//! Fused causal attention (FlashAttention-2), forward and backward.

use crate::gemm::TENSOR_MAP_BOX;
use crate::parameters::parameters;
use crate::{Any, Bf16, BoxSizes, DType, F16, Signature};

parameters! {
    /// The parameters of [`FlashAttention::forward`]. Operands have the type
    /// [`FlashAttention::dtype`].
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
        /// `[batch, seq]`: the first key that each query attends to, ascending within a sequence,
        /// read; null for 0.
        first_keys: pointer<u32>,
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
        /// The softmax scale.
        scale: f32,
        /// The cap of the scores, for entries that have one.
        softcap: f32,
        /// `[2, batch, seq, heads, head_dim]`: both terms of the split q, read through its map;
        /// null without terms.
        q_terms: pointer<F16>,
        /// The same of the keys.
        k_terms: pointer<F16>,
        /// The same of the values.
        v_terms: pointer<F16>,
        /// `[batch × seq]`: the scales of the rows of the split q, read; null without terms.
        q_scales: pointer<f32>,
        /// The same of the keys.
        k_scales: pointer<f32>,
        /// The same of the values.
        v_scales: pointer<f32>,
        /// The map of q, or of its terms, for entries that copy by TMA.
        q_map: tensor_map,
        /// The map of the keys, or of their terms, for entries that copy by TMA.
        k_map: tensor_map,
        /// The map of the values, or of their terms, for entries that copy by TMA.
        v_map: tensor_map,
    }
}

parameters! {
    /// The parameters of [`FlashAttention::prefill`]. Operands have the type
    /// [`FlashAttention::dtype`].
    pub struct FlashPrefillParameters {
        /// `[queries, heads, head_dim]`, read.
        q: pointer<Any>,
        /// `[positions, kv_heads, head_dim]`, read.
        keys: pointer<Any>,
        /// `[positions, kv_heads, head_dim]`, read.
        values: pointer<Any>,
        /// `[queries, heads, head_dim]` in f32, written, or null.
        out: pointer<f32>,
        /// The same in bf16, written, or null.
        out_bf16: pointer<Bf16>,
        /// The position of the first query, read.
        start: pointer<u32>,
        /// Number of queries.
        queries: u32,
        /// Positions of the cache. Queries past the last one have no defined result.
        positions: u32,
        /// Maximum number of positions that a query attends to, its own included; at least 1.
        window: u32,
        /// Query heads.
        heads: u32,
        /// Key and value heads.
        kv_heads: u32,
        /// Elements per head.
        head_dim: u32,
        /// The softmax scale.
        scale: f32,
        /// The cap of the scores, for entries that have one.
        softcap: f32,
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
        /// The same in bf16, read, or null; exactly one of the two is given.
        out_bf16: pointer<Bf16>,
        /// `[batch, seq, heads, head_dim]` in the type of the operands, read.
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
    /// the type [`FlashAttention::dtype`].
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
        /// The gradient of q, or the gradients of k and v of each split, written, or null.
        grads: pointer<f32>,
        /// The same in bf16, written, or null.
        grads_bf16: pointer<Bf16>,
        /// `positions × head_dim ÷ 2` cosines, read: the gradients of q and k are rotated back by
        /// RoPE. Null without rotation, and for f32 operands.
        cos: pointer<f32>,
        /// `positions × head_dim ÷ 2` sines, read, or null.
        sin: pointer<f32>,
        /// `[batch, seq]`, read: the positions of the tokens; null if they count from 0 in each
        /// sequence.
        token_positions: pointer<u32>,
        /// Rows of the tables. Positions past the end use the last row.
        positions: u32,
        /// `[batch, seq]`, read: for the gradient of q, the first key that each query attends to;
        /// for the gradients of k and v, the end of the queries that attend to each key. Ascending
        /// within a sequence; null for 0, or for the end of the sequence.
        row_bounds: pointer<u32>,
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
        /// The softmax scale.
        scale: f32,
        /// The cap of the scores, for entries that have one.
        softcap: f32,
        /// `[2, batch, seq, heads, head_dim]`: both terms of the split q, read through its map;
        /// null without terms.
        q_terms: pointer<F16>,
        /// The same of the keys.
        k_terms: pointer<F16>,
        /// The same of the values.
        v_terms: pointer<F16>,
        /// The same of `grad_out`.
        grad_out_terms: pointer<F16>,
        /// `[batch × seq]`: the scales of the rows of the split q, read; null without terms.
        q_scales: pointer<f32>,
        /// The same of the keys.
        k_scales: pointer<f32>,
        /// The same of the values.
        v_scales: pointer<f32>,
        /// The same of `grad_out`.
        grad_out_scales: pointer<f32>,
        /// The map of q, or of its terms, for entries that copy by TMA.
        q_map: tensor_map,
        /// The map of the keys, or of their terms, for entries that copy by TMA.
        k_map: tensor_map,
        /// The map of the values, or of their terms, for entries that copy by TMA.
        v_map: tensor_map,
        /// The map of `grad_out`, or of its terms, for entries that copy by TMA.
        grad_out_map: tensor_map,
    }
}

/// Sequences of `lse_delta` are padded to multiples of this many rows. Padding has an infinite
/// log-sum-exp, which makes probabilities 0.
pub const LSE_DELTA_ROWS: u32 = WGMMA_ROWS;

/// Rows of a block of the `wgmma` entries: 64 per warpgroup; see also
/// [`FlashAttention::wgmma_keys`].
pub const WGMMA_ROWS: u32 = 128;
/// Threads of a block of the `wgmma` entries: two warpgroups.
pub const WGMMA_THREADS: u32 = 256;

/// Rows of a warp of the entries without `wgmma`.
pub const WARP_ROWS: u32 = 16;

/// The box of the tensor map of a split operand: columns, and rows.
pub const SPLIT_TENSOR_MAP_BOX: BoxSizes = [TENSOR_MAP_BOX[0], 32];

/// Warps of a block of [`FlashAttention::preprocess`].
pub const PREPROCESS_WARPS: u32 = 4;
/// Rows of a warp of [`FlashAttention::preprocess`].
pub const PREPROCESS_ROWS: u32 = 4;

/// Fused causal attention (FlashAttention-2) for operands of one type. In bf16, the same entries
/// for capped scores follow, see [`Self::first_capped_entry`].
#[derive(Clone, Copy, Debug)]
pub struct FlashAttention {
    /// The type of the operands: f32 or bf16.
    pub dtype: DType,
    /// The largest head_dim of each entry without `wgmma`, in the order of the entries.
    pub max_head_dims: &'static [u32],
    /// The head_dim of each `wgmma` entry of sm_90a. These entries follow the others.
    pub wgmma_head_dims: &'static [u32],
    /// The forward pass.
    pub forward: Signature,
    /// Attention of new tokens over a KV cache; in f32 without `wgmma` entries.
    pub prefill: Signature,
    /// Log-sum-exp and delta for the backward pass.
    pub preprocess: Signature,
    /// The gradient of q.
    pub grad_q: Signature,
    /// The gradients of k and v.
    pub grad_kv: Signature,
}

impl FlashAttention {
    /// The kernels for operands in `dtype`: bf16, or else f32.
    pub const fn for_dtype(dtype: DType) -> &'static Self {
        match dtype {
            DType::Bf16 => &FLASH_ATTENTION_BF16,
            _ => &FLASH_ATTENTION_F32,
        }
    }

    /// Whether heads are wide. A block of the backward pass then has registers for only one of the
    /// gradients of k and v.
    pub const fn is_wide(head_dim: u32) -> bool {
        head_dim > 128
    }

    /// Rows of a block of the entry without `wgmma` for heads of at most `max_head_dim` elements,
    /// [`WARP_ROWS`] for each warp. Targets without tensor cores have shared memory for 32 rows of
    /// 512 bytes.
    pub const fn block_rows(&self, max_head_dim: u32, has_tensor_cores: bool) -> u32 {
        let long = self.has_long_rows(max_head_dim);
        if long && !has_tensor_cores { 2 * WARP_ROWS } else { 4 * WARP_ROWS }
    }

    /// Threads of a block of [`Self::block_rows`] rows.
    pub const fn block_threads(&self, max_head_dim: u32, has_tensor_cores: bool) -> u32 {
        self.block_rows(max_head_dim, has_tensor_cores) / WARP_ROWS * 32
    }

    /// Whether tiles of the entry without `wgmma` may have rows of more than 256 bytes. They need
    /// more shared memory than a kernel can declare.
    pub const fn has_long_rows(&self, max_head_dim: u32) -> bool {
        matches!(self.dtype, DType::F32) || Self::is_wide(max_head_dim)
    }

    /// Whether there are entries for capped scores.
    pub const fn has_capped_entries(&self) -> bool {
        matches!(self.dtype, DType::Bf16)
    }

    /// The index of the first entry for capped scores in bf16.
    pub const fn first_capped_entry(&self) -> usize {
        self.max_head_dims.len() + self.wgmma_head_dims.len()
    }

    /// Keys of a block of the `wgmma` entry of [`Self::grad_kv`] for heads of `head_dim` elements.
    pub const fn wgmma_keys(head_dim: u32) -> u32 {
        if Self::is_wide(head_dim) { WGMMA_ROWS / 2 } else { WGMMA_ROWS }
    }

    /// Whether blocks of queries of the `wgmma` entries are persistent: a grid of any number of
    /// blocks computes all tiles. Otherwise, and in [`Self::grad_kv`], there is one block per tile.
    pub const fn has_persistent_queries(&self) -> bool {
        matches!(self.dtype, DType::Bf16)
    }

    /// Whether separate blocks compute the gradients of k (z = 0) and v (z = 1) in the entry of
    /// [`Self::grad_kv`] without `wgmma` for heads of at most `max_head_dim` elements.
    pub const fn separates_grad_kv(max_head_dim: u32) -> bool {
        Self::is_wide(max_head_dim)
    }
}

macro_rules! entries {
    (F32 prefill, $($part:literal),*) => {
        &[concat!($($part),*, "_hd64"), concat!($($part),*, "_hd128")]
    };
    (Bf16 prefill, $($part:literal),*) => { entries!(Bf16, $($part),*) };
    (F32, $($part:literal),*) => {
        &[
            concat!($($part),*, "_hd64"),
            concat!($($part),*, "_hd128"),
            concat!($($part),*, "_wgmma_hd64"),
            concat!($($part),*, "_wgmma_hd96"),
            concat!($($part),*, "_wgmma_hd128"),
        ]
    };
    (Bf16, $($part:literal),*) => {
        &[
            concat!($($part),*, "_hd64"),
            concat!($($part),*, "_hd128"),
            concat!($($part),*, "_hd256"),
            concat!($($part),*, "_wgmma_hd64"),
            concat!($($part),*, "_wgmma_hd96"),
            concat!($($part),*, "_wgmma_hd128"),
            concat!($($part),*, "_wgmma_hd256"),
            concat!($($part),*, "_softcap_hd64"),
            concat!($($part),*, "_softcap_hd128"),
            concat!($($part),*, "_softcap_hd256"),
            concat!($($part),*, "_softcap_wgmma_hd64"),
            concat!($($part),*, "_softcap_wgmma_hd96"),
            concat!($($part),*, "_softcap_wgmma_hd128"),
            concat!($($part),*, "_softcap_wgmma_hd256"),
        ]
    };
}

macro_rules! flash_attention {
    ($($(#[$doc:meta])* $constant:ident =
        $name:literal, $dtype:ident, $head_dims:expr, $wgmma_head_dims:expr;)*) => { $(
        $(#[$doc])*
        pub const $constant: FlashAttention = FlashAttention {
            dtype: DType::$dtype,
            max_head_dims: &$head_dims,
            wgmma_head_dims: &$wgmma_head_dims,
            forward: Signature {
                image: $name,
                parameters: FlashForwardParameters::<()>::LIST,
                entries: entries!($dtype, $name),
            },
            prefill: Signature {
                image: concat!($name, "_prefill"),
                parameters: FlashPrefillParameters::<()>::LIST,
                entries: entries!($dtype prefill, $name, "_prefill"),
            },
            preprocess: Signature {
                image: concat!($name, "_backward"),
                parameters: FlashPreprocessParameters::<()>::LIST,
                entries: &[concat!($name, "_preprocess")],
            },
            grad_q: Signature {
                image: concat!($name, "_backward"),
                parameters: FlashBackwardParameters::<()>::LIST,
                entries: entries!($dtype, $name, "_grad_q"),
            },
            grad_kv: Signature {
                image: concat!($name, "_backward"),
                parameters: FlashBackwardParameters::<()>::LIST,
                entries: entries!($dtype, $name, "_grad_kv"),
            },
        };
    )* };
}

flash_attention! {
    /// f32 operands. `wgmma` entries read them split into f16 terms.
    FLASH_ATTENTION_F32 = "flash_attention_f32", F32, [64, 128], [64, 96, 128];
    /// bf16 operands.
    FLASH_ATTENTION_BF16 = "flash_attention_bf16", Bf16, [64, 128, 256], [64, 96, 128, 256];
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the entries of a kernel, in the order in which sources and launches index them.
    fn entries(family: &FlashAttention, kernel: &str, wgmma: bool) -> Vec<String> {
        let caps: &[&str] = if family.dtype == DType::Bf16 { &["", "_softcap"] } else { &[""] };
        let mut entries = Vec::new();
        for cap in caps {
            let narrower = family.max_head_dims.iter().map(|head_dim| format!("hd{head_dim}"));
            let exact = family.wgmma_head_dims.iter().map(|head_dim| format!("wgmma_hd{head_dim}"));
            let widths = narrower.chain(exact.filter(|_| wgmma));
            entries.extend(widths.map(|width| format!("{kernel}{cap}_{width}")));
        }
        entries
    }

    #[test]
    fn entries_are_named_for_their_head_dimensions() {
        for family in [FLASH_ATTENTION_F32, FLASH_ATTENTION_BF16] {
            let bf16 = family.dtype == DType::Bf16;
            for (signature, kernel, wgmma) in [
                (family.forward, "", true),
                (family.prefill, "_prefill", bf16),
                (family.grad_q, "_grad_q", true),
                (family.grad_kv, "_grad_kv", true),
            ] {
                let kernel = format!("{}{kernel}", family.forward.image);
                assert_eq!(signature.entries, entries(&family, &kernel, wgmma), "{kernel}");
            }
            let capped = family.forward.entries.get(family.first_capped_entry());
            assert_eq!(capped.is_some_and(|entry| entry.contains("softcap")), bf16);
        }
    }
}
