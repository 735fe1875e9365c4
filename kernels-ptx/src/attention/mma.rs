//! What a warp multiplies by tensor cores: rows of panels with each other, and what it holds with a
//! panel.
//!
//! **Columns.** What rows of a panel give is in the order of instructions: of a patch, a lane has
//! columns 2·member and 2·member + 1, member being its number modulo 4. So are products of what is
//! held in bf16. In f32, where matrix loads do not transpose, a lane takes two neighbours in a row
//! of the panel at once, one for each of two patches: of such 16 columns it has four in a row, the
//! first and third of them in one patch, the others in the next.

use retrograph_ptx::build::{Kernel, Shared, Value};

use super::config::{Factors, Shape};
use super::loader::Panel;
use super::{Patch, patches};
use crate::primitives::bf16::pack;
use crate::primitives::tf32::split;

/// Words of a row from one chunk to the one that lies alike, eight chunks further.
pub(super) const PERIOD: u32 = 32;

/// Where the lanes of a warp find what they load of panels.
pub(super) struct Lanes<'k> {
    pub(super) kernel: Kernel<'k>,
    pub(super) shape: Shape,
    pub(super) memory: Shared<'k, u32>,
    head_dim: Value<'k, u32>,
    /// The first word that the lane points to, of 16 rows as rows of the result, or in bf16 as the
    /// contraction, and of 16 rows as columns of the result. Two chunks further are found by XOR.
    rows: Value<'k, u32>,
    columns: Value<'k, u32>,
    /// The same of 8 rows of f32 as the contraction.
    down: Value<'k, u32>,
    /// Words in front of the warp's own rows.
    own: Value<'k, u32>,
}

/// What a lane holds of a factor: what it gives to one instruction, for each step of the
/// contraction.
pub(super) type Held<'k> = Vec<[Value<'k, u32>; 4]>;

/// A factor as instructions take it: as it is, or in two parts, the greater one first.
type Parts<'k, const N: usize> = Vec<[Value<'k, u32>; N]>;

/// Patches as factors of the next product, of which they are the contraction.
pub(super) fn hold<'k>(shape: Shape, patches: &[Patch<'k>]) -> Held<'k> {
    match shape.factors {
        Factors::Brain => {
            let pair = |patch: &Patch<'k>, half: usize| {
                pack(shape.target, [patch[half * 2].get(), patch[half * 2 + 1].get()])
            };
            let steps = patches.chunks_exact(2);
            steps.map(|two| [0, 1, 2, 3].map(|i| pair(&two[i / 2], i % 2))).collect()
        }
        // Steps 2·member and 2·member + 1 stand for member and member + 4.
        Factors::Single => {
            patches.iter().map(|patch| [0, 2, 1, 3].map(|i: usize| patch[i].get().bits())).collect()
        }
    }
}

impl<'k> Lanes<'k> {
    /// The lanes of this warp over panels in `memory`, of whose rows `head_dim` elements are not
    /// padding.
    pub(super) fn new(
        (k, shape): (&Kernel<'k>, Shape),
        memory: Shared<'k, u32>,
        head_dim: Value<'k, u32>,
    ) -> Self {
        let lane = k.lane();
        let (within, low, high) = (lane & 7, (lane >> 3) & 1, lane >> 4);
        let words = shape.row_words();
        let place =
            |row: Value<'k, u32>, chunk: Value<'k, u32>| row * words + ((chunk ^ within) << 2);
        let (rows, columns) = (place(within + low * 8, high), place(within + high * 8, low));
        let row = (lane & 3) * 2;
        let down = row * words + (((lane >> 3) ^ row) << 2) + ((lane >> 1) & 2);
        Self {
            kernel: *k,
            shape,
            memory,
            head_dim,
            rows,
            columns,
            down,
            own: k.warp() * (16 * words),
        }
    }

    /// Where the lane finds each two chunks of a period, of which the first are at `word`.
    fn period(&self, word: Value<'k, u32>) -> [Shared<'k, u32>; 4] {
        [0, 8, 16, 24].map(|further| self.memory.at(word ^ further))
    }

    /// Four matrices of two chunks from chunk 2 · `step` of the rows whose period is `places`, in
    /// the panel that has its words from `first`.
    fn load(
        places: &[Shared<'k, u32>; 4],
        (first, step): (u32, u32),
        transposed: bool,
    ) -> [Value<'k, u32>; 4] {
        let further = first + step / 4 * PERIOD;
        places[step as usize % 4].offset(further.into()).load_matrices(transposed)
    }

    /// `sums += a·bᵀ`, for the warp's 16 rows of `a` and all rows of `b`.
    pub(super) fn multiply(&self, [a, b]: [Panel; 2], sums: &[Patch<'k>]) {
        if !self.shape.has_tensor_cores() {
            return self.multiply_plainly([a, b], sums);
        }
        let words = self.shape.row_words();
        // A number that is not known keeps the assembler from unrolling, which in f32 takes more
        // registers than there are.
        let end = match self.shape.factors {
            Factors::Brain => self.kernel.constant(words),
            Factors::Single => self.head_dim,
        };
        self.kernel.range(0, end, PERIOD, |further| {
            let rows_at = self.period(self.rows + self.own + further);
            let columns_at = self.period(self.columns + further);
            let fresh = self.fresh(sums);
            for step in 0..4 {
                let rows = self.parts(Self::load(&rows_at, (a.first, step), false));
                let columns: Vec<_> = (0..b.rows / 16)
                    .map(|i| Self::load(&columns_at, (b.first + i * 16 * words, step), false))
                    .flat_map(|[a, b, c, d]| [[a, b], [c, d]].map(|two| self.parts(two)))
                    .collect();
                self.products(&rows, &columns, &fresh);
            }
            self.settle(sums, &fresh);
        });
    }

    /// `sums += held·b`, for all rows of `b`.
    pub(super) fn accumulate(&self, held: &Held<'k>, b: Panel, sums: &[Patch<'k>]) {
        assert_eq!(held.len() as u32 * self.shape.step(), b.rows, "a factor for each row");
        if !self.shape.has_tensor_cores() {
            return self.accumulate_plainly(held, b, sums);
        }
        let held: Vec<_> = held.iter().map(|words| self.parts(*words)).collect();
        let down = self.down();
        for (group, sums) in (0..).zip(sums.chunks(4)) {
            let add = || {
                for (pair, sums) in (group * 2..).zip(sums.chunks_exact(2)) {
                    let fresh = self.fresh(sums);
                    for (step, rows) in (0..).zip(&held) {
                        let first = b.first + step * self.shape.step() * self.shape.row_words();
                        self.products(rows, &self.across(&down, (first, pair)), &fresh);
                    }
                    self.settle(sums, &fresh);
                }
            };
            // Branches keep the assembler from loading so far ahead that registers do not suffice,
            // and skip columns that the head has not.
            if self.shape.factors == Factors::Single && group > 0 {
                self.kernel.when(self.head_dim.gt(group * 32), add);
            } else {
                add();
            }
        }
    }

    /// Where the lane finds rows as the contraction: in bf16 each two chunks of a period, in f32
    /// its two rows, in both halves of a period.
    fn down(&self) -> [Shared<'k, u32>; 4] {
        match self.shape.factors {
            Factors::Brain => self.period(self.rows),
            Factors::Single => {
                let (row, next) = (self.down, (self.down ^ 4) + self.shape.row_words());
                [row, next, row ^ 16, next ^ 16].map(|word| self.memory.at(word))
            }
        }
    }

    /// A step of rows that have their words from `first` as the contraction, for each patch of
    /// pair `pair`.
    fn across(&self, down: &[Shared<'k, u32>; 4], (first, pair): (u32, u32)) -> [Parts<'k, 2>; 2] {
        let [a, b, c, d] = match self.shape.factors {
            Factors::Brain => Self::load(down, (first, pair), true),
            Factors::Single => {
                let place = i64::from(first + pair / 2 * PERIOD);
                let half = pair as usize % 2 * 2;
                let rows = [down[half], down[half + 1]];
                let [[a, c], [b, d]] = rows.map(|row| row.offset(place).load_vec2(0));
                [a, b, c, d]
            }
        };
        [[a, b], [c, d]].map(|words| self.parts(words))
    }

    fn parts<const N: usize>(&self, words: [Value<'k, u32>; N]) -> Parts<'k, N> {
        match self.shape.factors {
            Factors::Brain => vec![words],
            Factors::Single => {
                let parts = words.map(split);
                vec![parts.map(|[high, _]| high), parts.map(|[_, low]| low)]
            }
        }
    }

    /// `sums += rows · columns`, for columns of each patch.
    fn products(&self, rows: &Parts<'k, 4>, columns: &[Parts<'k, 2>], sums: &[Patch<'k>]) {
        assert_eq!(columns.len(), sums.len(), "columns for each patch");
        let k = &self.kernel;
        if self.shape.factors == Factors::Brain {
            let each = columns.iter().zip(sums);
            return each.for_each(|(columns, sum)| k.multiply_bf16(rows[0], columns[0], *sum));
        }
        // The smallest products first.
        for (row, column) in [(1, 0), (0, 1), (0, 0)] {
            for (columns, sum) in columns.iter().zip(sums) {
                k.multiply_tf32(rows[row], columns[column], *sum);
            }
        }
    }

    /// What products are added to: in f32 a stage is added up from zero.
    fn fresh(&self, sums: &[Patch<'k>]) -> Vec<Patch<'k>> {
        match self.shape.factors {
            Factors::Brain => sums.to_vec(),
            Factors::Single => patches(&self.kernel, sums.len() as u32 * 8),
        }
    }

    /// Adds what a stage gave.
    fn settle(&self, sums: &[Patch<'k>], fresh: &[Patch<'k>]) {
        if self.shape.factors == Factors::Single {
            for (sum, fresh) in sums.iter().flatten().zip(fresh.iter().flatten()) {
                sum.add_assign(fresh.get());
            }
        }
    }
}
