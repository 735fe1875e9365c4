//! Online softmax over tiles of scores.

use std::f32::consts::LOG2_E;

use retrograph_ptx::build::{Kernel, Value, Var, Word};

use crate::primitives::mma::{AccFragment, LANE_ROWS};

/// The running softmax of the lane's two rows, upper and lower.
pub(super) struct OnlineSoftmax<'k> {
    kernel: Kernel<'k>,
    /// The factor from scores to exponents of 2: scale · log₂ e.
    scale_log2: Value<'k, f32>,
    /// The running maximum, not scaled.
    max: [Var<'k, f32>; 2],
    /// The lane's share of the running sum of exponentials.
    sum: [Var<'k, f32>; 2],
}

impl<'k> OnlineSoftmax<'k> {
    pub(super) fn new(k: &Kernel<'k>, scale: Value<'k, f32>) -> Self {
        let max = [(); 2].map(|()| k.var(f32::NEG_INFINITY));
        let scale_log2 = scale * LOG2_E;
        Self { kernel: *k, scale_log2, max, sum: [(); 2].map(|()| k.var(0.0f32)) }
    }

    /// Replaces a tile of scores by exp(score − max), and rescales the running sum and `out` to the
    /// new maximum.
    pub(super) fn update(&self, scores: &[AccFragment<'k>], out: &[AccFragment<'k>]) {
        rescale(out, self.exponentials(scores));
    }

    /// Replaces a tile of scores by exp(score − max), and rescales the running sum to the new
    /// maximum. Returns the factor of each row, by which [`rescale`] multiplies the output.
    pub(super) fn exponentials(&self, scores: &[AccFragment<'k>]) -> [Value<'k, f32>; 2] {
        [0, 1].map(|index| {
            let before = self.max[index].get();
            let max = row(scores, index).fold(before, |max, score| max.max(score));
            let max = reduce_row(&self.kernel, max, |a, b| a.max(b));
            self.max[index].set(max);
            // If all scores so far are −∞, the exponentials are 0.
            let base = max.eq(f32::NEG_INFINITY).select(0.0, max) * self.scale_log2;
            let rescale = before.fma(self.scale_log2, -base).exp2_ftz();
            self.sum[index].mul_assign(rescale);
            for score in row(scores, index) {
                score.update(|score| score.fma(self.scale_log2, -base).exp2_ftz());
                self.sum[index].add_assign(score.get());
            }
            rescale
        })
    }

    /// Divides `out` by the sums. Calls `write_lse` with the index of each row in [`LANE_ROWS`],
    /// and a function that computes the base-2 logsumexp of that row.
    pub(super) fn finish(
        &self,
        out: &[AccFragment<'k>],
        write_lse: impl Fn(usize, &dyn Fn() -> Value<'k, f32>),
    ) {
        for index in 0..LANE_ROWS.len() {
            let sum = reduce_row(&self.kernel, self.sum[index].get(), |a, b| a + b);
            write_lse(index, &|| self.max[index].get() * self.scale_log2 + sum.log2());
            let factor = sum.rcp_approx();
            row(out, index).for_each(|out| out.mul_assign(factor));
        }
    }
}

/// Multiplies each row of the output by its factor.
pub(super) fn rescale<'k>(out: &[AccFragment<'k>], factors: [Value<'k, f32>; 2]) {
    for (index, factor) in factors.into_iter().enumerate() {
        row(out, index).for_each(|out| out.mul_assign(factor));
    }
}

/// Reduces over the four lanes that share a row.
pub(super) fn reduce_row<'k, T: Word>(
    k: &Kernel<'k>,
    value: Value<'k, T>,
    combine: impl Fn(Value<'k, T>, Value<'k, T>) -> Value<'k, T>,
) -> Value<'k, T> {
    [2, 1].into_iter().fold(value, |value, mask| {
        let other = k.shfl_bfly(value, mask);
        combine(value, other)
    })
}

/// The elements of one of the lane's rows, by its index in [`LANE_ROWS`].
pub(super) fn row<'k>(acc: &[AccFragment<'k>], index: usize) -> impl Iterator<Item = Var<'k, f32>> {
    acc.iter().flat_map(move |fragment| [fragment[index * 2], fragment[index * 2 + 1]])
}
