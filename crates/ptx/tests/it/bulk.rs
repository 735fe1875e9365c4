//! Kernels whose warps have roles: barriers in shared memory, bulk copies and tensor maps.

use retrograph_ptx::ast::{Entry, Limits, Parameter, Type};
use retrograph_ptx::build::{Kernel, ModuleBuilder};
use retrograph_ptx::{SmTarget, parse};

use crate::ptxas;

/// Tiles in flight.
const STAGES: u32 = 4;
const TILE_BYTES: u32 = 64 * 128;

/// One producer warp loads tiles, a consumer warpgroup copies them to another place.
fn pipeline() -> Entry {
    Kernel::build("pipeline", |k| {
        k.max_threads(256);
        let (from, to) = (k.tensor_map("from"), k.tensor_map("to"));
        let count = k.param::<u32>("count");
        let tiles = k.dynamic_shared_aligned::<u32>(1024);
        let (full, empty) = (k.shared::<u64>("full", 4), k.shared::<u64>("empty", 4));
        let tile = |stage| tiles.at(stage * (TILE_BYTES / 4));
        let is_producer = k.warp().lt(4);
        k.when(k.tid_x().eq(0), || {
            for stage in 0..STAGES {
                k.mbarrier_init(full.at(stage), 1);
                k.mbarrier_init(empty.at(stage), 128);
            }
            k.fence_mbarrier_init();
        });
        k.barrier();
        k.when_else(
            is_producer,
            || {
                k.setmaxnreg_dec(40);
                k.when(k.tid_x().eq(0), || {
                    k.prefetch_tensormap(from);
                    k.range(0, count, 1, |i| {
                        let (stage, turn) = (i % STAGES, i / STAGES);
                        k.mbarrier_wait_parity(empty.at(stage), (turn & 1) ^ 1);
                        k.mbarrier_arrive_expect_tx(full.at(stage), TILE_BYTES);
                        k.cp_async_bulk_tensor_2d_load(
                            tile(stage),
                            from,
                            [k.constant(0), i * 64],
                            full.at(stage),
                        );
                    });
                });
            },
            || {
                k.setmaxnreg_inc(232);
                k.range(0, count, 1, |i| {
                    let (stage, turn) = (i % STAGES, i / STAGES);
                    k.mbarrier_wait_parity(full.at(stage), turn & 1);
                    k.when(k.tid_x().eq(128), || {
                        k.cp_async_bulk_tensor_2d_store(to, [k.constant(0), i * 64], tile(stage));
                        k.cp_async_bulk_commit_group();
                        k.cp_async_bulk_wait_group_read(0);
                    });
                    k.mbarrier_arrive(empty.at(stage));
                });
            },
        );
    })
}

#[test]
fn a_pipeline_of_bulk_copies_is_valid_ptx() {
    let module = ModuleBuilder::new(SmTarget::arch_specific(90)).entry(pipeline()).build();
    let text = module.to_string();
    assert_eq!(parse(&text).as_ref(), Ok(&module), "{text}");
    ptxas::must_assemble(&text, "sm_90a");
    for line in [
        ".param .align 64 .b8 from[128]",
        "cvta.param.u64",
        "mbarrier.init.shared::cta.b64",
        "fence.mbarrier_init.release.cluster;",
        "mbarrier.try_wait.parity.shared::cta.b64",
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [",
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [",
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [",
        "cp.async.bulk.commit_group;",
        "cp.async.bulk.wait_group.read 0;",
        "setmaxnreg.dec.sync.aligned.u32 40;",
        ".extern .shared .align 1024 .b8 dynamic_shared[];",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
}

#[test]
fn a_tensor_map_is_a_parameter_of_128_bytes_at_a_multiple_of_64() {
    let entry = Kernel::build("one", |k| {
        let n = k.param::<u32>("n");
        let (map, place) = (k.tensor_map("map"), k.dynamic_shared::<u32>());
        k.cp_async_bulk_tensor_2d_store(map, [n, k.constant(u32::MAX)], place);
        k.cp_reduce_async_bulk_tensor_2d_add(map, [n, k.constant(0)], place);
        k.cp_async_bulk_tensor_3d_store(map, [n, k.constant(0), k.constant(1)], place);
        let sums = k.pointer::<f32>("sums");
        k.cp_reduce_async_bulk_add(sums.at(n), place.reinterpret(), 4096);
        k.fence_acq_rel_gpu();
    });
    let map = &entry.parameters[1];
    let (align, length) = (Some(64), Some(128));
    assert_eq!(*map, Parameter { align, length, ..Parameter::scalar("map", Type::B8) });
    assert_eq!(entry.parameter_layout(), (vec![0, 64, 192], 200));
    let module = ModuleBuilder::new(SmTarget::portable(90)).entry(entry).build();
    let text = module.to_string();
    // A coordinate has a sign.
    for part in [", -1}]", "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 ["] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(parse(&text), Ok(module));
    ptxas::must_assemble(&text, "sm_90");
}

#[test]
fn blocks_of_a_cluster_load_for_each_other() {
    let entry = Kernel::build("multicast", |k| {
        k.max_threads(128);
        k.max_registers(168);
        k.cluster_blocks(2);
        let map = k.tensor_map("map");
        let tile = k.dynamic_shared_aligned::<u32>(1024);
        let full = k.shared::<u64>("full", 1);
        let from = k.pointer::<f32>("from");
        k.barrier_cluster_arrive();
        k.barrier_cluster_wait();
        k.when(k.warp().eq(0), || {
            k.when(k.elect_sync(), || {
                k.mbarrier_expect_tx(full, 1024);
                k.cp_async_bulk_load(tile, from, 512, full);
                k.cp_async_bulk_store(from, tile, 512);
                let x = k.cluster_ctarank() * 64;
                k.cp_async_bulk_tensor_2d_load_multicast(tile, map, [x, k.constant(0)], full, 3);
            });
        });
        k.mbarrier_arrive_cluster(full, k.constant(0));
        tile.in_block(k.cluster_ctarank() ^ 1).store_vec4(4, [k.lane(); 4]);
        k.barrier_cluster_arrive_relaxed();
        k.barrier_cluster_wait();
        k.stmatrix_x4(tile, [k.lane(); 4]);
        k.fence_proxy_async();
        k.fence_proxy_async_global();
        k.mbarrier_inval(full);
    });
    let limits = Limits {
        max_threads: Some([128, 1, 1]),
        max_registers: Some(168),
        cluster: Some([2, 1, 1]),
        ..Limits::default()
    };
    assert_eq!(entry.limits, limits);
    let module = ModuleBuilder::new(SmTarget::portable(90)).entry(entry).build();
    assert_eq!(parse(&module.to_string()).as_ref(), Ok(&module));
    ptxas::must_assemble(&module.to_string(), "sm_90");
}
