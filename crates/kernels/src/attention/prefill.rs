//! Fused attention of the new tokens of a sequence over its KV cache (prefill).
//!
//! NaN and infinity spread as in [`FusedAttention`](crate::attention::FusedAttention). In addition,
//! cached values must be finite up to the end of the aligned block of 128 positions that contains
//! the last query.

use retrograph_kernel_abi::attention::{self as abi, FLASH_ATTENTION_BF16, FLASH_ATTENTION_F32};

use super::cache::KvCacheShape;
use super::decode::check_window;
use super::fused::{by_dtype, check_forward, check_softcap, dispatch};
use super::kv_cache_append::KvCache;
use super::shape::AttentionShape;
use crate::checks::Check;
use crate::launch::{ArgumentTypes, Pointer};
use crate::problem::AttentionProblem;
use crate::{DType, Kernel, KernelError, Launch, Output, Problem, TensorView, View};

/// Kernel of [`PrefillAttention`] over a cache in bf16.
pub static PREFILL_ATTENTION_BF16: Kernel = Kernel::new(
    "flash_attention_bf16_prefill",
    &FLASH_ATTENTION_BF16.prefill,
    |problem, target| {
        dispatch(problem, target, &FLASH_ATTENTION_BF16, &FLASH_ATTENTION_BF16.prefill)
    },
);

/// Kernel of [`PrefillAttention`] over a cache in f32.
pub static PREFILL_ATTENTION_F32: Kernel =
    Kernel::new("flash_attention_f32_prefill", &FLASH_ATTENTION_F32.prefill, |problem, target| {
        dispatch(problem, target, &FLASH_ATTENTION_F32, &FLASH_ATTENTION_F32.prefill)
    });

/// `out = softmax(scale · q·kᵀ)·v` of consecutive tokens of a sequence, each over the positions of
/// the cache up to its own. Their keys and values are already in the cache. Scores may have a cap,
/// as in [`DecodeAttention`](crate::attention::DecodeAttention).
///
/// The products are computed in the type of the cache, f32 or bf16; q has the same type. Queries
/// past the capacity have no defined result.
#[derive(Clone, Copy, Debug)]
pub struct PrefillAttention<B, O = View<B, f32>> {
    /// `[queries, heads, head_dim]`, read.
    pub q: TensorView<B>,
    /// `[capacity, kv_heads, head_dim]` each, read.
    pub caches: KvCache<B>,
    /// `[queries, heads, head_dim]`, written: f32, bf16, or both.
    pub out: O,
    /// `[1]`, read: the position of the first query.
    pub start: View<B, u32>,
    /// Number of queries.
    pub queries: usize,
    /// Maximum number of positions that a query attends to, its own included; all if `None`.
    pub window: Option<u32>,
    /// The sizes; see [`KvCacheShape::can_prefill_fused`].
    pub shape: KvCacheShape,
    /// The softmax scale, usually 1/√head_dim; finite and positive.
    pub scale: f32,
    /// The cap of the scores: with it, a score s is `softcap · tanh(s ÷ softcap)`. Finite and
    /// positive; only over a cache in bf16.
    pub softcap: Option<f32>,
}

impl KvCacheShape {
    /// Whether [`PrefillAttention`] supports this head_dim for a cache in `dtype`, f32 or bf16:
    /// whole vectors of 16 bytes, at most 128 elements in f32 and 256 in bf16. Capped scores need
    /// bf16.
    pub fn can_prefill_fused(self, dtype: DType) -> bool {
        self.tokens(self.capacity).can_be_fused(dtype)
    }

    /// The shape of `seq` tokens with these heads.
    fn tokens(self, seq: usize) -> AttentionShape {
        let Self { heads, kv_heads, head_dim, .. } = self;
        AttentionShape { batch: 1, seq, heads, kv_heads, head_dim }
    }
}

impl<B: Copy, O: Into<Output<B>>> PrefillAttention<B, O> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If q and the caches are not of one type, a length does not match the shape, a view is not
    /// aligned to 16 bytes, head_dim is not supported, a size is too large, the window is 0,
    /// `scale` or `softcap` is not positive and finite, or `softcap` is given for a cache in f32.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { q, caches, out, start, queries, window, shape, scale, softcap } = self;
        let kernel = by_dtype(q.dtype(), [&PREFILL_ATTENTION_F32, &PREFILL_ATTENTION_BF16])?;
        let check = Check(kernel.name);
        let [keys, values] = caches.views();
        shape.check(check, [("keys", keys), ("values", values)])?;
        let KvCacheShape { capacity, heads, head_dim, .. } = shape;
        let elements = check.product("q", &[queries, heads, head_dim])?;
        check.elements("q", q.len(), elements)?;
        let out = out.into();
        check_forward(check, [q, keys, values], out)?;
        check.length("start", start, 1)?;
        check.positive("scale", scale)?;
        let (new, cached) = (shape.tokens(queries), shape.tokens(capacity));
        let [_, queries, heads, kv_heads, head_dim] = new.fused_sizes(check, q.dtype())?;
        let positions = check.size("the capacity", capacity)?;
        let q_map = new.tensor_map(q, None, heads);
        let [k_map, v_map] = [keys, values].map(|tensor| cached.tensor_map(tensor, None, kv_heads));
        let problem = AttentionProblem {
            planes: heads,
            seq: queries,
            head_dim,
            tensor_maps: q_map.is_some() && k_map.is_some(),
            starts_in_tile: true,
            softcap: softcap.is_some(),
        };
        let (out, out_bf16) = out.pointers();
        let parameters = abi::FlashPrefillParameters::<ArgumentTypes<B>> {
            q: q.pointer(),
            keys: keys.pointer(),
            values: values.pointer(),
            out,
            out_bf16,
            start: Pointer::read(start),
            queries,
            positions,
            window: check_window(check, window)?,
            heads,
            kv_heads,
            head_dim,
            scale,
            softcap: check_softcap(check, softcap, q.dtype())?,
            q_map,
            k_map,
            v_map,
        };
        let arguments = parameters.into_arguments();
        Ok(Launch { kernel, problem: Problem::Attention(problem), arguments })
    }
}
