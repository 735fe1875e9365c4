//! What every step needs of its context, side by side.
//!
//! Launching a graph of a thousand nodes goes through megabytes of the driver's memory, and what a
//! step touches of its own has to come from memory again behind that, line by line (see
//! docs/hardware/2026-11-21-graph-runtime). Hence few lines, and [`prefetch`] asks for them while
//! the device is busy.

use std::sync::OnceLock;

use retrograph_driver_sys::{CUcontext, CUgraphExec, CUresult, CUstream, DriverTable};

use crate::error::CallError;

/// The bytes that a processor fetches at a time.
const LINE: usize = 64;
/// Of longer values only this much is asked for ahead: the processor sees by itself that more
/// follows, and takes only so many requests at a time.
pub(crate) const MOST_PREFETCHED: usize = 512;

/// The context's part of a step: one line.
#[repr(C, align(64))]
pub(crate) struct Frequent {
    pub(crate) raw: CUcontext,
    /// `cuCtxSetCurrent`.
    pub(crate) make_current: unsafe extern "C" fn(CUcontext) -> CUresult,
    /// `cuGraphLaunch`.
    pub(crate) launch_graph: unsafe extern "C" fn(CUgraphExec, CUstream) -> CUresult,
    /// The call that told of the fault which ended the context.
    pub(crate) lost: OnceLock<Box<CallError>>,
}

const _: () = assert!(size_of::<Frequent>() == LINE);

impl Frequent {
    pub(crate) fn new(raw: CUcontext, table: &DriverTable) -> Self {
        Self {
            raw,
            make_current: table.cuCtxSetCurrent,
            launch_graph: table.cuGraphLaunch,
            lost: OnceLock::new(),
        }
    }
}

/// Asks the processor to fetch `bytes` bytes from `start` on. It may ignore that, and so do those
/// for which the standard library has no way to ask.
pub(crate) fn prefetch<T: ?Sized>(start: *const T, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for offset in (0..bytes).step_by(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every processor of this architecture has the instruction, and it does nothing
        // with an address but ask for its line, whatever is there.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.cast::<i8>().wrapping_add(offset)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, bytes);
}
