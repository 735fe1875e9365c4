//! Sizes, alignments and offsets of every struct and union, fixed at compile time.
//!
//! A C program printed the numbers from the cuda.h of CUDA 13.0 on x86_64; 12.9 has the same. A
//! change that would move a field does not compile. A type without a name in cuda.h is measured
//! through the struct that contains it.

use std::mem::{align_of, offset_of, size_of};

use crate::*;

/// Asserts size, alignment and the offsets of fields.
macro_rules! layout {
    ($($type:ty: $size:literal, $align:literal { $($field:ident $offset:literal),* $(,)? })*) => {
        $(
            const _: () = assert!(size_of::<$type>() == $size);
            const _: () = assert!(align_of::<$type>() == $align);
            $(const _: () = assert!(offset_of!($type, $field) == $offset);)*
        )*

        /// Every type above, so that a test can detect missing ones.
        #[cfg(test)]
        const ASSERTED: &[&str] = &[$(stringify!($type)),*];
    };
}

layout! {
    CUaccessPolicyWindow: 32, 8 { base_ptr 0, num_bytes 8, hitRatio 16, hitProp 20, missProp 24 }
    CUctxCigParam: 16, 8 { sharedDataType 0, sharedData 8 }
    CUctxCreateParams: 24, 8 { execAffinityParams 0, numExecAffinityParams 8, cigParams 16 }
    CUDA_ARRAY_DESCRIPTOR: 24, 8 { Width 0, Height 8, Format 16, NumChannels 20 }
    CUDA_ARRAY3D_DESCRIPTOR: 40, 8 {
        Width 0, Height 8, Depth 16, Format 24, NumChannels 28, Flags 32,
    }
    CUDA_BATCH_MEM_OP_NODE_PARAMS: 32, 8 { ctx 0, count 8, paramArray 16, flags 24 }
    CUDA_CHILD_GRAPH_NODE_PARAMS: 16, 8 { graph 0, ownership 8 }
    CUDA_CONDITIONAL_NODE_PARAMS: 32, 8 { handle 0, r#type 8, size 12, phGraph_out 16, ctx 24 }
    CUDA_EVENT_RECORD_NODE_PARAMS: 8, 8 { event 0 }
    CUDA_EVENT_WAIT_NODE_PARAMS: 8, 8 { event 0 }
    CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2: 24, 8 { extSemArray 0, paramsArray 8, numExtSems 16 }
    CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2: 24, 8 { extSemArray 0, paramsArray 8, numExtSems 16 }
    CUDA_GRAPH_INSTANTIATE_PARAMS: 32, 8 {
        flags 0, hUploadStream 8, hErrNode_out 16, result_out 24,
    }
    CUDA_HOST_NODE_PARAMS: 16, 8 { r#fn 0, userData 8 }
    CUDA_KERNEL_NODE_PARAMS: 72, 8 {
        func 0, gridDimX 8, gridDimY 12, gridDimZ 16, blockDimX 20, blockDimY 24, blockDimZ 28,
        sharedMemBytes 32, kernelParams 40, extra 48, kern 56, ctx 64,
    }
    CUDA_MEM_ALLOC_NODE_PARAMS: 120, 8 {
        poolProps 0, accessDescs 88, accessDescCount 96, bytesize 104, dptr 112,
    }
    CUDA_MEM_FREE_NODE_PARAMS: 8, 8 { dptr 0 }
    CUDA_MEMCPY2D: 128, 8 {
        srcXInBytes 0, srcY 8, srcMemoryType 16, srcHost 24, srcDevice 32, srcArray 40, srcPitch 48,
        dstXInBytes 56, dstY 64, dstMemoryType 72, dstHost 80, dstDevice 88, dstArray 96,
        dstPitch 104, WidthInBytes 112, Height 120,
    }
    CUDA_MEMCPY3D: 200, 8 {
        srcXInBytes 0, srcY 8, srcZ 16, srcLOD 24, srcMemoryType 32, srcHost 40, srcDevice 48,
        srcArray 56, reserved0 64, srcPitch 72, srcHeight 80, dstXInBytes 88, dstY 96, dstZ 104,
        dstLOD 112, dstMemoryType 120, dstHost 128, dstDevice 136, dstArray 144, reserved1 152,
        dstPitch 160, dstHeight 168, WidthInBytes 176, Height 184, Depth 192,
    }
    CUDA_MEMCPY3D_BATCH_OP: 112, 8 { src 0, dst 40, extent 80, srcAccessOrder 104, flags 108 }
    CUDA_MEMCPY3D_PEER: 200, 8 {
        srcXInBytes 0, srcY 8, srcZ 16, srcLOD 24, srcMemoryType 32, srcHost 40, srcDevice 48,
        srcArray 56, srcContext 64, srcPitch 72, srcHeight 80, dstXInBytes 88, dstY 96, dstZ 104,
        dstLOD 112, dstMemoryType 120, dstHost 128, dstDevice 136, dstArray 144, dstContext 152,
        dstPitch 160, dstHeight 168, WidthInBytes 176, Height 184, Depth 192,
    }
    CUDA_MEMCPY_NODE_PARAMS: 216, 8 { flags 0, reserved 4, copyCtx 8, copyParams 16 }
    CUDA_MEMSET_NODE_PARAMS: 40, 8 { dst 0, pitch 8, value 16, elementSize 20, width 24, height 32 }
    CUDA_MEMSET_NODE_PARAMS_v2: 48, 8 {
        dst 0, pitch 8, value 16, elementSize 20, width 24, height 32, ctx 40,
    }
    CUdevResource: 144, 4 { r#type 0, _internal_padding 4, anonymous 96 }
    CUdevSmResource: 12, 4 { smCount 0, minSmPartitionSize 4, smCoscheduledAlignment 8 }
    CUexecAffinityParam: 8, 4 { r#type 0, param 4 }
    CUexecAffinityParam_param: 4, 4 { smCount 0 }
    CUexecAffinitySmCount: 4, 4 { val 0 }
    CUextent3D: 24, 8 { width 0, height 8, depth 16 }
    CUgraphEdgeData: 8, 1 { from_port 0, to_port 1, r#type 2, reserved 3 }
    CUgraphExecUpdateResultInfo: 24, 8 { result 0, errorNode 8, errorFromNode 16 }
    CUgraphNodeParams: 256, 8 { r#type 0, reserved0 4, reserved2 248 }
    CUlaunchAttribute: 72, 8 { id 0, pad 4, value 8 }
    CUlaunchAttributeValue: 64, 8 {
        pad 0, accessPolicyWindow 0, cooperative 0, syncPolicy 0, clusterDim 0,
        clusterSchedulingPolicyPreference 0, programmaticStreamSerializationAllowed 0,
        programmaticEvent 0, launchCompletionEvent 0, priority 0, memSyncDomainMap 0,
        memSyncDomain 0, preferredClusterDim 0, deviceUpdatableKernelNode 0, sharedMemCarveout 0,
        nvlinkUtilCentricScheduling 0,
    }
    CUlaunchAttributeValue_clusterDim: 12, 4 { x 0, y 4, z 8 }
    CUlaunchAttributeValue_deviceUpdatableKernelNode: 16, 8 { deviceUpdatable 0, devNode 8 }
    CUlaunchAttributeValue_launchCompletionEvent: 16, 8 { event 0, flags 8 }
    CUlaunchAttributeValue_preferredClusterDim: 12, 4 { x 0, y 4, z 8 }
    CUlaunchAttributeValue_programmaticEvent: 16, 8 { event 0, flags 8, triggerAtBlockStart 12 }
    CUlaunchConfig: 56, 8 {
        gridDimX 0, gridDimY 4, gridDimZ 8, blockDimX 12, blockDimY 16, blockDimZ 20,
        sharedMemBytes 24, hStream 32, attrs 40, numAttrs 48,
    }
    CUlaunchMemSyncDomainMap: 2, 1 { default_ 0, remote 1 }
    CUlibraryHostUniversalFunctionAndDataTable: 32, 8 {
        functionTable 0, functionWindowSize 8, dataTable 16, dataWindowSize 24,
    }
    CUmemAccessDesc: 12, 4 { location 0, flags 8 }
    CUmemAllocationProp: 32, 8 {
        r#type 0, requestedHandleTypes 4, location 8, win32HandleMetaData 16, allocFlags 24,
    }
    CUmemAllocationProp_allocFlags: 8, 2 {
        compressionType 0, gpuDirectRDMACapable 1, usage 2, reserved 4,
    }
    CUmemcpy3DOperand: 40, 8 { r#type 0, op 8 }
    CUmemcpy3DOperand_op: 32, 8 { ptr 0, array 0 }
    CUmemcpy3DOperand_op_array: 32, 8 { array 0, offset 8 }
    CUmemcpy3DOperand_op_ptr: 32, 8 { ptr 0, rowLength 8, layerHeight 16, locHint 24 }
    CUmemcpyAttributes: 24, 4 { srcAccessOrder 0, srcLocHint 4, dstLocHint 12, flags 20 }
    CUmemLocation: 8, 4 { r#type 0, id 4 }
    CUmemPoolProps: 88, 8 {
        allocType 0, handleTypes 4, location 8, win32SecurityAttributes 16, maxSize 24, usage 32,
        reserved 34,
    }
    CUmemPoolPtrExportData: 64, 1 { reserved 0 }
    CUoffset3D: 24, 8 { x 0, y 8, z 16 }
    CUstreamBatchMemOpParams: 48, 8 {
        operation 0, waitValue 0, writeValue 0, flushRemoteWrites 0, memoryBarrier 0, pad 0,
    }
    CUstreamMemOpFlushRemoteWritesParams: 8, 4 { operation 0, flags 4 }
    CUstreamMemOpMemoryBarrierParams: 8, 4 { operation 0, flags 4 }
    CUstreamMemOpWaitValueParams: 40, 8 { operation 0, address 8, flags 24, alias 32 }
    CUstreamMemOpWriteValueParams: 40, 8 { operation 0, address 8, flags 24, alias 32 }
    CUtensorMap: 128, 128 { opaque 0 }
    CUuuid: 16, 1 { bytes 0 }
}

// Enumerations and handles are one integer or pointer each; one of each kind is checked for all,
// because the same macros make them.
const _: () = assert!(size_of::<CUresult>() == 4 && size_of::<CUjit_option>() == 4);
const _: () = assert!(size_of::<CUdeviceptr>() == 8 && size_of::<CUstream>() == 8);
const _: () = assert!(size_of::<CUhostFn>() == 8 && size_of::<CUdevice>() == 4);

#[cfg(test)]
mod tests {
    /// A type without a name in C: its content is asserted through the struct around it.
    const UNNAMED: &[&str] = &[
        "CUdevResource_anonymous",
        "CUgraphNodeParams_anonymous",
        "CUstreamMemOpValueParams_anonymous",
    ];

    #[test]
    fn every_layout_is_asserted() {
        let missing: Vec<_> = crate::layouts::all()
            .map(|layout| layout.name)
            .filter(|name| !super::ASSERTED.contains(name) && !UNNAMED.contains(name))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
