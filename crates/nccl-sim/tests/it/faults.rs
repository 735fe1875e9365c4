//! Ranks that fail, are late, disagree or die.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use retrograph_driver_sim::POISON;
use retrograph_nccl_sim::{Fault, FaultKind, inject};
use retrograph_nccl_sys::ncclResult_t;

use crate::rank::{FLOAT, Rank, SUM, run, unique_id};

fn is_poison(values: &[f32]) -> bool {
    values.iter().all(|value| value.to_bits() == POISON)
}

#[test]
fn mismatched_requests_are_reported_per_rank() {
    let found = run(2, unique_id(), |rank| {
        rank.write(0, &[1.0; 4]);
        rank.all_reduce(0, 3 + rank.rank as usize).ok().unwrap();
        rank.synchronize().ok().unwrap();
        assert!(is_poison(&rank.read(0, 3)));
        rank.error()
    });
    for (code, text) in found {
        assert_eq!(code, ncclResult_t::ncclInvalidUsage);
        assert!(text.contains("rank 0 runs ncclAllReduce of 3 ncclFloat32"), "{text}");
        assert!(text.contains("rank 1 runs ncclAllReduce of 4 ncclFloat32"), "{text}");
    }
}

#[test]
fn an_injected_mismatch_occurs_at_its_collective() {
    let id = unique_id();
    inject(&id, 1, Fault { at: 1, kind: FaultKind::OtherCount });
    run(2, id, |rank| {
        rank.write(0, &[1.0; 4]);
        for expected in [ncclResult_t::ncclSuccess, ncclResult_t::ncclInvalidUsage] {
            rank.all_reduce(0, 2).ok().unwrap();
            rank.synchronize().ok().unwrap();
            assert_eq!(rank.error().0, expected);
        }
    });
}

#[test]
fn a_refused_call_enqueues_nothing() {
    let id = unique_id();
    let code = ncclResult_t::ncclSystemError;
    inject(&id, 0, Fault { at: 0, kind: FaultKind::Refuse(code) });
    run(1, id, |rank| {
        rank.write(0, &[2.0]);
        assert_eq!(rank.all_reduce(0, 1), code);
        rank.synchronize().ok().unwrap();
        assert_eq!(rank.read(0, 1), [2.0]);
        rank.all_reduce(0, 1).ok().unwrap();
    });
}

#[test]
fn a_late_rank_is_waited_for() {
    let id = unique_id();
    let late = Duration::from_millis(150);
    inject(&id, 1, Fault { at: 0, kind: FaultKind::Late(late) });
    let since = Instant::now();
    run(2, id, |rank| {
        rank.write(0, &[1.0]);
        rank.all_reduce(0, 1).ok().unwrap();
        rank.synchronize().ok().unwrap();
        assert_eq!(rank.read(0, 1), [2.0]);
    });
    assert!(since.elapsed() >= late);
}

/// Runs a collective that hangs, aborts it from another thread, and returns how long that took.
fn aborted(rank: &Rank) -> Duration {
    let (nccl, comm) = (rank.nccl, rank.comm);
    let since = Instant::now();
    rank.all_reduce(0, 4).ok().unwrap();
    let abort = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        // SAFETY: the handle is valid, and any thread may abort.
        unsafe { (nccl.ncclCommAbort)(comm) }.ok().unwrap();
    });
    rank.synchronize().ok().unwrap();
    abort.join().unwrap();
    assert!(is_poison(&rank.read(0, 4)), "the result of an aborted collective is undefined");
    since.elapsed()
}

#[test]
fn a_collective_without_its_peer_hangs_until_it_is_aborted() {
    let id = unique_id();
    inject(&id, 1, Fault { at: 0, kind: FaultKind::Hang });
    for time in run(2, id, aborted) {
        assert!(time >= Duration::from_millis(100) && time < Duration::from_secs(20), "{time:?}");
    }
}

#[test]
fn an_abort_ends_a_collective_that_is_blocked_in_a_write() {
    // More than the buffers of a socket hold. The hub waits for rank 0 and does not read.
    const BYTES: usize = 16 << 20;
    let is_done = AtomicBool::new(false);
    let times = run(2, unique_id(), |rank| {
        let since = Instant::now();
        if rank.rank == 0 {
            while !is_done.load(Ordering::Acquire) && since.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(5));
            }
            // Ends the other rank, too, if its abort did not.
            rank.destroy().ok().unwrap();
            return Duration::ZERO;
        }
        let (nccl, comm, mut buffer) = (rank.nccl, rank.comm, 0);
        // SAFETY: the buffer outlives the work, which is waited for.
        unsafe {
            (rank.simulator.table().cuMemAlloc_v2)(&mut buffer, BYTES).ok().unwrap();
            let place = buffer as *mut _;
            (nccl.ncclAllReduce)(place, place, BYTES / 4, FLOAT, SUM, comm, rank.stream)
                .ok()
                .unwrap();
        }
        let abort = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            // SAFETY: the handle is valid, and any thread may abort.
            unsafe { (nccl.ncclCommAbort)(comm) }.ok().unwrap();
        });
        rank.synchronize().ok().unwrap();
        abort.join().unwrap();
        is_done.store(true, Ordering::Release);
        since.elapsed()
    });
    assert!(times[1] < Duration::from_secs(20), "{times:?}");
}

#[test]
fn a_rank_that_died_leaves_the_others_hanging() {
    let id = unique_id();
    let times = run(3, id, |rank| match rank.rank {
        1 => {
            // The end of its connection is all that the others could see of it.
            rank.destroy().ok().unwrap();
            Duration::from_millis(100)
        }
        _ => aborted(rank),
    });
    assert!(times.iter().all(|time| *time >= Duration::from_millis(100)), "{times:?}");
}

#[test]
fn an_asynchronous_error_is_reported_while_the_collective_hangs() {
    let id = unique_id();
    let code = ncclResult_t::ncclRemoteError;
    inject(&id, 0, Fault { at: 0, kind: FaultKind::AsyncError(code) });
    run(1, id, |rank| {
        let (nccl, comm) = (rank.nccl, rank.comm);
        rank.all_reduce(0, 4).ok().unwrap();
        let watch = std::thread::spawn(move || {
            let mut found = ncclResult_t::ncclSuccess;
            while found.is_success() {
                // SAFETY: the handle and the place are valid.
                unsafe { (nccl.ncclCommGetAsyncError)(comm, &mut found) }.ok().unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
            // SAFETY: any thread may abort.
            unsafe { (nccl.ncclCommAbort)(comm) }.ok().unwrap();
            found
        });
        rank.synchronize().ok().unwrap();
        assert_eq!(watch.join().unwrap(), code);
    });
}
