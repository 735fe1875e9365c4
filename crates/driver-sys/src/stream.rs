//! Streams, events and stream capture.

use crate::enumeration::enumerations;

/// Flag of a stream: it waits for the legacy stream and the legacy stream waits for it.
pub const CU_STREAM_DEFAULT: u32 = 0;
/// Flag of a stream: it has nothing to do with the legacy stream.
pub const CU_STREAM_NON_BLOCKING: u32 = 1;

/// Flag of an event: it measures time.
pub const CU_EVENT_DEFAULT: u32 = 0;
/// Flag of an event: waiting for it sleeps instead of spinning.
pub const CU_EVENT_BLOCKING_SYNC: u32 = 1;
/// Flag of an event: it measures no time and is cheaper.
pub const CU_EVENT_DISABLE_TIMING: u32 = 2;
/// Flag of an event: other processes may wait for it.
pub const CU_EVENT_INTERPROCESS: u32 = 4;

/// Flag of `cuStreamWaitEvent`: nothing special.
pub const CU_EVENT_WAIT_DEFAULT: u32 = 0;
/// Flag of `cuStreamWaitEvent`: captured as a node that waits for an event outside the graph.
pub const CU_EVENT_WAIT_EXTERNAL: u32 = 1;

enumerations! {
    /// How far a capture guards against calls that are unsafe while it is open.
    CUstreamCaptureMode: u32 {
        /// Unsafe calls are refused in every thread.
        CU_STREAM_CAPTURE_MODE_GLOBAL = 0;
        /// Unsafe calls are refused in the thread that captures.
        CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1;
        /// Nothing is refused.
        CU_STREAM_CAPTURE_MODE_RELAXED = 2;
    }

    /// Whether a stream is captured.
    CUstreamCaptureStatus: u32 {
        /// It is not.
        CU_STREAM_CAPTURE_STATUS_NONE = 0;
        /// It is.
        CU_STREAM_CAPTURE_STATUS_ACTIVE = 1;
        /// It was, and a call invalidated the capture, which still has to be ended.
        CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2;
    }
}
