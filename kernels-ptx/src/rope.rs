//! Rotary position embedding with split halves, both ways.
//!
//! ```text
//! out[i]        = x[i] · cos[s][i] − x[i + half] · sin[s][i]        i < half, s the position
//! out[i + half] = x[i + half] · cos[s][i] + x[i] · sin[s][i]
//! ```
//!
//! for every head of every token; the inverse has the sine negated. Positions count from 0 in each
//! sequence, or from what `start` points to. Those past the tables take their last row.
//!
//! **Grid.** One thread per pair, in the order of the first halves; blocks of 128 threads in x.
//!
//! **Determinism.** Every element is computed by one thread from its own operands, and only they
//! are read, so that `out` may be x.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::{Kernel, ModuleBuilder};

/// The image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(entry()).build()
}

fn entry() -> Entry {
    Kernel::build("rope", |k| {
        k.max_threads(128);
        let x = k.pointer::<f32>("x");
        let cos = k.pointer::<f32>("cos");
        let sin = k.pointer::<f32>("sin");
        let out = k.pointer::<f32>("out");
        let start = k.pointer::<u32>("start");
        let pairs = k.param::<u32>("pairs");
        let half = k.param::<u32>("half");
        let heads = k.param::<u32>("heads");
        let seq = k.param::<u32>("seq");
        let positions = k.param::<u32>("positions");
        let inverse = k.param::<u32>("inverse");

        let pair = k.ctaid_x() * k.ntid_x() + k.tid_x();
        k.return_if(pair.ge(pairs));
        let row = pair / half;
        let i = pair - row * half;
        let first = k.var(0u32);
        k.when(!start.is_null(), || first.set(start.load(0)));
        let position = (first.get() + row / heads % seq).min(positions - 1);
        let angle = position * half + i;
        let (cos, sin) = (cos.load(angle), sin.load(angle));
        let sin = inverse.ne(0).select(-sin, sin);

        // The first half of row r starts at 2 · r · half, so that element i lies r · half past
        // `pair`.
        let first = pair.cast::<u64>() + row.mul_wide(half);
        let (from, to) = (x.at(first), out.at(first));
        let (a, b) = (from.load(0), from.load(half));
        to.store(0, a * cos - b * sin);
        to.store(half, b * cos + a * sin);
    })
}
