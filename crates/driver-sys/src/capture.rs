//! Stream capture: modes and states.

use crate::enumeration::{enumerations, flags};

flags! {
    /// Flags of `cuStreamUpdateCaptureDependencies`.
    CUstreamUpdateCaptureDependencies_flags: u32 {
        /// The nodes come to those that the next node depends on.
        CU_STREAM_ADD_CAPTURE_DEPENDENCIES = 0;
        /// The nodes take the place of those that the next node depends on.
        CU_STREAM_SET_CAPTURE_DEPENDENCIES = 1;
    }
}

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
