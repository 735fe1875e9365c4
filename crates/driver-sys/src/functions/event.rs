//! Events.

/// Hands the functions of this area on; see [`driver_functions!`](crate::driver_functions).
#[doc(hidden)]
#[macro_export]
macro_rules! __event_functions {
    ($next:ident $($state:tt)*) => {
        $crate::$next! { $($state)*
        required {
            /// Makes an event. Flags are `CU_EVENT_…`.
            fn cuEventCreate(event: *mut $crate::CUevent, flags: u32);
            /// Records the present end of the stream's work.
            fn cuEventRecord(event: $crate::CUevent, stream: $crate::CUstream);
            /// Records with flags `CU_EVENT_RECORD_…`.
            fn cuEventRecordWithFlags(event: $crate::CUevent, stream: $crate::CUstream, flags: u32);
            /// Says whether the recorded work is complete: success or 600.
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
