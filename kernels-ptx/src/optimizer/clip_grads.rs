//! Gradient clipping over a list of tensors, in place: `x = x · scale`.
//!
//! A scale of 1 returns early. A scale of 0 writes 0, because 0 times NaN or infinity is NaN.
//!
//! Grid: one block per chunk. Its row of the table is `[x, elements]`.
//! Deterministic: one thread computes each element.

use retrograph_kernel_abi::optimizer::{CHUNK_THREADS, CLIP_GRADS, CLIP_ROW, ClipGradsParameters};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder};

use crate::primitives::parameters::Declarations;
use crate::primitives::tensor_list::Chunk;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(Kernel::build(CLIP_GRADS.entry(), clip_grads)).build()
}

fn clip_grads(k: &Kernel<'_>) {
    let ClipGradsParameters { table, scale } = ClipGradsParameters::declare(&mut Declarations(*k));
    k.max_threads(CHUNK_THREADS);

    let scale = scale.load(0);
    k.return_if(scale.eq(1.0));
    let is_zero = scale.eq(0.0);
    let chunk = Chunk::<{ CLIP_ROW.arrays }>::read(k, table, CLIP_ROW);
    chunk.for_each_vec4(|vec4| {
        let x = vec4.load(chunk.arrays[0]);
        vec4.store(chunk.arrays[0], x.map(|x| is_zero.select(0.0, x * scale)));
    });
}
