//! The same products before sm_80, by fused multiply-adds of the same factors, in loops over the
//! contraction, which are short to write and not meant to be fast. In f32 nothing is split.

use retrograph_ptx::build::{Shared, Value};

use super::config::Factors;
use super::loader::Panel;
use super::mma::{Held, Lanes, PERIOD};
use super::{Patch, own_column, own_row};

impl<'k> Lanes<'k> {
    /// [`Lanes::multiply`], two steps of the contraction at a time.
    pub(super) fn multiply_plainly(&self, [a, b]: [Panel; 2], sums: &[Patch<'k>]) {
        let (k, words) = (&self.kernel, self.shape.row_words());
        k.range(0, self.shape.width, 2, |step| {
            let word = match self.shape.factors {
                Factors::Brain => step >> 1,
                Factors::Single => step,
            };
            let (chunk, within) = (word >> 2, word & 3);
            let at = |row: Value<'k, u32>| {
                self.memory.at(row * words + ((chunk ^ (row & 7)) << 2) + within)
            };
            let own = at(own_row(k)).offset(a.first.into());
            let rows = [0, 8].map(|below| self.pair(own.offset((below * words).into())));
            let columns = [0, 1].map(|next| at(own_column(k) + next).offset(b.first.into()));
            for (j, patch) in (0..).zip(sums) {
                let columns = columns.map(|place| self.pair(place.offset((j * 8 * words).into())));
                for (place, sum) in patch.iter().enumerate() {
                    let (x, y) = (rows[place / 2], columns[place % 2]);
                    sum.update(|sum| x[1].fma(y[1], x[0].fma(y[0], sum)));
                }
            }
        });
    }

    /// [`Lanes::accumulate`], two rows of `b` at a time. Of what is held, two neighbours are with
    /// one of the four lanes that have the same row.
    pub(super) fn accumulate_plainly(&self, held: &Held<'k>, b: Panel, sums: &[Patch<'k>]) {
        let k = &self.kernel;
        k.range(0, b.rows / 2, 1, |pair| {
            let (lane, patch) = ((k.lane() & 28) + (pair & 3), pair >> 2);
            let shuffled = |of: &dyn Fn(usize) -> Value<'k, u32>| {
                let mut word = of(0);
                for j in 1..b.rows / 8 {
                    word = patch.eq(j).select(of(j as usize), word);
                }
                k.shuffle_index(word, lane)
            };
            let rows = [0, 1].map(|below| match self.shape.factors {
                Factors::Brain => halves(shuffled(&|j| held[j / 2][j % 2 * 2 + below])),
                Factors::Single => {
                    [0, 2].map(|next| Value::<f32>::from_bits(shuffled(&|j| held[j][next + below])))
                }
            });
            let lines = [0, 1].map(|next| self.line(b, pair * 2 + next));
            for (patch, (one, other)) in sums.iter().zip(lines[0].iter().zip(&lines[1])) {
                for (place, sum) in patch.iter().enumerate() {
                    let (x, y) = (rows[place / 2], [one[place % 2], other[place % 2]]);
                    sum.update(|sum| x[1].fma(y[1], x[0].fma(y[0], sum)));
                }
            }
        });
    }

    /// The lane's two columns of each patch in row `row` of `b`.
    fn line(&self, b: Panel, row: Value<'k, u32>) -> Vec<[Value<'k, f32>; 2]> {
        let (member, start) = (self.kernel.lane() & 3, row * self.shape.row_words());
        let chunk = |chunk: Value<'k, u32>| {
            self.memory.at(start + ((chunk ^ (row & 7)) << 2)).offset(b.first.into())
        };
        match self.shape.factors {
            Factors::Brain => {
                let places =
                    [0u32, 1, 2, 3, 4, 5, 6, 7].map(|j| chunk(self.kernel.constant(j)).at(member));
                let place = |j: u32| places[j as usize % 8].offset((j / 8 * PERIOD).into());
                (0..self.shape.width / 8).map(|j| halves(place(j).load(0))).collect()
            }
            Factors::Single => {
                let places = [0, 4].map(|half| chunk(member + half).reinterpret::<f32>());
                let pairs = (0..self.shape.width / 16).flat_map(|pair| {
                    let place = places[pair as usize % 2].offset((pair / 2 * PERIOD).into());
                    let [a, b, c, d] = place.load_vec4(0);
                    [[a, c], [b, d]]
                });
                pairs.collect()
            }
        }
    }

    /// Two neighbours in a row.
    fn pair(&self, place: Shared<'k, u32>) -> [Value<'k, f32>; 2] {
        match self.shape.factors {
            Factors::Brain => halves(place.load(0)),
            Factors::Single => place.reinterpret().load_vec2(0),
        }
    }
}

/// Two elements of bf16 as floats, the lower one first.
pub(super) fn halves(word: Value<'_, u32>) -> [Value<'_, f32>; 2] {
    [word << 16, word & 0xffff_0000].map(Value::<f32>::from_bits)
}
