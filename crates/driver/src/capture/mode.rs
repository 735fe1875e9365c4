//! Which threads a capture restricts.

use retrograph_driver_sys::CUstreamCaptureMode;

/// The threads on which the driver forbids unsafe calls during a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaptureMode {
    /// The capturing thread. Other threads may allocate and wait meanwhile.
    #[default]
    ThreadLocal,
    /// Every thread of the process: an allocation or a wait of another thread breaks the capture.
    /// This crate refuses such calls only on the capturing thread; other threads must avoid them.
    Global,
    /// None. The safe functions of this crate still refuse them on the capturing thread.
    Relaxed,
}

impl CaptureMode {
    pub(super) fn raw(self) -> CUstreamCaptureMode {
        match self {
            Self::ThreadLocal => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            Self::Global => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
            Self::Relaxed => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
        }
    }
}
