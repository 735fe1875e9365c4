//! Sizes and offsets of every struct, fixed at compile time.
//!
//! The numbers were printed by a C program over the cuda.h of CUDA 13.0 on x86_64; a change of a
//! field that would move another one does not compile.

use std::mem::{align_of, offset_of, size_of};

use crate::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS,
    CUdeviceptr, CUgraphEdgeData, CUgraphExecUpdateResultInfo, CUjit_option, CUresult, CUstream,
    CUstreamCaptureMode, CUuuid,
};

/// Asserts size, alignment and the offsets of fields.
macro_rules! layout {
    ($($type:ty: $size:literal, $align:literal { $($field:ident $offset:literal),* $(,)? })*) => {
        $(
            const _: () = assert!(size_of::<$type>() == $size);
            const _: () = assert!(align_of::<$type>() == $align);
            $(const _: () = assert!(offset_of!($type, $field) == $offset);)*
        )*
    };
}

layout! {
    CUresult: 4, 4 {}
    CUstreamCaptureMode: 4, 4 {}
    CUjit_option: 4, 4 {}
    CUdeviceptr: 8, 8 {}
    CUstream: 8, 8 {}
    CUuuid: 16, 1 { bytes 0 }
    CUgraphEdgeData: 8, 1 { from_port 0, to_port 1, r#type 2, reserved 3 }
    CUDA_KERNEL_NODE_PARAMS: 72, 8 {
        func 0, gridDimX 8, gridDimY 12, gridDimZ 16, blockDimX 20, blockDimY 24, blockDimZ 28,
        sharedMemBytes 32, kernelParams 40, extra 48, kern 56, ctx 64,
    }
    CUDA_MEMCPY3D: 200, 8 {
        srcXInBytes 0, srcMemoryType 32, srcHost 40, srcDevice 48, srcArray 56, srcPitch 72,
        dstXInBytes 88, dstMemoryType 120, dstHost 128, dstDevice 136, dstPitch 160,
        WidthInBytes 176, Height 184, Depth 192,
    }
    CUDA_MEMSET_NODE_PARAMS: 40, 8 {
        dst 0, pitch 8, value 16, elementSize 20, width 24, height 32,
    }
    CUgraphExecUpdateResultInfo: 24, 8 { result 0, errorNode 8, errorFromNode 16 }
    CUDA_GRAPH_INSTANTIATE_PARAMS: 32, 8 {
        flags 0, hUploadStream 8, hErrNode_out 16, result_out 24,
    }
}
