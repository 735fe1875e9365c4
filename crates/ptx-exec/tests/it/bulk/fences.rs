//! Bytes of shared memory that threads wrote before a bulk store reads them.

use super::*;

/// Runs two warps and returns the offset in the tile at which a bulk store is refused.
fn refused(program: &Program) -> Option<u64> {
    match run_with(program, 64, 0, TensorMapSwizzle::None).map_err(|fault| fault.kind) {
        Ok(_) => None,
        Err(FaultKind::AsyncProxy(misuse)) => match *misuse {
            // The tile starts at a multiple of 1024.
            ProxyMisuse::UnfencedSource { address } => Some(address % 1024),
            other => panic!("{other}"),
        },
        Err(other) => panic!("{other}"),
    }
}

/// Thread 0 stores `bytes` bytes of the tile from byte `start` on.
fn store_bytes<'k>(k: &Kernel<'k>, given: Given<'k>, start: u32, bytes: u32) {
    k.when(k.tid_x().eq(0), || {
        k.cp_async_bulk_store(given.target, given.tiles.offset(i64::from(start / 4)), bytes);
        k.cp_async_bulk_commit_group();
        k.cp_async_bulk_wait_group(0);
    });
}

#[test]
fn each_warp_that_wrote_a_piece_must_fence() {
    // Warp 0 writes the bytes 8 to 24, and warp 1 the bytes 16 to 20.
    let run = |fences: [bool; 2], (start, bytes): (u32, u32)| {
        let program = entry(move |k, given| {
            k.when(k.tid_x().eq(0), || (2..6).for_each(|word| given.tiles.store(word, 1)));
            k.barrier();
            k.when(k.tid_x().eq(32), || given.tiles.store(4, 2));
            for (warp, fences) in (0..).zip(fences) {
                if fences {
                    k.when(k.warp().eq(warp), || k.fence_proxy_async());
                }
            }
            k.barrier();
            store_bytes(k, given, start, bytes);
        });
        refused(&program)
    };
    let none = [false, false];
    assert_eq!([(0, 16), (16, 16), (0, 64)].map(|range| run(none, range)), [0, 16, 0].map(Some));
    assert_eq!(run(none, (32, 32)), None);
    let first = [true, false];
    assert_eq!([run(first, (0, 16)), run(first, (16, 16))], [None, Some(16)]);
    assert_eq!(run(first, (0, 64)), Some(16));
    let second = [false, true];
    assert_eq!([run(second, (16, 16)), run(second, (0, 64))], [Some(16), Some(0)]);
    assert_eq!(run([true, true], (0, 64)), None);
}

#[test]
fn a_bulk_load_makes_its_bytes_visible_until_the_next_write() {
    // Bytes 0 to 64 are written, and then 16 to 64 are loaded.
    let run = |writes_again: bool, (start, bytes): (u32, u32)| {
        let program = entry(move |k, given| {
            init(k, given);
            k.when(k.tid_x().eq(0), || {
                (0..16).for_each(|word| given.tiles.store(word, 1));
                k.mbarrier_arrive_expect_tx(given.full, 48);
                k.cp_async_bulk_load(given.tiles.offset(4), given.source, 48, given.full);
                k.mbarrier_wait_parity(given.full, 0);
                if writes_again {
                    given.tiles.store(9, 1);
                }
            });
            store_bytes(k, given, start, bytes);
        });
        refused(&program)
    };
    assert_eq!([run(false, (16, 48)), run(false, (0, 64))], [None, Some(0)]);
    assert_eq!([run(true, (16, 48)), run(true, (48, 16))], [Some(32), None]);
}

#[test]
fn writes_of_a_block_do_not_concern_the_next_one() {
    let program = entry(|k, given| {
        k.when(k.ctaid_x().eq(0), || given.tiles.store(k.tid_x(), 1));
        k.when(k.ctaid_x().eq(1), || store_bytes(k, given, 0, 64));
    });
    let request = Launch { grid: [2, 1, 1], block: [64, 1, 1], ..Launch::default() };
    run_launch(&program, TensorMapSwizzle::None, request).unwrap_or_else(|fault| panic!("{fault}"));
}
