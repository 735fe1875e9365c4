//! Groups of processes: joining, shared texts, and failures.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use retrograph_finetune::GroupError;
use retrograph_finetune::group::{Coordinator, GroupOptions, ProcessGroup};
use retrograph_runtime::Ranks;
use retrograph_test_support::with;

fn short(join: u64, silence: u64) -> GroupOptions {
    let millis = Duration::from_millis;
    with(GroupOptions::default(), |it| {
        it.join_timeout = millis(join);
        it.heartbeat_timeout = millis(silence);
    })
}

fn coordinator(count: usize, options: GroupOptions) -> Coordinator {
    Coordinator::listen("127.0.0.1:0", count, options).unwrap()
}

fn join(
    coordinator: &Coordinator,
    rank: usize,
    count: usize,
    run: &str,
) -> Result<ProcessGroup, GroupError> {
    let options = GroupOptions::default();
    ProcessGroup::join(coordinator.address(), Ranks { rank, world_size: count }, run, options)
}

/// Waits until the failure of a rank is known.
fn failure(group: &ProcessGroup) -> GroupError {
    let since = Instant::now();
    loop {
        if let Err(error) = group.check() {
            return error;
        }
        assert!(since.elapsed() < Duration::from_secs(20), "nothing has failed");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_rank_that_joins_late_finds_the_others_alive() {
    let coordinator = coordinator(2, short(20_000, 300));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| join(&coordinator, 0, 2, "run"));
        std::thread::sleep(Duration::from_millis(1000));
        join(&coordinator, 1, 2, "run").unwrap().leave();
        first.join().unwrap().unwrap().leave();
    });
    assert_eq!(coordinator.failure(), None);
}

#[test]
fn what_the_first_rank_shares_reaches_all_in_order() {
    let coordinator = coordinator(3, GroupOptions::default());
    std::thread::scope(|scope| {
        for rank in 0..3 {
            let coordinator = &coordinator;
            scope.spawn(move || {
                let group = join(coordinator, rank, 3, "run").unwrap();
                for number in 0..50 {
                    let text = group.broadcast(|| Ok(format!("text {number} of {rank}"))).unwrap();
                    assert_eq!(text, format!("text {number} of 0"));
                }
                group.leave();
            });
        }
    });
    coordinator.finish(Duration::from_secs(10));
}

#[test]
fn a_rank_that_does_not_fit_is_refused_with_the_reason() {
    let coordinator = coordinator(2, GroupOptions::default());
    let refused = |rank, count, run| match join(&coordinator, rank, count, run) {
        Err(GroupError::Refused { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| join(&coordinator, 0, 2, "seq 9\nbatch 4"));
        std::thread::sleep(Duration::from_millis(300));
        let reason = refused(1, 3, "seq 9\nbatch 4");
        assert!(reason.contains("rank 1 of 3, but the coordinator waits for 2"), "{reason}");
        let reason = refused(0, 2, "seq 9\nbatch 4");
        assert!(reason.contains("there is a rank 0 already"), "{reason}");
        join(&coordinator, 1, 2, "seq 9\nbatch 4").unwrap().leave();
        first.join().unwrap().unwrap().leave();
    });
}

#[test]
fn a_rank_with_other_options_stops_all_before_the_start() {
    let coordinator = coordinator(2, GroupOptions::default());
    std::thread::scope(|scope| {
        let first = scope.spawn(|| join(&coordinator, 0, 2, "seq 9\nbatch 4"));
        std::thread::sleep(Duration::from_millis(300));
        let error = join(&coordinator, 1, 2, "seq 9\nbatch 6").unwrap_err();
        assert!(error.to_string().contains("`batch 6` instead of `batch 4`"), "{error}");
        let error = first.join().unwrap().unwrap_err();
        assert!(matches!(error, GroupError::RankFailed { rank: 1, .. }), "{error}");
    });
}

#[test]
fn a_rank_that_never_comes_is_named() {
    let coordinator = coordinator(3, short(400, 8000));
    let error = join(&coordinator, 0, 3, "run").unwrap_err();
    let GroupError::RankFailed { rank: 1, reason } = &error else { panic!("{error}") };
    assert!(reason.contains("did not join"), "{reason}");
    assert_eq!(coordinator.missing(), [1, 2]);
    assert_eq!(coordinator.failure().unwrap().0, 1);
}

#[test]
fn a_coordinator_that_is_not_there_is_named_with_its_address() {
    let address = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let ranks = Ranks { rank: 1, world_size: 2 };
    let error = ProcessGroup::join(address, ranks, "run", short(300, 8000)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("rank 1 cannot reach") && text.contains(&address.to_string()), "{text}");
}

/// Resolving fails without a name server, so that the test needs no network.
#[derive(Debug)]
struct Nowhere;

impl std::net::ToSocketAddrs for Nowhere {
    type Iter = std::vec::IntoIter<std::net::SocketAddr>;

    fn to_socket_addrs(&self) -> std::io::Result<Self::Iter> {
        Err(std::io::Error::other("no such host"))
    }
}

#[test]
fn a_name_that_cannot_be_resolved_is_not_tried_for_long() {
    let ranks = Ranks { rank: 1, world_size: 2 };
    let options =
        with(GroupOptions::default(), |it| it.resolve_timeout = Duration::from_millis(150));
    let error = ProcessGroup::join(Nowhere, ranks, "run", options).unwrap_err();
    let GroupError::Unresolved { rank: 1, address, reason, waited } = &error else {
        panic!("{error}")
    };
    assert_eq!((address.as_str(), reason.as_str()), ("Nowhere", "no such host"));
    assert!(*waited > options.resolve_timeout, "a name server may fail for a moment");
}

#[test]
fn an_address_in_use_is_an_error() {
    let first = coordinator(1, GroupOptions::default());
    let error = Coordinator::listen(first.address(), 1, GroupOptions::default()).unwrap_err();
    assert!(error.to_string().contains(&first.address().to_string()), "{error}");
}

/// Like a stopped process, or a machine that has lost power.
#[test]
fn a_silent_rank_fails() {
    let coordinator = coordinator(2, short(20_000, 4000));
    std::thread::scope(|scope| {
        let alive = scope.spawn(|| {
            let group = join(&coordinator, 0, 2, "run").unwrap();
            failure(&group)
        });
        let mut silent = TcpStream::connect(coordinator.address()).unwrap();
        let hello = r#"{"Join":{"version":1,"rank":1,"count":2,"process":77,"run":"run"}}"#;
        silent.write_all(format!("{hello}\n").as_bytes()).unwrap();
        let error = alive.join().unwrap();
        let GroupError::RankFailed { rank: 1, reason } = &error else { panic!("{error}") };
        assert!(reason.contains("sent nothing") && reason.contains("process 77"), "{reason}");
    });
}

#[test]
fn strangers_are_ignored() {
    let coordinator = coordinator(1, GroupOptions::default());
    let mut stranger = TcpStream::connect(coordinator.address()).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(stranger.read(&mut [0; 16]).unwrap_or(0), 0, "the connection is closed");
    join(&coordinator, 0, 1, "run").unwrap().leave();
    assert!(coordinator.failure().is_none());
}

#[test]
fn the_end_of_the_coordinator_ends_all_ranks() {
    let coordinator = coordinator(1, GroupOptions::default());
    let group = join(&coordinator, 0, 1, "run").unwrap();
    drop(coordinator);
    let error = failure(&group);
    assert!(matches!(error, GroupError::CoordinatorGone { .. }), "{error}");
}

#[test]
fn a_rank_that_has_left_is_not_missed() {
    let coordinator = coordinator(2, GroupOptions::default());
    std::thread::scope(|scope| {
        let coordinator = &coordinator;
        scope.spawn(move || join(coordinator, 1, 2, "run").unwrap().leave());
        let group = join(coordinator, 0, 2, "run").unwrap();
        std::thread::sleep(Duration::from_millis(300));
        group.check().unwrap();
        coordinator.stop();
        while !group.is_asked_to_stop() {
            std::thread::sleep(Duration::from_millis(5));
        }
        group.leave();
    });
}
