//! The heuristic that selects the tile and split-K of a matrix product.
//!
//! Both depend on sizes, dtypes, alignment and concurrency; the tile also depends on whether the
//! target has `wgmma`. [`gemm`](super) documents which tiles add in the same order. Only tiles
//! without sliced-K, and tiles that split K in a cluster, may be missing on some SM target.

use retrograph_kernel_abi::gemm::{
    CLUSTER_SPLIT_K_TILES, Epilogue, GLU, GLU_BACKWARD, GemmImage, IMAGES, Layout, MMA_SYNC,
    MULTISTAGE_BF16, MULTISTAGE_BF16_WGRAD, MULTISTAGE_NF4, Mainloop, QKV_ROPE, SIMT, SIMT_NF4,
    SPLIT_F16, TileConfig,
};

use super::GemmProblem;
use crate::images::dynamic_shared;
use crate::launch::PersistentBlocks;
use crate::{DType, Dispatch, Launch, Problem, SmTarget};

/// SMs of the H200, which the cost model describes.
const SMS: u128 = crate::geometry::SMS as u128;

/// Blocks of clusters along K that run at the same time. A cluster does not span GPCs, so 28
/// clusters of four fit on the device, but 32 do not.
const CLUSTER_SPLIT_K_BLOCKS: u128 = 112;

/// SMs that blocks of `tile` use at the same time.
fn usable_sms(tile: &TileConfig) -> u128 {
    if tile.cluster().k > 1 { CLUSTER_SPLIT_K_BLOCKS } else { SMS }
}

/// The cost of a tile in the cost model.
#[derive(Clone, Copy)]
struct TileCost {
    /// Resident blocks per SM.
    blocks_per_sm: u32,
    /// Time per element of the contraction, in hundredths of a clock: of one block alone on an SM,
    /// and of a full SM.
    time: [u32; 2],
    /// Time of the prologue and epilogue of a tile, as an equivalent length of the contraction.
    overhead: u32,
    /// Fixed cost of a launch, in hundredths of a clock.
    launch: u32,
}

/// Hundredths in a clock.
const CLOCK: u32 = 100;

const fn cost(blocks_per_sm: u32, [alone, full]: [u32; 2], overhead: u32) -> TileCost {
    TileCost { blocks_per_sm, time: [alone * CLOCK, full * CLOCK], overhead, launch: 0 }
}

/// The cost of a tile with one block per SM; `time` is in hundredths of a clock.
const fn measured(time: u32, overhead: u32) -> TileCost {
    TileCost { blocks_per_sm: 1, time: [time, time], overhead, launch: 0 }
}

/// The cost of a tile in clusters, whose launches take `launch` clocks longer.
const fn in_clusters(time: u32, overhead: u32, launch: u32) -> TileCost {
    TileCost { launch: launch * CLOCK, ..measured(time, overhead) }
}

/// The cost of a tile with two blocks per SM; `time` is in hundredths of a clock.
const fn two_per_sm(time: [u32; 2], overhead: u32) -> TileCost {
    TileCost { blocks_per_sm: 2, time, overhead, launch: 0 }
}

/// Costs of [`SIMT`]. The last two are measurements with `wgmma`
/// (docs/hardware/2026-11-22-loading-apart).
const SIMT_COSTS: [TileCost; 11] = [
    cost(2, [390, 394], 8),
    cost(4, [90, 246], 16),
    cost(8, [80, 178], 16),
    cost(1, [193, 193], 16),
    cost(2, [61, 116], 32),
    cost(3, [55, 98], 32),
    cost(2, [25, 42], 128),
    cost(2, [19, 27], 128),
    cost(2, [12, 18], 256),
    cost(1, [65, 65], 32),
    cost(2, [32, 42], 32),
];

/// Costs of [`MMA_SYNC`], estimated from memory latency and SM throughput.
const MMA_SYNC_COSTS: [TileCost; 7] = [
    cost(1, [36, 36], 32),
    cost(3, [24, 36], 32),
    cost(6, [24, 36], 32),
    cost(3, [12, 20], 64),
    cost(3, [7, 13], 128),
    cost(2, [6, 8], 128),
    cost(2, [5, 7], 128),
];

/// Costs of [`MULTISTAGE_BF16`] with `wgmma`. Costs of tiles with tensor maps are fitted to
/// benchmarks (docs/hardware/2026-11-26-tiles). Large tiles in clusters cost 4 % less than
/// measured, because clusters save power. The other costs are measurements
/// (docs/hardware/2026-11-22-decoding-between-products). The overheads of the first three include
/// the sum in the cluster (docs/hardware/2026-11-30-cluster-split-k).
const MULTISTAGE_BF16_COSTS: [TileCost; 14] = [
    measured(290, 2400),
    measured(290, 2200),
    measured(480, 1700),
    in_clusters(1630, 300, 22_500),
    in_clusters(1440, 420, 22_000),
    measured(1905, 390),
    measured(1430, 280),
    measured(1390, 340),
    measured(950, 320),
    measured(485, 380),
    measured(290, 640),
    cost(1, [18, 18], 760),
    cost(1, [11, 11], 770),
    cost(2, [6, 8], 430),
];

/// Costs of [`MULTISTAGE_BF16_WGRAD`].
const MULTISTAGE_BF16_WGRAD_COSTS: &[TileCost] =
    MULTISTAGE_BF16_COSTS.split_at(CLUSTER_SPLIT_K_TILES).1;

/// Costs of [`MULTISTAGE_NF4`]. All are measurements, except the estimate for one 64 × 64 block
/// alone on an SM.
const MULTISTAGE_NF4_COSTS: [TileCost; 4] =
    [cost(1, [23, 23], 400), cost(1, [22, 22], 700), cost(1, [17, 17], 590), cost(2, [9, 15], 300)];

/// Costs of [`SPLIT_F16`], fitted to benchmarks at the power limit except for the last one
/// (docs/hardware/2026-11-28-split-tiles).
const SPLIT_F16_COSTS: [TileCost; 6] = [
    in_clusters(2700, 220, 6000),
    measured(2760, 220),
    measured(2160, 270),
    measured(1700, 150),
    measured(1120, 130),
    SIMT_COSTS[1],
];

/// Costs of [`QKV_ROPE`]: the costs of plain products with tiles of the same shape.
const QKV_ROPE_COSTS: [TileCost; 5] = [
    MULTISTAGE_BF16_WGRAD_COSTS[0],
    MULTISTAGE_BF16_WGRAD_COSTS[3],
    MULTISTAGE_BF16_WGRAD_COSTS[5],
    MULTISTAGE_BF16_WGRAD_COSTS[6],
    MULTISTAGE_BF16_WGRAD_COSTS[9],
];

/// Costs of [`GLU`], fitted to benchmarks of SwiGLU except for the last one. The third one is for
/// few rows (docs/hardware/2026-12-01-decode).
const GLU_COSTS: [TileCost; 4] = [
    measured(1540, 700),
    measured(840, 560),
    two_per_sm([1210, 1500], 120),
    cost(1, [22, 22], 770),
];
/// Costs of [`GLU_BACKWARD`], fitted to benchmarks of SwiGLU except for the last one.
const GLU_BACKWARD_COSTS: [TileCost; 4] =
    [measured(1530, 1260), measured(1430, 710), measured(1110, 520), cost(1, [11, 11], 1400)];

const _: () = {
    assert!(SIMT_COSTS.len() == SIMT.len());
    assert!(MMA_SYNC_COSTS.len() == MMA_SYNC.len());
    assert!(MULTISTAGE_BF16_COSTS.len() == MULTISTAGE_BF16.len());
    assert!(MULTISTAGE_NF4_COSTS.len() == MULTISTAGE_NF4.len());
    assert!(SPLIT_F16_COSTS.len() == SPLIT_F16.len());
    assert!(QKV_ROPE_COSTS.len() == QKV_ROPE.len());
    assert!(GLU_COSTS.len() == GLU.len());
    assert!(GLU_BACKWARD_COSTS.len() == GLU_BACKWARD.len());
};

/// Candidate tiles and their costs.
#[derive(Clone, Copy)]
pub(super) struct TileTable {
    tiles: &'static [TileConfig],
    costs: &'static [TileCost],
}

impl TileTable {
    /// The tiles of products that multiply in `compute` with operands of types `a` and `b`.
    pub(super) fn new(layout: Layout, compute: DType, [a, b]: [DType; 2]) -> Self {
        let (tiles, costs): (&[TileConfig], &[TileCost]) = match (compute, a, b) {
            (DType::F32, _, DType::Nf4) => (SIMT_NF4, &SIMT_COSTS),
            (DType::F32, DType::F16, _) => (SPLIT_F16, &SPLIT_F16_COSTS),
            (DType::F32, ..) => (SIMT, &SIMT_COSTS),
            (_, DType::Bf16, DType::Nf4) => (MULTISTAGE_NF4, &MULTISTAGE_NF4_COSTS),
            (_, DType::Bf16, _) if layout == Layout::Tn => {
                (MULTISTAGE_BF16_WGRAD, MULTISTAGE_BF16_WGRAD_COSTS)
            }
            (_, DType::Bf16, _) => (MULTISTAGE_BF16, &MULTISTAGE_BF16_COSTS),
            _ => (MMA_SYNC, &MMA_SYNC_COSTS),
        };
        Self { tiles, costs }
    }

    /// The tiles of an image.
    fn of_image(image: &GemmImage) -> Self {
        match image.epilogue {
            Epilogue::Linear => Self::new(image.layout, image.compute, [image.a, image.b]),
            Epilogue::QkvRope => Self { tiles: QKV_ROPE, costs: &QKV_ROPE_COSTS },
            Epilogue::Glu(_) => Self { tiles: GLU, costs: &GLU_COSTS },
            Epilogue::GluBackward(_) => Self { tiles: GLU_BACKWARD, costs: &GLU_BACKWARD_COSTS },
        }
    }

    /// Whether every tile needs vectorized rows. Other launches are rejected.
    fn needs_vectorized_rows(self) -> bool {
        self.tiles.iter().all(TileConfig::needs_vectorized_rows)
    }

    /// Whether every tile that runs on targets with or without `wgmma` needs tensor maps. Launches
    /// without them are rejected.
    fn needs_tensor_maps(self, wgmma: bool) -> bool {
        let runs =
            |tile: &&TileConfig| !if wgmma { tile.excludes_wgmma() } else { tile.needs_wgmma() };
        self.tiles.iter().filter(runs).all(TileConfig::needs_tensor_maps)
    }

    /// Returns the index and configuration of the tile with the lowest predicted cost.
    fn select(self, product: Product) -> (usize, &'static TileConfig) {
        let limits = Limits::of(self.tiles.iter().filter(|tile| product.runs(tile)));
        let candidates = self.tiles.iter().zip(self.costs).enumerate();
        let candidates = candidates.filter(|(_, (tile, _))| product.runs(tile));
        let suitable = candidates.filter(|(_, (tile, _))| product.suits(tile, limits));
        let best = suitable.min_by_key(|(_, (tile, cost))| product.cost(tile, cost));
        let (index, (tile, _)) = best.expect("the smallest tiles suit everything");
        (index, tile)
    }
}

/// The inputs of the heuristic.
#[derive(Clone, Copy)]
struct Product {
    problem: GemmProblem,
    /// Whether the target has `wgmma`.
    wgmma: bool,
}

impl Product {
    /// Whether `tile` can compute the product on the target.
    fn runs(self, tile: &TileConfig) -> bool {
        let GemmProblem { vectorized, tensor_maps, .. } = self.problem;
        (vectorized || !tile.needs_vectorized_rows())
            && (tensor_maps || !tile.needs_tensor_maps())
            && if self.wgmma { !tile.excludes_wgmma() } else { !tile.needs_wgmma() }
    }

    /// Whether the product can use `tile` without much waste: c is longer than half of the tile on
    /// each side, and at most a quarter of the stages is padding. Tiles and stages within `limits`
    /// always qualify. A cluster along K computes only one tile, because it does not load the next
    /// one before it has written the last.
    fn suits(self, tile: &TileConfig, limits: Limits) -> bool {
        let GemmProblem { m, n, k, .. } = self.problem;
        let block_k = tile.block_k();
        let padding = u64::from(k.div_ceil(block_k)) * u64::from(block_k) - u64::from(k);
        let deep = block_k <= limits.block_k || padding <= u64::from(k) / 3;
        let large = |tile: u32, extent: u32| tile <= limits.side || tile / 2 < extent;
        let one_wave = tile.cluster().k == 1 || self.blocks(tile) <= usable_sms(tile);
        deep && one_wave && large(tile.shape[0] * tile.cluster().m, m) && large(tile.shape[1], n)
    }

    /// Number of blocks of this launch and of the concurrent ones.
    fn blocks(self, tile: &TileConfig) -> u128 {
        let GemmProblem { m, n, planes, concurrent, .. } = self.problem;
        let planes = u128::from(planes) * u128::from(concurrent.saturating_add(1));
        u128::from(tile.tiles(m, n)) * planes * u128::from(tile.cluster().k)
    }

    /// Predicted cost in hundredths of a clock: the time of the launch alone on the device, plus
    /// half of its share of the device's throughput, because other branches of a graph use the
    /// rest.
    ///
    /// The launch alone takes as long as the SM with the most blocks, which runs them in waves of
    /// `blocks_per_sm`. Each block runs prologue, mainloop and epilogue.
    fn cost(self, tile: &TileConfig, cost: &TileCost) -> u128 {
        let [alone, full] = cost.time.map(u128::from);
        let per_sm = u128::from(cost.blocks_per_sm);
        let blocks = self.blocks(tile);
        let busiest = blocks.div_ceil(usable_sms(tile));
        let last_wave = match busiest % per_sm {
            0 => 0,
            1 => alone,
            more => alone + (full - alone) * (more - 1) / (per_sm - 1),
        };
        let block_k = u128::from(tile.block_k());
        let stages = u128::from(self.problem.k).div_ceil(block_k);
        let stages = stages.div_ceil(u128::from(tile.cluster().k));
        let length = stages * block_k + u128::from(cost.overhead);
        let share = blocks * full * length / (per_sm * SMS);
        u128::from(cost.launch) + (busiest / per_sm * full + last_wave) * length + share / 2
    }
}

/// Tiles up to these sizes suit every product that they can compute.
#[derive(Clone, Copy)]
struct Limits {
    /// Length of a stage: twice the shortest.
    block_k: u32,
    /// Side of a tile: the longer side of the smallest tile, at least 32.
    side: u32,
}

impl Limits {
    fn of<'a>(tiles: impl Iterator<Item = &'a TileConfig> + Clone) -> Self {
        let minimum = |size: fn(&TileConfig) -> u32| tiles.clone().map(size).min().unwrap_or(0);
        let side = minimum(|tile| tile.shape[0].max(tile.shape[1]));
        Self { block_k: minimum(TileConfig::block_k) * 2, side: side.max(32) }
    }
}

/// Latency from the end of one launch to the start of the next, in hundredths of a clock.
const LAUNCH_LATENCY: u128 = 8000 * CLOCK as u128;
/// Bytes per clock that [`SplitKSum`](super::SplitKSum) reads and writes, mostly in the L2 cache.
const REDUCTION_BYTES_PER_CLOCK: u128 = 1500;
/// Bytes per clock that products read from device memory.
const MEMORY_BYTES_PER_CLOCK: u128 = 1800;
/// The minimum contraction length of a split.
const MIN_SPLIT_K: u32 = 256;
/// The maximum number of splits.
const MAX_SPLITS: u32 = 16;

/// Number of equal splits of the contraction of `problem`. The length of a split is a multiple of
/// `unit`. The splits are planes of one launch, and a second launch adds them. 1 unless split-K is
/// predicted to save at least a twelfth of the time. No number of splits is faster than reading
/// `bytes`.
pub(super) fn splits(table: TileTable, problem: GemmProblem, unit: u32, bytes: u128) -> u32 {
    let GemmProblem { m, n, k, .. } = problem;
    let read = bytes * u128::from(CLOCK) / MEMORY_BYTES_PER_CLOCK;
    let cost = |splits: u32| {
        // Every device must choose the same number of splits, so that results have the same bits.
        let problem = GemmProblem { k: k / splits, planes: splits, ..problem };
        let product = Product { problem, wgmma: true };
        let (index, tile) = table.select(product);
        product.cost(tile, &table.costs[index]).max(read)
    };
    let bytes = u128::from(m) * u128::from(n) * 4;
    let reduction = |splits: u32| {
        let bytes = 2 * bytes * u128::from(splits + 1);
        LAUNCH_LATENCY + bytes * u128::from(CLOCK) / REDUCTION_BYTES_PER_CLOCK
    };
    let total = |splits: u32| cost(splits) + reduction(splits);
    let fits = |splits: &u32| k.is_multiple_of(unit * splits) && k / splits >= MIN_SPLIT_K;
    let best = (2..=MAX_SPLITS).filter(fits).min_by_key(|&splits| total(splits));
    best.filter(|&splits| total(splits) * 12 <= cost(1) * 11).unwrap_or(1)
}

impl TileTable {
    /// Whether products with these tiles can copy rows of these lengths in vectors of 16 bytes.
    pub(super) fn vectorizes(self, sizes: [usize; 3]) -> bool {
        self.needs_vectorized_rows() || sizes.iter().all(|size| size % 8 == 0)
    }
}

/// Returns the entry point and geometry of the tile with the lowest predicted cost.
pub(crate) fn dispatch(problem: &GemmProblem, target: SmTarget, image: &GemmImage) -> Dispatch {
    let table = TileTable::of_image(image);
    let vectorized = problem.vectorized || table.needs_vectorized_rows();
    let wgmma = target.features().wgmma;
    let tensor_maps = problem.tensor_maps || table.needs_tensor_maps(wgmma);
    let product = Product { problem: GemmProblem { vectorized, tensor_maps, ..*problem }, wgmma };
    let (index, _) = table.select(product);
    dispatch_tile(problem, target, image, index)
}

/// Returns the entry point and geometry of a matrix product with the tile of `entry` instead of the
/// heuristic's, for benchmarks. `None` if the launch is not a matrix product, or if its image has
/// no such entry.
pub fn dispatch_entry<B>(launch: &Launch<B>, entry: &str, target: SmTarget) -> Option<Dispatch> {
    let Problem::Gemm(problem) = &launch.problem else { return None };
    let image = IMAGES.iter().copied().find(|image| image.name == launch.kernel.image)?;
    let index = image.entries.iter().position(|listed| *listed == entry)?;
    Some(dispatch_tile(problem, target, image, index))
}

/// Returns the entry point and geometry of a tile: one block per tile, or persistent blocks, in x;
/// planes in z.
fn dispatch_tile(
    problem: &GemmProblem,
    target: SmTarget,
    image: &GemmImage,
    index: usize,
) -> Dispatch {
    let (tile, entry) = (&image.tiles[index], image.entries[index]);
    // A plane has fewer than 2^32 elements and a tile has at least 256, so the conversion is exact.
    let tiles = u32::try_from(tile.tiles(problem.m, problem.n)).unwrap_or(u32::MAX);
    let (blocks, persistent) = match tile.mainloop {
        Mainloop::WarpSpecialized { cluster, .. } => {
            let resident = usable_sms(tile) as u32 * tile.min_blocks_per_sm;
            let resident = resident / problem.planes.max(1);
            let clusters = (tiles / cluster.m).min((resident / cluster.blocks()).max(1));
            let blocks = clusters * cluster.blocks();
            // A cluster along K computes one tile.
            let persistent = PersistentBlocks { resident, cluster: cluster.m };
            (blocks, (cluster.k == 1).then_some(persistent))
        }
        _ => (tiles, None),
    };
    let producers = if target.features().wgmma { tile.wgmma_producers() } else { 0 };
    Dispatch {
        entry,
        grid: [blocks, 1, problem.planes],
        block: [tile.threads() + producers, 1, 1],
        shared_bytes: dynamic_shared(entry, target),
        persistent,
    }
}

#[cfg(test)]
mod tests;
