//! The operands of a launch, and which of its matrices a team of warps works on.

use std::array;

use retrograph_ptx::build::{Kernel, Pred, Ptr, Value};

use super::{Form, Kind, ROWS, Storage};
use crate::gemm::Nf4;

/// Matrices that are stored as the image says, and as many in f32 beside those that are no codes.
const EACH: usize = 3;

/// The most bytes of what is read next that a block asks for.
const ASKED: u32 = 32 << 10;
/// Bytes of a line of memory.
const LINE: u32 = 128;

/// One matrix with what belongs to it. It is chosen from several at run time.
#[derive(Clone, Copy)]
struct Matrix<'k> {
    w: Value<'k, u64>,
    bias: Value<'k, u64>,
    y: Value<'k, u64>,
    outputs: Value<'k, u32>,
}

impl<'k> Matrix<'k> {
    fn select(self, condition: Pred<'k>, other: Self) -> Self {
        Self {
            w: condition.select(self.w, other.w),
            bias: condition.select(self.bias, other.bias),
            y: condition.select(self.y, other.y),
            outputs: condition.select(self.outputs, other.outputs),
        }
    }
}

/// All operands.
#[derive(Clone)]
pub(super) struct Matrices<'k> {
    pub(super) k: Kernel<'k>,
    kind: Kind,
    pub(super) x: Ptr<'k, f32>,
    pub(super) gamma: Ptr<'k, f32>,
    all: Vec<Matrix<'k>>,
    /// The number of the first team of each.
    starts: Vec<Value<'k, u32>>,
    scales: Vec<Nf4<'k>>,
    pub(super) inputs: Value<'k, u32>,
    pub(super) eps: Value<'k, f32>,
    pub(super) alpha: Value<'k, f32>,
    pub(super) flags: Value<'k, u32>,
    /// How many teams there are.
    pub(super) teams: Value<'k, u32>,
    /// What is read by whoever comes next, and how much there is of it.
    next: Ptr<'k, f32>,
    next_bytes: Value<'k, u32>,
}

/// A row of a matrix.
#[derive(Clone, Copy)]
pub(super) struct Row<'k> {
    pub(super) address: Value<'k, u64>,
    /// The number of the first element, where scales are found by it.
    pub(super) start: Value<'k, u32>,
    pub(super) scales: Option<Nf4<'k>>,
}

/// What a team of warps works on.
#[derive(Clone, Copy)]
pub(super) struct ThreadGroup<'k> {
    /// The rows, of which those past the last are the last, and are not written.
    pub(super) rows: [Row<'k>; ROWS],
    /// The first output.
    pub(super) first: Value<'k, u32>,
    pub(super) outputs: Value<'k, u32>,
    /// What is added, or null: of the output, and of the row that it is gated by.
    pub(super) biases: [Ptr<'k, f32>; 2],
    pub(super) y: Ptr<'k, f32>,
    /// How many elements of a row are added: all, or none.
    pub(super) length: Value<'k, u32>,
    /// Whether the matrix is one of those in f32, where others are not.
    pub(super) floats: Option<Pred<'k>>,
}

impl<'k> Matrices<'k> {
    /// Declares all parameters.
    pub(super) fn declare(k: &Kernel<'k>, kind: Kind) -> Self {
        let (x, gamma) = (k.pointer::<f32>("x"), k.pointer::<f32>("gamma"));
        let null = k.constant(0u64);
        let mut scales = Vec::new();
        let tables = (kind.storage == Storage::Nf4).then(|| Nf4::tables(k, EACH as u32));
        let mut all: Vec<Matrix<'k>> = Vec::new();
        for i in 0..EACH {
            let [w, bias, y] =
                ["w", "bias", "y"].map(|name| k.pointer::<f32>(&format!("{name}{i}")).address());
            all.push(Matrix { w, bias, y, outputs: k.constant(0) });
            scales.extend(tables.map(|tables| Nf4::named(k, (&format!("w{i}"), i as u32), tables)));
        }
        for i in 0..EACH {
            let [w, y] = ["a", "low"].map(|name| k.pointer::<f32>(&format!("{name}{i}")).address());
            all.push(Matrix { w, bias: null, y, outputs: k.constant(0) });
        }
        let next = k.pointer("next");
        let inputs = k.param::<u32>("inputs");
        let names =
            ["outputs", "lows"].into_iter().flat_map(|name| (0..EACH).map(move |i| (name, i)));
        for ((name, i), matrix) in names.zip(&mut all) {
            matrix.outputs = k.param(&format!("{name}{i}"));
        }
        let (eps, alpha) = (k.param::<f32>("eps"), k.param::<f32>("alpha"));
        let (flags, next_bytes) = (k.param::<u32>("flags"), k.param::<u32>("next_bytes"));
        // A gated launch has one pair of matrices. Beside codes there is no room for f32.
        let used = match (kind.form, kind.storage) {
            (Form::Gated, _) => 1,
            (_, Storage::Nf4) => EACH,
            _ => all.len(),
        };
        let (mut starts, mut teams) = (Vec::new(), k.constant(0u32));
        for matrix in &all[..used] {
            starts.push(teams);
            let outputs = kind.outputs();
            teams = teams + ((matrix.outputs + (outputs - 1)) >> outputs.ilog2());
        }
        Self {
            k: *k,
            kind,
            x,
            gamma,
            all,
            starts,
            scales,
            inputs,
            eps,
            alpha,
            flags,
            teams,
            next,
            next_bytes,
        }
    }

    /// Asks for what is read next, where `condition` is true, so that memory has work while this
    /// kernel ends and the other begins. Each block asks for a part, as far apart as those of the
    /// blocks that read it.
    pub(super) fn ask_for_next(&self, condition: Pred<'k>) {
        let Self { k, next, next_bytes, .. } = self;
        if !self.kind.target.features().pdl {
            return;
        }
        k.when(condition & k.tid_x().eq(0), || {
            let apart = (*next_bytes / k.nctaid_x()) & !(LINE - 1);
            k.when(apart.ne(0), || {
                let from = next.reinterpret::<u32>().at((apart * k.ctaid_x()) >> 2);
                from.prefetch_run(apart.min(ASKED));
            });
        });
    }

    /// Fills the tables of NF4, where there are any.
    pub(super) fn fill_tables(&self) {
        if !self.scales.is_empty() {
            Nf4::fill_each(&self.scales);
        }
    }

    /// The team of number `number`, which has no rows where there are not so many.
    pub(super) fn team(&self, number: Value<'k, u32>) -> ThreadGroup<'k> {
        let Self { kind, all, starts, .. } = self;
        let (mut matrix, mut start) = (all[0], starts[0]);
        let mut scales = self.scales.first().copied();
        for at in 1..starts.len() {
            let here = number.ge(starts[at]);
            matrix = all[at].select(here, matrix);
            start = here.select(starts[at], start);
            let here = self.scales.get(at).zip(scales).map(|(one, other)| one.select(here, other));
            scales = here.or(scales);
        }
        let first = (number - start) << kind.outputs().ilog2();
        let floats = starts.get(EACH).map(|start| number.ge(*start));
        let floats = floats.filter(|_| kind.storage != Storage::F32);
        let gated = kind.form == Form::Gated;
        let second = if gated { all[1] } else { matrix };
        let rows = array::from_fn(|row| {
            let (half, row) = (row / 2, row as u32);
            let (of, output) = match (gated, half) {
                (true, 1) => ((second, self.scales.get(1).copied()), first + (row - 2)),
                _ => ((matrix, scales), first + row),
            };
            self.row(of, output, floats)
        });
        let null = self.k.constant(0u64);
        let biases = [matrix.bias, if gated { second.bias } else { null }];
        ThreadGroup {
            rows,
            first,
            outputs: matrix.outputs,
            biases: biases.map(Ptr::from_address),
            y: Ptr::from_address(matrix.y),
            length: number.lt(self.teams).select(self.inputs, 0),
            floats,
        }
    }

    fn row(
        &self,
        (matrix, scales): (Matrix<'k>, Option<Nf4<'k>>),
        output: Value<'k, u32>,
        floats: Option<Pred<'k>>,
    ) -> Row<'k> {
        let k = self.k;
        let element = output.min(matrix.outputs - 1).mul_wide(self.inputs);
        let (bytes, start) = match self.kind.storage {
            Storage::F32 => (element << 2, k.constant(0)),
            Storage::Bf16 => (element << 1, k.constant(0)),
            // Codes and scales are found by the place in the whole matrix.
            Storage::Nf4 => (k.constant(0u64), element.cast()),
        };
        let bytes = floats.map_or(bytes, |floats| floats.select(element << 2, bytes));
        Row { address: matrix.w + bytes, start, scales }
    }
}
