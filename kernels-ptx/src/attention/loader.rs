//! Rows of q, k, v or grad_out on their way from global into shared memory: in f32 behind the backs
//! of the threads, in bf16 over registers, where they are rounded.
//!
//! A panel holds rows of `width` elements without padding. Sixteen bytes, a chunk, are what a
//! matrix load takes from a row: chunk c of row r lies where chunk c XOR (r mod 8) would, so that
//! the eight rows of a matrix lie in different banks.

use retrograph_ptx::build::{Kernel, Pred, Ptr, Shared, Value, Var};

use super::COLUMNS;
use super::config::{Factors, Shape};
use crate::primitives::bf16::pack;

/// Rows in shared memory.
#[derive(Clone, Copy)]
pub(super) struct Panel {
    /// The first of its words.
    pub(super) first: u32,
    pub(super) rows: u32,
}

impl Panel {
    /// Panels of `rows` each, one behind the other, and their words together.
    pub(super) fn list<const N: usize>(rows: [u32; N], shape: Shape) -> ([Self; N], u32) {
        let mut words = 0;
        let panels = rows.map(|rows| {
            let first = words;
            words += rows * shape.row_words();
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

/// 32 rows from row `start` of a source, for the panel whose words begin at `first`.
#[derive(Clone, Copy)]
pub(super) struct Load<'k> {
    pub(super) source: Source<'k>,
    pub(super) start: Value<'k, u32>,
    pub(super) first: Value<'k, u32>,
}

/// One thread's share in carrying 32 rows: four neighbours of several of them.
///
/// Before sm_80, rounding takes many instructions, and there are no copies behind the backs of
/// threads: there it is a loop, and nothing is on its way meanwhile.
pub(super) struct Carrier<'k> {
    kernel: Kernel<'k>,
    shape: Shape,
    memory: Shared<'k, u32>,
    /// The first row, and the column.
    row: Value<'k, u32>,
    column: Value<'k, u32>,
    /// Whether the head is wide enough to have the column.
    inside: Pred<'k>,
    /// The places of the thread's first quads in the first panel, of as many as there are before
    /// places repeat eight rows further.
    places: Vec<Shared<'k, u32>>,
    /// What is on its way over registers.
    vec4s: Vec<[Var<'k, f32>; 4]>,
}

impl<'k> Carrier<'k> {
    /// The share of this thread in panels of `memory`, of whose rows `head_dim` elements are not
    /// padding.
    pub(super) fn new(
        (k, shape): (&Kernel<'k>, Shape),
        memory: Shared<'k, u32>,
        head_dim: Value<'k, u32>,
    ) -> Self {
        let across = shape.width / 4;
        let (row, column) = (k.tid_x() / across, (k.tid_x() & (across - 1)) * 4);
        let mut carrier = Self {
            kernel: *k,
            shape,
            memory,
            row,
            column,
            inside: column.lt(head_dim),
            places: Vec::new(),
            vec4s: Vec::new(),
        };
        if shape.has_tensor_cores() {
            let rows = (0..8).step_by(carrier.step() as usize);
            carrier.places = rows.map(|further| carrier.place(row + further)).collect();
            if shape.factors == Factors::Brain {
                let vec4s = 0..COLUMNS / carrier.step();
                carrier.vec4s = vec4s.map(|_| [(); 4].map(|()| k.var(0.0f32))).collect();
            }
        }
        carrier
    }

    /// Whether rows are stored as they land, from [`Carrier::fetch`] on, so that nobody may read
    /// the panel any more.
    pub(super) fn is_direct(&self) -> bool {
        self.shape.factors == Factors::Single
    }

    /// Rows from one quad of this thread to the next.
    fn step(&self) -> u32 {
        4 * self.shape.threads() / self.shape.width
    }

    /// Starts loading the rows. The last row of the sequence stands for those behind it, and
    /// padding is 0.
    pub(super) fn fetch(&self, load: Load<'k>) {
        if self.places.is_empty() {
            return;
        }
        if self.is_direct() {
            let (bytes, places) = (self.inside.select(16, 0), self.places(load));
            let column = self.inside.select(self.column, 0);
            self.each(load, column, |i, from| self.slot(&places, i).copy_async(from, bytes));
            return self.kernel.commit_copies();
        }
        self.kernel.when(self.inside, || {
            self.each(load, self.column, |i, from| {
                let vec4 = self.vec4s[i as usize];
                vec4.iter().zip(from.load_vec4(0)).for_each(|(var, value)| var.set(value));
            });
        });
    }

    /// Calls `body` with the number of each of the thread's quads, and with where it comes from.
    fn each(
        &self,
        Load { source, start, .. }: Load<'k>,
        column: Value<'k, u32>,
        body: impl Fn(u32, Ptr<'k, f32>),
    ) {
        let last = source.rows - 1;
        let first = (start + self.row).min(last);
        let left = last - first;
        let place = first.mul_add(source.stride, source.offset + column);
        for i in 0..COLUMNS / self.step() {
            let further = match i {
                0 => place,
                _ => left.min(i * self.step()).mul_add(source.stride, place),
            };
            body(i, source.base.at(further));
        }
    }

    /// The places of the thread's first quads in the panel of `load`.
    fn places(&self, load: Load<'k>) -> Vec<Shared<'k, u32>> {
        self.places.iter().map(|place| place.at(load.first)).collect()
    }

    /// The place of quad `i`.
    fn slot(&self, places: &[Shared<'k, u32>], i: u32) -> Shared<'k, u32> {
        let turn = i / places.len() as u32;
        places[i as usize % places.len()].offset((turn * 8 * self.shape.row_words()).into())
    }

    /// Stores the rows that were fetched, or waits until they have landed. Others see them behind
    /// a barrier.
    pub(super) fn put(&self, load: Load<'k>) {
        if self.places.is_empty() {
            self.put_in_a_loop(load);
        } else if self.is_direct() {
            self.kernel.wait_copies(0);
        } else {
            let places = self.places(load);
            for (i, vec4) in (0..).zip(&self.vec4s) {
                self.store(self.slot(&places, i), vec4.map(Var::get));
            }
        }
    }

    /// Loads the rows and stores them.
    pub(super) fn load(&self, load: Load<'k>) {
        self.fetch(load);
        self.put(load);
    }

    /// The place of this thread's column in row `row` of the first panel.
    fn place(&self, row: Value<'k, u32>) -> Shared<'k, u32> {
        let (chunk, within) = match self.shape.factors {
            Factors::Brain => (self.column >> 3, (self.column >> 1) & 2),
            Factors::Single => (self.column >> 2, self.kernel.constant(0)),
        };
        let within = ((chunk ^ (row & 7)) << 2) + within;
        self.memory.at(row.mul_add(self.shape.row_words(), within))
    }

    fn store(&self, place: Shared<'k, u32>, vec4: [Value<'k, f32>; 4]) {
        match self.shape.factors {
            Factors::Brain => {
                let [a, b, c, d] = vec4;
                place.store_vec2(0, [[a, b], [c, d]].map(|two| pack(self.shape.target, two)));
            }
            Factors::Single => place.store_vec4(0, vec4.map(Value::<f32>::bits)),
        }
    }

    fn put_in_a_loop(&self, Load { source, start, first }: Load<'k>) {
        self.kernel.range(self.row, COLUMNS, self.step(), |row| {
            let vec4 = [(); 4].map(|()| self.kernel.var(0.0f32));
            self.kernel.when(self.inside, || {
                let row = (start + row).min(source.rows - 1);
                let column = source.offset + self.column;
                let loaded = source.base.load_vec4(row.mul_add(source.stride, column));
                vec4.iter().zip(loaded).for_each(|(var, value)| var.set(value));
            });
            self.store(self.place(row).at(first), vec4.map(Var::get));
        });
    }
}
