//! First stage of the gradient norm over a list of tensors: `partials[c] = Σ x²` over chunk c.
//!
//! Grid: one block per chunk. Its row of the table is `[x, elements, whether x is bf16]`. Sums are
//! f64, which can hold the square of every f32; the kernel is still memory-bound. Deterministic:
//! each thread adds in order, and a tree of fixed shape adds the threads.

use retrograph_kernel_abi::optimizer::{
    CHUNK_THREADS, GRAD_NORM_PARTIALS, GRAD_ROW, GradNormPartialsParameters,
};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder};

use crate::primitives::parameters::Declarations;
use crate::primitives::reduce::block_sum_f64;
use crate::primitives::tensor_list::Chunk;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target)
        .entry(Kernel::build(GRAD_NORM_PARTIALS.entry(), grad_norm_partials))
        .build()
}

fn grad_norm_partials(k: &Kernel<'_>) {
    let GradNormPartialsParameters { table, partials } =
        GradNormPartialsParameters::declare(&mut Declarations(*k));
    k.max_threads(CHUNK_THREADS);

    let chunk = Chunk::<{ GRAD_ROW.arrays }>::read(k, table, GRAD_ROW);
    let sum = k.var(0.0);
    chunk.for_each_vec4_as(0, |dtype, vec4| {
        for x in vec4.load_as(dtype, chunk.arrays[0].address()) {
            let x = x.cast::<f64>();
            sum.update(|sum| x.fma(x, sum));
        }
    });
    let total = block_sum_f64(k, sum.get(), CHUNK_THREADS);
    k.when(k.tid_x().eq(0), || partials.store(k.ctaid_x(), total));
}
