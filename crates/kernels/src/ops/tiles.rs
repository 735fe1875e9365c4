//! The tiles of matrix products, and the choice among them.
//!
//! The choice depends on the sizes alone, never on the SM target, so that the bits of a result are
//! the same on every device: tiles without a split all add the contraction in the same order, those
//! with a split have an order of their own.

use crate::{Dispatch, Kernel, Problem, SmTarget};

/// The largest z extent of a grid: batch × heads must not exceed it.
pub(super) const MOST_PLANES: usize = 65_535;

/// Which side of the operands of a product is contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Rows of a times rows of b.
    Nt = 0,
    /// Rows of a times columns of b.
    Nn = 1,
    /// Columns of a times columns of b.
    Tn = 2,
}

/// A shape into which c is cut, one block each.
struct Tile {
    rows: u32,
    columns: u32,
    threads: u32,
    /// Entry points by layout.
    entries: [&'static str; 3],
}

impl Tile {
    /// How many tiles cover `problem`.
    fn count(&self, problem: Product) -> u64 {
        let across = u64::from(problem.n.div_ceil(self.columns));
        u64::from(problem.m.div_ceil(self.rows)) * across * u64::from(problem.planes)
    }
}

/// 8 × 8 registers per thread: for problems that fill a device with such tiles.
const LARGE: Tile = Tile {
    rows: 128,
    columns: 128,
    threads: 256,
    entries: ["gemm_nt_128x128", "gemm_nn_128x128", "gemm_tn_128x128"],
};
/// 8 × 4 registers per thread: for problems of middling size.
const MEDIUM: Tile = Tile {
    rows: 64,
    columns: 64,
    threads: 128,
    entries: ["gemm_nt_64x64", "gemm_nn_64x64", "gemm_tn_64x64"],
};
/// 4 × 4 registers per thread: for small problems with a short contraction.
const SMALL: Tile = Tile {
    rows: 32,
    columns: 32,
    threads: 64,
    entries: ["gemm_nt_32x32", "gemm_nn_32x32", "gemm_tn_32x32"],
};
/// Four groups of threads share the contraction: for few tiles with a long contraction.
const SPLIT: Tile = Tile {
    rows: 32,
    columns: 32,
    threads: 256,
    entries: ["gemm_nt_32x32_split4", "gemm_nn_32x32_split4", "gemm_tn_32x32_split4"],
};
/// Eight groups of threads share the contraction: for still fewer tiles.
const NARROW: Tile = Tile {
    rows: 32,
    columns: 16,
    threads: 256,
    entries: ["gemm_nt_32x16_split8", "gemm_nn_32x16_split8", "gemm_tn_32x16_split8"],
};
/// Sixteen groups of threads share the contraction: for next to no tiles, as in LoRA.
const TINY: Tile = Tile {
    rows: 16,
    columns: 16,
    threads: 256,
    entries: ["gemm_nt_16x16_split16", "gemm_nn_16x16_split16", "gemm_tn_16x16_split16"],
};
const TILES: [Tile; 6] = [LARGE, MEDIUM, SMALL, SPLIT, NARROW, TINY];

/// The entry points of one layout.
pub(super) const fn entries(layout: Layout) -> [&'static str; 6] {
    let mut names = [""; 6];
    let mut index = 0;
    while index < names.len() {
        names[index] = TILES[index].entries[layout as usize];
        index += 1;
    }
    names
}

/// The image of one layout.
const fn image(layout: Layout) -> &'static str {
    ["gemm_nt", "gemm_nn", "gemm_tn"][layout as usize]
}

/// The descriptor of a kernel that is a product of the given layout.
pub(super) const fn kernel(name: &'static str, layout: Layout) -> Kernel {
    static NT: [&str; 6] = entries(Layout::Nt);
    static NN: [&str; 6] = entries(Layout::Nn);
    static TN: [&str; 6] = entries(Layout::Tn);
    let entries: &'static [&'static str] = match layout {
        Layout::Nt => &NT,
        Layout::Nn => &NN,
        Layout::Tn => &TN,
    };
    let dispatch: fn(&Problem, SmTarget) -> Dispatch = match layout {
        Layout::Nt => |problem, _| dispatch(problem, Layout::Nt),
        Layout::Nn => |problem, _| dispatch(problem, Layout::Nn),
        Layout::Tn => |problem, _| dispatch(problem, Layout::Tn),
    };
    Kernel { name, image: image(layout), parameters: super::product::PARAMETERS, entries, dispatch }
}

/// The sizes on which the choice depends.
#[derive(Clone, Copy)]
struct Product {
    m: u32,
    n: u32,
    k: u32,
    planes: u32,
}

/// As many blocks as keep most of a large device busy.
const ENOUGH_BLOCKS: u64 = 96;
/// As many blocks as make smaller tiles not worth their additional traffic.
const SOME_BLOCKS: u64 = 24;
/// How much of the contraction the split tiles take at a time.
const SPLIT_STAGE: u32 = 128;

/// Whether a contraction is worth splitting among the warps of a block: it fills a stage, and no more
/// than a quarter of what the stages hold is padding.
fn is_long(k: u32) -> bool {
    let padding = u64::from(k.div_ceil(SPLIT_STAGE)) * u64::from(SPLIT_STAGE) - u64::from(k);
    k >= SPLIT_STAGE && padding <= u64::from(k) / 3
}

/// The tile for a product, by its sizes alone.
fn tile(product: Product) -> &'static Tile {
    let Product { m, n, .. } = product;
    let fills = |tile: &Tile| tile.count(product) >= ENOUGH_BLOCKS;
    if m > 64 && n > 64 && fills(&LARGE) {
        &LARGE
    } else if m > 32 && n > 32 && fills(&MEDIUM) {
        &MEDIUM
    } else if !is_long(product.k) {
        &SMALL
    } else if n > 16 && fills(&SPLIT) {
        &SPLIT
    } else if NARROW.count(product) >= SOME_BLOCKS {
        &NARROW
    } else {
        &TINY
    }
}

/// One block per tile: tiles of a column follow each other in x, so that blocks that run together
/// share their part of b; planes lie in z.
fn dispatch(problem: &Problem, layout: Layout) -> Dispatch {
    let [m, n, k, planes, ..] = problem.sizes;
    let tile = tile(Product { m, n, k, planes });
    let tiles = u64::from(m.div_ceil(tile.rows)) * u64::from(n.div_ceil(tile.columns));
    // A plane has fewer than 2^32 elements and a tile has 256 or more, so that this is exact.
    let tiles = u32::try_from(tiles).unwrap_or(u32::MAX);
    Dispatch {
        entry: tile.entries[layout as usize],
        grid: [tiles, 1, planes],
        block: [tile.threads, 1, 1],
        shared_bytes: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(sizes: [u32; 4]) -> (&'static str, u32) {
        let dispatch = dispatch(&Problem::from(sizes), Layout::Nt);
        (dispatch.entry, dispatch.grid[0] * dispatch.grid[2])
    }

    #[test]
    fn the_products_of_a_transformer_get_enough_blocks() {
        // m, n, k, planes: one sequence of 32 tokens of Qwen2.5 1.5B, and four of 128.
        assert_eq!(chosen([32, 1536, 1536, 1]), ("gemm_nt_32x16_split8", 96));
        assert_eq!(chosen([32, 8960, 1536, 1]), ("gemm_nt_32x32_split4", 280));
        assert_eq!(chosen([32, 16, 1536, 1]), ("gemm_nt_16x16_split16", 2));
        assert_eq!(chosen([32, 32, 128, 12]), ("gemm_nt_32x16_split8", 24));
        assert_eq!(chosen([128, 1536, 1536, 1]), ("gemm_nt_32x32_split4", 192));
        assert_eq!(chosen([512, 1536, 1536, 1]), ("gemm_nt_64x64", 192));
        assert_eq!(chosen([512, 8960, 1536, 1]), ("gemm_nt_128x128", 280));
    }

    #[test]
    fn short_contractions_and_ragged_ones_are_not_split() {
        assert_eq!(chosen([256, 64, 64, 1]), ("gemm_nt_32x32", 16));
        assert_eq!(chosen([256, 64, 176, 1]), ("gemm_nt_32x32", 16));
        assert!(is_long(128) && is_long(192) && is_long(u32::MAX));
        assert!(!is_long(0) && !is_long(127) && !is_long(129));
    }

    #[test]
    fn nothing_is_launched_for_an_empty_result_but_zeros_are_written_for_an_empty_sum() {
        let empty = |sizes| dispatch(&Problem::from(sizes), Layout::Tn).is_empty();
        assert!(empty([0, 4, 4, 1]) && empty([4, 0, 4, 1]) && empty([4, 4, 4, 0]));
        assert!(!empty([4, 4, 0, 1]));
    }
}
