//! Ranks that fail, hang or end: the other ranks stop in time and name the rank.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use retrograph_finetune::group::GroupOptions;
use retrograph_finetune::{Data, Error, GroupError, Run, Trainer, TrainerOptions, TrainingConfig};
use retrograph_nccl_sim::{Fault, FaultKind};
use retrograph_nccl_sys::ncclResult_t;
use retrograph_test_support::with;

use crate::models::{LORA, config, text, train};
use crate::ranks::{Rank, Setup};

fn trainer(rank: &Rank) -> Trainer {
    let config = TrainingConfig { batch: 6, ..config(LORA, 40) };
    rank.trainer(&config, TrainerOptions::default())
}

/// Trains up to a step, or until another rank fails.
fn run_of(rank: &Rank, until: u32) -> Result<(), Error> {
    let data = Data::from(text());
    let mut run = Run::new(trainer(rank), &data);
    run.train(until, &AtomicBool::new(false), &mut |_| ()).map(drop)
}

#[track_caller]
fn assert_failed(error: &Error, expected: usize, text: &str) {
    let Error::Group(GroupError::RankFailed { rank, reason }) = error else { panic!("{error}") };
    assert_eq!(*rank, expected, "{reason}");
    assert!(reason.contains(text), "{reason}");
}

#[test]
fn a_rank_that_gives_up_ends_the_others_within_seconds() {
    let times = Setup::of(3).run(|rank| {
        if rank.ranks().rank == 2 {
            train(&mut trainer(rank), 4);
            rank.group.fail("its disk is on fire");
            return Duration::ZERO;
        }
        let since = Instant::now();
        assert_failed(&run_of(rank, 40).unwrap_err(), 2, "its disk is on fire");
        since.elapsed()
    });
    assert!(times.iter().all(|time| *time < Duration::from_secs(30)), "{times:?}");
}

/// Like a killed process, whose connection closes without a message.
#[test]
fn a_rank_that_ends_without_a_message_is_named() {
    Setup::of(2).run(|rank| {
        if rank.ranks().rank == 1 {
            train(&mut trainer(rank), 3);
            rank.group.disconnect();
            return;
        }
        assert_failed(&run_of(rank, 40).unwrap_err(), 1, "its process ended");
    });
}

/// NCCL can see that a rank is gone before the coordinator knows.
#[test]
fn a_rank_whose_collective_fails_does_not_hide_the_one_that_ended() {
    let fault = Fault { at: 4, kind: FaultKind::AsyncError(ncclResult_t::ncclRemoteError) };
    let setup = Setup { fault: Some((0, fault)), ..Setup::of(2) };
    setup.run(|rank| {
        if rank.ranks().rank == 1 {
            let _trainer = trainer(rank);
            return rank.group.disconnect();
        }
        assert_failed(&run_of(rank, 40).unwrap_err(), 1, "its process ended");
    });
}

#[test]
fn a_collective_that_hangs_fails_the_rank_that_waits() {
    let fault = Fault { at: 5, kind: FaultKind::Hang };
    let options =
        with(GroupOptions::default(), |it| it.collective_timeout = Duration::from_millis(1500));
    let setup = Setup { fault: Some((1, fault)), options, ..Setup::of(2) };
    let since = Instant::now();
    setup.run(|rank| {
        let error = run_of(rank, 40).unwrap_err();
        let Error::Group(GroupError::RankFailed { reason, .. }) = &error else { panic!("{error}") };
        assert!(reason.contains("waits for other ranks"), "{reason}");
    });
    assert!(since.elapsed() < Duration::from_secs(40));
}

#[test]
fn an_asynchronous_error_of_nccl_stops_all_ranks() {
    let fault = Fault { at: 4, kind: FaultKind::AsyncError(ncclResult_t::ncclRemoteError) };
    let setup = Setup { fault: Some((0, fault)), ..Setup::of(2) };
    setup.run(|rank| assert_failed(&run_of(rank, 40).unwrap_err(), 0, "ncclRemoteError"));
}

#[test]
fn ranks_whose_collectives_disagree_stop_with_both_sizes() {
    let fault = Fault { at: 4, kind: FaultKind::OtherCount };
    let setup = Setup { fault: Some((1, fault)), ..Setup::of(2) };
    setup.run(|rank| {
        let error = run_of(rank, 40).unwrap_err().to_string();
        assert!(error.contains("ranks disagree: rank 0 runs ncclAllReduce of"), "{error}");
    });
}

#[test]
fn a_late_rank_changes_nothing() {
    let fault = Fault { at: 3, kind: FaultKind::Late(Duration::from_millis(300)) };
    let setup = Setup { fault: Some((1, fault)), ..Setup::of(2) };
    setup.run(|rank| run_of(rank, 5).unwrap());
}
