//! Row norms of an updated weight: `n_j = ‖W_j + s·B_j·A‖₂` and
//! `mag_norm_scales_j = m_j / n_j`.
//!
//! Grid: one block per 32 rows of W. It loops over tiles of 128 columns. A warp has four rows, and
//! a lane every 32nd column of the tile. It keeps these elements of W in registers and adds the
//! products of A and B, 32 ranks at a time from shared memory. W is read once.
//!
//! Deterministic: the ranks of an element are added in ascending order; a lane adds its squares in
//! ascending order, and a butterfly adds the lanes.
//!
//! Range: squares are summed three times: of the elements, and of the elements divided and
//! multiplied by 2^64. The sum that is within the range of f32 is used, so that elements from 1e-30
//! to 1e30 keep full accuracy.

use retrograph_kernel_abi::lora::dora::NormsParameters;
use retrograph_kernel_abi::lora::dora::norms::{self, ROWS, THREADS};
use retrograph_kernel_abi::{Any, DType};
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Ptr, Shared, Value, Var};

use crate::primitives::parameters::Declarations;
use crate::primitives::registers::{Registers, registers};
use crate::primitives::smem_tile::SmemTile;

/// Columns of a tile.
const COLUMNS: u32 = 128;
/// Ranks of a tile.
const RANKS: u32 = 32;
/// Columns of a lane.
const LANE_COLUMNS: u32 = COLUMNS / 32;
/// Rows of a warp.
const WARP_ROWS: u32 = ROWS / (THREADS / 32);
/// Ranks that are loaded together. A tile is padded with zeros to a multiple of them.
const RANK_STEP: u32 = 8;

/// The tile of A.
const A_TILE: SmemTile = SmemTile::f32([RANKS, COLUMNS], 0);
/// The tile of s·B, transposed. The padding keeps vec4s aligned and the stores of a warp in
/// different banks.
const B_TILE: SmemTile = SmemTile::f32([RANKS, ROWS], 4);

/// 2^64, the factor of elements whose squares would leave the range of f32.
const RANGE: f32 = 18_446_744_073_709_551_616.0;

pub(super) fn entry(w: DType) -> Entry {
    let name = norms::entry(w).expect("the entries have these dtypes");
    Kernel::build(name, |k| define(k, w))
}

fn define<'k>(k: &Kernel<'k>, dtype: DType) {
    let parameters = NormsParameters::declare(&mut Declarations(*k));
    let NormsParameters { w, a, b, outputs, inputs, rank, scale, .. } = parameters;
    let NormsParameters { magnitudes, norms, mag_norm_scales, .. } = parameters;
    k.max_threads(THREADS);
    // Four would spill registers on some targets.
    k.min_blocks(3);
    let first_row = k.ctaid_x() * ROWS;
    let block = Block {
        k: *k,
        a,
        b,
        first_row,
        sizes: Sizes { outputs, inputs, rank },
        a_tile: k.shared("a_tile", A_TILE.words() as usize),
        b_tile: k.shared("b_tile", B_TILE.words() as usize),
    };
    let own_row = first_row + k.warp() * WARP_ROWS;
    let squares: Vec<Squares<'k>> = (0..WARP_ROWS).map(|_| Squares::new(k)).collect();
    k.range(0, inputs, COLUMNS, |column| {
        let elements: Vec<Registers<'k>> = (0..WARP_ROWS)
            .map(|row| load_w(k, dtype, w, own_row + row, column, &block.sizes))
            .collect();
        k.range(0, rank, RANKS, |first| {
            let ranks = (rank - first).min(RANKS);
            k.barrier();
            block.load_a(column, first, ranks);
            block.load_b(first, ranks, scale);
            k.barrier();
            block.add_products(ranks, &elements);
        });
        for (squares, elements) in squares.iter().zip(&elements) {
            elements.iter().for_each(|element| squares.add(element.get()));
        }
    });
    for (row, squares) in (0..).zip(&squares) {
        let norm = squares.norm(k);
        let row = own_row + row;
        k.when(k.lane().eq(0) & row.lt(outputs), || {
            norms.store(row, norm);
            mag_norm_scales.store(row, magnitudes.load(row) / norm);
        });
    }
}

/// The elements of a lane in row `row` of w and the tile from `column` on; zero outside of w.
fn load_w<'k>(
    k: &Kernel<'k>,
    dtype: DType,
    w: Ptr<'k, Any>,
    row: Value<'k, u32>,
    column: Value<'k, u32>,
    Sizes { outputs, inputs, .. }: &Sizes<'k>,
) -> Registers<'k> {
    let elements = registers(k, 0.0);
    let (start, row_inside) = (row.mul_wide(*inputs), row.lt(*outputs));
    for (at, element) in (0..LANE_COLUMNS).zip(&elements) {
        let column = column + k.lane() + at * 32;
        k.when(row_inside & column.lt(*inputs), || {
            element.set(match dtype {
                DType::F32 => w.reinterpret::<f32>().at(start).load(column),
                _ => {
                    let row = Ptr::<u32>::from_address(w.address() + (start << 1));
                    Value::<f32>::from_bits(row.load_u16(column) << 16)
                }
            });
        });
    }
    elements
}

struct Sizes<'k> {
    outputs: Value<'k, u32>,
    inputs: Value<'k, u32>,
    rank: Value<'k, u32>,
}

struct Block<'k> {
    k: Kernel<'k>,
    a: Ptr<'k, f32>,
    b: Ptr<'k, f32>,
    first_row: Value<'k, u32>,
    sizes: Sizes<'k>,
    a_tile: Shared<'k, f32>,
    b_tile: Shared<'k, f32>,
}

impl<'k> Block<'k> {
    /// Copies `ranks` rows of A from `first` on, from column `column` on, to shared memory.
    fn load_a(&self, column: Value<'k, u32>, first: Value<'k, u32>, ranks: Value<'k, u32>) {
        const THREAD_ROWS: u32 = THREADS / COLUMNS;
        let (k, Sizes { inputs, .. }) = (self.k, &self.sizes);
        let (own, at) = (k.tid_x() / COLUMNS, k.tid_x() % COLUMNS);
        let inside = (column + at).lt(*inputs);
        k.range(0, ranks, RANK_STEP, |step| {
            let loaded = (0..RANK_STEP / THREAD_ROWS).map(|number| {
                let (rank, value) = (step + own + number * THREAD_ROWS, k.var(0.0));
                k.when(inside & rank.lt(ranks), || {
                    value.set(self.a.at((first + rank).mul_wide(*inputs)).load(column + at));
                });
                (rank, value)
            });
            for (rank, value) in loaded.collect::<Vec<_>>() {
                self.a_tile.store(rank * A_TILE.pitch() + at, value.get());
            }
        });
    }

    /// Copies `ranks` columns of s·B from `first` on to shared memory.
    fn load_b(&self, first: Value<'k, u32>, ranks: Value<'k, u32>, scale: Value<'k, f32>) {
        let (k, Sizes { outputs, rank: row_len, .. }) = (self.k, &self.sizes);
        let (row, own) = (k.tid_x() / RANK_STEP, k.tid_x() % RANK_STEP);
        let inside = (self.first_row + row).lt(*outputs);
        let source = self.b.at((self.first_row + row).mul_wide(*row_len));
        k.range(0, ranks, RANK_STEP, |step| {
            let (rank, value) = (step + own, k.var(0.0));
            k.when(inside & rank.lt(ranks), || value.set(source.load(first + rank) * scale));
            self.b_tile.store(rank * B_TILE.pitch() + row, value.get());
        });
        const { assert!(THREADS == ROWS * RANK_STEP) };
    }

    /// Adds the products of the tiles to the elements of this thread.
    fn add_products(&self, ranks: Value<'k, u32>, elements: &[Registers<'k>]) {
        let k = self.k;
        let (a_tile, b_tile) = (self.a_tile.at(k.lane()), self.b_tile.at(k.warp() * WARP_ROWS));
        k.range(0, ranks, 4, |first| {
            let a_tile = a_tile.at(first * A_TILE.pitch());
            let b_tile = b_tile.at(first * B_TILE.pitch());
            for rank in 0..4 {
                let a: [_; LANE_COLUMNS as usize] =
                    std::array::from_fn(|at| a_tile.load(rank * A_TILE.pitch() + at as u32 * 32));
                let b = b_tile.load_vec4(rank * B_TILE.pitch());
                for (b, elements) in b.iter().zip(elements) {
                    for (a, element) in a.iter().zip(elements) {
                        element.update(|sum| b.fma(*a, sum));
                    }
                }
            }
        });
        const { assert!(WARP_ROWS == 4 && LANE_COLUMNS == 4) };
    }
}

/// Three sums of the squares of a row: of the elements, and of the elements divided and multiplied
/// by [`RANGE`].
struct Squares<'k> {
    plain: Var<'k, f32>,
    shrunk: Var<'k, f32>,
    grown: Var<'k, f32>,
}

impl<'k> Squares<'k> {
    fn new(k: &Kernel<'k>) -> Self {
        Self { plain: k.var(0.0), shrunk: k.var(0.0), grown: k.var(0.0) }
    }

    fn add(&self, x: Value<'k, f32>) {
        let (small, large) = (x * (1.0 / RANGE), x * RANGE);
        self.plain.update(|sum| x.fma(x, sum));
        self.shrunk.update(|sum| small.fma(small, sum));
        self.grown.update(|sum| large.fma(large, sum));
    }

    /// The norm over all lanes of the warp.
    fn norm(&self, k: &Kernel<'k>) -> Value<'k, f32> {
        let Self { plain, shrunk, grown } = self;
        let [plain, shrunk, grown] = [plain, shrunk, grown].map(|sum| k.warp_sum(sum.get()));
        let is_large = plain.gt(RANGE * 68_719_476_736.0);
        let is_small = plain.lt(1.0 / (RANGE * 65_536.0));
        let squares = is_large.select(shrunk, is_small.select(grown, plain));
        let factor = is_large.select(RANGE, is_small.select(1.0 / RANGE, 1.0));
        squares.sqrt() * factor
    }
}
