//! New keys and values into their caches: `cache[start + r] = rows[r]` for the rows r < count.
//!
//! Rows whose place lies past the end of the cache are left out.
//!
//! **Grid.** One thread for each element of the new rows; blocks of 256 threads in x.
//!
//! **Determinism.** Every element is written by one thread.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::{Kernel, ModuleBuilder};

/// The image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(entry()).build()
}

fn entry() -> Entry {
    Kernel::build("cache_append", |k| {
        k.max_threads(256);
        let keys = k.pointer::<f32>("keys");
        let values = k.pointer::<f32>("values");
        let key_cache = k.pointer::<f32>("key_cache");
        let value_cache = k.pointer::<f32>("value_cache");
        let start = k.pointer::<u32>("start");
        let count = k.pointer::<u32>("count");
        let elements = k.param::<u32>("elements");
        let width = k.param::<u32>("width");
        let capacity = k.param::<u32>("capacity");

        let element = k.ctaid_x() * k.ntid_x() + k.tid_x();
        k.return_if(element.ge(elements));
        let row = element / width;
        let place = start.load(0) + row;
        // Without a count every row is new.
        let kept = k.var(u32::MAX);
        k.when(!count.is_null(), || kept.set(count.load(0)));
        k.return_if(row.ge(kept.get()) | place.ge(capacity));
        let target = place.mul_wide(width) + (element - row * width).cast::<u64>();
        key_cache.store(target, keys.load(element));
        value_cache.store(target, values.load(element));
    })
}
