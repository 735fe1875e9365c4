//! The products of one lane, with its vectors of x in flight.

use retrograph_kernel_abi::gemm::{SKINNY_MAX_ROWS as ROWS, SkinnyForm};
use retrograph_ptx::build::{Kernel, Value, Var};

use super::weights::{WeightLoader, Weights};
use super::{VECTOR, chunk_stride, first_step};
use crate::primitives::bf16::{pack, unpack};
use crate::primitives::mma::{acc_row, fragment_column, fragment_row};

/// The accumulators of a lane, and the x that it multiplies.
pub(super) struct LaneProducts<'k, 'a> {
    k: Kernel<'k>,
    weights: &'a Weights<'k>,
    /// The words of 8 elements of the lane's row of x, for each chunk in flight. Empty without
    /// tensor cores, where a lane reads all rows.
    in_flight: Vec<Vec<Var<'k, u32>>>,
    acc: Accumulators<'k>,
}

enum Accumulators<'k> {
    /// A fragment of 16 rows of w and 8 rows of x.
    Fragment([Var<'k, f32>; 4]),
    /// This lane's partial sums of two rows of w for every row of x.
    Lane([[Var<'k, f32>; ROWS as usize]; 2]),
}

impl<'k, 'a> LaneProducts<'k, 'a> {
    pub(super) fn new(k: &Kernel<'k>, weights: &'a Weights<'k>) -> Self {
        let config = weights.config;
        let (chunks, acc) = match config.target.features().bf16_mma {
            true => (config.in_flight(), Accumulators::Fragment(acc_row(k, ROWS)[0])),
            false => {
                let sums = [(); 2].map(|()| [(); ROWS as usize].map(|()| k.var(0.0)));
                (0, Accumulators::Lane(sums))
            }
        };
        let words = vector_words(config.form);
        let in_flight = (0..chunks).map(|_| (0..words).map(|_| k.var(0u32)).collect()).collect();
        Self { k: *k, weights, in_flight, acc }
    }

    /// Sets the sums to 0.
    pub(super) fn reset(&self) {
        match &self.acc {
            Accumulators::Fragment(sums) => sums.iter().for_each(|sum| sum.set(0.0)),
            Accumulators::Lane(sums) => sums.iter().flatten().for_each(|sum| sum.set(0.0)),
        }
    }

    /// The indices of the lane's elements of each chunk in flight, from step `step` on.
    fn chunks(&self, step: Value<'k, u32>) -> impl Iterator<Item = Value<'k, u32>> + use<'k> {
        let (k, config) = (&self.k, self.weights.config);
        let (first, stride) = (step + first_step(k), chunk_stride(k));
        (0..config.in_flight()).map(move |chunk| first + stride * chunk)
    }

    /// Starts loading the lane's elements of x in the chunks from step `step` on.
    pub(super) fn fetch_x(&self, step: Value<'k, u32>) {
        let row = fragment_row(&self.k);
        for (at, words) in self.chunks(step).zip(&self.in_flight) {
            self.load_x(row, at, words);
        }
    }

    /// Loads the elements of a row of x from index `at` on, as words; 0 past the end. Rows past the
    /// last one repeat it and are not written.
    fn load_x(&self, row: Value<'k, u32>, at: Value<'k, u32>, words: &[Var<'k, u32>]) {
        let &Weights { config, x, rows, inputs, .. } = self.weights;
        let row = row.min(rows - 1).mul_wide(inputs);
        let x = match config.form {
            SkinnyForm::F32 => x.reinterpret::<u32>().at(row).at(at),
            _ => x.reinterpret::<u32>().at(row >> 1).at(at >> 1),
        };
        let load = || {
            for (vector, words) in (0..).zip(words.chunks_exact(4)) {
                let loaded = x.load_vec4(vector * 4);
                words.iter().zip(loaded).for_each(|(word, loaded)| word.set(loaded));
            }
        };
        let zero = || words.iter().for_each(|word| word.set(0));
        self.k.when_else(at.lt(inputs), load, zero);
    }

    /// Returns loaded elements of a row, rounded to bf16.
    fn operand(&self, words: &[Var<'k, u32>]) -> [Value<'k, u32>; 4] {
        let config = self.weights.config;
        let words: Vec<_> = words.iter().map(|word| word.get()).collect();
        if config.form != SkinnyForm::F32 {
            return std::array::from_fn(|word| words[word]);
        }
        let x: Vec<_> = words.into_iter().map(Value::<f32>::from_bits).collect();
        std::array::from_fn(|pair| pack(config.target, [x[2 * pair], x[2 * pair + 1]]))
    }

    /// Adds the products of the chunks from step `step` on, whose vectors are in flight.
    pub(super) fn add(&self, loader: &WeightLoader<'k, '_>, step: Value<'k, u32>) {
        let chunks = loader.chunks();
        match &self.acc {
            Accumulators::Fragment(fragment) => {
                for (w, words) in chunks.zip(&self.in_flight) {
                    let x = self.operand(words);
                    for half in [0, 2] {
                        let a = [w[0][half], w[1][half], w[0][half + 1], w[1][half + 1]];
                        self.k.mma_m16n8k16_bf16(a, [x[half], x[half + 1]], *fragment);
                    }
                }
            }
            Accumulators::Lane(sums) => {
                self.chunks(step).zip(chunks).for_each(|(at, w)| self.add_rows(sums, at, w));
            }
        }
    }

    /// Adds the products of a chunk with every row of x.
    fn add_rows(
        &self,
        sums: &[[Var<'k, f32>; ROWS as usize]; 2],
        at: Value<'k, u32>,
        w: [[Value<'k, u32>; 4]; 2],
    ) {
        let k = &self.k;
        let len = vector_words(self.weights.config.form);
        let words: Vec<_> = (0..len).map(|_| k.var(0u32)).collect();
        let w = w.map(|words| words.map(unpack));
        for row in 0..ROWS {
            self.load_x(k.constant(row), at, &words);
            let x = self.operand(&words).map(unpack);
            for (w, sums) in w.iter().zip(sums) {
                let products = w.iter().flatten().zip(x.iter().flatten());
                sums[row as usize].update(|sum| products.fold(sum, |sum, (w, x)| w.fma(*x, sum)));
            }
        }
    }

    /// This lane's elements of the fragment: two rows of x for each of two rows of w.
    pub(super) fn sums(&self) -> [Value<'k, f32>; 4] {
        let k = &self.k;
        match &self.acc {
            Accumulators::Fragment(fragment) => fragment.map(Var::get),
            Accumulators::Lane(sums) => {
                let whole = sums.map(|sums| sums.map(|sum| sum_of_four_lanes(k, sum.get())));
                let own = |output: usize, next: u32| {
                    let mine = fragment_column(k) + next;
                    let rows = (0u32..).zip(whole[output]);
                    rows.fold(whole[output][0], |found, (row, sum)| mine.eq(row).select(sum, found))
                };
                [own(0, 0), own(0, 1), own(1, 0), own(1, 1)]
            }
        }
    }
}

/// The sum over the four lanes that share a row of a fragment.
fn sum_of_four_lanes<'k>(k: &Kernel<'k>, value: Value<'k, f32>) -> Value<'k, f32> {
    let pair = value + k.shfl_bfly(value, 1);
    pair + k.shfl_bfly(pair, 2)
}

/// Words of a vector of x.
fn vector_words(form: SkinnyForm) -> u32 {
    if form == SkinnyForm::F32 { VECTOR } else { VECTOR / 2 }
}
