//! Driver calls of a thread while another one captures, past the crate. Frees and waits are among
//! them to learn what they do: this crate lets none of them happen during a capture.

use std::ffi::CString;

use retrograph_driver_sys::{
    CU_EVENT_DEFAULT, CU_STREAM_NON_BLOCKING, CUcontext, CUdeviceptr, CUevent, CUmodule, CUstream,
};
use retrograph_runtime::DeviceIndex;

use crate::disturbers::Disturb;
use crate::ptx::SCALE;

/// Calls the driver in the disturber's context. What the call says is noted if it is no success,
/// and then nothing follows it.
macro_rules! raw {
    ($disturber:ident, $function:ident($($argument:expr),*)) => {{
        let context = &$disturber.device.context;
        context.bind().unwrap();
        // SAFETY: places and handles of the callers are valid, ranges are those of the buffer, and
        // each handle is destroyed once.
        let code = unsafe { (context.table().$function)($($argument),*) };
        if !code.is_success() {
            $disturber.note(format!("{}: {code}", stringify!($function)));
            return;
        }
    }};
}

/// Known from hardware to break captures of every thread.
pub(crate) const WAIT: (&str, Disturb) = ("cuCtxSynchronize", |d| raw!(d, cuCtxSynchronize()));

/// What the crate puts off while a thread captures, each with what makes it possible, and what it
/// never does.
pub(crate) const PUT_OFF: [(&str, Disturb); 8] = [
    ("cuMemAlloc + cuMemFree", |d| {
        let mut address: CUdeviceptr = 0;
        raw!(d, cuMemAlloc_v2(&mut address, 4096));
        raw!(d, cuMemFree_v2(address));
    }),
    ("cuMemHostAlloc + cuMemFreeHost", |d| {
        let mut at = std::ptr::null_mut();
        raw!(d, cuMemHostAlloc(&mut at, 4096, 0));
        raw!(d, cuMemFreeHost(at));
    }),
    ("cuStreamCreate + cuStreamDestroy", |d| {
        let mut stream = CUstream::NULL;
        raw!(d, cuStreamCreate(&mut stream, CU_STREAM_NON_BLOCKING));
        raw!(d, cuStreamDestroy_v2(stream));
    }),
    ("cuEventCreate + cuEventDestroy", |d| {
        let mut event = CUevent::NULL;
        raw!(d, cuEventCreate(&mut event, CU_EVENT_DEFAULT));
        raw!(d, cuEventDestroy_v2(event));
    }),
    ("cuModuleLoadData + cuModuleUnload", |d| {
        let (mut module, text) = (CUmodule::NULL, CString::new(SCALE).unwrap());
        raw!(d, cuModuleLoadData(&mut module, text.as_ptr().cast()));
        raw!(d, cuModuleUnload(module));
    }),
    ("cuDevicePrimaryCtxRetain + Release", |d| {
        let DeviceIndex(index) = d.device.context.index();
        let (mut context, mut device) = (CUcontext::NULL, 0);
        raw!(d, cuDeviceGet(&mut device, index.cast_signed()));
        raw!(d, cuDevicePrimaryCtxRetain(&mut context, device));
        raw!(d, cuDevicePrimaryCtxRelease_v2(device));
    }),
    ("cuMemcpyHtoD on the legacy stream", |d| {
        let words = [0_u32; 8];
        raw!(d, cuMemcpyHtoD_v2(d.buffer.address(), words.as_ptr().cast(), 32));
    }),
    ("cuMemsetD32 on the legacy stream", |d| raw!(d, cuMemsetD32_v2(d.buffer.address(), 0, 8))),
];
