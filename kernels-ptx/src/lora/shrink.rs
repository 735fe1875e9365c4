//! `t = α·x·Aᵀ` or `α·dy·B`, with split-K: `out[p] = α·x[:, split p]·w[split p]`.
//!
//! Grid: x: 64 rows; y: a split; z: 16 or 32 of the ranks of all adapters. A block of 256
//! threads loops over its split in tiles of 64 elements of K. While one tile in shared memory is
//! multiplied, the next is in flight to registers. Four groups of two warps share a tile
//! (sliced-K): each takes 16 of the 64 elements, and each thread has four rows and every fourth
//! rank.
//!
//! Deterministic: a group adds its elements in ascending order, and the four groups are added in
//! ascending order.

use retrograph_kernel_abi::lora::shrink::{self, ROWS, THREADS, TILE_K};
use retrograph_kernel_abi::lora::{LoraMatrix, ShrinkParameters};
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Shared, Value, Var};

use super::{Rank, rows_aligned};
use crate::primitives::parameters::Declarations;
use crate::primitives::registers::set;
use crate::primitives::smem_tile::SmemTile;
use crate::primitives::vec4::Vec4;

/// The tile of x. The padding keeps vec4s aligned and puts consecutive rows into different banks.
const X_TILE: SmemTile = tile(ROWS);
/// Floats from one row of x or w to the next in shared memory.
const PITCH: u32 = X_TILE.pitch();
/// Groups of warps that share a tile along K.
const K_GROUPS: u32 = 4;
/// Rows of a thread.
const THREAD_ROWS: u32 = 4;

/// The entry with the smaller or the larger number of ranks per block.
pub(super) fn entry(factor: LoraMatrix, wide: bool) -> Entry {
    let columns = shrink::RANKS[usize::from(wide)];
    Kernel::build(shrink::entry(factor, wide), |k| define(k, factor, columns))
}

fn define<'k>(k: &Kernel<'k>, factor: LoraMatrix, columns: u32) {
    let parameters = ShrinkParameters::declare(&mut Declarations(*k));
    let ShrinkParameters { x, w0, w1, w2, out0, out1, out2, .. } = parameters;
    let ShrinkParameters { rows, width, rank, adapters, split_len, alpha, .. } = parameters;
    let (w, out) = ([w0, w1, w2], [out0, out1, out2]);
    k.max_threads(THREADS);
    k.min_blocks(2);
    let tile_words = X_TILE.words() + tile(columns).words();
    let sums_words = K_GROUPS * sums(columns).words();
    let smem_base = k.shared("tile", tile_words.max(sums_words) as usize);
    let start = k.ctaid_y() * split_len;
    let end = (start + split_len).min(width);
    let first = k.ctaid_z() * columns;
    let sizes = Sizes { rows, width, rank, total_rank: rank * adapters, end, first };
    let block = Block { k: *k, factor, columns, sizes, smem_base };
    let (x_loader, w_loader) = (block.x_loader(x), block.w_loader(w));
    let acc = Accumulators::new(&block);
    let fetch = |at: Value<'k, u32>| {
        x_loader.fetch(&block, at);
        w_loader.fetch(&block, at);
    };
    fetch(start);
    k.range(start, end, TILE_K, |at| {
        x_loader.store();
        w_loader.store();
        k.barrier();
        k.when((at + TILE_K).lt(end), || fetch(at + TILE_K));
        acc.add(*k);
        k.barrier();
    });
    acc.write(&block, out, alpha);
}

/// The tile of `rows` rows of x, or of w.
const fn tile(rows: u32) -> SmemTile {
    SmemTile::f32([rows, TILE_K], 4)
}

/// The sums of a group of warps, for `columns` ranks.
const fn sums(columns: u32) -> SmemTile {
    SmemTile::f32([ROWS, columns], 4)
}

#[derive(Clone, Copy)]
struct Sizes<'k> {
    rows: Value<'k, u32>,
    width: Value<'k, u32>,
    rank: Value<'k, u32>,
    /// Ranks of all adapters.
    total_rank: Value<'k, u32>,
    /// The end of the split.
    end: Value<'k, u32>,
    /// First rank of the block.
    first: Value<'k, u32>,
}

#[derive(Clone, Copy)]
struct Block<'k> {
    k: Kernel<'k>,
    factor: LoraMatrix,
    columns: u32,
    sizes: Sizes<'k>,
    /// Rows of x, then rows of w; in the end the sums of the groups.
    smem_base: Shared<'k, f32>,
}

/// Copies this thread's share of one operand to shared memory, through registers.
struct TileLoader<'k> {
    sources: Vec<Source<'k>>,
    registers: Vec<Var<'k, f32>>,
    smem: Shared<'k, f32>,
    /// Floats from one of its elements to the next in shared memory.
    smem_stride: u32,
}

/// A vec4 or an element in global memory.
struct Source<'k> {
    array: Ptr<'k, f32>,
    /// Index along K, relative to the tile.
    at: Value<'k, u32>,
    kind: LoadKind<'k>,
}

#[derive(Clone, Copy)]
enum LoadKind<'k> {
    /// Four consecutive elements of a row.
    Vec4 { aligned: Pred<'k>, inside: Pred<'k> },
    /// One element of a row that is strided along K.
    Scalar { inside: Pred<'k> },
}

impl<'k> Block<'k> {
    /// The loader of x. Rows past the end repeat the last row; their results are not written.
    fn x_loader(&self, x: Ptr<'k, f32>) -> TileLoader<'k> {
        let (k, Sizes { rows, width, .. }) = (self.k, self.sizes);
        let vec4s = TILE_K / 4;
        let (smem_row, at) = (k.tid_x() / vec4s, k.tid_x() % vec4s * 4);
        let kind = LoadKind::Vec4 { aligned: rows_aligned(x, width), inside: rows.gt(0) };
        let sources = (0..ROWS * vec4s / THREADS).map(|step| {
            let row = (k.ctaid_x() * ROWS + smem_row + step * (THREADS / vec4s)).min(rows - 1);
            Source { array: x.at(row.mul_wide(width)), at, kind }
        });
        let smem = self.smem_base.at(smem_row * PITCH + at);
        TileLoader::new(k, sources.collect(), smem, THREADS / vec4s * PITCH)
    }

    /// The loader of w. Ranks past the end are zero.
    fn w_loader(&self, w: [Ptr<'k, f32>; super::MAX_ADAPTERS]) -> TileLoader<'k> {
        let (k, Sizes { width, rank, total_rank, first, .. }) = (self.k, self.sizes);
        let (thread, row_threads) = (k.tid_x(), THREADS / self.columns);
        let smem_base = self.smem_base.offset(i64::from(X_TILE.words()));
        if self.factor == LoraMatrix::A {
            let (smem_row, at) = (thread / row_threads, thread % row_threads * 4);
            let rank_index = Rank::of(first + smem_row, rank);
            let (w, inside) = (rank_index.select_ptr(w), (first + smem_row).lt(total_rank));
            let array = w.at(rank_index.number.mul_wide(width));
            let kind = LoadKind::Vec4 { aligned: rows_aligned(w, width), inside };
            let source_at = |step: u32| Source { array, at: at + step * row_threads * 4, kind };
            let sources = (0..TILE_K / 4 / row_threads).map(source_at).collect();
            return TileLoader::new(
                k,
                sources,
                smem_base.at(smem_row * PITCH + at),
                row_threads * 4,
            );
        }
        let (smem_row, at) = (thread % self.columns, thread / self.columns);
        let rank_index = Rank::of(first + smem_row, rank);
        let kind = LoadKind::Scalar { inside: (first + smem_row).lt(total_rank) };
        let array = rank_index.select_ptr(w).at(rank_index.number);
        let source_at = |step: u32| Source { array, at: at + step * row_threads, kind };
        let sources = (0..TILE_K / row_threads).map(source_at).collect();
        TileLoader::new(k, sources, smem_base.at(smem_row * PITCH + at), row_threads)
    }
}

impl<'k> TileLoader<'k> {
    fn new(
        k: Kernel<'k>,
        sources: Vec<Source<'k>>,
        smem: Shared<'k, f32>,
        smem_stride: u32,
    ) -> Self {
        let registers_per_source = sources.iter().map(|source| match source.kind {
            LoadKind::Vec4 { .. } => 4,
            LoadKind::Scalar { .. } => 1,
        });
        let registers = (0..registers_per_source.sum()).map(|_: u32| k.var(0.0)).collect();
        Self { sources, registers, smem, smem_stride }
    }

    /// Starts loading the tile from `at` on; elements past the end of the split are zero.
    fn fetch(&self, block: &Block<'k>, at: Value<'k, u32>) {
        let Sizes { rank, end, .. } = block.sizes;
        for (source, registers) in
            self.sources.iter().zip(self.registers.chunks(self.registers_per_source()))
        {
            let here = at + source.at;
            match source.kind {
                LoadKind::Vec4 { aligned, inside } => {
                    let vec4 = Vec4::new(here, inside.select(end, 0), aligned);
                    set(registers, vec4.load(source.array));
                }
                LoadKind::Scalar { inside } => {
                    registers[0].set(0.0);
                    block.k.when(inside & here.lt(end), || {
                        registers[0].set(source.array.load(here.mul_wide(rank)));
                    });
                }
            }
        }
    }

    fn registers_per_source(&self) -> usize {
        self.registers.len() / self.sources.len()
    }

    /// Stores the loaded elements to shared memory.
    fn store(&self) {
        for (step, registers) in (0..).zip(self.registers.chunks(self.registers_per_source())) {
            let smem = self.smem.offset(i64::from(step * self.smem_stride));
            match registers {
                [a, b, c, d] => smem.store_vec4(0, [a, b, c, d].map(|register| register.get())),
                _ => smem.store(0, registers[0].get()),
            }
        }
    }
}

/// The accumulators of a thread: one per row and rank.
struct Accumulators<'k> {
    /// Its first row of x and its first row of w in shared memory.
    smem_rows: [Shared<'k, f32>; 2],
    /// The slot of its first sum, which reuses the memory of the tiles.
    smem: Shared<'k, f32>,
    acc: [Vec<Var<'k, f32>>; THREAD_ROWS as usize],
}

impl<'k> Accumulators<'k> {
    fn new(block: &Block<'k>) -> Self {
        let (k, smem_base) = (block.k, block.smem_base);
        let (group, row_half) = (k.warp() / 2, k.warp() % 2);
        let (row, column) = (row_half * (8 * THREAD_ROWS) + k.lane() % 8, k.lane() / 8);
        let k_offset = group * (TILE_K / K_GROUPS);
        let ranks = smem_base.offset(i64::from(X_TILE.words()));
        let smem_rows =
            [(smem_base, row), (ranks, column)].map(|(tile, row)| tile.at(row * PITCH + k_offset));
        let smem = smem_base.at((group * ROWS + row) * sums(block.columns).pitch() + column);
        let acc = [(); THREAD_ROWS as usize]
            .map(|()| (0..block.columns / 4).map(|_| k.var(0.0)).collect());
        Self { smem_rows, smem, acc }
    }

    /// Adds the products of the tile in shared memory.
    fn add(&self, k: Kernel<'k>) {
        k.range(0, TILE_K / K_GROUPS, 4, |at| {
            let [rows, ranks] = self.smem_rows.map(|smem_row| smem_row.at(at));
            let rows: [_; THREAD_ROWS as usize] =
                std::array::from_fn(|row| rows.load_vec4(row as u32 * 8 * PITCH));
            for column in 0..self.acc[0].len() {
                let w = ranks.load_vec4(column as u32 * 4 * PITCH);
                for (x, acc) in rows.iter().zip(&self.acc) {
                    let products = x.iter().zip(w);
                    acc[column].update(|sum| products.fold(sum, |sum, (x, w)| x.fma(w, sum)));
                }
            }
        });
    }

    /// Adds the groups and writes the result of the split. All threads must have finished the last
    /// tile.
    fn write(
        &self,
        block: &Block<'k>,
        out: [Ptr<'k, f32>; super::MAX_ADAPTERS],
        alpha: Value<'k, f32>,
    ) {
        let Block {
            k, columns, sizes: Sizes { rows, rank, total_rank, first, .. }, smem_base, ..
        } = *block;
        let pitch = sums(columns).pitch();
        for (row, acc) in (0..).zip(&self.acc) {
            for (column, sum) in (0..).zip(acc) {
                self.smem.store(row * 8 * pitch + column * 4, sum.get());
            }
        }
        k.barrier();
        let (column, row_threads) = (k.tid_x() % columns, THREADS / columns);
        let rank_index = Rank::of(first + column, rank);
        let row_offset = k.ctaid_y().mul_wide(rows) + (k.ctaid_x() * ROWS).cast::<u64>();
        let out = rank_index.select_ptr(out).at(row_offset * rank.cast::<u64>());
        for step in 0..ROWS / row_threads {
            let row = k.tid_x() / columns + step * row_threads;
            let groups =
                (0..K_GROUPS).map(|group| smem_base.load((row + group * ROWS) * pitch + column));
            let sum = groups.reduce(|sum, next| sum + next).expect("there is a group");
            let inside = (k.ctaid_x() * ROWS + row).lt(rows) & (first + column).lt(total_rank);
            k.when(inside, || out.store(row * rank + rank_index.number, sum * alpha));
        }
    }
}
