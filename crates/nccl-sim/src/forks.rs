//! The streams of a communicator in captures.
//!
//! NCCL has an internal stream, which joins each capture and orders the collectives in it. It
//! identifies a capture by its id. A second capture into the same graph has the id of the first
//! one, whose stream no longer captures, so NCCL 2.28 fails: all collectives of a graph must be in
//! one capture.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use retrograph_driver_sys::{
    CU_EVENT_DISABLE_TIMING, CU_STREAM_NON_BLOCKING, CU_STREAM_SET_CAPTURE_DEPENDENCIES, CUevent,
    CUstream, CUstreamCaptureStatus, DriverTable,
};
use retrograph_nccl_sys::ncclResult_t;

use crate::group::checked;

/// The streams by the id of their capture.
#[derive(Debug, Default)]
pub(crate) struct Forks(Mutex<BTreeMap<u64, CUstream>>);

impl Forks {
    /// Lets a stream of the communicator join the capture with id `number` of `origin`.
    pub(crate) fn enter(
        &self,
        table: &DriverTable,
        number: u64,
        origin: CUstream,
    ) -> Result<(), ncclResult_t> {
        let mut streams = self.0.lock();
        if let Some(&stream) = streams.get(&number) {
            return match is_captured(table, stream)? {
                true => Ok(()),
                false => Err(ncclResult_t::ncclUnhandledCudaError),
            };
        }
        for stream in std::mem::take(&mut *streams) {
            match is_captured(table, stream.1)? {
                true => drop(streams.insert(stream.0, stream.1)),
                // SAFETY: nobody else has the stream.
                false => checked(unsafe { (table.cuStreamDestroy_v2)(stream.1) })?,
            }
        }
        streams.insert(number, fork(table, origin)?);
        Ok(())
    }

    /// Destroys all streams.
    pub(crate) fn destroy(&self, table: &DriverTable) {
        for stream in std::mem::take(&mut *self.0.lock()).into_values() {
            // SAFETY: nobody else has the stream.
            let _ = unsafe { (table.cuStreamDestroy_v2)(stream) };
        }
    }
}

fn is_captured(table: &DriverTable, stream: CUstream) -> Result<bool, ncclResult_t> {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the stream lives, and the place is valid.
    checked(unsafe { (table.cuStreamIsCapturing)(stream, &mut status) })?;
    Ok(status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE)
}

/// Creates a stream that joins the capture of `origin` without dependencies.
fn fork(table: &DriverTable, origin: CUstream) -> Result<CUstream, ncclResult_t> {
    let (mut stream, mut event) = (CUstream::NULL, CUevent::NULL);
    // SAFETY: the places are valid, and the streams and the event live.
    unsafe {
        checked((table.cuStreamCreate)(&mut stream, CU_STREAM_NON_BLOCKING))?;
        checked((table.cuEventCreate)(&mut event, CU_EVENT_DISABLE_TIMING))?;
        checked((table.cuEventRecord)(event, origin))?;
        checked((table.cuStreamWaitEvent)(stream, event, 0))?;
        checked((table.cuEventDestroy_v2)(event))?;
        let (none, set) = (std::ptr::null_mut(), CU_STREAM_SET_CAPTURE_DEPENDENCIES);
        checked((table.cuStreamUpdateCaptureDependencies)(stream, none, 0, set))?;
    }
    Ok(stream)
}
