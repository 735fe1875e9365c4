//! Events: flags of creating, recording and waiting.

use crate::enumeration::flags;

flags! {
    /// Flags of an event.
    CUevent_flags: u32 {
        /// Records time.
        CU_EVENT_DEFAULT = 0;
        /// Waiting for it sleeps instead of spinning.
        CU_EVENT_BLOCKING_SYNC = 1;
        /// Records no time, and is cheaper.
        CU_EVENT_DISABLE_TIMING = 2;
        /// Other processes may wait for it; requires `CU_EVENT_DISABLE_TIMING`.
        CU_EVENT_INTERPROCESS = 4;
    }

    /// Flags of `cuEventRecordWithFlags`.
    CUevent_record_flags: u32 {
        /// Default.
        CU_EVENT_RECORD_DEFAULT = 0;
        /// Captured as an external event record node.
        CU_EVENT_RECORD_EXTERNAL = 1;
    }

    /// Flags of `cuStreamWaitEvent`.
    CUevent_wait_flags: u32 {
        /// Default.
        CU_EVENT_WAIT_DEFAULT = 0;
        /// Captured as an external event wait node.
        CU_EVENT_WAIT_EXTERNAL = 1;
    }
}
