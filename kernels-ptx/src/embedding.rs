//! Embedding: `out[t] = table[tokens[t]]`; a token that is not in the table gives NaN.
//!
//! Grid: block (t, j) copies the j-th run of columns of position t, four for each thread.
//! Deterministic: every element is written by one thread.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder};

use crate::quad::{Quad, aligned};

/// The image for `target`.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(Kernel::build("embedding", embedding)).build()
}

fn embedding(k: &Kernel<'_>) {
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
    let row = table.at(token.mul_wide(hidden));
    let first = (k.ctaid_y() * k.ntid_x() + k.tid_x()) * 4;
    let quad = Quad::new(first, hidden, aligned(&[row, out]));
    let values = [(); 4].map(|()| k.var(f32::NAN));
    k.when(token.lt(vocab), || {
        values.iter().zip(quad.load(row)).for_each(|(slot, value)| slot.set(value));
    });
    quad.store(out, values.map(|slot| slot.get()));
}
