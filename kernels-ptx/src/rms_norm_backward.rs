//! Backward pass of RMSNorm. With `h = x · rstd` and `u = gamma ⊙ grad_out`, for each row:
//! `grad_input = rstd · (u − h · mean(u ⊙ h))`, and `Σ grad_out ⊙ h` over the rows of a block.
//!
//! Grid: one block for each run of `rows_per_block` consecutive rows, of which there are at most
//! 256; quads of a row go round the threads of the block. Row p of `gamma_partials`, where it is
//! given, is written by block p alone, and each of its elements by one thread, row after row. The
//! second stage, `column_sum`, adds the partial rows.
//!
//! Deterministic: threads add in order, the block adds their sums in a fixed order, and no element
//! has two writers. Since h is of the order of 1 whatever the scale of x, nothing here leaves the
//! range that `rstd` itself does not leave.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder, Pred, Ptr, Value};

use crate::quad::{Floats, Quad, aligned, block_quads};

/// The image for `target`.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(Kernel::build("rms_norm_backward", backward)).build()
}

/// One row of every operand.
#[derive(Clone, Copy)]
struct Row<'k> {
    x: Ptr<'k, f32>,
    gamma: Ptr<'k, f32>,
    grad_out: Ptr<'k, f32>,
    grad_input: Ptr<'k, f32>,
    rstd: Value<'k, f32>,
    width: Value<'k, u32>,
    aligned: Pred<'k>,
    /// Whether `grad_input` is added to.
    accumulate: Pred<'k>,
}

/// Where a row's share of the gradient of gamma goes.
#[derive(Clone, Copy)]
struct Partial<'k> {
    row: Ptr<'k, f32>,
    /// Whether there is no such place.
    frozen: Pred<'k>,
    /// Whether an earlier row of the block is there already.
    accumulate: Pred<'k>,
}

/// What one quad of a row holds.
struct Terms<'k> {
    /// `x · rstd`.
    h: Floats<'k>,
    /// `gamma ⊙ grad_out`.
    u: Floats<'k>,
    grad_out: Floats<'k>,
}

fn backward(k: &Kernel<'_>) {
    let x = k.pointer::<f32>("x");
    let gamma = k.pointer::<f32>("gamma");
    let rstds = k.pointer::<f32>("rstd");
    let grad_out = k.pointer::<f32>("grad_out");
    let grad_input = k.pointer::<f32>("grad_input");
    let partials = k.pointer::<f32>("gamma_partials");
    let rows = k.param::<u32>("rows");
    let width = k.param::<u32>("width");
    let rows_per_block = k.param::<u32>("rows_per_block");
    let accumulate = k.param::<u32>("accumulate").ne(0);

    let frozen = partials.is_null();
    let partials = partials.at(k.ctaid_x().mul_wide(width));
    let first = k.ctaid_x() * rows_per_block;
    k.range(first, (first + rows_per_block).min(rows), 1, |index| {
        let start = index.mul_wide(width);
        let (x, grad_out, grad_input) = (x.at(start), grad_out.at(start), grad_input.at(start));
        let aligned = aligned(&[x, gamma, grad_out, grad_input, partials]);
        let rstd = rstds.load(index);
        let row = Row { x, gamma, grad_out, grad_input, rstd, width, aligned, accumulate };
        let partial = Partial { row: partials, frozen, accumulate: index.ne(first) };
        gradients(k, row, partial);
    });
}

impl<'k> Row<'k> {
    fn terms(&self, quad: Quad<'k>) -> Terms<'k> {
        let (x, gamma) = (quad.load(self.x), quad.load(self.gamma));
        let grad_out = quad.load(self.grad_out);
        let h = x.map(|x| x * self.rstd);
        let u = [0, 1, 2, 3].map(|i| gamma[i] * grad_out[i]);
        Terms { h, u, grad_out }
    }
}

/// Writes or adds `rstd · (u − h · mean(u ⊙ h))` and `grad_out ⊙ h`.
fn gradients<'k>(k: &Kernel<'k>, row: Row<'k>, partial: Partial<'k>) {
    let sum = k.var(0.0);
    block_quads(k, row.width, row.aligned, |quad| {
        let Terms { h, u, .. } = row.terms(quad);
        for i in 0..4 {
            sum.update(|sum| u[i].fma(h[i], sum));
        }
    });
    let mean = k.block_sum(sum.get()) / row.width.cast::<f32>();
    block_quads(k, row.width, row.aligned, |quad| {
        let Terms { h, u, grad_out } = row.terms(quad);
        let before = load_if(k, row.accumulate, (quad, row.grad_input));
        let gradient = |i: usize| row.rstd * (-mean).fma(h[i], u[i]);
        quad.store(row.grad_input, [0, 1, 2, 3].map(|i| before[i] + gradient(i)));
        k.when(!partial.frozen, || {
            let before = load_if(k, partial.accumulate, (quad, partial.row));
            quad.store(partial.row, [0, 1, 2, 3].map(|i| grad_out[i].fma(h[i], before[i])));
        });
    });
}

/// The quad in `array` where `condition` is true, 0 elsewhere.
fn load_if<'k>(
    k: &Kernel<'k>,
    condition: Pred<'k>,
    (quad, array): (Quad<'k>, Ptr<'k, f32>),
) -> Floats<'k> {
    let slots = [(); 4].map(|()| k.var(0.0));
    k.when(condition, || {
        slots.iter().zip(quad.load(array)).for_each(|(slot, value)| slot.set(value));
    });
    slots.map(|slot| slot.get())
}
