//! Appends new keys and values to the KV cache: `cache[start + r] = rows[r]` for the rows r <
//! count.
//!
//! Rows past the capacity of the cache are dropped. `kv_cache_append` copies 32-bit words: f32, or
//! pairs of bf16. `kv_cache_append_bf16` rounds f32 to bf16, to nearest even.
//!
//! **Grid.** One thread per element of the new rows, or per pair of elements in bf16; blocks of 256
//! threads in x.
//!
//! **Determinism.** One thread writes each element.

use retrograph_kernel_abi::attention::{
    KV_CACHE_APPEND, KV_CACHE_APPEND_BF16, KV_CACHE_APPEND_BF16_ELEMENTS, KV_CACHE_APPEND_THREADS,
    KvCacheAppendParameters,
};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::{Kernel, ModuleBuilder, Ptr, Value};

use crate::primitives::bf16::pack;
use crate::primitives::parameters::Declarations;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    let unit = KV_CACHE_APPEND_BF16_ELEMENTS;
    let pairs = entry(KV_CACHE_APPEND_BF16.entry(), unit, |from, to| {
        let pair = [0, 1].map(|i| from.pointer.load(from.element + i));
        let words = Ptr::<u32>::from_address(to.pointer.address());
        words.store(to.element >> 1, pack(target, pair));
    });
    let floats = entry(KV_CACHE_APPEND.entry(), 1, |from, to| {
        to.pointer.store(to.element, from.pointer.load(from.element));
    });
    ModuleBuilder::new(target).entry(floats).entry(pairs).build()
}

/// An element of an array.
struct Element<'k, I> {
    pointer: Ptr<'k, f32>,
    element: I,
}

/// The entry whose threads copy `unit` consecutive elements each. The row width is a multiple of
/// `unit`.
fn entry(
    name: &str,
    unit: u32,
    copy: impl for<'k> Fn(Element<'k, Value<'k, u32>>, Element<'k, Value<'k, u64>>),
) -> Entry {
    Kernel::build(name, |k| {
        k.max_threads(KV_CACHE_APPEND_THREADS);
        let parameters = KvCacheAppendParameters::declare(&mut Declarations(*k));
        let KvCacheAppendParameters { keys, values, key_cache, value_cache, .. } = parameters;
        let KvCacheAppendParameters { start, count, elements, width, capacity, .. } = parameters;

        let thread = k.ctaid_x() * k.ntid_x() + k.tid_x();
        k.return_if(thread.ge(elements >> unit.ilog2()));
        let element = thread << unit.ilog2();
        let row = element / width;
        let position = start.load(0) + row;
        // Without a count, all rows are appended.
        let kept = k.var(u32::MAX);
        k.when(!count.is_null(), || kept.set(count.load(0)));
        k.return_if(row.ge(kept.get()) | position.ge(capacity));
        let target = position.mul_wide(width) + (element - row * width).cast::<u64>();
        for (rows, cache) in [(keys, key_cache), (values, value_cache)] {
            let (rows, cache) = (rows.reinterpret(), cache.reinterpret());
            copy(Element { pointer: rows, element }, Element { pointer: cache, element: target });
        }
    })
}
