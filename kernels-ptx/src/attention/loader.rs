//! Loader of tiles of q, k, v and grad_out, by `cp.async`.
//!
//! A tile holds rows of `max_head_dim` elements, with the layout [`SmemLayout::XorSwizzled`].
//!
//! [`SmemLayout::XorSwizzled`]: crate::primitives::smem_tile::SmemLayout
//!
//! Global memory is addressed in words, too: one f32 or two bf16.

use retrograph_ptx::build::{Kernel, Pred, Ptr, Shared, Value};

use super::TILE_ROWS;
use super::config::Config;
use crate::primitives::registers::{Registers, registers, set, values};
use crate::primitives::smem_tile::SmemTile;

/// A tile of rows in the shared memory of the block.
#[derive(Clone, Copy)]
pub(super) struct PlacedTile {
    /// Its first word.
    pub(super) first: u32,
    pub(super) tile: SmemTile,
}

impl PlacedTile {
    /// Consecutive tiles with `rows` rows each, and their total words.
    pub(super) fn layout<const N: usize>(rows: [u32; N], config: Config) -> ([Self; N], u32) {
        let mut words = 0;
        let tiles = rows.map(|rows| {
            let (first, tile) = (words, config.tile(rows));
            words += tile.words();
            Self { first, tile }
        });
        (tiles, words)
    }
}

/// The rows of one head of one sequence in global memory.
#[derive(Clone, Copy)]
pub(super) struct HeadRows<'k> {
    /// First word of the sequence.
    pub(super) base: Ptr<'k, u32>,
    /// Words from one row to the next.
    pub(super) stride: Value<'k, u32>,
    /// Words from the start of a row to the head.
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

/// One thread's share of a load: a chunk of several rows.
///
/// To keep their code small, targets without `cp.async` load and store in a loop, with nothing in
/// flight meanwhile.
pub(super) struct TileLoader<'k> {
    kernel: Kernel<'k>,
    config: Config,
    smem: Shared<'k, u32>,
    /// This thread's first row, and the first word of its chunk.
    row: Value<'k, u32>,
    column: Value<'k, u32>,
    /// Whether the chunk is inside the head.
    inside: Pred<'k>,
    /// Addresses of the thread's chunks in the first eight rows; then the pattern repeats.
    addresses: Vec<Shared<'k, u32>>,
}

impl<'k> TileLoader<'k> {
    /// The share of this thread in tiles of `smem`, whose rows have `head_dim` elements and then
    /// padding.
    pub(super) fn new(
        k: &Kernel<'k>,
        config: Config,
        smem: Shared<'k, u32>,
        head_dim: Value<'k, u32>,
    ) -> Self {
        let across = config.row_words() / 4;
        let (row, column) = (k.tid_x() / across, (k.tid_x() & (across - 1)) * 4);
        let mut loader = Self {
            kernel: *k,
            config,
            smem,
            row,
            column,
            inside: column.lt(config.words(head_dim)),
            addresses: Vec::new(),
        };
        if config.has_tensor_cores() {
            let rows = (0..8).step_by(loader.row_step() as usize);
            loader.addresses = rows.map(|offset| loader.address(row + offset)).collect();
        }
        loader
    }

    /// Rows from one chunk of this thread to the next.
    fn row_step(&self) -> u32 {
        4 * self.config.threads() / self.config.row_words()
    }

    /// Starts loading the rows; the tile must no longer be read. Rows past the end of the sequence
    /// repeat the last row; padding is 0.
    pub(super) fn fetch(&self, load: TileLoad<'k>) {
        if self.addresses.is_empty() {
            return;
        }
        let (bytes, column) = (self.inside.select(16, 0), self.inside.select(self.column, 0));
        let addresses: Vec<_> =
            self.addresses.iter().map(|address| address.at(load.first)).collect();
        let TileLoad { source, start, .. } = load;
        let last = source.rows - 1;
        let first = (start + self.row).min(last);
        let remaining = last - first;
        let first_index = first.mad_lo(source.stride, source.offset + column);
        for i in 0..TILE_ROWS / self.row_step() {
            let index = match i {
                0 => first_index,
                _ => remaining.min(i * self.row_step()).mad_lo(source.stride, first_index),
            };
            let period = i / addresses.len() as u32 * addresses.len() as u32 * self.row_step();
            let to = addresses[i as usize % addresses.len()];
            let to = to.offset((period * self.config.row_words()).into());
            to.cp_async(source.base.at(index), bytes);
        }
        self.kernel.cp_async_commit_group();
    }

    /// Completes a load. Other threads see the rows after a barrier.
    pub(super) fn complete(&self, load: TileLoad<'k>) {
        if self.addresses.is_empty() {
            self.load_in_loop(load);
        } else {
            self.kernel.cp_async_wait_group(0);
        }
    }

    /// Loads the rows.
    pub(super) fn load(&self, load: TileLoad<'k>) {
        self.fetch(load);
        self.complete(load);
    }

    /// The address of this thread's chunk in row `row` of the first tile.
    fn address(&self, row: Value<'k, u32>) -> Shared<'k, u32> {
        let tile = self.config.tile(TILE_ROWS);
        let within = tile.stored_chunk(row, self.column >> 2) << 2;
        self.smem.at(row.mad_lo(tile.pitch(), within))
    }

    fn load_in_loop(&self, TileLoad { source, start, first }: TileLoad<'k>) {
        self.kernel.range(self.row, TILE_ROWS, self.row_step(), |row| {
            let chunk: Registers<'k, 4, u32> = registers(&self.kernel, 0);
            self.kernel.when(self.inside, || {
                let row = (start + row).min(source.rows - 1);
                let column = source.offset + self.column;
                set(&chunk, source.base.load_vec4(row.mad_lo(source.stride, column)));
            });
            self.address(row).at(first).store_vec4(0, values(&chunk));
        });
    }
}
