//! Groups of operations, and enqueueing them on a stream.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;

use retrograph_driver_sys::{
    CU_GRAPH_USER_OBJECT_MOVE, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC, CUgraph, CUresult, CUstream,
    CUstreamCaptureStatus, CUuserObject,
};
use retrograph_nccl_sys::ncclResult_t;

use crate::exchange::{Exchange, Exchanges};

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static QUEUED: RefCell<Vec<(CUstream, Exchange)>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn start() -> ncclResult_t {
    DEPTH.set(DEPTH.get() + 1);
    ncclResult_t::ncclSuccess
}

pub(crate) fn end() -> ncclResult_t {
    match DEPTH.get() {
        0 => return ncclResult_t::ncclInvalidUsage,
        depth => DEPTH.set(depth - 1),
    }
    if DEPTH.get() > 0 {
        return ncclResult_t::ncclSuccess;
    }
    let mut queued = QUEUED.take().into_iter().peekable();
    while let Some((stream, first)) = queued.next() {
        let mut together = vec![first];
        while let Some((_, next)) = queued.next_if(|(other, _)| *other == stream) {
            together.push(next);
        }
        if let Err(code) = enqueue(stream, Exchanges(together)) {
            return code;
        }
    }
    ncclResult_t::ncclSuccess
}

/// Whether the calling thread has started a group.
pub(crate) fn is_open() -> bool {
    DEPTH.get() > 0
}

/// Enqueues an operation, or adds it to the open group.
pub(crate) fn add(stream: CUstream, exchange: Exchange) -> ncclResult_t {
    if is_open() {
        QUEUED.with_borrow_mut(|queued| queued.push((stream, exchange)));
        return ncclResult_t::ncclSuccess;
    }
    enqueue(stream, Exchanges(vec![exchange])).err().unwrap_or(ncclResult_t::ncclSuccess)
}

/// Enqueues operations as one host function.
fn enqueue(stream: CUstream, exchanges: Exchanges) -> Result<(), ncclResult_t> {
    let table = exchanges.0[0].comm.device.table;
    let captured = match capturing(&exchanges, stream)? {
        Some((number, graph)) => {
            exchanges.0[0].comm.forks.enter(&table, number, stream)?;
            Some(graph)
        }
        None => None,
    };
    let data = Box::into_raw(Box::new(exchanges));
    let run: unsafe extern "C" fn(*mut c_void) = match captured {
        Some(_) => run_captured,
        None => run_once,
    };
    // SAFETY: the data lives until the function has run, or with the graph.
    let code = unsafe { (table.cuLaunchHostFunc)(stream, Some(run), data.cast()) };
    let Some(graph) = captured.filter(|_| code.is_success()) else {
        if !code.is_success() {
            // SAFETY: nothing was enqueued, so that nobody else has the pointer.
            drop(unsafe { Box::from_raw(data) });
        }
        return checked(code);
    };
    // SAFETY: the data lives until `release` is called.
    unsafe { &*data }.captured();
    let mut object = CUuserObject::NULL;
    let flags = CU_USER_OBJECT_NO_DESTRUCTOR_SYNC;
    // SAFETY: the places are valid, and the graph is the one that is being captured.
    unsafe {
        checked((table.cuUserObjectCreate)(&mut object, data.cast(), Some(release), 1, flags))?;
        checked((table.cuGraphRetainUserObject)(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE))
    }
}

/// The id of the stream's capture and its graph, if it is captured.
fn capturing(
    exchanges: &Exchanges,
    stream: CUstream,
) -> Result<Option<(u64, CUgraph)>, ncclResult_t> {
    let table = exchanges.0[0].comm.device.table;
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let (mut id, mut graph) = (0, CUgraph::NULL);
    let (mut nodes, mut count) = (std::ptr::null(), 0);
    // SAFETY: the places are valid.
    let code = unsafe {
        (table.cuStreamGetCaptureInfo_v2)(
            stream,
            &mut status,
            &mut id,
            &mut graph,
            &mut nodes,
            &mut count,
        )
    };
    checked(code)?;
    let active = status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE;
    Ok(active.then_some((id, graph)))
}

pub(crate) fn checked(code: CUresult) -> Result<(), ncclResult_t> {
    if code.is_success() { Ok(()) } else { Err(ncclResult_t::ncclUnhandledCudaError) }
}

unsafe extern "C" fn run_once(data: *mut c_void) {
    // SAFETY: the pointer was made by `enqueue` for this one call.
    let exchanges = unsafe { Box::from_raw(data.cast::<Exchanges>()) };
    exchanges.run();
}

unsafe extern "C" fn run_captured(data: *mut c_void) {
    // SAFETY: the graph keeps the data until `release`.
    unsafe { &*data.cast::<Exchanges>() }.run();
}

unsafe extern "C" fn release(data: *mut c_void) {
    // SAFETY: the last graph with the operations is gone.
    let exchanges = unsafe { Box::from_raw(data.cast::<Exchanges>()) };
    exchanges.released();
}
