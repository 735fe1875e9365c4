//! Rows in registers: the next row loads during the block reduction of the current one.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Value};

use super::{Rows, Terms};
use crate::primitives::registers::{Registers, registers, values};
use crate::primitives::row_registers::{RowVec4, row_vec4s};

/// A vec4 of a row whose loads are in flight.
struct RowInFlight<'k> {
    x: Registers<'k>,
    /// The bits of the gradients.
    grad_out: [Registers<'k, 4, u32>; 3],
    /// The previous value of `grad_input`; 0 if the gradient overwrites it.
    before: Registers<'k>,
}

impl<'k> RowInFlight<'k> {
    fn new(k: &Kernel<'k>) -> Self {
        let grad_out = [(); 3].map(|()| registers(k, 0));
        Self { x: registers(k, 0.0), grad_out, before: registers(k, 0.0) }
    }

    /// Starts loading the vec4 of `row` at `row_vec4`.
    fn fetch(&self, k: &Kernel<'k>, row_vec4: &RowVec4<'k>, row: &Rows<'k>) {
        k.when(row_vec4.inside, || {
            row_vec4.fetch(row.x, &self.x);
            for (from, to) in row.grad_out.into_iter().zip(&self.grad_out) {
                row_vec4.fetch_bits(from, to);
            }
            k.when(row.accumulate, || row_vec4.fetch(row.grad_input.f32, &self.before));
        });
    }
}

/// Processes aligned rows in registers, `vec4s` whole vec4s per thread.
pub(super) fn in_registers<'k>(k: &Kernel<'k>, target: SmTarget, rows: Rows<'k>, vec4s: u32) {
    let ([first, end], width) = (rows.block.rows, rows.width);
    let row_vec4s = row_vec4s(k, width, vec4s);
    let gammas: Vec<_> = row_vec4s.iter().map(|row_vec4| row_vec4.load(rows.gamma)).collect();
    let column_scales: Vec<_> = rows.split.map_or_else(Vec::new, |split| {
        let split = split.row(first);
        row_vec4s.iter().map(|row_vec4| split.column_scales_of(row_vec4)).collect()
    });
    let partials: Vec<_> = row_vec4s.iter().map(|_| registers(k, 0.0)).collect();
    let in_flight: Vec<_> = row_vec4s.iter().map(|_| RowInFlight::new(k)).collect();
    let rstd = k.var(0.0);
    let fetch = |index: Value<'k, u32>| {
        let row = rows.row(index);
        rstd.set(row.rstd.load(0));
        row_vec4s
            .iter()
            .zip(&in_flight)
            .for_each(|(row_vec4, in_flight)| in_flight.fetch(k, row_vec4, &row));
    };
    // Every block has at least one row.
    fetch(first);
    k.range(first, end, 1, |index| {
        let (sum, rstd) = (k.var(0.0), rstd.get());
        let loaded = in_flight.iter().zip(&gammas).map(|(in_flight, gamma)| {
            let gradients =
                [0, 1, 2].map(|at| rows.grad_out[at].decode(values(&in_flight.grad_out[at])));
            let terms = Terms::of(values(&in_flight.x), *gamma, gradients, rstd);
            terms.add_products(sum);
            (terms, values(&in_flight.before))
        });
        let loaded: Vec<_> = loaded.collect();
        k.when((index + 1).lt(end), || fetch(index + 1));
        let mean = k.block_sum(sum.get()) / width.cast::<f32>();
        let to = rows.row(index).grad_input;
        let mut gradients = Vec::with_capacity(row_vec4s.len());
        for ((row_vec4, (terms, before)), partial) in row_vec4s.iter().zip(&loaded).zip(&partials) {
            let gradient = terms.gradient(*before, mean);
            row_vec4.write(target, to, gradient);
            gradients.push((*row_vec4, gradient));
            let sums = terms.gamma_gradient(values(partial));
            partial.iter().zip(sums).for_each(|(slot, sum)| slot.set(sum));
        }
        if let Some(split) = rows.split {
            split.row(index).write_vec4s(k, target, &gradients, &column_scales);
        }
    });
    k.when(!rows.block.frozen, || {
        for (row_vec4, partial) in row_vec4s.iter().zip(&partials) {
            row_vec4.store(rows.block.partial, values(partial));
        }
    });
}
