//! Communicators and their memory: aborts, and releases that are deferred or that fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use retrograph_driver_sim::Simulator;
use retrograph_driver_sys::CUresult;
use retrograph_nccl_sim::{Fault, FaultKind, inject};
use retrograph_nccl_sys::{NcclTable, c_char, ncclComm_t, ncclResult_t, ncclUniqueId};
use retrograph_runtime::{CaptureMode, Communicator, DeviceBuffer, Nccl, Ranks, Stream, UniqueId};

use crate::device::{Device, device_of, driver_of};

const UNKNOWN: CUresult = CUresult(999);
const LOST: CUresult = CUresult(700);

fn simulator() -> (Arc<Simulator>, Device) {
    let simulator = Arc::new(Simulator::new(Default::default()).unwrap());
    let device = device_of(&driver_of(&simulator).unwrap());
    (simulator, device)
}

/// A communicator of one rank, whose functions `change` replaces.
fn alone(device: &Device, id: UniqueId, change: impl FnOnce(&mut NcclTable)) -> Communicator {
    let mut table = retrograph_nccl_sim::table();
    change(&mut table);
    // SAFETY: every function of the table belongs to the simulated NCCL, or calls it.
    let nccl = unsafe { Nccl::from_table(table) };
    Communicator::join(&nccl, &device.context, id, Ranks::ONE).unwrap()
}

fn new_id() -> UniqueId {
    crate::ranks::simulated().unique_id().unwrap()
}

#[test]
fn an_abort_waits_until_the_message_of_a_failed_call_is_read() {
    static READING: AtomicBool = AtomicBool::new(false);
    static FREED_MEANWHILE: AtomicBool = AtomicBool::new(false);
    unsafe extern "C" fn slow_last_error(comm: ncclComm_t) -> *const c_char {
        READING.store(true, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(100));
        READING.store(false, Ordering::SeqCst);
        // SAFETY: passed on from the caller.
        unsafe { (retrograph_nccl_sim::table().ncclGetLastError)(comm) }
    }
    unsafe extern "C" fn abort(_: ncclComm_t) -> ncclResult_t {
        FREED_MEANWHILE.store(READING.load(Ordering::SeqCst), Ordering::SeqCst);
        ncclResult_t::ncclSuccess
    }
    let (_, device) = simulator();
    let id = new_id();
    let raw = ncclUniqueId { internal: id.bytes().map(|byte| byte as _) };
    let code = ncclResult_t::ncclSystemError;
    inject(&raw, 0, Fault { at: 0, kind: FaultKind::Refuse(code) });
    let communicator = alone(&device, id, |table| {
        table.ncclGetLastError = slow_last_error;
        table.ncclCommAbort = abort;
    });
    let buffer = DeviceBuffer::<f32>::zeroed(&device.context, 4).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !READING.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            communicator.abort();
        });
        communicator.all_gather(&device.stream, &buffer).unwrap_err();
    });
    assert!(communicator.is_aborted());
    assert!(!FREED_MEANWHILE.load(Ordering::SeqCst));
}

#[test]
fn a_communicator_whose_context_is_lost_before_its_release_is_aborted() {
    static ABORTED: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn abort(comm: ncclComm_t) -> ncclResult_t {
        ABORTED.fetch_add(1, Ordering::SeqCst);
        // SAFETY: passed on from the caller.
        unsafe { (retrograph_nccl_sim::table().ncclCommAbort)(comm) }
    }
    let (simulator, device) = simulator();
    let communicator = alone(&device, new_id(), |table| table.ncclCommAbort = abort);
    let captured = device.stream.capture(CaptureMode::ThreadLocal, |_| {
        drop(communicator);
        assert_eq!(device.context.deferred_releases(), 1);
        simulator.fail("cuMemGetInfo_v2", 1, LOST).unwrap();
        device.context.mem_get_info().map(drop)
    });
    captured.unwrap_err();
    assert_eq!(device.context.deferred_releases(), 0);
    assert_eq!(ABORTED.load(Ordering::SeqCst), 1, "destroying would wait for other ranks");
}

#[test]
fn memory_of_collectives_that_cannot_be_freed_is_freed_later() {
    let (simulator, device) = simulator();
    let communicator = alone(&device, new_id(), |_| ());
    let before = simulator.live();
    let buffer = communicator.allocate::<f32>(4).unwrap();
    // The first attempt, and the one that follows at once.
    for nth in [1, 2] {
        simulator.fail("cuCtxSynchronize", nth, UNKNOWN).unwrap();
    }
    drop(buffer);
    assert_eq!(device.context.deferred_releases(), 1);
    drop(Stream::new(&device.context).unwrap());
    assert_eq!(device.context.deferred_releases(), 0);
    assert_eq!(simulator.live(), before);
}
