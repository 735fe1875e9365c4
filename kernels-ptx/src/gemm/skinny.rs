//! Skinny GEMM: `y = x·wᵀ + bias` for up to 8 rows of x in f32 and w in bf16.
//!
//! The kernel is bound by reading w. A tile of 16 outputs is the operand a of `mma.m16n8k16`, and
//! the rows of x, rounded to bf16, are the 8 columns of b. Within 32 steps, any order of K is valid
//! if it is the same for both operands. So a lane holds 8 consecutive elements of two rows of w and
//! of one row of x, loaded from global memory to registers by 16-byte vectors. Loads of w bypass
//! the L1 cache, which keeps x.
//!
//! **Prefetch.** With PDL, a warp loads its first vectors of w before it waits for its predecessor.
//! The launch declares these reads. The kernel reads nothing else before the wait.
//!
//! **Grid.** Blocks of 8 warps. In `split<S>`, S warps share a tile, and each multiplies every S-th
//! chunk of 32 steps of K. Launches with few outputs use a larger S to fill the device.
//!
//! **Determinism.** Each warp accumulates tensor-core products in ascending order, and the S warps
//! are added in ascending order. An element of y depends on one row of x, and not on the number of
//! rows. Before sm_80, a lane uses fused multiply-adds, and a butterfly adds four lanes.

use retrograph_kernel_abi::gemm::{
    SKINNY, SKINNY_MAX_ROWS as ROWS, SKINNY_OUTPUTS as OUTPUTS, SKINNY_SPLITS,
    SKINNY_WARPS as WARPS, SkinnyParameters,
};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::{Kernel, ModuleBuilder, Ptr, Value, Var};

use crate::primitives::bf16::{pack_vec4, unpack};
use crate::primitives::mma::{acc_row, fragment_column, fragment_row};
use crate::primitives::parameters::Declarations;
use crate::primitives::pdl;

/// Steps of K per chunk: 8 for each of the four lanes that share a row.
const CHUNK: u32 = 32;
/// Elements per vector.
const VECTOR: u32 = 8;
/// Chunks in flight per warp.
const IN_FLIGHT: u32 = 4;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    let entries = SKINNY.entries.iter().zip(SKINNY_SPLITS);
    let entries = entries.map(|(name, split)| entry(name, target, split));
    entries.fold(ModuleBuilder::new(target), ModuleBuilder::entry).build()
}

fn entry(name: &str, target: SmTarget, split: u32) -> Entry {
    Kernel::build(name, |k| {
        k.max_threads(32 * WARPS);
        k.min_blocks(2);
        let parameters = SkinnyParameters::declare(&mut Declarations(*k));
        pdl::launch_dependents(k, target);
        let warp = k.warp();
        let tile = k.ctaid_x() * (WARPS / split) + warp / split;
        let part = warp & (split - 1);
        let lane = LaneTile::new(k, target, &parameters, tile * OUTPUTS);
        let first = part * CHUNK + fragment_column(k) * (VECTOR / 2);
        lane.fetch_all(first, split);
        pdl::wait(k, target);
        lane.multiply(first, split);
        let sums = lane.sums();
        let output = Output { k: *k, parameters, first: tile * OUTPUTS };
        if split == 1 {
            output.write(sums);
        } else {
            output.write_parts(sums, split);
        }
    })
}

/// The rows of w and x that a lane multiplies.
struct LaneTile<'k> {
    k: Kernel<'k>,
    target: SmTarget,
    x: Ptr<'k, f32>,
    inputs: Value<'k, u32>,
    rows: Value<'k, u32>,
    /// Two rows of w, 8 apart.
    w: [Ptr<'k, u32>; 2],
    /// The vectors of both rows, for each chunk in flight.
    in_flight: Vec<[[Var<'k, u32>; 4]; 2]>,
    acc: Accumulators<'k>,
}

enum Accumulators<'k> {
    /// A fragment of 16 outputs and 8 rows.
    Fragment([Var<'k, f32>; 4]),
    /// This lane's partial sums of two outputs for every row.
    Lane([[Var<'k, f32>; ROWS as usize]; 2]),
}

impl<'k> LaneTile<'k> {
    fn new(
        k: &Kernel<'k>,
        target: SmTarget,
        parameters: &SkinnyParameters<Declarations<'k>>,
        first_output: Value<'k, u32>,
    ) -> Self {
        let &SkinnyParameters { x, w, rows, inputs, outputs, .. } = parameters;
        // Outputs past the end repeat the last one and are not written.
        let row = |down: u32| (first_output + fragment_row(k) + down).min(outputs - 1);
        let w = w.reinterpret::<u32>();
        let w = [0, 8].map(|down| w.at(row(down).mul_wide(inputs >> 1)));
        let in_flight = (0..IN_FLIGHT).map(|_| [(); 2].map(|()| [(); 4].map(|()| k.var(0u32))));
        let in_flight = in_flight.collect();
        let acc = match target.features().bf16_mma {
            true => Accumulators::Fragment(acc_row(k, ROWS)[0]),
            false => Accumulators::Lane([(); 2].map(|()| [(); ROWS as usize].map(|()| k.var(0.0)))),
        };
        Self { k: *k, target, x, inputs, rows, w, in_flight, acc }
    }

    /// Starts loading the vectors at `at` of both rows. Vectors past the end are 0.
    fn fetch(&self, vectors: &[[Var<'k, u32>; 4]; 2], at: Value<'k, u32>) {
        let each = || vectors.iter().zip(self.w);
        let load = || {
            for (words, row) in each() {
                let loaded = row.load_vec4_streaming(at >> 1);
                words.iter().zip(loaded).for_each(|(word, loaded)| word.set(loaded));
            }
        };
        let zero = || vectors.iter().flatten().for_each(|word| word.set(0));
        self.k.when_else(at.lt(self.inputs), load, zero);
    }

    /// Starts loading the next chunks of this warp. The lane's first vector is at `first`.
    fn fetch_all(&self, first: Value<'k, u32>, split: u32) {
        for (chunk, vectors) in (0..).zip(&self.in_flight) {
            self.fetch(vectors, first + chunk * split * CHUNK);
        }
    }

    /// Multiplies all chunks. The first ones are already in flight.
    fn multiply(&self, first: Value<'k, u32>, split: u32) {
        let at = self.k.var(first);
        // All lanes of a warp iterate until the last lane is done.
        let goes_on = || (at.get() & !(CHUNK - 1)).lt(self.inputs);
        self.k.while_loop(goes_on, || {
            let here = at.get();
            self.add_all(here, split);
            let next = here + IN_FLIGHT * split * CHUNK;
            self.fetch_all(next, split);
            at.set(next);
        });
    }

    /// Loads the 8 elements at `at` of a row of x, rounded to bf16; 0 past the end. Rows past the
    /// last one repeat it and are not written.
    fn x(&self, row: Value<'k, u32>, at: Value<'k, u32>) -> [Value<'k, u32>; 4] {
        let inside = at.lt(self.inputs);
        let at = inside.select(at, 0);
        let row = self.x.at(row.min(self.rows - 1).mul_wide(self.inputs));
        let [low, high] = [0, 4].map(|next| pack_vec4(self.target, row.load_vec4(at + next)));
        [low[0], low[1], high[0], high[1]].map(|word| inside.select(word, 0))
    }

    /// Adds the products of the chunks in flight. The lane's first vector is at `first`.
    fn add_all(&self, first: Value<'k, u32>, split: u32) {
        let chunks = || (0..).map(|chunk| first + chunk * split * CHUNK).zip(&self.in_flight);
        let words = |vectors: &[[Var<'k, u32>; 4]; 2]| vectors.map(|words| words.map(Var::get));
        match &self.acc {
            Accumulators::Fragment(fragment) => {
                // The loads of all chunks come first.
                let row = fragment_row(&self.k);
                let x: Vec<_> = chunks().map(|(at, _)| self.x(row, at)).collect();
                for (x, (_, vectors)) in x.iter().zip(chunks()) {
                    let w = words(vectors);
                    for half in [0, 2] {
                        let a = [w[0][half], w[1][half], w[0][half + 1], w[1][half + 1]];
                        self.k.mma_m16n8k16_bf16(a, [x[half], x[half + 1]], *fragment);
                    }
                }
            }
            Accumulators::Lane(sums) => {
                for (at, vectors) in chunks() {
                    let w = words(vectors).map(|words| words.map(unpack));
                    for row in 0..ROWS {
                        let x = self.x(self.k.constant(row), at).map(unpack);
                        for (w, sums) in w.iter().zip(sums) {
                            let products = w.iter().flatten().zip(x.iter().flatten());
                            sums[row as usize]
                                .update(|sum| products.fold(sum, |sum, (w, x)| w.fma(*x, sum)));
                        }
                    }
                }
            }
        }
    }

    /// This lane's elements of the fragment: two rows of y for each of two outputs.
    fn sums(&self) -> [Value<'k, f32>; 4] {
        let k = &self.k;
        match &self.acc {
            Accumulators::Fragment(fragment) => fragment.map(Var::get),
            Accumulators::Lane(sums) => {
                let whole = sums.map(|sums| {
                    sums.map(|sum| {
                        let pair = sum.get() + k.shfl_bfly(sum.get(), 1);
                        pair + k.shfl_bfly(pair, 2)
                    })
                });
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

/// The outputs of a warp's tile.
struct Output<'k> {
    k: Kernel<'k>,
    parameters: SkinnyParameters<Declarations<'k>>,
    /// The first output of the tile.
    first: Value<'k, u32>,
}

impl<'k> Output<'k> {
    /// Writes the fragment of a warp.
    fn write(&self, sums: [Value<'k, f32>; 4]) {
        for (output, pair) in [0, 8].into_iter().zip(sums.chunks_exact(2)) {
            let output = self.first + fragment_row(&self.k) + output;
            for (row, sum) in (0..).zip(pair) {
                self.store(fragment_column(&self.k) + row, output, *sum);
            }
        }
    }

    /// Adds the fragments of the warps that share a tile, and writes the sums.
    fn write_parts(&self, sums: [Value<'k, f32>; 4], split: u32) {
        let k = &self.k;
        let elements = OUTPUTS * ROWS;
        let parts = k.shared::<f32>("parts", (WARPS * elements) as usize);
        let own = k.warp() * elements;
        for (output, pair) in [0, 8].into_iter().zip(sums.chunks_exact(2)) {
            let output = fragment_row(k) + output;
            for (row, sum) in (0..).zip(pair) {
                parts.store(own + (fragment_column(k) + row) * OUTPUTS + output, *sum);
            }
        }
        k.barrier();
        // Adjacent threads have adjacent outputs.
        let tiles = WARPS / split;
        k.range(k.tid_x(), tiles * elements, 32 * WARPS, |element| {
            let tile = element / elements;
            let within = element & (elements - 1);
            let first = tile * (split * elements) + within;
            let parts = (0..split).map(|part| parts.load(first + part * elements));
            let sum = parts.reduce(|sum, part| sum + part).expect("there is a part");
            let output = (k.ctaid_x() * tiles + tile) * OUTPUTS + (within & (OUTPUTS - 1));
            self.store(within / OUTPUTS, output, sum);
        });
    }

    fn store(&self, row: Value<'k, u32>, output: Value<'k, u32>, sum: Value<'k, f32>) {
        let SkinnyParameters { bias, y, rows, outputs, .. } = self.parameters;
        self.k.when(row.lt(rows) & output.lt(outputs), || {
            let value = self.k.var(sum);
            self.k.when(!bias.is_null(), || value.add_assign(bias.load(output)));
            y.at(row.mul_wide(outputs)).store(output, value.get());
        });
    }
}
