//! The functions of the table, exported under their exact symbols.

use std::ffi::c_void;

use retrograph_driver_sys::CUresult;

use crate::{export_tables, machine};

/// An exported function that forwards its call. `resolve` defines `cuGetProcAddress_v2`.
macro_rules! export {
    ($field:ident cuGetProcAddress_v2 $($rest:tt)*) => {};
    (required $name:ident ($($arg:ident: $type:ty),*)) => {
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($arg: $type),*) -> CUresult {
            let machine = machine();
            if machine.is_of_parent() && !machine.may_forward_in_child(stringify!($name)) {
                return CUresult::CUDA_ERROR_NOT_INITIALIZED;
            }
            // SAFETY: passed on from the caller, who calls a function of the driver.
            let code = unsafe { (machine.simulator.table().$name)($($arg),*) };
            match stringify!($name) {
                "cuInit" => machine.initialized(code),
                "cuCtxDestroy_v2" | "cuDevicePrimaryCtxRelease_v2"
                | "cuDevicePrimaryCtxReset_v2" => export_tables::destroyed(machine),
                _ => {}
            }
            machine.report(code)
        }
    };
    (optional $name:ident ($($arg:ident: $type:ty),*)) => {
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($arg: $type),*) -> CUresult {
            let machine = machine();
            if machine.is_of_parent() {
                return CUresult::CUDA_ERROR_NOT_INITIALIZED;
            }
            match machine.simulator.table().$name {
                // SAFETY: passed on from the caller, who calls a function of the driver.
                Some(function) => machine.report(unsafe { function($($arg),*) }),
                None => machine.report_missing(stringify!($name), "this driver version lacks it"),
            }
        }
    };
}

macro_rules! exports {
    (
        required { $($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?);)* }
        optional {
            $($(#[$o_doc:meta])* fn $o_name:ident($($o_arg:ident: $o_type:ty),* $(,)?)
                since $since:literal;)*
        }
    ) => {
        #[allow(clippy::too_many_arguments)]
        pub(crate) mod functions {
            use super::*;
            $(export! { required $name ($($arg: $type),*) })*
            $(export! { optional $o_name ($($o_arg: $o_type),*) })*

            /// The exported function with this name.
            pub(super) fn address(name: &str) -> Option<*mut c_void> {
                Some(match name {
                    $(stringify!($name) => address_of!($name),)*
                    $(stringify!($o_name) => address_of!($o_name),)*
                    _ => return None,
                })
            }
        }
    };
}

/// The address of an exported function of this or another module.
macro_rules! address_of {
    (cuGetProcAddress_v2) => {
        crate::resolve::cuGetProcAddress_v2 as *mut c_void
    };
    ($name:ident) => {
        $name as *mut c_void
    };
}

retrograph_driver_sys::driver_functions!(exports);

/// The exported function with this name.
pub(crate) fn address(name: &str) -> Option<*mut c_void> {
    functions::address(name)
}
