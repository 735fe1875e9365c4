//! Attention of new tokens over a cache of the keys and values of all tokens before.
//!
//! A cache is `[length, kv_heads, head_dim]`: a token's place does not depend on the length, so
//! that a shorter cache is the beginning of a longer one. It is f32, or bf16 where half the bytes
//! count for more than the bits. Several new tokens attend by products ([`CacheScores`],
//! [`CacheSoftmax`](crate::ops::CacheSoftmax), [`CacheValues`]), a single one by a kernel that reads
//! only what the cache holds ([`CacheAttention`](crate::ops::CacheAttention)).

use super::unfused::{SCORES, SCORES_BF16, VALUES, VALUES_BF16};
use crate::checks::Check;
use crate::gemm::config::product_kernels;
use crate::gemm::heuristic::Layout;
use crate::gemm::launch::{Product, Sizes, Strides};
use crate::tensor::{Compute, Family, Stored};
use crate::{KernelError, Launch, View};

product_kernels! {
    /// scores = scale·q·kᵀ in bf16 with keys in bf16.
    CACHE_SCORES_BF16 = "cache_scores_bf16" in BF16_NT_BF16;
    /// out = probs·v in bf16 with values in bf16.
    CACHE_VALUES_BF16 = "cache_values_bf16" in BF16_NN_BF16;
}

const QUESTION: Family =
    Family { bf16_stored: Some(&CACHE_SCORES_BF16), ..Family::of(&SCORES, &SCORES_BF16) };
const ANSWER: Family =
    Family { bf16_stored: Some(&CACHE_VALUES_BF16), ..Family::of(&VALUES, &VALUES_BF16) };

/// The sizes of a cache and of those who ask it. `heads` is a multiple of `kv_heads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShape {
    /// Positions that the cache has room for.
    pub length: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
}

impl CacheShape {
    /// Elements of a token in the cache.
    pub(crate) fn width(self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Positions that one block attends to. It depends on the length only where that is so long
    /// that there would be too many runs to add, so that lengths below give the same bits.
    pub(crate) fn run(self) -> usize {
        if self.length <= 16_384 { 64 } else { 256 }
    }

    /// Runs into which the positions are divided:
    /// [`CacheAttention`](crate::ops::CacheAttention) needs this many partial sums for each head.
    pub fn runs(self) -> usize {
        self.length.div_ceil(self.run())
    }

    /// Checks the heads, and the length of both caches.
    pub(crate) fn check<B: Copy>(
        self,
        check: Check,
        caches: [(&'static str, Stored<B>); 2],
    ) -> Result<(), KernelError> {
        let Self { length, heads, kv_heads, head_dim } = self;
        let divides = kv_heads > 0 && heads % kv_heads == 0;
        let rule = "heads must be a multiple of kv_heads, which must not be 0";
        check.rule(divides, rule, (heads, kv_heads))?;
        let elements = check.product("the cache", &[length, kv_heads, head_dim])?;
        check.size("the cache", elements)?;
        for (operand, cache) in caches {
            check.elements(operand, cache.len(), elements)?;
        }
        Ok(())
    }

    /// One product per query head.
    fn per_head(self, [m, n, k]: [usize; 3]) -> Sizes {
        let b_group = self.heads / self.kv_heads;
        Sizes { m, n, k, batches: 1, heads: self.heads, b_group, reduce: 1 }
    }

    /// The strides of rows of `heads` heads.
    fn by_head(self, heads: usize) -> Strides {
        let leading = heads * self.head_dim;
        Strides { leading, head: self.head_dim, ..Strides::default() }
    }

    /// The strides of `[heads, queries, length]`.
    fn scores(self, queries: usize) -> Strides {
        Strides { leading: self.length, head: queries * self.length, ..Strides::default() }
    }
}

/// scores = scale·q·kᵀ of new tokens with every position of the cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheScores<B, W = View<B, f32>> {
    /// `[queries, heads, head_dim]`, read.
    pub q: View<B, f32>,
    /// `[length, kv_heads, head_dim]`, read: f32, or bf16 for products in bf16.
    pub keys: W,
    /// `[heads, queries, length]`, written.
    pub scores: View<B, f32>,
    /// New tokens.
    pub queries: usize,
    /// The sizes.
    pub shape: CacheShape,
    /// The factor, by custom 1/√head_dim.
    pub scale: f32,
}

impl<B: Copy, W: Into<Stored<B>>> CacheScores<B, W> {
    /// Checks the operands and describes the launch of products in f32.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        self.launch_in(Compute::F32)
    }

    /// Checks the operands and describes the launch of products in `compute`.
    pub fn launch_in(self, compute: Compute) -> Result<Launch<B>, KernelError> {
        let Self { q, keys, scores, queries, shape, scale } = self;
        let (check, keys) = (Check(SCORES.name), keys.into());
        shape.check(check, [("keys", keys); 2])?;
        let CacheShape { length, heads, head_dim, .. } = shape;
        check.length("q", q, check.product("q", &[queries, heads, head_dim])?)?;
        check.length("scores", scores, check.product("scores", &[heads, queries, length])?)?;
        Product {
            family: QUESTION,
            compute,
            layout: Layout::Nt,
            a: (q.into(), shape.by_head(heads)),
            b: (keys, shape.by_head(shape.kv_heads)),
            c: (scores.into(), shape.scores(queries)),
            bias: None,
            sizes: shape.per_head([queries, length, head_dim]),
            alpha: scale,
            accumulate: false,
        }
        .launch()
    }
}

/// out = probs·v of new tokens over every position of the cache, which must hold finite numbers
/// also where the probability is 0.
#[derive(Clone, Copy, Debug)]
pub struct CacheValues<B, W = View<B, f32>> {
    /// `[heads, queries, length]`, read.
    pub probs: View<B, f32>,
    /// `[length, kv_heads, head_dim]`, read: f32, or bf16 for products in bf16.
    pub values: W,
    /// `[queries, heads, head_dim]`, written.
    pub out: View<B, f32>,
    /// New tokens.
    pub queries: usize,
    /// The sizes.
    pub shape: CacheShape,
}

impl<B: Copy, W: Into<Stored<B>>> CacheValues<B, W> {
    /// Checks the operands and describes the launch of products in f32.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        self.launch_in(Compute::F32)
    }

    /// Checks the operands and describes the launch of products in `compute`.
    pub fn launch_in(self, compute: Compute) -> Result<Launch<B>, KernelError> {
        let Self { probs, values, out, queries, shape } = self;
        let (check, values) = (Check(VALUES.name), values.into());
        shape.check(check, [("values", values); 2])?;
        let CacheShape { length, heads, head_dim, .. } = shape;
        check.length("probs", probs, check.product("probs", &[heads, queries, length])?)?;
        check.length("out", out, check.product("out", &[queries, heads, head_dim])?)?;
        Product {
            family: ANSWER,
            compute,
            layout: Layout::Nn,
            a: (probs.into(), shape.scores(queries)),
            b: (values, shape.by_head(shape.kv_heads)),
            c: (out.into(), shape.by_head(heads)),
            bias: None,
            sizes: shape.per_head([queries, head_dim, length]),
            alpha: 1.0,
            accumulate: false,
        }
        .launch()
    }
}
