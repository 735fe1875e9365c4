//! Functions of cuda.h and cudaProfiler.h 13.0 that the table of driver-sys lacks: other areas,
//! earlier versions, and the versions for the per-thread default stream (`_ptsz`, `_ptds`).
//!
//! They are exported so that programs that link to them can start. Calling one reports that it is
//! missing.

use std::ffi::c_void;

use retrograph_driver_sys::CUresult;

use crate::machine;

const WHY: &str = "not simulated: retrograph-driver-sys has no such function";

macro_rules! absent {
    ($($name:ident)*) => {
        mod functions {
            use super::*;
            // Declared without arguments: they are ignored, and in the C ABI the caller cleans
            // them up.
            $(
                #[unsafe(no_mangle)]
                extern "C" fn $name() -> CUresult {
                    machine().report_missing(stringify!($name), WHY)
                }
            )*

            /// The exported function with this name.
            pub(super) fn address(name: &str) -> Option<*mut c_void> {
                Some(match name {
                    $(stringify!($name) => $name as *mut c_void,)*
                    _ => return None,
                })
            }
        }
    };
}

/// The exported function with this name.
pub(crate) fn address(name: &str) -> Option<*mut c_void> {
    functions::address(name)
}

absent! {
    cuArray3DCreate cuArray3DGetDescriptor
    cuArrayCreate cuArrayGetDescriptor
    cuArrayGetMemoryRequirements cuArrayGetPlane cuArrayGetSparseProperties
    cuCheckpointProcessCheckpoint cuCheckpointProcessGetRestoreThreadId
    cuCheckpointProcessGetState cuCheckpointProcessLock cuCheckpointProcessRestore
    cuCheckpointProcessUnlock
    cuCtxAttach cuCtxCreate cuCtxCreate_v3
    cuCtxDestroy cuCtxDetach cuCtxFromGreenCtx cuCtxGetSharedMemConfig
    cuCtxPopCurrent cuCtxPushCurrent cuCtxSetSharedMemConfig cuDestroyExternalMemory
    cuDestroyExternalSemaphore cuDevResourceGenerateDesc
    cuDeviceComputeCapability cuDeviceGetNvSciSyncAttributes
    cuDeviceGetProperties cuDeviceGetTexture1DLinearMaxWidth
    cuDeviceRegisterAsyncNotification cuDeviceTotalMem cuDeviceUnregisterAsyncNotification
    cuEventDestroy cuEventRecordWithFlags_ptsz cuEventRecord_ptsz cuExternalMemoryGetMappedBuffer
    cuExternalMemoryGetMappedMipmappedArray cuFlushGPUDirectRDMAWrites
    cuFuncSetSharedMemConfig
    cuGraphAddExternalSemaphoresSignalNode cuGraphAddExternalSemaphoresWaitNode
    cuGraphAddKernelNode cuGraphExecExternalSemaphoresSignalNodeSetParams
    cuGraphExecExternalSemaphoresWaitNodeSetParams cuGraphExecKernelNodeSetParams
    cuGraphExecUpdate cuGraphExternalSemaphoresSignalNodeGetParams
    cuGraphExternalSemaphoresSignalNodeSetParams cuGraphExternalSemaphoresWaitNodeGetParams
    cuGraphExternalSemaphoresWaitNodeSetParams cuGraphInstantiate
    cuGraphInstantiateWithParams_ptsz cuGraphInstantiate_v2 cuGraphKernelNodeGetParams
    cuGraphKernelNodeSetParams cuGraphLaunch_ptsz cuGraphUpload_ptsz cuGraphicsMapResources
    cuGraphicsMapResources_ptsz cuGraphicsResourceGetMappedMipmappedArray
    cuGraphicsResourceGetMappedPointer cuGraphicsResourceGetMappedPointer_v2
    cuGraphicsResourceSetMapFlags cuGraphicsResourceSetMapFlags_v2
    cuGraphicsSubResourceGetMappedArray cuGraphicsUnmapResources cuGraphicsUnmapResources_ptsz
    cuGraphicsUnregisterResource cuGreenCtxCreate cuGreenCtxDestroy cuGreenCtxGetDevResource
    cuGreenCtxGetId cuGreenCtxRecordEvent cuGreenCtxStreamCreate cuGreenCtxWaitEvent
    cuImportExternalMemory cuImportExternalSemaphore cuIpcCloseMemHandle cuIpcGetEventHandle
    cuIpcGetMemHandle cuIpcOpenEventHandle cuIpcOpenMemHandle cuIpcOpenMemHandle_v2
    cuLaunchCooperativeKernelMultiDevice cuLaunchCooperativeKernel_ptsz
    cuLaunchHostFunc_ptsz cuLaunchKernelEx_ptsz cuLaunchKernel_ptsz
    cuLinkAddData cuLinkAddFile cuLinkCreate cuLogsCurrent cuLogsDumpToFile cuLogsDumpToMemory
    cuLogsRegisterCallback cuLogsUnregisterCallback cuMemAlloc cuMemAllocAsync_ptsz
    cuMemAllocFromPoolAsync_ptsz cuMemAllocHost cuMemAllocPitch cuMemBatchDecompressAsync
    cuMemBatchDecompressAsync_ptsz cuMemDiscardAndPrefetchBatchAsync_ptsz
    cuMemDiscardBatchAsync_ptsz cuMemFree cuMemFreeAsync_ptsz cuMemGetAddressRange cuMemGetInfo
    cuMemHostGetDevicePointer cuMemHostRegister cuMemMapArrayAsync cuMemMapArrayAsync_ptsz
    cuMemPrefetchAsync_ptsz cuMemPrefetchAsync_v2_ptsz cuMemPrefetchBatchAsync_ptsz cuMemcpy2D
    cuMemcpy2DAsync cuMemcpy2DAsync_v2_ptsz cuMemcpy2DUnaligned cuMemcpy2DUnaligned_v2_ptds
    cuMemcpy2D_v2_ptds cuMemcpy3D cuMemcpy3DAsync cuMemcpy3DAsync_v2_ptsz cuMemcpy3DBatchAsync
    cuMemcpy3DBatchAsync_ptsz cuMemcpy3DBatchAsync_v2_ptsz cuMemcpy3DPeerAsync_ptsz
    cuMemcpy3DPeer_ptds cuMemcpy3D_v2_ptds cuMemcpyAsync_ptsz cuMemcpyAtoA
    cuMemcpyAtoA_v2_ptds cuMemcpyAtoD cuMemcpyAtoD_v2_ptds cuMemcpyAtoH
    cuMemcpyAtoHAsync cuMemcpyAtoHAsync_v2_ptsz
    cuMemcpyAtoH_v2_ptds cuMemcpyBatchAsync cuMemcpyBatchAsync_ptsz cuMemcpyBatchAsync_v2_ptsz
    cuMemcpyDtoA cuMemcpyDtoA_v2_ptds cuMemcpyDtoD cuMemcpyDtoDAsync
    cuMemcpyDtoDAsync_v2_ptsz cuMemcpyDtoD_v2_ptds cuMemcpyDtoH cuMemcpyDtoHAsync
    cuMemcpyDtoHAsync_v2_ptsz cuMemcpyDtoH_v2_ptds cuMemcpyHtoA cuMemcpyHtoAAsync
    cuMemcpyHtoAAsync_v2_ptsz cuMemcpyHtoA_v2_ptds
    cuMemcpyHtoD cuMemcpyHtoDAsync cuMemcpyHtoDAsync_v2_ptsz cuMemcpyHtoD_v2_ptds
    cuMemcpyPeerAsync_ptsz cuMemcpyPeer_ptds cuMemcpy_ptds cuMemsetD16 cuMemsetD16Async_ptsz
    cuMemsetD16_v2_ptds cuMemsetD2D16 cuMemsetD2D16Async_ptsz cuMemsetD2D16_v2_ptds cuMemsetD2D32
    cuMemsetD2D32Async_ptsz cuMemsetD2D32_v2_ptds cuMemsetD2D8 cuMemsetD2D8Async_ptsz
    cuMemsetD2D8_v2_ptds cuMemsetD32 cuMemsetD32Async_ptsz cuMemsetD32_v2_ptds cuMemsetD8
    cuMemsetD8Async_ptsz cuMemsetD8_v2_ptds cuMipmappedArrayCreate cuMipmappedArrayDestroy
    cuMipmappedArrayGetLevel cuMipmappedArrayGetMemoryRequirements
    cuMipmappedArrayGetSparseProperties cuModuleGetGlobal cuModuleGetSurfRef cuModuleGetTexRef
    cuMulticastAddDevice cuMulticastBindAddr cuMulticastBindMem cuMulticastCreate
    cuMulticastGetGranularity cuMulticastUnbind cuParamSetTexRef cuProfilerInitialize
    cuSignalExternalSemaphoresAsync cuSignalExternalSemaphoresAsync_ptsz
    cuStreamAddCallback_ptsz cuStreamAttachMemAsync_ptsz cuStreamBatchMemOp
    cuStreamBatchMemOp_ptsz cuStreamBatchMemOp_v2_ptsz cuStreamBeginCapture
    cuStreamBeginCaptureToGraph_ptsz cuStreamBeginCapture_ptsz cuStreamBeginCapture_v2_ptsz
    cuStreamCopyAttributes_ptsz cuStreamDestroy cuStreamEndCapture_ptsz cuStreamGetAttribute_ptsz
    cuStreamGetCaptureInfo cuStreamGetCaptureInfo_ptsz cuStreamGetCaptureInfo_v2_ptsz
    cuStreamGetCaptureInfo_v3_ptsz cuStreamGetCtx_ptsz cuStreamGetCtx_v2_ptsz
    cuStreamGetDevice_ptsz cuStreamGetFlags_ptsz cuStreamGetGreenCtx cuStreamGetId_ptsz
    cuStreamGetPriority_ptsz cuStreamIsCapturing_ptsz cuStreamQuery_ptsz cuStreamSetAttribute_ptsz
    cuStreamSynchronize_ptsz cuStreamUpdateCaptureDependencies_ptsz
    cuStreamUpdateCaptureDependencies_v2_ptsz cuStreamWaitEvent_ptsz cuStreamWaitValue32
    cuStreamWaitValue32_ptsz cuStreamWaitValue32_v2_ptsz cuStreamWaitValue64
    cuStreamWaitValue64_ptsz cuStreamWaitValue64_v2_ptsz cuStreamWriteValue32
    cuStreamWriteValue32_ptsz cuStreamWriteValue32_v2_ptsz cuStreamWriteValue64
    cuStreamWriteValue64_ptsz cuStreamWriteValue64_v2_ptsz cuSurfObjectCreate cuSurfObjectDestroy
    cuSurfObjectGetResourceDesc cuSurfRefGetArray cuSurfRefSetArray cuTensorMapEncodeIm2col
    cuTensorMapEncodeIm2colWide cuTexObjectCreate
    cuTexObjectDestroy cuTexObjectGetResourceDesc cuTexObjectGetResourceViewDesc
    cuTexObjectGetTextureDesc cuTexRefCreate cuTexRefDestroy cuTexRefGetAddress
    cuTexRefGetAddressMode cuTexRefGetAddress_v2 cuTexRefGetArray cuTexRefGetBorderColor
    cuTexRefGetFilterMode cuTexRefGetFlags cuTexRefGetFormat cuTexRefGetMaxAnisotropy
    cuTexRefGetMipmapFilterMode cuTexRefGetMipmapLevelBias cuTexRefGetMipmapLevelClamp
    cuTexRefGetMipmappedArray cuTexRefSetAddress cuTexRefSetAddress2D cuTexRefSetAddress2D_v2
    cuTexRefSetAddress2D_v3 cuTexRefSetAddressMode cuTexRefSetAddress_v2 cuTexRefSetArray
    cuTexRefSetBorderColor cuTexRefSetFilterMode cuTexRefSetFlags cuTexRefSetFormat
    cuTexRefSetMaxAnisotropy cuTexRefSetMipmapFilterMode cuTexRefSetMipmapLevelBias
    cuTexRefSetMipmapLevelClamp cuTexRefSetMipmappedArray cuWaitExternalSemaphoresAsync
    cuWaitExternalSemaphoresAsync_ptsz
}
