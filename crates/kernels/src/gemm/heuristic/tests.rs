//! Tiles and grids that the heuristic selects.

use retrograph_kernel_abi::gemm::{IMAGES, MULTISTAGE_NN, MULTISTAGE_NT, NT, NT_SPLIT, TN};

use super::*;

const TARGET: SmTarget = SmTarget::arch_specific(90);

fn problem([m, n, k, planes]: [u32; 4]) -> GemmProblem {
    GemmProblem { m, n, k, planes, ..GemmProblem::default() }
}

fn selected(sizes: [u32; 4]) -> &'static TileConfig {
    let product = Product { problem: problem(sizes), wgmma: true };
    TileTable::new(Layout::Nt, DType::F32, [DType::F32; 2]).select(product).1
}

fn blocks([m, n, k, planes]: [u32; 4]) -> u32 {
    let [x, y, z] = dispatch(&problem([m, n, k, planes]), TARGET, &NT).grid;
    x * y * z
}

#[test]
fn products_of_a_transformer_fill_the_device() {
    // m, n, k of layers of Qwen2.5 1.5B, with at least 128 tokens.
    for sizes in [[128, 1536, 1536, 1], [128, 8960, 1536, 1], [512, 1536, 8960, 1]] {
        assert!(blocks(sizes) >= SMS as u32, "{sizes:?}: {} blocks", blocks(sizes));
    }
}

#[test]
fn large_products_use_larger_tiles_than_small_ones() {
    let area = |sizes| selected(sizes).shape.iter().product::<u32>();
    assert!(area([32, 16, 1536, 1]) < area([512, 1536, 1536, 1]));
    assert!(area([512, 1536, 1536, 1]) < area([512, 151_936, 1536, 1]));
}

/// The fastest tiles of docs/hardware/2026-11-28-split-tiles.
#[test]
fn split_products_use_the_fastest_measured_tiles() {
    for (sizes, tile) in [
        ([2048, 1536, 8960, 1], "tma_128x96"),
        ([2048, 1536, 1536, 1], "tma_128x96"),
        ([2048, 8960, 1536, 1], "tma_128x128_cluster2"),
        ([1152, 8960, 1536, 1], "tma_128x128"),
        ([512, 8960, 1536, 1], "tma_128x96"),
        ([512, 1536, 8960, 1], "tma_128x64"),
        ([512, 896, 4864, 1], "tma_64x64"),
    ] {
        let problem = GemmProblem { vectorized: true, tensor_maps: true, ..problem(sizes) };
        let entry = dispatch(&problem, TARGET, &NT_SPLIT).entry;
        assert_eq!(entry, format!("gemm_split_f16_nt_{tile}"), "{sizes:?}");
    }
}

/// The fastest tiles of docs/hardware/2026-11-30-cluster-split-k.
#[test]
fn few_tiles_with_a_long_contraction_are_split_in_clusters() {
    let dispatched = |sizes, concurrent| {
        let problem =
            GemmProblem { vectorized: true, tensor_maps: true, concurrent, ..problem(sizes) };
        dispatch(&problem, TARGET, &MULTISTAGE_NT)
    };
    for (sizes, tile) in [
        ([8, 1536, 17_920, 1], "tma_64x64_cluster_k4"),
        ([64, 1536, 8960, 1], "tma_64x64_cluster_k4"),
        ([128, 896, 4864, 1], "tma_64x64_cluster_k4"),
        ([64, 1024, 4096, 1], "tma_64x64_cluster_k4"),
        ([16, 2048, 8192, 1], "tma_64x64_cluster_k2"),
        ([64, 2560, 9728, 1], "tma_64x64_cluster_k2"),
        ([128, 1536, 17_920, 1], "tma_128x64_cluster_k4"),
        ([128, 1536, 8960, 1], "tma_128x64_cluster_k4"),
        ([8, 1536, 1536, 1], "tma_64x64"),
        ([64, 4096, 4096, 1], "tma_64x64"),
        ([8, 4096, 14_336, 1], "tma_64x64"),
        ([128, 2048, 8192, 1], "tma_64x64"),
        ([256, 1536, 17_920, 1], "tma_64x64"),
        ([512, 1536, 17_920, 1], "tma_64x128"),
    ] {
        let entry = dispatched(sizes, 0).entry;
        assert_eq!(entry, format!("gemm_bf16_nt_multistage_{tile}"), "{sizes:?}");
    }
    assert_eq!(dispatched([64, 1536, 8960, 1], 0).grid, [4 * 24, 1, 1]);
    for (concurrent, tile) in [(1, "tma_64x64_cluster_k2"), (2, "tma_64x64")] {
        let entry = dispatched([64, 1536, 8960, 1], concurrent).entry;
        assert_eq!(entry, format!("gemm_bf16_nt_multistage_{tile}"), "{concurrent} concurrent");
    }
}

#[test]
fn concurrent_launches_share_the_device() {
    let blocks = |concurrent| {
        let problem =
            GemmProblem { vectorized: true, concurrent, ..problem([1024, 1536, 8960, 1]) };
        dispatch(&problem, TARGET, &MULTISTAGE_NN).grid[0]
    };
    assert!(2 * blocks(1) <= SMS as u32 && blocks(0) > blocks(1));
}

/// Each of these tiles adds in another order.
#[test]
fn concurrency_changes_the_tile() {
    for (concurrent, tile) in [(0, "32x32_sliced8"), (1, "64x64_sliced4"), (7, "128x128_sliced2")] {
        let problem = GemmProblem { concurrent, ..problem([128, 1536, 1536, 1]) };
        let entry = dispatch(&problem, TARGET, &NT).entry;
        assert_eq!(entry, format!("gemm_f32_nt_{tile}"), "{concurrent} concurrent launches");
    }
}

#[test]
fn short_contractions_do_not_use_sliced_k() {
    let tile = selected([256, 64, 16, 1]);
    assert!(tile.block_k() <= 16, "{tile:?}");
}

#[test]
fn padding_of_a_stage_is_limited() {
    let limits = Limits::of(SIMT.iter());
    // The stages of the suitable tiles.
    let cases: [(u32, &[u32]); 3] = [
        (15, &[8, 16, 16, 16]),
        (129, &[8, 16, 16, 16, 32, 32]),
        (1536, &[8, 16, 16, 16, 32, 32, 128, 128, 256]),
    ];
    for (k, expected) in cases {
        let product = Product { problem: problem([512, 512, k, 1]), wgmma: false };
        let tiles = SIMT.iter().filter(|tile| product.runs(tile) && product.suits(tile, limits));
        assert_eq!(tiles.map(TileConfig::block_k).collect::<Vec<_>>(), expected, "{k}");
    }
}

#[test]
fn narrow_products_do_not_use_tiles_that_are_mostly_outside() {
    for (m, n) in [(1, 4000), (16, 512), (4000, 7)] {
        let [rows, columns] = selected([m, n, 2048, 1]).shape;
        assert!(rows / 2 < m.max(32) && columns / 2 < n.max(32), "{m} × {n}");
    }
}

#[test]
fn no_size_overflows_the_cost_model() {
    let most = 0x7fff_ffff;
    for sizes in [[most, most, most, 65_535], [most, 1, 0, 1], [1, most, most, 1]] {
        for image in IMAGES.iter().copied() {
            assert!(!dispatch(&problem(sizes), TARGET, image).is_empty());
        }
    }
}

#[test]
fn tables_have_a_cost_for_each_tile() {
    for image in IMAGES.iter().copied() {
        let table = TileTable::of_image(image);
        assert_eq!(table.tiles, image.tiles, "{}", image.name);
        assert!(table.costs.len() >= table.tiles.len(), "{}", image.name);
    }
}

#[test]
fn an_empty_result_launches_nothing_and_an_empty_contraction_writes_zeros() {
    let empty = |sizes| dispatch(&problem(sizes), TARGET, &TN).is_empty();
    assert!(empty([0, 4, 4, 1]) && empty([4, 0, 4, 1]) && empty([4, 4, 4, 0]));
    assert!(!empty([4, 4, 0, 1]));
}
