//! Rows of q, k, v or grad_out on their way from global memory over registers, where they are
//! rounded to bf16, into shared memory.
//!
//! A panel holds rows of `width` elements of bf16 without padding. Sixteen bytes, a chunk, are
//! what a matrix load takes from a row: chunk c of row r lies where chunk c XOR (r mod 8) would,
//! so that the eight rows of a matrix lie in different banks.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Shared, Value, Var};

use super::{COLUMNS, THREADS};
use crate::bf16::pack;

/// Rows in shared memory.
#[derive(Clone, Copy)]
pub(super) struct Panel {
    /// The first of its words.
    pub(super) first: u32,
    pub(super) rows: u32,
}

impl Panel {
    /// Panels of `rows` each, of `width` elements, one behind the other, and their words together.
    pub(super) fn list<const N: usize>(rows: [u32; N], width: u32) -> ([Self; N], u32) {
        let mut words = 0;
        let panels = rows.map(|rows| {
            let first = words;
            words += rows * width / 2;
            Self { first, rows }
        });
        (panels, words)
    }
}

/// Rows of one head in global memory.
#[derive(Clone, Copy)]
pub(super) struct Source<'k> {
    /// The first element of the sequence.
    pub(super) base: Ptr<'k, f32>,
    /// Elements from one row to the next.
    pub(super) stride: Value<'k, u32>,
    /// Elements from the beginning of a row to the head.
    pub(super) offset: Value<'k, u32>,
    /// Rows of the sequence.
    pub(super) rows: Value<'k, u32>,
}

/// One thread's share in carrying 32 rows: four neighbours of several of them.
pub(super) struct Carrier<'k> {
    kernel: Kernel<'k>,
    target: SmTarget,
    memory: Shared<'k, u32>,
    width: u32,
    /// The first row, and the column.
    row: Value<'k, u32>,
    column: Value<'k, u32>,
    /// Whether the head is wide enough to have the column.
    inside: Pred<'k>,
    /// The places of the thread's first quads in the first panel, of as many as there are before
    /// places repeat eight rows further.
    places: Vec<Shared<'k, u32>>,
    quads: Vec<[Var<'k, f32>; 4]>,
}

impl<'k> Carrier<'k> {
    /// The share of this thread in panels of `memory`, whose rows have `width` elements, of which
    /// `head_dim` are not padding.
    pub(super) fn new(
        (k, target): (&Kernel<'k>, SmTarget),
        memory: Shared<'k, u32>,
        (width, head_dim): (u32, Value<'k, u32>),
    ) -> Self {
        let across = width / 4;
        // Before sm_80, rounding takes many instructions: there it is a loop, and nothing is on
        // its way meanwhile.
        let quads = if target.number < 80 { 0 } else { COLUMNS * across / THREADS };
        let (row, column) = (k.tid_x() / across, (k.tid_x() & (across - 1)) * 4);
        let mut carrier = Self {
            kernel: *k,
            target,
            memory,
            width,
            row,
            column,
            inside: column.lt(head_dim),
            places: Vec::new(),
            quads: (0..quads).map(|_| [(); 4].map(|()| k.var(0.0f32))).collect(),
        };
        if quads > 0 {
            let rows = (0..8).step_by(carrier.step() as usize);
            carrier.places = rows.map(|further| carrier.place(row + further)).collect();
        }
        carrier
    }

    /// Rows from one quad of this thread to the next.
    fn step(&self) -> u32 {
        4 * THREADS / self.width
    }

    /// Starts loading the rows from `start`. The last row of the sequence stands for those behind
    /// it, and padding stays 0.
    pub(super) fn fetch(&self, source: Source<'k>, start: Value<'k, u32>) {
        if self.quads.is_empty() {
            return;
        }
        self.kernel.when(self.inside, || {
            let last = source.rows - 1;
            let first = (start + self.row).min(last);
            let (left, column) = (last - first, source.offset + self.column);
            let place = first.mul_add(source.stride, column);
            for (i, quad) in (0..).zip(&self.quads) {
                let further = if i == 0 {
                    place
                } else {
                    left.min(i * self.step()).mul_add(source.stride, place)
                };
                let loaded = source.base.load_vec4(further);
                quad.iter().zip(loaded).for_each(|(var, value)| var.set(value));
            }
        });
    }

    /// Stores the rows that were fetched, into the panel whose words begin at `first`.
    pub(super) fn put(&self, (source, start): (Source<'k>, Value<'k, u32>), first: Value<'k, u32>) {
        if self.quads.is_empty() {
            return self.put_in_a_loop((source, start), first);
        }
        let places: Vec<_> = self.places.iter().map(|place| place.at(first)).collect();
        for (quads, turn) in self.quads.chunks_exact(places.len()).zip(0..) {
            for (place, quad) in places.iter().zip(quads) {
                let further = turn * i64::from(8 * self.width / 2);
                place.offset(further).store_vec2(0, self.words(quad.map(Var::get)));
            }
        }
    }

    /// Loads the rows from `from` and stores them.
    pub(super) fn load(&self, from: (Source<'k>, Value<'k, u32>), first: Value<'k, u32>) {
        self.fetch(from.0, from.1);
        self.put(from, first);
    }

    /// The place of this thread's column in row `row` of the first panel.
    fn place(&self, row: Value<'k, u32>) -> Shared<'k, u32> {
        let chunk = (self.column >> 3) ^ (row & 7);
        let within = (chunk << 2) + ((self.column >> 1) & 2);
        self.memory.at(row.mul_add(self.width / 2, within))
    }

    fn words(&self, [a, b, c, d]: [Value<'k, f32>; 4]) -> [Value<'k, u32>; 2] {
        [pack(self.target, [a, b]), pack(self.target, [c, d])]
    }

    fn put_in_a_loop(&self, (source, start): (Source<'k>, Value<'k, u32>), first: Value<'k, u32>) {
        self.kernel.range(self.row, COLUMNS, self.step(), |row| {
            let quad = [(); 4].map(|()| self.kernel.var(0.0f32));
            self.kernel.when(self.inside, || {
                let row = (start + row).min(source.rows - 1);
                let column = source.offset + self.column;
                let loaded = source.base.load_vec4(row.mul_add(source.stride, column));
                quad.iter().zip(loaded).for_each(|(var, value)| var.set(value));
            });
            self.place(row).at(first).store_vec2(0, self.words(quad.map(Var::get)));
        });
    }
}
