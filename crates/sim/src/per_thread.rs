//! The functions of programs that are compiled for per-thread default streams
//! (`--default-stream per-thread`, `CUDA_API_PER_THREAD_DEFAULT_STREAM`).
//!
//! Each is a function of the table under another symbol: a null stream, and the stream of a
//! function without a stream argument, is the default stream of the calling thread.

use std::ffi::c_void;

use retrograph_driver_sim::with_per_thread_default_stream;
use retrograph_driver_sys::CUresult;

use crate::exports;

macro_rules! define {
    ($suffix:literal $name:ident ($($arg:ident: $type:ty),*)) => {
        #[unsafe(export_name = concat!(stringify!($name), $suffix))]
        pub(super) unsafe extern "C" fn $name($($arg: $type),*) -> CUresult {
            // SAFETY: passed on from the caller.
            let call = || unsafe { exports::functions::$name($($arg),*) };
            with_per_thread_default_stream(call)
        }
    };
}

/// Makes `variant`, which defines the functions with these names and ignores others, and `address`.
macro_rules! variants {
    ($d:tt $($suffix:literal { $($name:ident)* })*) => {
        macro_rules! variant {
            $($(($name $d args:tt) => { define! { $suffix $name $d args } };)*)*
            ($d other:ident $d args:tt) => {};
        }

        /// The function for per-thread default streams, if the function with this symbol has one.
        pub(crate) fn address(symbol: &str) -> Option<*mut c_void> {
            Some(match symbol {
                $($(stringify!($name) => functions::$name as *mut c_void,)*)*
                _ => return None,
            })
        }
    };
}

variants! { $
    // Functions with a stream argument.
    "_ptsz" {
        cuEventRecordWithFlags cuEventRecord cuGraphInstantiateWithParams cuGraphLaunch
        cuGraphUpload cuLaunchCooperativeKernel cuLaunchHostFunc cuLaunchKernelEx cuLaunchKernel
        cuMemAllocAsync cuMemAllocFromPoolAsync cuMemDiscardAndPrefetchBatchAsync
        cuMemDiscardBatchAsync cuMemFreeAsync cuMemPrefetchAsync cuMemPrefetchAsync_v2
        cuMemPrefetchBatchAsync cuMemcpy2DAsync_v2 cuMemcpy3DAsync_v2 cuMemcpy3DBatchAsync_v2
        cuMemcpy3DPeerAsync cuMemcpyAsync cuMemcpyAtoHAsync_v2 cuMemcpyBatchAsync_v2
        cuMemcpyDtoDAsync_v2 cuMemcpyDtoHAsync_v2 cuMemcpyHtoAAsync_v2 cuMemcpyHtoDAsync_v2
        cuMemcpyPeerAsync cuMemsetD16Async cuMemsetD2D16Async cuMemsetD2D32Async cuMemsetD2D8Async
        cuMemsetD32Async cuMemsetD8Async cuStreamAddCallback cuStreamAttachMemAsync
        cuStreamBatchMemOp_v2 cuStreamBeginCaptureToGraph cuStreamBeginCapture_v2
        cuStreamCopyAttributes cuStreamEndCapture cuStreamGetAttribute cuStreamGetCaptureInfo_v2
        cuStreamGetCaptureInfo_v3 cuStreamGetCtx cuStreamGetCtx_v2 cuStreamGetDevice
        cuStreamGetFlags cuStreamGetId cuStreamGetPriority cuStreamIsCapturing cuStreamQuery
        cuStreamSetAttribute cuStreamSynchronize cuStreamUpdateCaptureDependencies
        cuStreamUpdateCaptureDependencies_v2 cuStreamWaitEvent cuStreamWaitValue32_v2
        cuStreamWaitValue64_v2 cuStreamWriteValue32_v2 cuStreamWriteValue64_v2
    }
    // Functions without one, which use the default stream.
    "_ptds" {
        cuMemcpy2DUnaligned_v2 cuMemcpy2D_v2 cuMemcpy3DPeer cuMemcpy3D_v2 cuMemcpyAtoA_v2
        cuMemcpyAtoD_v2 cuMemcpyAtoH_v2 cuMemcpyDtoA_v2 cuMemcpyDtoD_v2 cuMemcpyDtoH_v2
        cuMemcpyHtoA_v2 cuMemcpyHtoD_v2 cuMemcpyPeer cuMemcpy cuMemsetD16_v2 cuMemsetD2D16_v2
        cuMemsetD2D32_v2 cuMemsetD2D8_v2 cuMemsetD32_v2 cuMemsetD8_v2
    }
}

macro_rules! per_thread {
    (
        required { $($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?);)* }
        optional {
            $($(#[$o_doc:meta])* fn $o_name:ident($($o_arg:ident: $o_type:ty),* $(,)?)
                since $since:literal;)*
        }
    ) => {
        #[allow(clippy::too_many_arguments)]
        mod functions {
            use super::*;
            $(variant! { $name ($($arg: $type),*) })*
            $(variant! { $o_name ($($o_arg: $o_type),*) })*
        }
    };
}

retrograph_driver_sys::driver_functions!(per_thread);

#[cfg(test)]
mod tests {
    use retrograph_driver_sys::DriverTable;

    use crate::absent;

    #[test]
    fn every_function_of_the_table_has_its_variant() {
        let optional = DriverTable::OPTIONAL.iter().map(|(name, _)| *name);
        for name in DriverTable::REQUIRED.iter().copied().chain(optional) {
            for suffix in ["_ptsz", "_ptds"] {
                let variant = format!("{name}{suffix}");
                assert!(absent::address(&variant).is_none(), "{variant} belongs to this file");
            }
        }
    }
}
