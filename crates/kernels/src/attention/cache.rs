//! The shape of a KV cache, and unfused attention of several new tokens over it (prefill).
//!
//! A cache is `[capacity, kv_heads, head_dim]` in f32 or bf16. The offset of a token does not
//! depend on the capacity, so a prefix of a cache is a smaller cache.
//!
//! Several new tokens use [`PrefillAttention`](crate::attention::PrefillAttention). If it does not
//! support the heads or a cap of the scores, they use [`CacheScores`],
//! [`CacheSoftmax`](crate::attention::CacheSoftmax) and [`CacheValues`], which read the whole
//! cache. One new token uses [`DecodeAttention`](crate::attention::DecodeAttention), which reads
//! only the positions in use.

use retrograph_kernel_abi::attention::DECODE_MAX_SPLIT_LEN;

use super::unfused::{SCORES, SCORES_BF16, VALUES, VALUES_BF16};
use crate::checks::Check;
use crate::gemm::kernels::gemm_kernels;
use crate::gemm::launch::Gemm;
use crate::gemm::operand::{GemmSizes, Operand, Strides};
use crate::geometry::MAX_GRID_YZ;
use crate::{DType, KernelError, Launch, TensorView, View};

/// The fewest positions per split.
pub(super) const SPLIT_LEN: u32 = 64;

gemm_kernels! {
    /// `scores = scale·q·kᵀ` over a cache.
    SCORES_KERNELS and [(&SCORES, NT), (&SCORES_BF16, BF16_NT)];
    /// Kernel of [`CacheScores`] in bf16 with keys in bf16.
    CACHE_SCORES_BF16 = "cache_scores_bf16" in BF16_NT_BF16;
}

gemm_kernels! {
    /// `out = probs·v` over a cache.
    VALUES_KERNELS and [(&VALUES, NN), (&VALUES_BF16, BF16_NN)];
    /// Kernel of [`CacheValues`] in bf16 with values in bf16.
    CACHE_VALUES_BF16 = "cache_values_bf16" in BF16_NN_BF16;
}

/// The sizes of a cache and of its queries. `heads` is a multiple of `kv_heads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvCacheShape {
    /// Positions that the cache can hold.
    pub capacity: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
}

impl KvCacheShape {
    /// The most positions that [`DecodeAttention`](crate::attention::DecodeAttention) supports: the
    /// largest grid, with one split per block, times the longest split.
    pub const MAX_CAPACITY: usize = MAX_GRID_YZ * DECODE_MAX_SPLIT_LEN as usize;

    /// Elements per token in the cache.
    pub(crate) fn width(self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Positions per split of [`DecodeAttention`](crate::attention::DecodeAttention) for `batch`
    /// sequences: more if there are many key heads of sequences, which fill the device with fewer
    /// splits. Results are the same for every capacity up to 16 384.
    pub(crate) fn split_length(self, batch: usize) -> usize {
        let longest = DECODE_MAX_SPLIT_LEN as usize;
        match batch.saturating_mul(self.kv_heads) {
            _ if self.capacity > 16_384 => longest,
            ..64 => SPLIT_LEN as usize,
            64..128 => 2 * SPLIT_LEN as usize,
            _ => longest,
        }
    }

    /// Number of splits of [`DecodeAttention`](crate::attention::DecodeAttention) for `batch`
    /// sequences, each of which needs a partial sum per head.
    pub fn splits(self, batch: usize) -> usize {
        self.capacity.div_ceil(self.split_length(batch))
    }

    /// Checks the heads, and the length of both caches.
    pub(crate) fn check<B: Copy>(
        self,
        check: Check,
        caches: [(&'static str, TensorView<B>); 2],
    ) -> Result<(), KernelError> {
        let elements = self.elements(check)?;
        for (operand, cache) in caches {
            check.elements(operand, cache.len(), elements)?;
        }
        Ok(())
    }

    /// Checks the sizes, and returns the elements of the keys.
    fn elements(self, check: Check) -> Result<usize, KernelError> {
        let Self { capacity, heads, kv_heads, head_dim } = self;
        let divides = kv_heads > 0 && heads.is_multiple_of(kv_heads);
        let rule = "heads must be a multiple of kv_heads, not 0";
        check.rule(divides, rule, [heads, kv_heads])?;
        let elements = check.product("the cache", &[capacity, kv_heads, head_dim])?;
        check.size("the cache", elements)?;
        Ok(elements)
    }

    /// Checks the caches of `batch` sequences and returns the number of positions that the cache of
    /// each has. One sequence has exactly the capacity; each of several has at least the capacity.
    pub(crate) fn check_batch<B: Copy>(
        self,
        check: Check,
        [keys, values]: [(&'static str, TensorView<B>); 2],
        batch: usize,
    ) -> Result<u32, KernelError> {
        if batch <= 1 {
            self.check(check, [keys, values])?;
            return check.size("the capacity", self.capacity);
        }
        let of_sequence = self.elements(check)?;
        let (keys, values) = (keys.1.len(), values.1.len());
        let row = check.product("batch × width", &[batch, self.width()])?;
        let rule = "keys and values must have the same whole positions of each sequence";
        check.rule(keys == values && row > 0 && keys % row == 0, rule, [keys, values])?;
        let rule = "each sequence must have as many positions as the capacity";
        check.rule(keys / batch >= of_sequence, rule, [keys / row, self.capacity])?;
        check.size("batch × positions", keys / self.width())?;
        check.size("the positions of a sequence", keys / row)
    }

    /// One product per query head.
    fn per_head(self, sizes: [usize; 3]) -> GemmSizes {
        let b_group = self.heads / self.kv_heads;
        GemmSizes { heads: self.heads, b_group, ..GemmSizes::single(sizes) }
    }

    /// The strides of tokens with `heads` heads.
    fn token_strides(self, heads: usize) -> Strides {
        let leading = heads * self.head_dim;
        Strides { leading, head: self.head_dim, ..Strides::default() }
    }

    /// The strides of `[heads, queries, capacity]`.
    fn score_strides(self, queries: usize) -> Strides {
        Strides { leading: self.capacity, head: queries * self.capacity, ..Strides::default() }
    }
}

/// `scores = scale·q·kᵀ` of new tokens and every position of the cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheScores<B, W = View<B, f32>> {
    /// `[queries, heads, head_dim]`, read.
    pub q: View<B, f32>,
    /// `[capacity, kv_heads, head_dim]`, read: f32, or bf16 for products in bf16.
    pub keys: W,
    /// `[heads, queries, capacity]`, written.
    pub scores: View<B, f32>,
    /// New tokens.
    pub queries: usize,
    /// The sizes.
    pub shape: KvCacheShape,
    /// The softmax scale, usually 1/√head_dim.
    pub scale: f32,
}

impl<B: Copy, W: Into<TensorView<B>>> CacheScores<B, W> {
    /// Checks the operands and describes a launch that computes in f32.
    ///
    /// # Errors
    /// The errors of [`Self::launch_in`].
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        self.launch_in(DType::F32)
    }

    /// Checks the operands and describes a launch that computes in `compute`: f32 or bf16.
    ///
    /// # Errors
    /// If a length does not match the shape, a size is out of range, or no kernel multiplies the
    /// types of the operands in `compute`.
    pub fn launch_in(self, compute: DType) -> Result<Launch<B>, KernelError> {
        let Self { q, keys, scores, queries, shape, scale } = self;
        let (check, keys) = (Check(SCORES.name), keys.into());
        shape.check(check, [("keys", keys); 2])?;
        let KvCacheShape { capacity, heads, head_dim, .. } = shape;
        check.length("q", q, check.product("q", &[queries, heads, head_dim])?)?;
        check.length("scores", scores, check.product("scores", &[heads, queries, capacity])?)?;
        Gemm {
            kernels: SCORES_KERNELS,
            compute,
            a: Operand { view: q.into(), strides: shape.token_strides(heads) },
            b: Operand { view: keys, strides: shape.token_strides(shape.kv_heads) },
            c: Operand { view: scores.into(), strides: shape.score_strides(queries) },
            bias: None,
            sizes: shape.per_head([queries, capacity, head_dim]),
            alpha: scale,
            accumulate: false,
        }
        .launch()
    }
}

/// `out = probs·v` of new tokens over every position of the cache. Values must be finite even at
/// positions with probability 0.
#[derive(Clone, Copy, Debug)]
pub struct CacheValues<B, W = View<B, f32>> {
    /// `[heads, queries, capacity]`, read.
    pub probs: View<B, f32>,
    /// `[capacity, kv_heads, head_dim]`, read: f32, or bf16 for products in bf16.
    pub values: W,
    /// `[queries, heads, head_dim]`, written.
    pub out: View<B, f32>,
    /// New tokens.
    pub queries: usize,
    /// The sizes.
    pub shape: KvCacheShape,
}

impl<B: Copy, W: Into<TensorView<B>>> CacheValues<B, W> {
    /// Checks the operands and describes a launch that computes in f32.
    ///
    /// # Errors
    /// The errors of [`Self::launch_in`].
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        self.launch_in(DType::F32)
    }

    /// Checks the operands and describes a launch that computes in `compute`: f32 or bf16.
    ///
    /// # Errors
    /// If a length does not match the shape, a size is out of range, or no kernel multiplies the
    /// types of the operands in `compute`.
    pub fn launch_in(self, compute: DType) -> Result<Launch<B>, KernelError> {
        let Self { probs, values, out, queries, shape } = self;
        let (check, values) = (Check(VALUES.name), values.into());
        shape.check(check, [("values", values); 2])?;
        let KvCacheShape { capacity, heads, head_dim, .. } = shape;
        check.length("probs", probs, check.product("probs", &[heads, queries, capacity])?)?;
        check.length("out", out, check.product("out", &[queries, heads, head_dim])?)?;
        Gemm {
            kernels: VALUES_KERNELS,
            compute,
            a: Operand { view: probs.into(), strides: shape.score_strides(queries) },
            b: Operand { view: values, strides: shape.token_strides(shape.kv_heads) },
            c: Operand { view: out.into(), strides: shape.token_strides(heads) },
            bias: None,
            sizes: shape.per_head([queries, head_dim, capacity]),
            alpha: 1.0,
            accumulate: false,
        }
        .launch()
    }
}
