//! Embedding lookup: `out[t] = scale · table[tokens[t]]`, or NaN for a token outside the table. The
//! table is f32, or bf16 in `embedding_bf16`.
//!
//! Grid: block (t, j) copies the j-th group of columns of position t, four columns per thread.
//! Deterministic: one thread writes each element.

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::embedding::{EMBEDDING, EMBEDDING_BF16, EmbeddingParameters};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder, Ptr};

use crate::primitives::parameters::Declarations;
use crate::primitives::registers::{registers, set, values};
use crate::primitives::vec4::{Vec4, aligned};

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target)
        .entry(Kernel::build(EMBEDDING.entry(), |k| lookup(k, DType::F32)))
        .entry(Kernel::build(EMBEDDING_BF16.entry(), |k| lookup(k, DType::Bf16)))
        .build()
}

fn lookup(k: &Kernel<'_>, dtype: DType) {
    // The grid already has one block in x per position.
    let EmbeddingParameters { tokens, table, out, positions: _, hidden, vocab, scale } =
        EmbeddingParameters::declare(&mut Declarations(*k));

    let position = k.ctaid_x();
    let token = tokens.load(position);
    let out = out.at(position.mul_wide(hidden));
    let row = table.address() + (token.mul_wide(hidden) << dtype.bytes().ilog2());
    let first = (k.ctaid_y() * k.ntid_x() + k.tid_x()) * 4;
    let vec4 = Vec4::new(first, hidden, aligned(&[Ptr::from_address(row), out]));
    let registers = registers(k, f32::NAN);
    k.when(token.lt(vocab), || set(&registers, vec4.load_as(dtype, row)));
    // A scale of 1 copies the bits of the row.
    vec4.store(out, values(&registers).map(|row| scale.eq(1.0).select(row, row * scale)));
}
