//! Clusters: copies to several blocks, arrivals at mbarriers of other blocks, the cluster barrier,
//! and the detected mistakes with them.

use retrograph_ptx::build::Value;

use super::*;

/// Blocks of a cluster.
const BLOCKS: u32 = 2;
/// Tiles that each block of a cluster copies.
const ROUNDS: u32 = 4;
/// Tiles of a stage: one from each block.
const STAGES: u32 = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// Copies start before the other block has initialized its mbarriers.
    NoFirstWait,
    /// Blocks end while others may access their shared memory.
    NoLastWait,
    /// Stages are released only to the block itself, whose mbarrier expects one release.
    NoPeerRelease,
    /// A copy names a block that the cluster lacks.
    NoSuchBlock,
    /// A block expects only the bytes of its own copy.
    FewBytes,
    /// One block does not arrive at the cluster barrier.
    NoArrival,
    /// A warp waits at the cluster barrier without having arrived.
    WaitsOnly,
}

fn wait_for_cluster(k: &Kernel<'_>) {
    k.barrier_cluster_arrive();
    k.barrier_cluster_wait();
}

/// Warp 0 copies tiles to both blocks, and warp 1 of each block adds the tiles of a round.
fn exchange(mistake: Mistake) -> Program {
    entry(|k, given| {
        let rank = k.cluster_ctarank();
        let releases = if mistake == Mistake::NoPeerRelease { 1 } else { BLOCKS };
        k.when(k.tid_x().eq(0), || {
            for stage in 0..STAGES {
                k.mbarrier_init(given.full.at(stage), 1);
                k.mbarrier_init(given.empty.at(stage), 32 * releases);
            }
            k.fence_mbarrier_init();
        });
        match mistake {
            Mistake::NoFirstWait => k.barrier(),
            Mistake::WaitsOnly => k.barrier_cluster_wait(),
            Mistake::NoArrival => k.when(rank.eq(0), || wait_for_cluster(k)),
            _ => wait_for_cluster(k),
        }
        k.when_else(
            k.warp().eq(0),
            || k.when(k.lane().eq(0), || copy_all(k, given, rank, mistake)),
            || add_all(k, given, rank, mistake),
        );
        if mistake != Mistake::NoLastWait {
            wait_for_cluster(k);
        }
    })
}

fn phase(round: u32) -> (u32, u32) {
    (round % STAGES, round / STAGES % 2)
}

fn copy_all<'k>(k: &Kernel<'k>, given: Given<'k>, rank: Value<'k, u32>, mistake: Mistake) {
    let bytes = if mistake == Mistake::FewBytes { TILE_BYTES } else { BLOCKS * TILE_BYTES };
    let mask = if mistake == Mistake::NoSuchBlock { 0b111 } else { 0b11 };
    for round in 0..ROUNDS {
        let (stage, parity) = phase(round);
        k.mbarrier_wait_parity(given.empty.at(stage), parity ^ 1);
        let full = given.full.at(stage);
        k.mbarrier_arrive_expect_tx(full, bytes);
        let to = tile(given, stage * BLOCKS).at(rank * (TILE_BYTES / 4));
        let origin = [rank * 4, k.constant(round * TILE_ROWS)];
        k.cp_async_bulk_tensor_2d_load_multicast(to, given.from, origin, full, mask);
    }
}

fn add_all<'k>(k: &Kernel<'k>, given: Given<'k>, rank: Value<'k, u32>, mistake: Mistake) {
    for round in 0..ROUNDS {
        let (stage, parity) = phase(round);
        k.mbarrier_wait_parity(given.full.at(stage), parity);
        let [first, second] =
            [0, 1].map(|of| tile(given, stage * BLOCKS + of).at(k.lane()).load(k.constant(0)));
        given.target.at(k.lane()).store((rank * ROUNDS + round) * COLUMNS, first + second);
        let empty = given.empty.at(stage);
        match mistake {
            Mistake::NoPeerRelease => k.mbarrier_arrive(empty),
            _ => (0..BLOCKS).for_each(|to| k.mbarrier_arrive_cluster(empty, k.constant(to))),
        }
    }
}

fn run_cluster(program: &Program, seed: u64) -> Result<Vec<u32>, Fault> {
    let request = Launch {
        grid: [BLOCKS, 1, 1],
        cluster: [BLOCKS, 1, 1],
        block: [64, 1, 1],
        seed,
        ..Launch::default()
    };
    run_launch(program, TensorMapSwizzle::None, request)
}

fn fault_of(mistake: Mistake, seed: u64) -> Option<FaultKind> {
    run_cluster(&exchange(mistake), seed).err().map(|fault| fault.kind)
}

fn misuse_of(mistake: Mistake) -> ProxyMisuse {
    match fault_of(mistake, 0) {
        Some(FaultKind::AsyncProxy(misuse)) => *misuse,
        other => panic!("{other:?}"),
    }
}

#[test]
fn blocks_of_a_cluster_copy_to_each_other() {
    let program = exchange(Mistake::None);
    for seed in 0..16 {
        let out = run_cluster(&program, seed).unwrap_or_else(|fault| panic!("{seed}: {fault}"));
        for row in 0..BLOCKS * ROUNDS {
            for column in 0..TILE_COLUMNS {
                let y = row % ROUNDS * TILE_ROWS;
                let want = number(y, column) + number(y, column + 4);
                assert_eq!(out[(row * COLUMNS + column) as usize], want, "seed {seed}, {row}");
            }
        }
    }
}

#[test]
fn mistakes_with_other_blocks_are_detected() {
    let early = misuse_of(Mistake::NoFirstWait);
    assert!(matches!(early, ProxyMisuse::NoBarrier { .. }), "{early}");
    let late = misuse_of(Mistake::NoLastWait);
    assert!(matches!(late, ProxyMisuse::ClusterBlockEnded { .. }), "{late}");
    let missing = misuse_of(Mistake::NoSuchBlock);
    assert_eq!(missing, ProxyMisuse::ClusterRank { rank: 2, blocks: BLOCKS });
    let few = fault_of(Mistake::FewBytes, 0);
    assert!(few.is_some(), "a phase that completes too early");
    // The order determines which block overwrites a stage that the other one reads.
    let overwritten = (0..16).filter_map(|seed| fault_of(Mistake::NoPeerRelease, seed));
    assert!(overwritten.count() > 0, "stages that the other block still reads");
}

#[test]
fn a_cluster_barrier_needs_all_blocks() {
    let stuck = fault_of(Mistake::NoArrival, 0).map(|kind| kind.to_string()).unwrap_or_default();
    assert!(stuck.contains("waits at the barrier of the cluster"), "{stuck}");
    let alone = fault_of(Mistake::WaitsOnly, 0);
    assert_eq!(alone, Some(FaultKind::Undefined(Undefined::ClusterBarrier)));
}

#[test]
fn a_block_reads_its_rank_in_its_cluster() {
    let program = entry(|k, given| {
        k.when(k.tid_x().eq(0), || {
            let values = [k.cluster_ctarank(), k.cluster_nctarank(), k.clusterid_x()];
            let at = given.target.at(k.ctaid_x() * COLUMNS);
            for (index, value) in (0..).zip(values) {
                at.store(k.constant(index), value);
            }
        });
    });
    let request = Launch { grid: [6, 1, 1], cluster: [2, 1, 1], ..Launch::default() };
    let out = run_launch(&program, TensorMapSwizzle::None, request).unwrap();
    for block in 0..6 {
        let found = &out[(block * COLUMNS) as usize..][..3];
        assert_eq!(found, [block % 2, 2, block / 2]);
    }
}
