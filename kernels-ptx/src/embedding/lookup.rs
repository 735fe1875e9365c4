//! Embedding: `out[t] = table[tokens[t]]`; a token that is not in the table gives NaN. The table is
//! f32 or, in the second entry, bf16.
//!
//! Grid: block (t, j) copies the j-th run of columns of position t, four for each thread.
//! Deterministic: every element is written by one thread.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder, Ptr, Value};

use crate::primitives::vec4::{F32x4, Vec4, aligned};

/// The image for `target`.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target)
        .entry(Kernel::build("embedding", |k| {
            embedding(k, 4, |vec4, row| vec4.load(Ptr::from_address(row)));
        }))
        .entry(Kernel::build("embedding_bf16", |k| {
            embedding(k, 2, |vec4, row| vec4.load_bf16(row));
        }))
        .build()
}

/// A quad of a row, given where the row starts.
type Load<'k> = fn(Vec4<'k>, Value<'k, u64>) -> F32x4<'k>;

fn embedding<'k>(k: &Kernel<'k>, bytes: u32, load: Load<'k>) {
    let tokens = k.pointer::<u32>("tokens");
    let table = k.pointer::<f32>("source");
    let out = k.pointer::<f32>("target");
    // The grid has as many blocks in x as there are positions.
    let _positions = k.param::<u32>("positions");
    let hidden = k.param::<u32>("hidden");
    let vocab = k.param::<u32>("vocab");

    let position = k.ctaid_x();
    let token = tokens.load(position);
    let out = out.at(position.mul_wide(hidden));
    let row = table.address() + (token.mul_wide(hidden) << bytes.ilog2());
    let first = (k.ctaid_y() * k.ntid_x() + k.tid_x()) * 4;
    let vec4 = Vec4::new(first, hidden, aligned(&[Ptr::from_address(row), out]));
    let values = [(); 4].map(|()| k.var(f32::NAN));
    k.when(token.lt(vocab), || {
        values.iter().zip(load(vec4, row)).for_each(|(slot, value)| slot.set(value));
    });
    vec4.store(out, values.map(|slot| slot.get()));
}
