//! Rows in registers: each is loaded while the block adds up what it has of the row before.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Value};

use super::{Rows, Terms};
use crate::held::{Place, Slots, places, slots, values};

/// A quad of a row that is on its way from memory.
struct Flight<'k> {
    x: Slots<'k>,
    grad_out: [Slots<'k>; 3],
    /// What is in `grad_input`, 0 where that is not added to.
    before: Slots<'k>,
}

impl<'k> Flight<'k> {
    fn new(k: &Kernel<'k>) -> Self {
        let grad_out = [(); 3].map(|()| slots(k));
        Self { x: slots(k), grad_out, before: slots(k) }
    }

    /// Starts loading what `row` has at `place`.
    fn fetch(&self, k: &Kernel<'k>, place: &Place<'k>, row: &Rows<'k>) {
        k.when(place.inside, || {
            place.fetch(row.x, &self.x);
            place.fetch(row.grad_out[0], &self.grad_out[0]);
            for at in 0..2 {
                let (from, to) = (row.grad_out[at + 1], &self.grad_out[at + 1]);
                k.when(row.more[at], || place.fetch(from, to));
            }
            k.when(row.accumulate, || place.fetch(row.grad_input.f32, &self.before));
        });
    }
}

/// Aligned rows of whole quads, `quads` of which belong to a thread.
pub(super) fn held<'k>(k: &Kernel<'k>, target: SmTarget, (rows, quads): (Rows<'k>, u32)) {
    let ([first, end], width) = (rows.run, rows.width);
    let places = places(k, width, quads);
    let gammas: Vec<_> = places.iter().map(|place| place.load(rows.gamma)).collect();
    let partials: Vec<_> = places.iter().map(|_| slots(k)).collect();
    let flights: Vec<_> = places.iter().map(|_| Flight::new(k)).collect();
    let rstd = k.var(0.0);
    let fetch = |index: Value<'k, u32>| {
        let row = rows.row(index);
        rstd.set(row.rstd.load(0));
        places.iter().zip(&flights).for_each(|(place, flight)| flight.fetch(k, place, &row));
    };
    // There is a block for each run of rows, and no run is empty.
    fetch(first);
    k.range(first, end, 1, |index| {
        let (sum, rstd) = (k.var(0.0), rstd.get());
        let landed = flights.iter().zip(&gammas).map(|(flight, gamma)| {
            let gradients = std::array::from_fn(|at| values(&flight.grad_out[at]));
            let terms = Terms::of(values(&flight.x), *gamma, (gradients, rstd));
            terms.add_products(sum);
            (terms, values(&flight.before))
        });
        let landed: Vec<_> = landed.collect();
        k.when((index + 1).lt(end), || fetch(index + 1));
        let mean = k.block_sum(sum.get()) / width.cast::<f32>();
        let to = rows.row(index).grad_input;
        for ((place, (terms, before)), partial) in places.iter().zip(&landed).zip(&partials) {
            place.write(target, to, terms.gradient(*before, mean));
            let sums = terms.of_gamma(values(partial));
            partial.iter().zip(sums).for_each(|(slot, sum)| slot.set(sum));
        }
    });
    k.when(!rows.frozen, || {
        for (place, partial) in places.iter().zip(&partials) {
            place.store(rows.partial, values(partial));
        }
    });
}
