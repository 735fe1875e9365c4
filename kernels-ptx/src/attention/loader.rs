//! Loader of tiles of q, k, v and grad_out: by `cp.async` in f32, through registers in bf16.
//!
//! A tile holds rows of `max_head_dim` elements without padding. A chunk is 16 bytes, what
//! `ldmatrix` reads of a row. Chunk c of row r is stored at chunk c XOR (r mod 8), so that the
//! eight rows of a matrix are in different banks.

use retrograph_kernel_abi::DType;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Shared, Value, Var};

use super::TILE_ROWS;
use super::config::Config;
use crate::primitives::bf16::pack;

/// A tile in shared memory.
#[derive(Clone, Copy)]
pub(super) struct SmemTile {
    /// Its first word.
    pub(super) first: u32,
    pub(super) rows: u32,
}

impl SmemTile {
    /// Consecutive tiles with `rows` rows each, and their total words.
    pub(super) fn layout<const N: usize>(rows: [u32; N], config: Config) -> ([Self; N], u32) {
        let mut words = 0;
        let tiles = rows.map(|rows| {
            let first = words;
            words += rows * config.row_words();
            Self { first, rows }
        });
        (tiles, words)
    }
}

/// The rows of one head of one sequence in global memory.
#[derive(Clone, Copy)]
pub(super) struct HeadRows<'k> {
    /// First element of the sequence.
    pub(super) base: Ptr<'k, f32>,
    /// Elements from one row to the next.
    pub(super) stride: Value<'k, u32>,
    /// Elements from the start of a row to the head.
    pub(super) offset: Value<'k, u32>,
    /// Rows of the sequence.
    pub(super) rows: Value<'k, u32>,
}

/// A load of [`TILE_ROWS`] rows from row `start` on to the words from `first` on.
#[derive(Clone, Copy)]
pub(super) struct TileLoad<'k> {
    pub(super) source: HeadRows<'k>,
    pub(super) start: Value<'k, u32>,
    pub(super) first: Value<'k, u32>,
}

/// One thread's share of a load: a vec4 of several rows.
///
/// Targets without `cp.async` also lack a conversion instruction to bf16. To keep their code small
/// they load and store in a loop, with nothing in flight meanwhile.
pub(super) struct TileLoader<'k> {
    kernel: Kernel<'k>,
    config: Config,
    smem: Shared<'k, u32>,
    /// This thread's first row, and its column.
    row: Value<'k, u32>,
    column: Value<'k, u32>,
    /// Whether the column is inside the head.
    inside: Pred<'k>,
    /// Addresses of the thread's vec4s in the first eight rows; then the pattern repeats.
    addresses: Vec<Shared<'k, u32>>,
    /// Vec4s in flight, in bf16.
    vec4s: Vec<[Var<'k, f32>; 4]>,
}

impl<'k> TileLoader<'k> {
    /// The share of this thread in tiles of `smem`, whose rows have `head_dim` elements and then
    /// padding.
    pub(super) fn new(
        (k, config): (&Kernel<'k>, Config),
        smem: Shared<'k, u32>,
        head_dim: Value<'k, u32>,
    ) -> Self {
        let across = config.max_head_dim / 4;
        let (row, column) = (k.tid_x() / across, (k.tid_x() & (across - 1)) * 4);
        let mut loader = Self {
            kernel: *k,
            config,
            smem,
            row,
            column,
            inside: column.lt(head_dim),
            addresses: Vec::new(),
            vec4s: Vec::new(),
        };
        if config.has_tensor_cores() {
            let rows = (0..8).step_by(loader.row_step() as usize);
            loader.addresses = rows.map(|offset| loader.address(row + offset)).collect();
            if !loader.uses_cp_async() {
                let vec4s = 0..TILE_ROWS / loader.row_step();
                loader.vec4s = vec4s.map(|_| [(); 4].map(|()| k.var(0.0f32))).collect();
            }
        }
        loader
    }

    /// Whether [`TileLoader::fetch`] already writes to shared memory, so that the tile must no
    /// longer be read.
    pub(super) fn uses_cp_async(&self) -> bool {
        self.config.dtype == DType::F32
    }

    /// Rows from one vec4 of this thread to the next.
    fn row_step(&self) -> u32 {
        4 * self.config.threads() / self.config.max_head_dim
    }

    /// Starts loading the rows. Rows past the end of the sequence repeat the last row; padding is
    /// 0.
    pub(super) fn fetch(&self, load: TileLoad<'k>) {
        if self.addresses.is_empty() {
            return;
        }
        if self.uses_cp_async() {
            let (bytes, addresses) = (self.inside.select(16, 0), self.addresses_in(load));
            let column = self.inside.select(self.column, 0);
            self.for_each(load, column, |i, from| {
                self.address_of(&addresses, i).cp_async(from, bytes);
            });
            return self.kernel.cp_async_commit_group();
        }
        self.kernel.when(self.inside, || {
            self.for_each(load, self.column, |i, from| {
                let vec4 = self.vec4s[i as usize];
                vec4.iter().zip(from.load_vec4(0)).for_each(|(var, value)| var.set(value));
            });
        });
    }

    /// Calls `body` with the index and the global address of each vec4 of the thread.
    fn for_each(
        &self,
        TileLoad { source, start, .. }: TileLoad<'k>,
        column: Value<'k, u32>,
        body: impl Fn(u32, Ptr<'k, f32>),
    ) {
        let last = source.rows - 1;
        let first = (start + self.row).min(last);
        let remaining = last - first;
        let first_index = first.mad_lo(source.stride, source.offset + column);
        for i in 0..TILE_ROWS / self.row_step() {
            let index = match i {
                0 => first_index,
                _ => remaining.min(i * self.row_step()).mad_lo(source.stride, first_index),
            };
            body(i, source.base.at(index));
        }
    }

    /// The addresses of the thread's first vec4s in the tile of `load`.
    fn addresses_in(&self, load: TileLoad<'k>) -> Vec<Shared<'k, u32>> {
        self.addresses.iter().map(|address| address.at(load.first)).collect()
    }

    /// The address of vec4 number `i`.
    fn address_of(&self, addresses: &[Shared<'k, u32>], i: u32) -> Shared<'k, u32> {
        let period = i / addresses.len() as u32;
        let address = addresses[i as usize % addresses.len()];
        address.offset((period * 8 * self.config.row_words()).into())
    }

    /// Completes a load: stores the fetched rows, or waits for `cp.async`. Other threads see the
    /// rows after a barrier.
    pub(super) fn store(&self, load: TileLoad<'k>) {
        if self.addresses.is_empty() {
            self.load_in_loop(load);
        } else if self.uses_cp_async() {
            self.kernel.cp_async_wait_group(0);
        } else {
            let addresses = self.addresses_in(load);
            for (i, vec4) in (0..).zip(&self.vec4s) {
                self.store_vec4(self.address_of(&addresses, i), vec4.map(Var::get));
            }
        }
    }

    /// Loads the rows and stores them.
    pub(super) fn load(&self, load: TileLoad<'k>) {
        self.fetch(load);
        self.store(load);
    }

    /// The address of this thread's column in row `row` of the first tile.
    fn address(&self, row: Value<'k, u32>) -> Shared<'k, u32> {
        let (chunk, within) = match self.config.dtype {
            DType::F32 => (self.column >> 2, self.kernel.constant(0)),
            _ => (self.column >> 3, (self.column >> 1) & 2),
        };
        let within = ((chunk ^ (row & 7)) << 2) + within;
        self.smem.at(row.mad_lo(self.config.row_words(), within))
    }

    fn store_vec4(&self, to: Shared<'k, u32>, vec4: [Value<'k, f32>; 4]) {
        match self.config.dtype {
            DType::F32 => to.store_vec4(0, vec4.map(Value::<f32>::bits)),
            _ => {
                let [a, b, c, d] = vec4;
                to.store_vec2(0, [[a, b], [c, d]].map(|pair| pack(self.config.target, pair)));
            }
        }
    }

    fn load_in_loop(&self, TileLoad { source, start, first }: TileLoad<'k>) {
        self.kernel.range(self.row, TILE_ROWS, self.row_step(), |row| {
            let vec4 = [(); 4].map(|()| self.kernel.var(0.0f32));
            self.kernel.when(self.inside, || {
                let row = (start + row).min(source.rows - 1);
                let column = source.offset + self.column;
                let loaded = source.base.load_vec4(row.mad_lo(source.stride, column));
                vec4.iter().zip(loaded).for_each(|(var, value)| var.set(value));
            });
            self.store_vec4(self.address(row).at(first), vec4.map(Var::get));
        });
    }
}
