//! The functions of the table.

// The functions have the names of nccl.h.
#![allow(non_snake_case)]

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_void};
use std::sync::atomic::Ordering;

use retrograph_driver_sys::CUresult;
use retrograph_nccl_sys::{
    CUstream, NCCL_WIN_COLL_SYMMETRIC, NcclTable, ncclComm_t, ncclConfig_v22800, ncclDataType_t,
    ncclRedOp_t, ncclResult_t, ncclUniqueId, ncclWindow_t,
};

use crate::comm::Comm;
use crate::exchange::Exchange;
use crate::request::{Kind, Request};
use crate::{group, hub};

/// The version that the simulated NCCL reports: 2.28.3.
pub const VERSION: i32 = 22803;

thread_local! {
    /// The text about the last error without a communicator.
    static TEXT: RefCell<CString> = RefCell::default();
}

macro_rules! table {
    (
        required {
            $($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty;)*
        }
        optional {
            $($(#[$o_doc:meta])* fn $o_name:ident($($o_arg:ident: $o_type:ty),* $(,)?)
                since $since:literal;)*
        }
    ) => {
        /// The functions of the simulated NCCL. One table serves all simulators of the process.
        pub fn table() -> NcclTable {
            NcclTable { version: VERSION, $($name,)* $($o_name: Some($o_name),)* }
        }
    };
}

retrograph_nccl_sys::nccl_functions!(table);

/// Writes an output of a call.
unsafe fn put<T>(place: *mut T, value: T) -> ncclResult_t {
    if place.is_null() {
        return ncclResult_t::ncclInvalidArgument;
    }
    // SAFETY: the caller of the NCCL function guarantees a valid place.
    unsafe { place.write(value) };
    ncclResult_t::ncclSuccess
}

fn fail(code: ncclResult_t, text: &str) -> ncclResult_t {
    TEXT.set(CString::new(text).unwrap_or_default());
    code
}

unsafe extern "C" fn ncclGetVersion(version: *mut i32) -> ncclResult_t {
    // SAFETY: passed on from the caller.
    unsafe { put(version, VERSION) }
}

unsafe extern "C" fn ncclGetUniqueId(id: *mut ncclUniqueId) -> ncclResult_t {
    match hub::start() {
        // SAFETY: passed on from the caller.
        Ok(address) => unsafe { put(id, address.id()) },
        Err(error) => fail(ncclResult_t::ncclSystemError, &error.to_string()),
    }
}

unsafe extern "C" fn ncclCommInitRank(
    comm: *mut ncclComm_t,
    ranks: i32,
    id: ncclUniqueId,
    rank: i32,
) -> ncclResult_t {
    // SAFETY: passed on from the caller.
    unsafe { join(comm, ranks, rank, id, None) }
}

unsafe extern "C" fn ncclCommInitRankConfig(
    comm: *mut ncclComm_t,
    ranks: i32,
    id: ncclUniqueId,
    rank: i32,
    config: *mut c_void,
) -> ncclResult_t {
    // SAFETY: the caller of the NCCL function guarantees a configuration, or null.
    match unsafe { config.cast::<ncclConfig_v22800>().as_ref() } {
        Some(config) if config.magic == ncclConfig_v22800::MAGIC => {
            // SAFETY: passed on from the caller.
            unsafe { join(comm, ranks, rank, id, Some(config.CTAPolicy)) }
        }
        _ => fail(ncclResult_t::ncclInvalidArgument, "the configuration is not initialized"),
    }
}

unsafe fn join(
    comm: *mut ncclComm_t,
    ranks: i32,
    rank: i32,
    id: ncclUniqueId,
    cta_policy: Option<i32>,
) -> ncclResult_t {
    let invalid = ncclResult_t::ncclInvalidUsage;
    if group::is_open() {
        return fail(invalid, "creating communicators in a group is not simulated");
    }
    let Some(device) = retrograph_driver_sim::current_device() else {
        return fail(invalid, "no simulated device is current on this thread");
    };
    match Comm::join(device, ranks, rank, &id, cta_policy) {
        // SAFETY: passed on from the caller.
        Ok(joined) => unsafe { put(comm, joined.register()) },
        Err(code) => fail(code, "the rank cannot join the communicator"),
    }
}

unsafe extern "C" fn ncclMemAlloc(place: *mut *mut c_void, size: usize) -> ncclResult_t {
    let Some(device) = retrograph_driver_sim::current_device() else {
        return fail(ncclResult_t::ncclInvalidUsage, "no simulated device is current");
    };
    let mut address = 0;
    // SAFETY: the place is valid.
    match unsafe { (device.table.cuMemAlloc_v2)(&mut address, size) } {
        // SAFETY: passed on from the caller.
        CUresult::CUDA_SUCCESS => unsafe { put(place, address as *mut c_void) },
        code => fail(ncclResult_t::ncclUnhandledCudaError, &format!("{code:?}")),
    }
}

unsafe extern "C" fn ncclMemFree(memory: *mut c_void) -> ncclResult_t {
    let Some(device) = retrograph_driver_sim::current_device() else {
        return fail(ncclResult_t::ncclInvalidUsage, "no simulated device is current");
    };
    // SAFETY: the caller of the NCCL function guarantees memory of `ncclMemAlloc`.
    match unsafe { (device.table.cuMemFree_v2)(memory as u64) } {
        CUresult::CUDA_SUCCESS => ncclResult_t::ncclSuccess,
        code => fail(ncclResult_t::ncclUnhandledCudaError, &format!("{code:?}")),
    }
}

unsafe extern "C" fn ncclCommWindowRegister(
    comm: ncclComm_t,
    memory: *mut c_void,
    size: usize,
    window: *mut ncclWindow_t,
    flags: i32,
) -> ncclResult_t {
    with(comm, |comm| {
        if memory.is_null() || size == 0 || flags != NCCL_WIN_COLL_SYMMETRIC {
            comm.set_error(
                "a window is memory that is not empty, at the same offsets on all ranks",
            );
            return ncclResult_t::ncclInvalidArgument;
        }
        comm.windows.fetch_add(1, Ordering::AcqRel);
        // SAFETY: passed on from the caller.
        unsafe { put(window, ncclWindow_t(memory)) }
    })
}

unsafe extern "C" fn ncclCommWindowDeregister(
    comm: ncclComm_t,
    window: ncclWindow_t,
) -> ncclResult_t {
    with(comm, |comm| {
        let less = |open: usize| open.checked_sub(1);
        let [set, fetch] = [Ordering::AcqRel, Ordering::Acquire];
        if window.is_null() || comm.windows.fetch_update(set, fetch, less).is_err() {
            comm.set_error("the communicator has no such window");
            return ncclResult_t::ncclInvalidArgument;
        }
        ncclResult_t::ncclSuccess
    })
}

/// Calls `body` with the communicator of a handle.
fn with(comm: ncclComm_t, body: impl FnOnce(&Comm) -> ncclResult_t) -> ncclResult_t {
    match Comm::of(comm) {
        Ok(comm) => body(&comm),
        Err(code) => code,
    }
}

unsafe extern "C" fn ncclCommFinalize(comm: ncclComm_t) -> ncclResult_t {
    with(comm, |_| ncclResult_t::ncclSuccess)
}

unsafe extern "C" fn ncclCommDestroy(comm: ncclComm_t) -> ncclResult_t {
    with(comm, |found| match found.in_graphs.load(Ordering::Acquire) {
        0 if found.windows.load(Ordering::Acquire) == 0 => {
            Comm::forget(comm);
            ncclResult_t::ncclSuccess
        }
        0 => {
            found.set_error("windows of the communicator are open");
            ncclResult_t::ncclInvalidUsage
        }
        held => {
            let text = format!("graphs still hold {held} operations of the communicator");
            found.set_error(&text);
            ncclResult_t::ncclInvalidUsage
        }
    })
}

unsafe extern "C" fn ncclCommAbort(comm: ncclComm_t) -> ncclResult_t {
    with(comm, |found| {
        found.abort();
        Comm::forget(comm);
        ncclResult_t::ncclSuccess
    })
}

unsafe extern "C" fn ncclCommGetAsyncError(
    comm: ncclComm_t,
    error: *mut ncclResult_t,
) -> ncclResult_t {
    // SAFETY: passed on from the caller.
    with(comm, |comm| unsafe { put(error, comm.error()) })
}

unsafe extern "C" fn ncclGetLastError(comm: ncclComm_t) -> *const c_char {
    match Comm::of(comm) {
        Ok(comm) => comm.text(),
        Err(_) => TEXT.with_borrow(|text| text.as_ptr()),
    }
}

unsafe extern "C" fn ncclCommCount(comm: ncclComm_t, count: *mut i32) -> ncclResult_t {
    // SAFETY: passed on from the caller.
    with(comm, |comm| unsafe { put(count, comm.ranks) })
}

unsafe extern "C" fn ncclCommCuDevice(comm: ncclComm_t, device: *mut i32) -> ncclResult_t {
    // SAFETY: passed on from the caller.
    with(comm, |comm| unsafe { put(device, comm.device.ordinal as i32) })
}

unsafe extern "C" fn ncclCommUserRank(comm: ncclComm_t, rank: *mut i32) -> ncclResult_t {
    // SAFETY: passed on from the caller.
    with(comm, |comm| unsafe { put(rank, comm.rank) })
}

/// Checks and enqueues a collective.
fn enqueue(
    comm: ncclComm_t,
    request: Request,
    [send, receive]: [u64; 2],
    stream: CUstream,
) -> ncclResult_t {
    let comm = match Comm::of(comm) {
        Ok(comm) => comm,
        Err(code) => return code,
    };
    if let Some(code) = comm.refusal() {
        comm.set_error("an injected error");
        return code;
    }
    if request.bytes(comm.ranks as usize).is_none() || request.root >= comm.ranks {
        return ncclResult_t::ncclInvalidArgument;
    }
    if request.kind.reduces() && request.operation != ncclRedOp_t::ncclSum {
        comm.set_error("reductions other than sums are not simulated");
        return ncclResult_t::ncclInvalidUsage;
    }
    group::add(stream, Exchange { comm, request, send, receive })
}

unsafe extern "C" fn ncclAllReduce(
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    data_type: ncclDataType_t,
    operation: ncclRedOp_t,
    comm: ncclComm_t,
    stream: CUstream,
) -> ncclResult_t {
    let (kind, count) = (Kind::AllReduce, count as u64);
    let request = Request { kind, data_type, operation, count, root: 0 };
    enqueue(comm, request, [send as u64, receive as u64], stream)
}

unsafe extern "C" fn ncclReduceScatter(
    send: *const c_void,
    receive: *mut c_void,
    receive_count: usize,
    data_type: ncclDataType_t,
    operation: ncclRedOp_t,
    comm: ncclComm_t,
    stream: CUstream,
) -> ncclResult_t {
    let (kind, count) = (Kind::ReduceScatter, receive_count as u64);
    let request = Request { kind, data_type, operation, count, root: 0 };
    enqueue(comm, request, [send as u64, receive as u64], stream)
}

unsafe extern "C" fn ncclAllGather(
    send: *const c_void,
    receive: *mut c_void,
    send_count: usize,
    data_type: ncclDataType_t,
    comm: ncclComm_t,
    stream: CUstream,
) -> ncclResult_t {
    let (kind, operation, count) = (Kind::AllGather, ncclRedOp_t::ncclSum, send_count as u64);
    let request = Request { kind, data_type, operation, count, root: 0 };
    enqueue(comm, request, [send as u64, receive as u64], stream)
}

unsafe extern "C" fn ncclBroadcast(
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    data_type: ncclDataType_t,
    root: i32,
    comm: ncclComm_t,
    stream: CUstream,
) -> ncclResult_t {
    let (kind, operation, count) = (Kind::Broadcast, ncclRedOp_t::ncclSum, count as u64);
    let request = Request { kind, data_type, operation, count, root };
    enqueue(comm, request, [send as u64, receive as u64], stream)
}

unsafe extern "C" fn ncclGroupStart() -> ncclResult_t {
    group::start()
}

unsafe extern "C" fn ncclGroupEnd() -> ncclResult_t {
    group::end()
}
