//! Appends new keys and values to the KV cache: `cache[start + r] = rows[r]` for the rows r <
//! count, and 0 for the other positions of the last tile of prefill attention.
//!
//! Rows past the capacity of the cache are dropped. `kv_cache_append` copies 32-bit words: f32, or
//! pairs of bf16. `kv_cache_append_bf16` rounds f32 to bf16, to nearest even.
//!
//! **Grid.** One thread per 32-bit word of the cache; blocks of 256 threads in x.
//!
//! **Determinism.** One thread writes each word.

use retrograph_kernel_abi::attention::{
    KV_CACHE_APPEND, KV_CACHE_APPEND_BF16, KV_CACHE_APPEND_BF16_ELEMENTS, KV_CACHE_APPEND_THREADS,
    KvCacheAppendParameters, WGMMA_ROWS,
};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::{Kernel, ModuleBuilder, Ptr, Value};

use crate::primitives::bf16::pack;
use crate::primitives::parameters::Declarations;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    let unit = KV_CACHE_APPEND_BF16_ELEMENTS;
    let pairs = entry(KV_CACHE_APPEND_BF16.entry(), unit, |rows, element| {
        pack(target, [0, 1].map(|i| rows.load(element + i)))
    });
    let words =
        entry(KV_CACHE_APPEND.entry(), 1, |rows, element| rows.reinterpret::<u32>().load(element));
    ModuleBuilder::new(target).entry(words).entry(pairs).build()
}

/// The entry whose threads write one word of `unit` elements each to both caches. `word` loads the
/// word that starts with an element. The row width is a multiple of `unit`.
fn entry(
    name: &str,
    unit: u32,
    word: impl for<'k> Fn(Ptr<'k, f32>, Value<'k, u32>) -> Value<'k, u32>,
) -> Entry {
    Kernel::build(name, |k| {
        k.max_threads(KV_CACHE_APPEND_THREADS);
        let parameters = KvCacheAppendParameters::declare(&mut Declarations(*k));
        let KvCacheAppendParameters { keys, values, key_cache, value_cache, .. } = parameters;
        let KvCacheAppendParameters { start, count, elements, width, capacity, .. } = parameters;

        k.return_if(elements.eq(0));
        let element = (k.ctaid_x() * k.ntid_x() + k.tid_x()) << unit.ilog2();
        let row = element / width;
        let start = start.load(0);
        let position = start + row;
        let end = start + elements / width;
        let tile_end = (end + (WGMMA_ROWS - 1)) & !(WGMMA_ROWS - 1);
        k.return_if(position.ge(tile_end.min(capacity)));
        // Without a count, all rows are appended.
        let kept = k.var(u32::MAX);
        k.when(!count.is_null(), || kept.set(count.load(0)));
        let caches = [(keys, key_cache), (values, value_cache)];
        let words = caches.map(|_| k.var(0u32));
        k.when(row.lt(kept.get()) & position.lt(end), || {
            for ((rows, _), loaded) in caches.into_iter().zip(words) {
                loaded.set(word(rows.reinterpret(), element));
            }
        });
        let target = position.mul_wide(width) + (element - row * width).cast::<u64>();
        for ((_, cache), loaded) in caches.into_iter().zip(words) {
            cache.reinterpret::<u32>().store(target >> unit.ilog2(), loaded.get());
        }
    })
}
