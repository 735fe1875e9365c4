//! The results of collectives, and who can join a communicator.

use retrograph_nccl_sys::{ncclComm_t, ncclResult_t};

use crate::rank::{FLOAT, Rank, SUM, run, unique_id};

fn own(rank: &Rank) -> [f32; 3] {
    [1.0, 2.0, 3.0].map(|value| value * 10.0_f32.powi(rank.rank))
}

#[test]
fn all_ranks_get_the_sum() {
    let found = run(3, unique_id(), |rank| {
        rank.write(4, &own(rank));
        rank.all_reduce(4, 3).ok().unwrap();
        rank.synchronize().ok().unwrap();
        let values = rank.read(4, 3);
        rank.destroy().ok().unwrap();
        values
    });
    assert_eq!(found, vec![vec![111.0, 222.0, 333.0]; 3]);
}

#[test]
fn a_group_scatters_gathers_and_broadcasts_in_order() {
    let found = run(3, unique_id(), |rank| {
        rank.write(0, &own(rank));
        rank.write(12, &own(rank));
        let (nccl, comm, stream) = (&rank.nccl, rank.comm, rank.stream);
        // SAFETY: all ranges are in the buffer.
        unsafe {
            (nccl.ncclGroupStart)().ok().unwrap();
            let scatter = nccl.ncclReduceScatter;
            scatter(rank.at(0), rank.at(6), 1, FLOAT, SUM, comm, stream).ok().unwrap();
            (nccl.ncclAllGather)(rank.at(6), rank.at(8), 1, FLOAT, comm, stream).ok().unwrap();
            let broadcast = nccl.ncclBroadcast;
            broadcast(rank.at(12), rank.at(12), 3, FLOAT, 2, comm, stream).ok().unwrap();
            (nccl.ncclGroupEnd)().ok().unwrap();
        }
        rank.synchronize().ok().unwrap();
        (rank.read(6, 1)[0], rank.read(8, 3), rank.read(12, 3))
    });
    for (at, (scattered, gathered, broadcast)) in found.into_iter().enumerate() {
        assert_eq!(scattered, [111.0, 222.0, 333.0][at]);
        assert_eq!(gathered, [111.0, 222.0, 333.0]);
        assert_eq!(broadcast, [100.0, 200.0, 300.0]);
    }
}

#[test]
fn a_communicator_reports_its_rank_size_and_device() {
    run(2, unique_id(), |rank| {
        let (mut count, mut number, mut device) = (0, 0, 7);
        // SAFETY: the places are valid.
        unsafe {
            (rank.nccl.ncclCommCount)(rank.comm, &mut count).ok().unwrap();
            (rank.nccl.ncclCommUserRank)(rank.comm, &mut number).ok().unwrap();
            (rank.nccl.ncclCommCuDevice)(rank.comm, &mut device).ok().unwrap();
        }
        assert_eq!((count, number, device), (2, rank.rank, 0));
    });
}

#[test]
fn an_inconsistent_rank_cannot_join() {
    let id = unique_id();
    assert_eq!(Rank::device(2).join(2, id), Err(ncclResult_t::ncclInvalidArgument));
    assert_eq!(Rank::device(-1).join(2, id), Err(ncclResult_t::ncclInvalidArgument));
    let no_id = Default::default();
    assert_eq!(Rank::device(0).join(1, no_id), Err(ncclResult_t::ncclInvalidArgument));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| Rank::device(0).join(2, id));
        // Until the first rank is there, nothing contradicts a second rank 0 or another size.
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert_eq!(Rank::device(0).join(2, id), Err(ncclResult_t::ncclInvalidUsage));
        assert_eq!(Rank::device(1).join(3, id), Err(ncclResult_t::ncclInvalidUsage));
        Rank::device(1).join(2, id).unwrap();
        first.join().unwrap().unwrap();
    });
}

#[test]
fn invalid_calls_are_refused() {
    let rank = Rank::device(0);
    assert_eq!(rank.all_reduce(0, 1), ncclResult_t::ncclInvalidArgument);
    let mut found = [0];
    // SAFETY: null is what is tested, and the place is valid.
    unsafe {
        let invalid = ncclResult_t::ncclInvalidArgument;
        assert_eq!((rank.nccl.ncclGetVersion)(std::ptr::null_mut()), invalid);
        assert_eq!((rank.nccl.ncclCommCount)(ncclComm_t::NULL, &mut found[0]), invalid);
        assert_eq!((rank.nccl.ncclGroupEnd)(), ncclResult_t::ncclInvalidUsage);
    }
}
