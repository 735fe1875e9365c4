//! Earlier versions of functions, which the CUDA runtime and PyCUDA call. Each does what its
//! successor does.

use std::ffi::c_void;

use retrograph_driver_sys::{CUcontext, CUdevice, CUdevice_attribute, CUresult, CUuuid};

macro_rules! earlier {
    ($($name:ident = $successor:ident ($($arg:ident: $type:ty),*);)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($arg: $type),*) -> CUresult {
                // SAFETY: passed on from the caller.
                unsafe { crate::exports::functions::$successor($($arg),*) }
            }
        )*

        /// The exported function with this name.
        pub(crate) fn address(name: &str) -> Option<*mut c_void> {
            Some(match name {
                $(stringify!($name) => $name as *mut c_void,)*
                "cuDeviceComputeCapability" => cuDeviceComputeCapability as *mut c_void,
                _ => return None,
            })
        }
    };
}

earlier! {
    // The usage count is 1, because cuCtxAttach is not simulated.
    cuCtxDetach = cuCtxDestroy_v2(context: CUcontext);
    cuDeviceGetUuid = cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice);
    cuDevicePrimaryCtxRelease = cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    cuDevicePrimaryCtxReset = cuDevicePrimaryCtxReset_v2(device: CUdevice);
    cuDevicePrimaryCtxSetFlags = cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: u32);
}

/// Its successor is the attribute of each part.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceComputeCapability(
    major: *mut i32,
    minor: *mut i32,
    device: CUdevice,
) -> CUresult {
    use CUdevice_attribute as A;
    let parts = [
        (major, A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        (minor, A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
    ];
    for (place, attribute) in parts {
        // SAFETY: passed on from the caller.
        let code =
            unsafe { crate::exports::functions::cuDeviceGetAttribute(place, attribute, device) };
        if code != CUresult::CUDA_SUCCESS {
            return code;
        }
    }
    CUresult::CUDA_SUCCESS
}
