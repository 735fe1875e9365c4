//! Matrix times vector: `y = α·W·x (+ bias) (+ y)`, W stored `outputs × inputs` in f32, bf16 or
//! NF4.
//!
//! One row of activations uses every weight once, so that the floor is the bytes of W. A warp reads
//! four rows of W side by side by aligned vectors, two at a time, and x from the cache. Factors are
//! f32: x as it is, and weights as they are stored, decoded but not rounded.
//!
//! **Grid.** Blocks of 8 warps. In the entries that end in `split<S>` S warps share four outputs,
//! each with every S-th run of 32 vectors of the contraction; few outputs are split more, so that a
//! device is full.
//!
//! **Determinism.** A lane adds its vectors in ascending order, a butterfly of fixed shape adds the
//! lanes, and the parts of a split are added in ascending order. Operands that are not aligned, and
//! contractions that are no multiple of a vector, are read one by one in the same order.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::{Kernel, ModuleBuilder, Ptr, Value, Var};

use crate::gemm::{Cargo, Nf4, Stored};

/// Outputs of a warp.
const OUTPUTS: usize = 4;
/// Warps of a block.
const WARPS: u32 = 8;
/// y is added to, not overwritten.
const ACCUMULATE: u32 = 1;
/// x and w are read in aligned vectors.
const VECTORS: u32 = 2;

/// How W is stored, by the name of its image.
#[derive(Clone, Copy)]
enum Storage {
    F32,
    Bf16,
    Nf4,
}

/// The image for W in f32.
pub(crate) fn f32(target: SmTarget) -> Module {
    module(target, ("gemv", Storage::F32))
}

/// The image for W in bf16.
pub(crate) fn bf16(target: SmTarget) -> Module {
    module(target, ("gemv_bf16", Storage::Bf16))
}

/// The image for W in NF4.
pub(crate) fn nf4(target: SmTarget) -> Module {
    module(target, ("gemv_nf4", Storage::Nf4))
}

fn module(target: SmTarget, (name, storage): (&str, Storage)) -> Module {
    let entry = |split| entry((&format!("{name}_split{split}"), storage), split);
    let module = ModuleBuilder::new(target);
    [1, 2, 4, 8].into_iter().fold(module, |module, split| module.entry(entry(split))).build()
}

fn entry((name, storage): (&str, Storage), split: u32) -> Entry {
    Kernel::build(name, |k| {
        k.max_threads(32 * WARPS);
        let x = k.pointer::<f32>("x");
        let w = k.pointer::<f32>("w");
        let bias = k.pointer::<f32>("bias");
        let y = k.pointer::<f32>("y");
        let stored = match storage {
            Storage::F32 => Stored::F32,
            Storage::Bf16 => Stored::Bf16,
            Storage::Nf4 => Stored::Nf4(Nf4::declare(k)),
        };
        let inputs = k.param::<u32>("inputs");
        let outputs = k.param::<u32>("outputs");
        let alpha = k.param::<f32>("alpha");
        let flags = k.param::<u32>("flags");

        if let Stored::Nf4(nf4) = stored {
            nf4.fill_tables();
        }
        let warp = k.warp();
        let first = (k.ctaid_x() * (WARPS / split) + warp / split) * OUTPUTS as u32;
        // Outputs past the last have the row of the last, and are not written.
        let last = outputs - 1;
        let rows = std::array::from_fn(|output| (first + output as u32).min(last));
        let length = first.lt(outputs).select(inputs, 0);
        let sums = [(); OUTPUTS].map(|()| k.var(0.0));
        let dot = Dot { k: *k, x, w, stored, rows, inputs, length, split, sums };
        k.when_else((flags & VECTORS).ne(0), || dot.by_vectors(), || dot.one_by_one());

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
    w: Ptr<'k, f32>,
    stored: Stored<'k>,
    /// The rows of W.
    rows: [Value<'k, u32>; OUTPUTS],
    inputs: Value<'k, u32>,
    /// How many elements of a row are added: all, or none.
    length: Value<'k, u32>,
    split: u32,
    sums: [Var<'k, f32>; OUTPUTS],
}

impl<'k> Dot<'k> {
    /// Elements of a vector.
    fn unit(&self) -> u32 {
        if matches!(self.stored, Stored::F32) { 4 } else { 8 }
    }

    /// The first element of this lane, and the distance to its next.
    fn start(&self) -> (Value<'k, u32>, u32) {
        let part = self.k.warp() & (self.split - 1);
        ((part * 32 + self.k.lane()) * self.unit(), self.split * 32 * self.unit())
    }

    /// The address that elements of a row are counted from, and the number of the first one. Scales
    /// of NF4 are found by the place in the whole matrix.
    fn row(&self, row: Value<'k, u32>) -> (Value<'k, u64>, Value<'k, u32>) {
        let start = row.mul_wide(self.inputs);
        match self.stored {
            Stored::Nf4(_) => (self.w.address(), start.cast()),
            stored => {
                let bytes = start << stored.bytes().ilog2();
                (self.w.address() + bytes, self.k.constant(0))
            }
        }
    }

    /// Adds whole vectors; two are under way at once.
    fn by_vectors(&self) {
        let ((start, step), unit) = (self.start(), self.unit());
        let rows = self.rows.map(|row| self.row(row));
        let at = self.k.var(start);
        let load = |first: Value<'k, u32>| {
            let w = rows.map(|(address, row)| {
                let cargo = Cargo::new(&self.k, self.stored, unit);
                cargo.fetch_vectors(address, |element| row + first + element);
                cargo
            });
            let quads = (0..unit / 4).map(|quad| self.x.load_vec4(first + quad * 4));
            (quads.flatten().collect::<Vec<_>>(), w)
        };
        let add = |(x, w): (Vec<Value<'k, f32>>, [Cargo<'k>; OUTPUTS])| {
            for (sum, w) in self.sums.iter().zip(w) {
                let products = w.decoded().into_iter().zip(&x);
                sum.update(|sum| products.fold(sum, |sum, (w, x)| w.fma(*x, sum)));
            }
        };
        self.k.while_loop(
            || (at.get() + step).lt(self.length),
            || {
                let first = at.get();
                let (one, two) = (load(first), load(first + step));
                add(one);
                add(two);
                at.add_assign(2 * step);
            },
        );
        self.k.when(at.get().lt(self.length), || add(load(at.get())));
    }

    /// Adds the same elements in the same order, one at a time. Codes come in vectors only.
    fn one_by_one(&self) {
        if matches!(self.stored, Stored::Nf4(_)) {
            return;
        }
        let ((start, step), unit) = (self.start(), self.unit());
        let rows = self.rows.map(|row| self.row(row).0);
        self.k.range(start, self.length, step, |first| {
            let end = (first + unit).min(self.length);
            self.k.range(first, end, 1, |i| {
                let x = self.x.load(i);
                for (sum, row) in self.sums.iter().zip(rows) {
                    let w = self.stored.element(row, i);
                    sum.update(|sum| w.fma(x, sum));
                }
            });
        });
    }
}
