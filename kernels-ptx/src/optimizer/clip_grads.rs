//! Gradient clipping over a list of tensors, in place: `x = x · scale`.
//!
//! A scale of 1 returns early. A scale of 0 writes 0, because 0 times NaN or infinity is NaN.
//!
//! Grid: one block per chunk. Its row of the table is `[x, elements]`.
//! Deterministic: one thread computes each element.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder};

use crate::primitives::tensor_list::{Chunk, THREADS};

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(Kernel::build("clip_grads", clip_grads)).build()
}

fn clip_grads(k: &Kernel<'_>) {
    let table = k.pointer::<u64>("table");
    let scale = k.pointer::<f32>("scale");
    k.max_threads(THREADS);

    let scale = scale.load(0);
    k.return_if(scale.eq(1.0));
    let is_zero = scale.eq(0.0);
    let chunk = Chunk::<1>::read(k, table, 2);
    chunk.for_each_vec4(|vec4| {
        let x = vec4.load(chunk.arrays[0]);
        vec4.store(chunk.arrays[0], x.map(|x| is_zero.select(0.0, x * scale)));
    });
}
