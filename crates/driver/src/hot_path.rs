//! The prepared calls of the hot path: the context data of every graph launch, in one cache line.
//!
//! Launching a graph of a thousand nodes reads megabytes of the driver's memory and evicts the
//! caller's cache lines. Using few lines, and a [`prefetch`] while the device is busy, keep the
//! next launch from waiting for memory.

use std::sync::OnceLock;

use retrograph_driver_sys::{CUcontext, CUgraphExec, CUresult, CUstream, DriverTable};

use crate::call::CallError;

/// Bytes of a cache line.
const LINE: usize = 64;

/// The maximum bytes of one value to prefetch: the hardware prefetcher detects the rest of a longer
/// value, and a core tracks few outstanding requests.
pub const MAX_PREFETCH_BYTES: usize = 512;

/// The context's part of the hot path.
#[repr(C, align(64))]
pub(crate) struct PreparedCalls {
    pub(crate) raw: CUcontext,
    /// `cuCtxSetCurrent`.
    pub(crate) make_current: unsafe extern "C" fn(CUcontext) -> CUresult,
    /// `cuGraphLaunch`.
    pub(crate) launch_graph: unsafe extern "C" fn(CUgraphExec, CUstream) -> CUresult,
    /// The call that first reported the fault by which the context was lost.
    pub(crate) lost: OnceLock<Box<CallError>>,
}

const _: () = assert!(size_of::<PreparedCalls>() == LINE);

impl PreparedCalls {
    pub(crate) fn new(raw: CUcontext, table: &DriverTable) -> Self {
        Self {
            raw,
            make_current: table.cuCtxSetCurrent,
            launch_graph: table.cuGraphLaunch,
            lost: OnceLock::new(),
        }
    }
}

/// Prefetches `bytes` bytes from `start` into the cache. A hint: it never faults, and does nothing
/// on architectures other than x86-64.
pub fn prefetch<T: ?Sized>(start: *const T, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for offset in (0..bytes).step_by(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of x86-64, and a prefetch of any address only hints.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.cast::<i8>().wrapping_add(offset)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, bytes);
}
