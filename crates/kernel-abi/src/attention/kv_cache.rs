//! Appends new keys and values to a KV cache.

use crate::parameters::parameters;
use crate::{Any, Signature};

parameters! {
    /// The parameters of [`KV_CACHE_APPEND`] and [`KV_CACHE_APPEND_BF16`].
    pub struct KvCacheAppendParameters {
        /// `elements` f32 of new keys, or 32-bit words of pairs of bf16, read.
        keys: pointer<Any>,
        /// The same of new values, read.
        values: pointer<Any>,
        /// `capacity × width` elements, partly written.
        key_cache: pointer<Any>,
        /// `capacity × width` elements, partly written.
        value_cache: pointer<Any>,
        /// The position of the first token, read.
        start: pointer<u32>,
        /// The number of tokens to append, read; null for all.
        count: pointer<u32>,
        /// f32 or words of the new keys.
        elements: u32,
        /// f32 or words of a token.
        width: u32,
        /// Positions of the cache.
        capacity: u32,
    }
}

/// Threads of a block of [`KV_CACHE_APPEND`].
pub const KV_CACHE_APPEND_THREADS: u32 = 256;

/// Appends to caches without conversion, f32 or pairs of bf16: one 32-bit word per thread.
pub const KV_CACHE_APPEND: Signature = Signature {
    image: "kv_cache_append",
    parameters: KvCacheAppendParameters::<()>::LIST,
    entries: &["kv_cache_append"],
};

/// Appends f32 to bf16 caches: one 32-bit word per thread.
pub const KV_CACHE_APPEND_BF16: Signature =
    Signature { entries: &["kv_cache_append_bf16"], ..KV_CACHE_APPEND };

/// Elements of a word of [`KV_CACHE_APPEND_BF16`].
pub const KV_CACHE_APPEND_BF16_ELEMENTS: u32 = 2;
