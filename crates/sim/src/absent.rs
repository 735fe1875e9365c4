//! Functions of cuda.h and cudaProfiler.h 13.0 that the table of driver-sys lacks: other areas and
//! earlier versions, also of functions for the per-thread default stream (`_ptsz`).
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
    cuCtxDestroy cuCtxGetSharedMemConfig
    cuCtxPopCurrent cuCtxPushCurrent cuCtxSetSharedMemConfig cuDestroyExternalMemory
    cuDestroyExternalSemaphore
    cuDeviceGetNvSciSyncAttributes
    cuDeviceGetProperties cuDeviceGetTexture1DLinearMaxWidth
    cuDeviceRegisterAsyncNotification cuDeviceTotalMem cuDeviceUnregisterAsyncNotification
    cuEventDestroy cuExternalMemoryGetMappedBuffer
    cuExternalMemoryGetMappedMipmappedArray cuFlushGPUDirectRDMAWrites
    cuFuncSetSharedMemConfig
    cuGraphAddExternalSemaphoresSignalNode cuGraphAddExternalSemaphoresWaitNode
    cuGraphAddKernelNode cuGraphExecExternalSemaphoresSignalNodeSetParams
    cuGraphExecExternalSemaphoresWaitNodeSetParams cuGraphExecKernelNodeSetParams
    cuGraphExecUpdate cuGraphExternalSemaphoresSignalNodeGetParams
    cuGraphExternalSemaphoresSignalNodeSetParams cuGraphExternalSemaphoresWaitNodeGetParams
    cuGraphExternalSemaphoresWaitNodeSetParams cuGraphInstantiate
    cuGraphInstantiate_v2 cuGraphKernelNodeGetParams
    cuGraphKernelNodeSetParams cuGraphicsMapResources
    cuGraphicsMapResources_ptsz cuGraphicsResourceGetMappedMipmappedArray
    cuGraphicsResourceGetMappedPointer cuGraphicsResourceGetMappedPointer_v2
    cuGraphicsResourceSetMapFlags cuGraphicsResourceSetMapFlags_v2
    cuGraphicsSubResourceGetMappedArray cuGraphicsUnmapResources cuGraphicsUnmapResources_ptsz
    cuGraphicsUnregisterResource
    cuGreenCtxGetId cuGreenCtxRecordEvent cuGreenCtxWaitEvent
    cuImportExternalMemory cuImportExternalSemaphore cuIpcCloseMemHandle cuIpcGetEventHandle
    cuIpcGetMemHandle cuIpcOpenEventHandle cuIpcOpenMemHandle cuIpcOpenMemHandle_v2
    cuLaunchCooperativeKernelMultiDevice
    cuLinkAddData cuLinkAddFile cuLinkCreate cuLogsCurrent cuLogsDumpToFile cuLogsDumpToMemory
    cuLogsRegisterCallback cuLogsUnregisterCallback cuMemAlloc
    cuMemAllocHost cuMemAllocPitch cuMemBatchDecompressAsync
    cuMemBatchDecompressAsync_ptsz
    cuMemFree cuMemGetAddressRange cuMemGetInfo
    cuMemHostGetDevicePointer cuMemHostRegister cuMemMapArrayAsync cuMemMapArrayAsync_ptsz
    cuMemcpy2D
    cuMemcpy2DAsync cuMemcpy2DUnaligned
    cuMemcpy3D cuMemcpy3DAsync cuMemcpy3DBatchAsync
    cuMemcpy3DBatchAsync_ptsz
    cuMemcpyAtoA
    cuMemcpyAtoD cuMemcpyAtoH
    cuMemcpyAtoHAsync
    cuMemcpyBatchAsync cuMemcpyBatchAsync_ptsz
    cuMemcpyDtoA cuMemcpyDtoD cuMemcpyDtoDAsync
    cuMemcpyDtoH cuMemcpyDtoHAsync
    cuMemcpyHtoA cuMemcpyHtoAAsync
    cuMemcpyHtoD cuMemcpyHtoDAsync
    cuMemsetD16
    cuMemsetD2D16 cuMemsetD2D32
    cuMemsetD2D8
    cuMemsetD32 cuMemsetD8
    cuMipmappedArrayCreate cuMipmappedArrayDestroy
    cuMipmappedArrayGetLevel cuMipmappedArrayGetMemoryRequirements
    cuMipmappedArrayGetSparseProperties cuModuleGetGlobal cuModuleGetSurfRef cuModuleGetTexRef
    cuMulticastAddDevice cuMulticastBindAddr cuMulticastBindMem cuMulticastCreate
    cuMulticastGetGranularity cuMulticastUnbind cuParamSetTexRef cuProfilerInitialize
    cuSignalExternalSemaphoresAsync cuSignalExternalSemaphoresAsync_ptsz
    cuStreamBatchMemOp
    cuStreamBatchMemOp_ptsz cuStreamBeginCapture
    cuStreamBeginCapture_ptsz
    cuStreamDestroy
    cuStreamGetCaptureInfo cuStreamGetCaptureInfo_ptsz
    cuStreamGetGreenCtx
    cuStreamWaitValue32
    cuStreamWaitValue32_ptsz cuStreamWaitValue64
    cuStreamWaitValue64_ptsz cuStreamWriteValue32
    cuStreamWriteValue32_ptsz cuStreamWriteValue64
    cuStreamWriteValue64_ptsz cuSurfObjectCreate cuSurfObjectDestroy
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
