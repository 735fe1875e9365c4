//! Configurations of communicators, and memory that ranks make known to each other.

use retrograph_nccl_sys::{
    NCCL_WIN_COLL_SYMMETRIC, ncclComm_t, ncclConfig_v22800, ncclResult_t, ncclWindow_t,
};

use crate::rank::{Rank, run, unique_id};

#[test]
fn a_configuration_must_be_initialized() {
    let rank = Rank::device(0);
    let join = rank.nccl.ncclCommInitRankConfig.unwrap();
    let mut comm = ncclComm_t::NULL;
    let mut wrong = ncclConfig_v22800 { magic: 1, ..ncclConfig_v22800::default() };
    for config in [std::ptr::null_mut(), (&raw mut wrong).cast()] {
        // SAFETY: the places are valid.
        let code = unsafe { join(&mut comm, 1, unique_id(), 0, config) };
        assert_eq!(code, ncclResult_t::ncclInvalidArgument);
    }
    let (id, mut config) = (unique_id(), ncclConfig_v22800 { CTAPolicy: 2, ..Default::default() });
    // SAFETY: as above.
    unsafe { join(&mut comm, 1, id, 0, (&raw mut config).cast()) }.ok().unwrap();
    let states = retrograph_nccl_sim::ranks(&id);
    assert_eq!((states.len(), states[0].cta_policy, states[0].windows), (1, Some(2), 0));
    // SAFETY: the communicator is not used afterwards.
    unsafe { (rank.nccl.ncclCommDestroy)(comm) }.ok().unwrap();
}

#[test]
fn a_communicator_is_destroyed_after_its_windows() {
    run(2, unique_id(), |rank| {
        let nccl = &rank.nccl;
        let (register, deregister) =
            (nccl.ncclCommWindowRegister.unwrap(), nccl.ncclCommWindowDeregister.unwrap());
        let (mut memory, mut window) = (std::ptr::null_mut(), ncclWindow_t::NULL);
        // SAFETY: the places are valid, and memory and window are used as long as they live.
        unsafe {
            (nccl.ncclMemAlloc.unwrap())(&mut memory, 256).ok().unwrap();
            let mut made = |bytes, flags| register(rank.comm, memory, bytes, &mut window, flags);
            assert_eq!(made(0, NCCL_WIN_COLL_SYMMETRIC), ncclResult_t::ncclInvalidArgument);
            assert_eq!(made(256, 0), ncclResult_t::ncclInvalidArgument);
            made(256, NCCL_WIN_COLL_SYMMETRIC).ok().unwrap();
            let code = (nccl.ncclCommDestroy)(rank.comm);
            assert_eq!(code, ncclResult_t::ncclInvalidUsage);
            deregister(rank.comm, window).ok().unwrap();
            assert_eq!(deregister(rank.comm, window), ncclResult_t::ncclInvalidArgument);
            (nccl.ncclMemFree.unwrap())(memory).ok().unwrap();
        }
    });
}
