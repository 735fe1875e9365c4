//! Matrix times vector: `y = α·W·x (+ bias) (+ y)`, W stored `outputs × inputs`.
//!
//! One row of activations uses every weight once, so that the floor is the bytes of W. A warp reads
//! four rows of W side by side in 16-byte loads, two at a time, and x from the cache.
//!
//! **Grid.** Blocks of 8 warps. In `gemv_split<S>` S warps share four outputs, each with every S-th
//! run of 32 quads of the contraction; few outputs are split more, so that a device is full.
//!
//! **Determinism.** A lane adds its quads in ascending order, a butterfly of fixed shape adds the
//! lanes, and the parts of a split are added in ascending order. Operands that are not aligned, and
//! contractions that are no multiple of 4, are read one by one in the same order.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::{Kernel, ModuleBuilder, Ptr, Value, Var};

/// Outputs of a warp.
const OUTPUTS: usize = 4;
/// Warps of a block.
const WARPS: u32 = 8;
/// y is added to, not overwritten.
const ACCUMULATE: u32 = 1;
/// x and w are read in aligned groups of four.
const QUADS: u32 = 2;

/// The image.
pub(crate) fn module(target: SmTarget) -> Module {
    let splits = [1, 2, 4, 8].into_iter();
    splits.fold(ModuleBuilder::new(target), |module, split| module.entry(entry(split))).build()
}

fn entry(split: u32) -> Entry {
    Kernel::build(&format!("gemv_split{split}"), |k| {
        k.max_threads(32 * WARPS);
        let x = k.pointer::<f32>("x");
        let w = k.pointer::<f32>("w");
        let bias = k.pointer::<f32>("bias");
        let y = k.pointer::<f32>("y");
        let inputs = k.param::<u32>("inputs");
        let outputs = k.param::<u32>("outputs");
        let alpha = k.param::<f32>("alpha");
        let flags = k.param::<u32>("flags");

        let warp = k.warp();
        let first = (k.ctaid_x() * (WARPS / split) + warp / split) * OUTPUTS as u32;
        // Outputs past the last have the row of the last, and are not written.
        let last = outputs - 1;
        let rows =
            std::array::from_fn(|output| w.at((first + output as u32).min(last).mul_wide(inputs)));
        let inputs = first.lt(outputs).select(inputs, 0);
        let dot = Dot { k: *k, x, rows, inputs, split, sums: [(); OUTPUTS].map(|()| k.var(0.0)) };
        k.when_else((flags & QUADS).ne(0), || dot.by_quads(), || dot.one_by_one());

        let sums = k.shared::<f32>("sums", WARPS as usize * OUTPUTS);
        for (output, sum) in dot.sums.iter().enumerate() {
            let sum = k.warp_sum(sum.get());
            k.when(k.lane().eq(0), || sums.store(warp * OUTPUTS as u32 + output as u32, sum));
        }
        k.barrier();
        // Thread t has output t of the block.
        let thread = k.tid_x();
        let output = k.ctaid_x() * (WARPS / split * OUTPUTS as u32) + thread;
        k.return_if(thread.ge(WARPS / split * OUTPUTS as u32) | output.ge(outputs));
        let place = (thread >> 2) * (split * OUTPUTS as u32) + (thread & 3);
        let parts = (0..split).map(|part| sums.load(place + part * OUTPUTS as u32));
        let total = parts.reduce(|sum, part| sum + part).expect("there is a part");
        let result = k.var(total * alpha);
        k.when(!bias.is_null(), || result.add_assign(bias.load(output)));
        k.when((flags & ACCUMULATE).ne(0), || result.add_assign(y.load(output)));
        y.store(output, result);
    })
}

/// The products of one lane.
struct Dot<'k> {
    k: Kernel<'k>,
    x: Ptr<'k, f32>,
    rows: [Ptr<'k, f32>; OUTPUTS],
    inputs: Value<'k, u32>,
    split: u32,
    sums: [Var<'k, f32>; OUTPUTS],
}

impl<'k> Dot<'k> {
    /// The first element of this lane, and the distance to its next.
    fn start(&self) -> (Value<'k, u32>, u32) {
        let part = self.k.warp() & (self.split - 1);
        ((part * 32 + self.k.lane()) * 4, self.split * 128)
    }

    /// Adds whole quads; two are under way at once.
    fn by_quads(&self) {
        let (start, step) = self.start();
        let at = self.k.var(start);
        let load = |first: Value<'k, u32>| {
            let w = self.rows.map(|row| row.load_vec4_nc(first));
            (self.x.load_vec4(first), w)
        };
        let add = |(x, w): ([Value<'k, f32>; 4], [[Value<'k, f32>; 4]; OUTPUTS])| {
            for (sum, w) in self.sums.iter().zip(w) {
                sum.update(|sum| (0..4).fold(sum, |sum, i| w[i].fma(x[i], sum)));
            }
        };
        self.k.while_loop(
            || (at.get() + step).lt(self.inputs),
            || {
                let first = at.get();
                let (one, two) = (load(first), load(first + step));
                add(one);
                add(two);
                at.add_assign(2 * step);
            },
        );
        self.k.when(at.get().lt(self.inputs), || add(load(at.get())));
    }

    /// Adds the same elements in the same order, one at a time.
    fn one_by_one(&self) {
        let (start, step) = self.start();
        self.k.range(start, self.inputs, step, |first| {
            let end = (first + 4).min(self.inputs);
            self.k.range(first, end, 1, |i| {
                let x = self.x.load(i);
                for (sum, row) in self.sums.iter().zip(self.rows) {
                    sum.update(|sum| row.load_nc(i).fma(x, sum));
                }
            });
        });
    }
}
