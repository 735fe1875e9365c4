//! What makes `p` and `ds` of scores and of gradients of probabilities.

use std::f32::consts::LOG2_E;

use retrograph_ptx::build::{Kernel, Value, Var};

use super::backward::{Given, Side};
use super::{Patch, own_column, own_row};

/// Of the queries of one block, in each tile.
pub(super) struct Weights<'a, 'k> {
    kernel: Kernel<'k>,
    given: &'a Given<'k>,
    /// What scores are multiplied by to be powers of 2.
    factor: Value<'k, f32>,
    /// Logsumexp and delta of the lane's two rows, where rows are queries.
    own: Vec<[Value<'k, f32>; 2]>,
    /// Those of one query of the tile for each lane, where columns are queries.
    theirs: Option<[Var<'k, f32>; 2]>,
}

impl<'a, 'k> Weights<'a, 'k> {
    pub(super) fn new(k: &Kernel<'k>, given: &'a Given<'k>) -> Self {
        let factor = given.scale * LOG2_E;
        let mut weights = Self { kernel: *k, given, factor, own: Vec::new(), theirs: None };
        match given.side {
            Side::Queries => {
                let rows = [0, 8].map(|below| given.start + own_row(k) + below);
                weights.own = rows.map(|row| weights.pair(k.constant(0), row)).to_vec();
            }
            Side::Keys => weights.theirs = Some([(); 2].map(|()| k.var(0.0f32))),
        }
        weights
    }

    /// Starts loading what belongs to the queries of the tile of `head` that begins at `start`,
    /// where columns are queries.
    pub(super) fn fetch(&self, (start, head): (Value<'k, u32>, Value<'k, u32>)) {
        if let Some(theirs) = &self.theirs {
            let pair = self.pair(head, start + self.kernel.lane());
            theirs.iter().zip(pair).for_each(|(var, value)| var.set(value));
        }
    }

    /// Logsumexp and delta of a query. Behind the last one, the logsumexp is ∞, so that
    /// probabilities are 0.
    fn pair(&self, head: Value<'k, u32>, query: Value<'k, u32>) -> [Value<'k, f32>; 2] {
        let seq = self.given.seq;
        let place = head.mul_add(seq, query.min(seq - 1));
        let [lse, delta] = self.given.pairs.at(place).reinterpret::<f32>().load_vec2(0);
        [query.lt(seq).select(lse, f32::INFINITY), delta]
    }

    /// Makes `p` of the scores and `ds` of the gradients of probabilities, in the tile whose
    /// queries were fetched.
    pub(super) fn turn(&self, scores: &[Patch<'k>], grads: &[Patch<'k>]) {
        let first = own_column(&self.kernel);
        for (j, (scores, grads)) in (0..).zip(scores.iter().zip(grads)) {
            // The lane whose number is the column has what belongs to it.
            let pairs = match &self.theirs {
                None => self.own.clone(),
                Some(theirs) => [0, 1]
                    .map(|next| {
                        let lane = first + (j * 8 + next);
                        theirs.map(|var| self.kernel.shuffle_index(var.get(), lane))
                    })
                    .to_vec(),
            };
            for (place, (score, grad)) in scores.iter().zip(grads).enumerate() {
                let [lse, delta] = match self.given.side {
                    Side::Queries => pairs[place / 2],
                    Side::Keys => pairs[place % 2],
                };
                score.update(|score| score.fma(self.factor, -lse).exp2());
                grad.update(|grad| (grad - delta) * score.get());
            }
        }
    }
}
