//! The tiles of matrix products, and the choice among them.
//!
//! The choice depends on the sizes alone, so that the bits of a result are the same on every
//! device: tiles without a split all add the contraction in the same order, those with a split have
//! an order of their own. Only a tile without a split may be one that not every SM target has.

use retrograph_ptx::SmTarget;

use crate::images::dynamic_shared;
use crate::{Dispatch, Problem};

/// The largest z extent of a grid: batch × heads must not exceed it.
pub(crate) const MOST_PLANES: usize = 65_535;

/// Which side of the operands of a product is contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Rows of a times rows of b.
    Nt = 0,
    /// Rows of a times columns of b.
    Nn = 1,
    /// Columns of a times columns of b.
    Tn = 2,
}

/// A shape into which c is cut, one block each, and what it costs on the device that the choice is
/// made for: one of 132 multiprocessors, whatever the device is.
pub(crate) struct Tile {
    pub(crate) rows: u32,
    pub(crate) columns: u32,
    pub(crate) threads: u32,
    /// Threads beside them, which only load, where warpgroups multiply.
    pub(crate) loaders: u32,
    /// Length of the contraction that a block takes at a time.
    pub(crate) stage: u32,
    /// Blocks that find room on a multiprocessor together.
    pub(crate) together: u32,
    /// Clocks that a step of the contraction takes one block alone on a multiprocessor, and as many
    /// as find room there.
    pub(crate) clocks: [u32; 2],
    /// Steps that would take as long as the beginning and the end of a tile do.
    pub(crate) ends: u32,
    /// Whether operands are copied into shared memory as they are, 16 bytes at a time, which their
    /// rows must allow.
    pub(crate) streams: bool,
    /// Whether warpgroups alone have the registers for it, which not every target has.
    pub(crate) by_warpgroups: bool,
}

/// An image of products: its entry points are its name and the names of its tiles.
pub(crate) struct Image {
    pub(crate) name: &'static str,
    pub(crate) tiles: &'static [Tile],
    /// By tile.
    pub(crate) entries: &'static [&'static str],
}

/// The sizes on which the choice depends.
#[derive(Clone, Copy)]
struct Product {
    m: u32,
    n: u32,
    k: u32,
    planes: u32,
    /// How many products like this one run at the same time.
    alike: u32,
    /// Whether operands can be copied 16 bytes at a time.
    streams: bool,
    /// Whether warpgroups multiply.
    by_warpgroups: bool,
}

/// Multiprocessors of the device that the choice is made for.
const MULTIPROCESSORS: u128 = 132;

impl Tile {
    /// How many tiles cover `product` and those that run at the same time.
    fn count(&self, product: Product) -> u128 {
        let across = u128::from(product.n.div_ceil(self.columns));
        let planes = u128::from(product.planes) * u128::from(product.alike);
        u128::from(product.m.div_ceil(self.rows)) * across * planes
    }

    /// Whether the tile is worth considering: c is longer than half of it, and no more than a
    /// quarter of what its stages hold is padding. Tiles and stages that are `short` waste little.
    fn suits(&self, product: Product, short: Short) -> bool {
        let Product { m, n, k, streams, by_warpgroups, .. } = product;
        let padding = u64::from(k.div_ceil(self.stage)) * u64::from(self.stage) - u64::from(k);
        let deep = self.stage <= short.stage || padding <= u64::from(k) / 3;
        let large = |tile: u32, extent: u32| tile <= short.side || tile / 2 < extent;
        let able = (streams || !self.streams) && (by_warpgroups || !self.by_warpgroups);
        able && deep && large(self.rows, m) && large(self.columns, n)
    }

    /// What a launch costs, in clocks: how long it takes alone on the device, and half of how much
    /// of the device it takes. In a graph other launches run beside it, in the room that it leaves.
    ///
    /// Alone, the multiprocessor with the most blocks takes them in rounds of as many as find room,
    /// and each block walks all stages, behind its beginning and in front of its end.
    fn cost(&self, product: Product) -> u128 {
        let [alone, full] = self.clocks.map(u128::from);
        let together = u128::from(self.together);
        let blocks = self.count(product);
        let most = blocks.div_ceil(MULTIPROCESSORS);
        let rest = match most % together {
            0 => 0,
            1 => alone,
            more => alone + (full - alone) * (more - 1) / (together - 1),
        };
        let stages = u128::from(product.k.div_ceil(self.stage));
        let steps = stages * u128::from(self.stage) + u128::from(self.ends);
        let occupied = blocks * full * steps / (together * MULTIPROCESSORS);
        (most / together * full + rest) * steps + occupied / 2
    }
}

/// What suits every product.
#[derive(Clone, Copy)]
struct Short {
    /// Length of a stage: twice the shortest.
    stage: u32,
    /// Side of a tile: twice the shortest, or the shortest where it is long.
    side: u32,
}

impl Short {
    fn of(tiles: &[Tile]) -> Self {
        let least = |size: fn(&Tile) -> u32| tiles.iter().map(size).min().unwrap_or(0);
        let side = least(|tile| tile.rows.max(tile.columns));
        Self { stage: least(|tile| tile.stage) * 2, side: side.max(32) }
    }
}

/// The tile for a product, by its sizes alone: the one that is predicted to take the least time.
fn tile(tiles: &'static [Tile], product: Product) -> (usize, &'static Tile) {
    let short = Short::of(tiles);
    let suitable = tiles.iter().enumerate().filter(|(_, tile)| tile.suits(product, short));
    let least = suitable.min_by_key(|(_, tile)| tile.cost(product));
    least.expect("tiles with short stages suit everything")
}

/// Clocks from the end of one launch to the work of the next.
const NEXT_LAUNCH: u128 = 8000;
/// Bytes that a device adds up in a clock, most of which come from its L2 cache.
const BYTES_PER_CLOCK: u128 = 1500;
/// The shortest part of a contraction that is worth a launch.
const SHORTEST_PART: u32 = 256;

/// The number of equal parts into which the contraction of a product of m × n × k is best cut, so
/// that the parts are planes of one launch and a second launch adds them. 1, unless that is
/// predicted to cost at least a twelfth less than the whole. A part is a multiple of `unit` long.
pub(crate) fn parts(
    (tiles, unit): (&'static [Tile], u32),
    sizes: [usize; 3],
    beside: u32,
) -> usize {
    let streams = all_stream(tiles) || sizes.iter().all(|size| size % 8 == 0);
    let [Ok(m), Ok(n), Ok(k)] = sizes.map(u32::try_from) else { return 1 };
    let cost = |parts: u32| {
        // The same number on every device.
        let by_warpgroups = true;
        let (planes, alike) = (parts, beside.saturating_add(1));
        let product = Product { m, n, k: k / parts, planes, alike, streams, by_warpgroups };
        tile(tiles, product).1.cost(product)
    };
    let bytes = u128::from(m) * u128::from(n) * 4;
    let sum = |parts: u32| NEXT_LAUNCH + 2 * bytes * u128::from(parts + 1) / BYTES_PER_CLOCK;
    let fits = |parts: &u32| k.is_multiple_of(unit * parts) && k / parts >= SHORTEST_PART;
    let cut = (2..=16).filter(fits).min_by_key(|&parts| cost(parts) + sum(parts));
    match cut {
        Some(parts) if (cost(parts) + sum(parts)) * 12 <= cost(1) * 11 => parts as usize,
        _ => 1,
    }
}

/// Whether all tiles stream. Then a launch is refused whose operands cannot.
fn all_stream(tiles: &[Tile]) -> bool {
    tiles.iter().all(|tile| tile.streams)
}

/// One block per tile: tiles of a column follow each other in x, so that blocks that run together
/// share their part of b; planes lie in z.
pub(crate) fn dispatch(problem: &Problem, target: SmTarget, image: &Image) -> Dispatch {
    let [m, n, k, planes, streams, ..] = problem.sizes;
    let streams = streams != 0 || all_stream(image.tiles);
    let by_warpgroups = target == SmTarget::exact(90);
    let alike = problem.beside.saturating_add(1);
    let product = Product { m, n, k, planes, alike, streams, by_warpgroups };
    let (index, tile) = tile(image.tiles, product);
    let entry = image.entries[index];
    let tiles = u64::from(m.div_ceil(tile.rows)) * u64::from(n.div_ceil(tile.columns));
    // A plane has fewer than 2^32 elements and a tile has 256 or more, so that this is exact.
    let tiles = u32::try_from(tiles).unwrap_or(u32::MAX);
    Dispatch {
        entry,
        grid: [tiles, 1, planes],
        block: [tile.threads + if by_warpgroups { tile.loaders } else { 0 }, 1, 1],
        shared_bytes: dynamic_shared(entry, target),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::config::{NT, SINGLE, STREAM, STREAM_NN, TENSOR, TN};

    const TARGET: SmTarget = SmTarget::exact(90);

    fn product([m, n, k, planes]: [u32; 4]) -> Product {
        Product { m, n, k, planes, alike: 1, streams: false, by_warpgroups: false }
    }

    fn chosen(sizes: [u32; 4]) -> (&'static str, u32) {
        let dispatch = dispatch(&Problem::from(sizes), TARGET, &NT);
        (dispatch.entry, dispatch.grid[0] * dispatch.grid[2])
    }

    #[test]
    fn the_products_of_a_transformer_get_the_tiles_that_were_predicted_fastest() {
        // m, n, k, planes: one sequence of 32 tokens of Qwen2.5 1.5B, one of 128, and four of 128.
        assert_eq!(chosen([32, 1536, 1536, 1]), ("gemm_f32_nt_32x16_sliced16", 96));
        assert_eq!(chosen([32, 8960, 1536, 1]), ("gemm_f32_nt_32x32_sliced8", 280));
        assert_eq!(chosen([32, 16, 1536, 1]), ("gemm_f32_nt_16x16_sliced16", 2));
        assert_eq!(chosen([128, 1536, 1536, 1]), ("gemm_f32_nt_32x32_sliced8", 192));
        assert_eq!(chosen([128, 8960, 1536, 1]), ("gemm_f32_nt_64x64_sliced4", 280));
        assert_eq!(chosen([512, 1536, 1536, 1]), ("gemm_f32_nt_64x32_sliced4", 384));
        assert_eq!(chosen([512, 1536, 8960, 1]), ("gemm_f32_nt_64x32_sliced4", 384));
        assert_eq!(chosen([512, 8960, 1536, 1]), ("gemm_f32_nt_64x64_sliced4", 1120));
        assert_eq!(chosen([512, 151_936, 1536, 1]), ("gemm_f32_nt_128x128_sliced2", 4748));
    }

    #[test]
    fn what_runs_beside_others_like_it_leaves_them_room() {
        // The gradients of gate and up: one alone takes all multiprocessors, two take half each.
        let entry = |beside| {
            let problem = Problem { beside, ..Problem::from([2048, 1536, 8960, 1, 1]) };
            let found = dispatch(&problem, TARGET, &STREAM_NN);
            (found.entry, found.grid[0])
        };
        assert_eq!(entry(0), ("gemm_bf16_nn_multistage_128x192", 128));
        assert_eq!(entry(1), ("gemm_bf16_nn_multistage_192x256", 66));
    }

    #[test]
    fn short_contractions_and_ragged_ones_are_not_split() {
        assert_eq!(chosen([256, 64, 16, 1]), ("gemm_f32_nt_32x32", 16));
        let deep = |k| {
            SINGLE
                .iter()
                .filter(move |tile| tile.suits(product([512, 512, k, 1]), Short::of(&SINGLE)))
        };
        let split = |k| deep(k).filter(|tile| tile.stage > 16).count();
        assert_eq!([15, 129, 1536].map(split), [0, 2, 5]);
    }

    #[test]
    fn a_tile_that_would_lie_outside_for_the_most_part_is_not_taken() {
        for (m, n) in [(1, 4000), (16, 512), (4000, 7)] {
            let (_, tile) = tile(&SINGLE, product([m, n, 2048, 1]));
            assert!(tile.rows / 2 < m.max(32) && tile.columns / 2 < n.max(32), "{m} × {n}");
        }
    }

    #[test]
    fn the_choice_has_no_size_at_which_it_overflows() {
        let most = 0x7fff_ffff;
        for sizes in [[most, most, most, 65_535], [most, 1, 0, 1], [1, most, most, 1]] {
            assert!(tile(&SINGLE, product(sizes)).1.threads > 0);
            assert!(tile(&TENSOR, product(sizes)).1.threads > 0);
            let streams = Product { streams: true, ..product(sizes) };
            assert!(tile(&STREAM, streams).1.streams && tile(&SINGLE, streams).1.threads > 0);
        }
    }

    #[test]
    fn nothing_is_launched_for_an_empty_result_but_zeros_are_written_for_an_empty_sum() {
        let empty = |sizes| dispatch(&Problem::from(sizes), TARGET, &TN).is_empty();
        assert!(empty([0, 4, 4, 1]) && empty([4, 0, 4, 1]) && empty([4, 4, 4, 0]));
        assert!(!empty([4, 4, 0, 1]));
    }
}
