//! Earlier versions of functions, which the CUDA runtime calls. Each does what its successor does.

use std::ffi::c_void;

use retrograph_driver_sys::{CUdevice, CUresult, CUuuid};

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
                _ => return None,
            })
        }
    };
}

earlier! {
    cuDeviceGetUuid = cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice);
    cuDevicePrimaryCtxRelease = cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    cuDevicePrimaryCtxReset = cuDevicePrimaryCtxReset_v2(device: CUdevice);
    cuDevicePrimaryCtxSetFlags = cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: u32);
}
