//! Layouts of the types of `cuda-driver-sys` 0.3 against ours, by the compiler.
//!
//! Its functions are not named here, because that would link libcuda.

use std::mem::{align_of, offset_of, size_of};

macro_rules! same_layout {
    ($($name:ident { $($field:ident),* })*) => {$(
        assert_eq!(
            size_of::<retrograph_driver_sys::$name>(), size_of::<cuda_driver_sys::$name>(),
            "size of {}", stringify!($name)
        );
        assert_eq!(
            align_of::<retrograph_driver_sys::$name>(), align_of::<cuda_driver_sys::$name>(),
            "alignment of {}", stringify!($name)
        );
        $(assert_eq!(
            offset_of!(retrograph_driver_sys::$name, $field),
            offset_of!(cuda_driver_sys::$name, $field),
            "offset of {}.{}", stringify!($name), stringify!($field)
        );)*
    )*};
}

#[test]
fn types_have_the_same_layout() {
    same_layout! {
        CUresult {} CUdevice {} CUdeviceptr {} CUcontext {} CUmodule {} CUfunction {} CUstream {}
        CUevent {} CUgraph {} CUgraphNode {} CUgraphExec {} CUdevice_attribute {}
        CUstreamCaptureMode {} CUuuid { bytes }
        CUDA_MEMCPY3D {
            srcXInBytes, srcY, srcZ, srcLOD, srcMemoryType, srcHost, srcDevice, srcArray, reserved0,
            srcPitch, srcHeight, dstXInBytes, dstY, dstZ, dstLOD, dstMemoryType, dstHost, dstDevice,
            dstArray, reserved1, dstPitch, dstHeight, WidthInBytes, Height, Depth
        }
        CUDA_MEMSET_NODE_PARAMS { dst, pitch, value, elementSize, width, height }
    }
}

#[test]
fn codes_have_the_same_values() {
    use cuda_driver_sys::CUresult as Old;
    use retrograph_driver_sys::CUresult as Ours;
    let pairs = [
        (Ours::CUDA_SUCCESS, Old::CUDA_SUCCESS),
        (Ours::CUDA_ERROR_OUT_OF_MEMORY, Old::CUDA_ERROR_OUT_OF_MEMORY),
        (Ours::CUDA_ERROR_ILLEGAL_ADDRESS, Old::CUDA_ERROR_ILLEGAL_ADDRESS),
        (Ours::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, Old::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT),
        (Ours::CUDA_ERROR_UNKNOWN, Old::CUDA_ERROR_UNKNOWN),
    ];
    for (ours, old) in pairs {
        assert_eq!(ours.0, old as u32);
    }
}
