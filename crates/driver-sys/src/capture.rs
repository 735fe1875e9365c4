//! Stream capture: modes and states.

use crate::enumeration::{enumerations, flags};

flags! {
    /// Flags of `cuStreamUpdateCaptureDependencies`.
    CUstreamUpdateCaptureDependencies_flags: u32 {
        /// Adds the nodes to the dependencies of the next node.
        CU_STREAM_ADD_CAPTURE_DEPENDENCIES = 0;
        /// Replaces the dependencies of the next node by the nodes.
        CU_STREAM_SET_CAPTURE_DEPENDENCIES = 1;
    }
}

enumerations! {
    /// The threads in which a capture forbids potentially unsafe calls.
    CUstreamCaptureMode: u32 {
        /// Unsafe calls fail in every thread.
        CU_STREAM_CAPTURE_MODE_GLOBAL = 0;
        /// Unsafe calls fail in the capturing thread.
        CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1;
        /// Unsafe calls are allowed.
        CU_STREAM_CAPTURE_MODE_RELAXED = 2;
    }

    /// The capture status of a stream.
    CUstreamCaptureStatus: u32 {
        /// Not capturing.
        CU_STREAM_CAPTURE_STATUS_NONE = 0;
        /// Capturing.
        CU_STREAM_CAPTURE_STATUS_ACTIVE = 1;
        /// A call has invalidated the capture, which still has to be ended.
        CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2;
    }
}
