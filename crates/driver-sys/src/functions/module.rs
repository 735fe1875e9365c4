//! Modules, and linking of images.

/// Passes on the functions of this area; see [`driver_functions!`](crate::driver_functions).
#[doc(hidden)]
#[macro_export]
macro_rules! __module_functions {
    ($next:ident $($state:tt)*) => {
        $crate::$next! { $($state)*
        required {
            /// Loads an image from a file.
            fn cuModuleLoad(module: *mut $crate::CUmodule, path: *const $crate::c_char);
            /// Loads an image; PTX ends with a zero byte. The driver does not get the length of the
            /// image.
            fn cuModuleLoadData(module: *mut $crate::CUmodule, image: *const $crate::c_void);
            /// Loads an image with `count` options.
            fn cuModuleLoadDataEx(
                module: *mut $crate::CUmodule, image: *const $crate::c_void, count: u32,
                options: *mut $crate::CUjit_option, values: *mut *mut $crate::c_void
            );
            /// Loads an image from a fat binary; the driver chooses among its parts.
            fn cuModuleLoadFatBinary(module: *mut $crate::CUmodule, image: *const $crate::c_void);
            /// Unloads a module.
            fn cuModuleUnload(module: $crate::CUmodule);
            /// Writes whether the process loads functions lazily or with their module.
            fn cuModuleGetLoadingMode(mode: *mut $crate::CUmoduleLoadingMode);
            /// Writes the function of this name.
            fn cuModuleGetFunction(
                function: *mut $crate::CUfunction, module: $crate::CUmodule,
                name: *const $crate::c_char
            );
            /// Writes address and size of a global variable; either place may be null.
            fn cuModuleGetGlobal_v2(
                address: *mut $crate::CUdeviceptr, bytes: *mut usize, module: $crate::CUmodule,
                name: *const $crate::c_char
            );
            /// Creates a linker, with `count` options. Buffers in the options, such as logs, must
            /// live until the linker is destroyed.
            fn cuLinkCreate_v2(
                count: u32, options: *mut $crate::CUjit_option, values: *mut *mut $crate::c_void,
                state: *mut $crate::CUlinkState
            );
            /// Adds an input from memory, with a name for the logs and `count` options.
            fn cuLinkAddData_v2(
                state: $crate::CUlinkState, kind: $crate::CUjitInputType,
                data: *mut $crate::c_void, size: usize, name: *const $crate::c_char, count: u32,
                options: *mut $crate::CUjit_option, values: *mut *mut $crate::c_void
            );
            /// Adds an input from a file, with `count` options.
            fn cuLinkAddFile_v2(
                state: $crate::CUlinkState, kind: $crate::CUjitInputType,
                path: *const $crate::c_char, count: u32, options: *mut $crate::CUjit_option,
                values: *mut *mut $crate::c_void
            );
            /// Links and writes address and size of the cubin, which belongs to the linker.
            fn cuLinkComplete(
                state: $crate::CUlinkState, cubin: *mut *mut $crate::c_void, size: *mut usize
            );
            /// Destroys a linker.
            fn cuLinkDestroy(state: $crate::CUlinkState);
        }
        optional {
            /// Writes the number of functions of a module.
            fn cuModuleGetFunctionCount(count: *mut u32, module: $crate::CUmodule) since 12040;
            /// Writes at most `count` functions of a module.
            fn cuModuleEnumerateFunctions(
                functions: *mut $crate::CUfunction, count: u32, module: $crate::CUmodule
            ) since 12040;
        }
        }
    };
}
