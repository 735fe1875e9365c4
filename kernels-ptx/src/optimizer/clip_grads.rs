//! Clipping over a list of tensors: `x = x · scale`, in place.
//!
//! A scale of 1 changes no bit and is not even carried out; a scale of 0 writes 0, because 0 times
//! NaN or infinity would be NaN.
//!
//! Grid: one block for each chunk, which is a row `[x, elements]` of the table.
//! Deterministic: every element is computed by one thread.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder};

use crate::primitives::tensor_list::{Chunk, THREADS};

/// The image for `target`.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(Kernel::build("clip", clip)).build()
}

fn clip(k: &Kernel<'_>) {
    let table = k.pointer::<u64>("table");
    let scale = k.pointer::<f32>("scale");
    k.max_threads(THREADS);

    let scale = scale.load(0);
    k.return_if(scale.eq(1.0));
    let none = scale.eq(0.0);
    let chunk = Chunk::<1>::read(k, table, 2);
    chunk.for_each_vec4(|vec4| {
        let x = vec4.load(chunk.arrays[0]);
        vec4.store(chunk.arrays[0], x.map(|x| none.select(0.0, x * scale)));
    });
}
