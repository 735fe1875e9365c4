//! Events.

/// Passes on the functions of this area; see [`driver_functions!`](crate::driver_functions).
#[doc(hidden)]
#[macro_export]
macro_rules! __event_functions {
    ($next:ident $($state:tt)*) => {
        $crate::$next! { $($state)*
        required {
            /// Creates an event. Flags are `CU_EVENT_…`.
            fn cuEventCreate(event: *mut $crate::CUevent, flags: u32);
            /// Records an event after the work enqueued on the stream so far.
            fn cuEventRecord(event: $crate::CUevent, stream: $crate::CUstream);
            /// Records with flags `CU_EVENT_RECORD_…`.
            fn cuEventRecordWithFlags(event: $crate::CUevent, stream: $crate::CUstream, flags: u32);
            /// Queries whether the recorded work is complete: success or 600.
            fn cuEventQuery(event: $crate::CUevent);
            /// Waits for the recorded work.
            fn cuEventSynchronize(event: $crate::CUevent);
            /// Writes the time between two events in milliseconds. Headers of CUDA 13 no longer
            /// declare it; their drivers still export it.
            fn cuEventElapsedTime(
                milliseconds: *mut f32, start: $crate::CUevent, end: $crate::CUevent
            );
            /// Destroys an event.
            fn cuEventDestroy_v2(event: $crate::CUevent);
        }
        optional {
            /// Writes the time between two events in milliseconds.
            fn cuEventElapsedTime_v2(
                milliseconds: *mut f32, start: $crate::CUevent, end: $crate::CUevent
            ) since 12080;
        }
        }
    };
}
