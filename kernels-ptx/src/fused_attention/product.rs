//! What a warp multiplies: rows of panels with each other, and what it holds with a panel.
//!
//! From sm_80 on by tensor cores; before that by fused multiply-adds of the same factors, in loops
//! over the contraction, which are short to write and not meant to be fast.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Shared, Value};

use super::panel::Panel;
use super::{Patch, own_column, own_row};

/// Words from one half of a row of 128 elements to the other one, eight chunks further.
const HALF: u32 = 32;

/// Where the lanes of a warp find what they load of panels.
pub(super) struct Lanes<'k> {
    kernel: Kernel<'k>,
    target: SmTarget,
    width: u32,
    memory: Shared<'k, u32>,
    /// Of 16 rows as rows of the result, or as the contraction, for each two chunks of eight.
    rows: [Shared<'k, u32>; 4],
    /// Of 16 rows as columns of the result.
    columns: [Shared<'k, u32>; 4],
    /// Words in front of the warp's own rows.
    own: Value<'k, u32>,
}

/// Elements of the rows of a warp as factors: for each 8 columns two neighbours as bf16 in a word,
/// and those 8 rows below.
pub(super) type Held<'k> = Vec<[Value<'k, u32>; 2]>;

impl<'k> Lanes<'k> {
    /// The lanes of this warp over panels of `width` elements in `memory`.
    pub(super) fn new(
        (k, target): (&Kernel<'k>, SmTarget),
        memory: Shared<'k, u32>,
        width: u32,
    ) -> Self {
        let lane = k.lane();
        let (within, low, high) = (lane & 7, (lane >> 3) & 1, lane >> 4);
        let places = |row: Value<'k, u32>, chunk: Value<'k, u32>| {
            let row = row * (width / 2);
            [0, 2, 4, 6].map(|two| memory.at(row + (((chunk + two) ^ within) << 2)))
        };
        let (rows, columns) = (places(within + low * 8, high), places(within + high * 8, low));
        Self { kernel: *k, target, width, memory, rows, columns, own: k.warp() * (16 * width / 2) }
    }

    /// Four matrices of the 16 elements from 16 · `step` of the rows at `places`, in the panel
    /// that has its words from `first`.
    fn load(
        places: &[Shared<'k, u32>; 4],
        (first, step): (u32, u32),
        transposed: bool,
    ) -> [Value<'k, u32>; 4] {
        let further = first + step / 4 * HALF;
        places[step as usize % 4].offset(further.into()).load_matrices(transposed)
    }

    /// `sums += a·bᵀ`, for the warp's 16 rows of `a` and all rows of `b`.
    pub(super) fn multiply(&self, [a, b]: [Panel; 2], sums: &[Patch<'k>]) {
        if self.target.number < 80 {
            return self.multiply_fused([a, b], sums);
        }
        let k = &self.kernel;
        // The halves of wide rows have the same pattern.
        k.range(0, self.width / 2, HALF, |half| {
            let rows_at = self.rows.map(|place| place.at(self.own + half));
            let columns_at = self.columns.map(|place| place.at(half));
            for step in 0..4 {
                let rows = Self::load(&rows_at, (a.first, step), false);
                for (pair, sums) in (0..).zip(sums.chunks_exact(2)) {
                    let first = b.first + pair * 16 * self.width / 2;
                    let columns = Self::load(&columns_at, (first, step), false);
                    k.multiply_bf16(rows, [columns[0], columns[1]], sums[0]);
                    k.multiply_bf16(rows, [columns[2], columns[3]], sums[1]);
                }
            }
        });
    }

    /// `sums += held·b`, for all rows of `b`.
    pub(super) fn accumulate(&self, held: &Held<'k>, b: Panel, sums: &[Patch<'k>]) {
        assert_eq!(held.len() as u32 * 8, b.rows, "a factor for each row");
        if self.target.number < 80 {
            return self.accumulate_fused(held, b, sums);
        }
        for (step, held) in (0..).zip(held.chunks_exact(2)) {
            let rows = [held[0][0], held[0][1], held[1][0], held[1][1]];
            let first = b.first + step * 16 * self.width / 2;
            for (pair, sums) in (0..).zip(sums.chunks_exact(2)) {
                let columns = Self::load(&self.rows, (first, pair), true);
                self.kernel.multiply_bf16(rows, [columns[0], columns[1]], sums[0]);
                self.kernel.multiply_bf16(rows, [columns[2], columns[3]], sums[1]);
            }
        }
    }

    /// [`Lanes::multiply`] without tensor cores, two steps of the contraction at a time.
    fn multiply_fused(&self, [a, b]: [Panel; 2], sums: &[Patch<'k>]) {
        let (k, words) = (&self.kernel, self.width / 2);
        k.range(0, self.width, 2, |step| {
            let (chunk, within) = (step >> 3, (step >> 1) & 3);
            let at = |row: Value<'k, u32>| {
                self.memory.at(row * words + ((chunk ^ (row & 7)) << 2) + within)
            };
            let own = at(own_row(k)).offset(a.first.into());
            let rows = [0, 8].map(|below| halves(own.offset((below * words).into()).load(0)));
            let columns = [0, 1].map(|next| at(own_column(k) + next).offset(b.first.into()));
            for (j, patch) in (0..).zip(sums) {
                let columns =
                    columns.map(|place| halves(place.offset((j * 8 * words).into()).load(0)));
                for (place, sum) in patch.iter().enumerate() {
                    let (x, y) = (rows[place / 2], columns[place % 2]);
                    sum.update(|sum| x[1].fma(y[1], x[0].fma(y[0], sum)));
                }
            }
        });
    }

    /// [`Lanes::accumulate`] without tensor cores, two rows of `b` at a time. Of what is held, two
    /// neighbours are with one of the four lanes that have the same row.
    fn accumulate_fused(&self, held: &Held<'k>, b: Panel, sums: &[Patch<'k>]) {
        let (k, words) = (&self.kernel, self.width / 2);
        k.range(0, b.rows / 2, 1, |pair| {
            let lane = (k.lane() & 28) + (pair & 3);
            let rows = [0, 1].map(|below| {
                let mut word = held[0][below];
                for (j, held) in (1..).zip(&held[1..]) {
                    word = (pair >> 2).eq(j).select(held[below], word);
                }
                halves(k.shuffle_index(word, lane))
            });
            let places = [0, 1].map(|next| {
                let row = pair * 2 + next;
                let start = row * words + (k.lane() & 3);
                [0u32, 1, 2, 3, 4, 5, 6, 7].map(|chunk| {
                    self.memory.at(start + (((row & 7) ^ chunk) << 2)).offset(b.first.into())
                })
            });
            for (j, patch) in sums.iter().enumerate() {
                let further = j as u32 / 8 * HALF;
                let columns =
                    places.map(|places| halves(places[j % 8].offset(further.into()).load(0)));
                for (place, sum) in patch.iter().enumerate() {
                    let (x, y) = (rows[place / 2], columns.map(|column| column[place % 2]));
                    sum.update(|sum| x[1].fma(y[1], x[0].fma(y[0], sum)));
                }
            }
        });
    }
}

/// Two elements of bf16 as floats, the lower one first.
pub(super) fn halves(word: Value<'_, u32>) -> [Value<'_, f32>; 2] {
    [word << 16, word & 0xffff_0000].map(Value::<f32>::from_bits)
}
