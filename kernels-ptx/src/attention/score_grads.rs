//! Probabilities p and score gradients ds, recomputed from scores and probability gradients.

use retrograph_ptx::build::{Kernel, Value};

use super::backward::{Params, Side};
use super::mask::lane_row;
use super::score_scale::prob;
use crate::primitives::mma::{AccFragment, LANE_ROWS, fragment_column};
use crate::primitives::registers::{Registers, registers, set};

/// Computes p and ds from the logsumexp and delta of the queries of a tile.
pub(super) struct ScoreGrads<'a, 'k> {
    kernel: Kernel<'k>,
    params: &'a Params<'k>,
    /// The factor from scores to exponents of 2.
    log2: Value<'k, f32>,
    stats: QueryStats<'k>,
}

/// `[logsumexp, delta]` of queries.
enum QueryStats<'k> {
    /// Queries are rows: the statistics of the lane's two rows.
    Rows([[Value<'k, f32>; 2]; 2]),
    /// Queries are columns: lane i has the statistics of column i of the tile.
    Columns(Registers<'k, 2>),
}

impl<'a, 'k> ScoreGrads<'a, 'k> {
    pub(super) fn new(k: &Kernel<'k>, params: &'a Params<'k>) -> Self {
        let log2 = params.score_scale.log2();
        let stats = match params.side {
            Side::Queries => {
                let rows = LANE_ROWS.map(|row| params.start + lane_row(k) + row);
                QueryStats::Rows(rows.map(|row| query_stats(params, k.constant(0), row)))
            }
            Side::Keys => QueryStats::Columns(registers(k, 0.0)),
        };
        Self { kernel: *k, params, log2, stats }
    }

    /// If queries are columns, starts loading the statistics of the tile of `head` that starts at
    /// `start`.
    pub(super) fn fetch(&self, start: Value<'k, u32>, head: Value<'k, u32>) {
        if let QueryStats::Columns(stats) = &self.stats {
            set(stats, query_stats(self.params, head, start + self.kernel.lane()));
        }
    }

    /// Replaces products by p, and probability gradients by ds = p · (gradient − delta), times the
    /// derivative of the cap.
    pub(super) fn compute(&self, scores: &[AccFragment<'k>], grads: &[AccFragment<'k>]) {
        let (first, scale) = (fragment_column(&self.kernel), &self.params.score_scale);
        scale.apply_tanh(scores);
        for (j, (scores, grads)) in (0..).zip(scores.iter().zip(grads)) {
            let pairs = match &self.stats {
                QueryStats::Rows(pairs) => *pairs,
                QueryStats::Columns(stats) => [0, 1].map(|next| {
                    let lane = first + (j * 8 + next);
                    stats.map(|var| self.kernel.shfl_idx(var.get(), lane))
                }),
            };
            for (index, (score, grad)) in scores.iter().zip(grads).enumerate() {
                let [lse, delta] = match self.params.side {
                    Side::Queries => pairs[index / 2],
                    Side::Keys => pairs[index % 2],
                };
                let t = score.get();
                score.update(|t| prob(t, self.log2, lse));
                grad.update(|grad| scale.backward((grad - delta) * score.get(), t));
            }
        }
    }
}

/// `[logsumexp, delta]` of a query. Past the end of the sequence, by less than a tile, the
/// logsumexp is ∞, which makes probabilities 0.
fn query_stats<'k>(
    params: &Params<'k>,
    head: Value<'k, u32>,
    query: Value<'k, u32>,
) -> [Value<'k, f32>; 2] {
    let index = head.mad_lo(params.padded, query);
    params.query_stats.at(index).reinterpret::<f32>().load_vec2(0)
}
