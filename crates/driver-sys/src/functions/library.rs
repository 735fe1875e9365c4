//! Libraries and kernels: images that are not tied to a context.

/// Passes on the functions of this area; see [`driver_functions!`](crate::driver_functions).
#[doc(hidden)]
#[macro_export]
macro_rules! __library_functions {
    ($next:ident $($state:tt)*) => {
        $crate::$next! { $($state)*
        required {
            /// Loads an image with options of the JIT and of the library.
            fn cuLibraryLoadData(
                library: *mut $crate::CUlibrary, image: *const $crate::c_void,
                jit_options: *mut $crate::CUjit_option, jit_values: *mut *mut $crate::c_void,
                jit_count: u32, library_options: *mut $crate::CUlibraryOption,
                library_values: *mut *mut $crate::c_void, library_count: u32
            );
            /// Loads an image from a file with options of the JIT and of the library.
            fn cuLibraryLoadFromFile(
                library: *mut $crate::CUlibrary, path: *const $crate::c_char,
                jit_options: *mut $crate::CUjit_option, jit_values: *mut *mut $crate::c_void,
                jit_count: u32, library_options: *mut $crate::CUlibraryOption,
                library_values: *mut *mut $crate::c_void, library_count: u32
            );
            /// Unloads a library from all contexts.
            fn cuLibraryUnload(library: $crate::CUlibrary);
            /// Writes the kernel of this name.
            fn cuLibraryGetKernel(
                kernel: *mut $crate::CUkernel, library: $crate::CUlibrary,
                name: *const $crate::c_char
            );
            /// Writes the module of the library in the current context.
            fn cuLibraryGetModule(module: *mut $crate::CUmodule, library: $crate::CUlibrary);
            /// Writes address and size of a global variable in the current context; either place
            /// may be null.
            fn cuLibraryGetGlobal(
                address: *mut $crate::CUdeviceptr, bytes: *mut usize, library: $crate::CUlibrary,
                name: *const $crate::c_char
            );
            /// Writes address and size of a managed variable; either place may be null.
            fn cuLibraryGetManaged(
                address: *mut $crate::CUdeviceptr, bytes: *mut usize, library: $crate::CUlibrary,
                name: *const $crate::c_char
            );
            /// Writes the address of a function that host and device share.
            fn cuLibraryGetUnifiedFunction(
                address: *mut *mut $crate::c_void, library: $crate::CUlibrary,
                symbol: *const $crate::c_char
            );
            /// Writes the function of the kernel in the current context.
            fn cuKernelGetFunction(function: *mut $crate::CUfunction, kernel: $crate::CUkernel);
            /// Writes a property of a kernel on a device.
            fn cuKernelGetAttribute(
                value: *mut i32, attribute: $crate::CUfunction_attribute, kernel: $crate::CUkernel,
                device: $crate::CUdevice
            );
            /// Sets a property of a kernel on a device.
            fn cuKernelSetAttribute(
                attribute: $crate::CUfunction_attribute, value: i32, kernel: $crate::CUkernel,
                device: $crate::CUdevice
            );
            /// Sets the preferred cache configuration of a kernel on a device.
            fn cuKernelSetCacheConfig(
                kernel: $crate::CUkernel, config: $crate::CUfunc_cache, device: $crate::CUdevice
            );
        }
        optional {
            /// Writes the number of kernels of a library.
            fn cuLibraryGetKernelCount(count: *mut u32, library: $crate::CUlibrary) since 12040;
            /// Writes at most `count` kernels of a library.
            fn cuLibraryEnumerateKernels(
                kernels: *mut $crate::CUkernel, count: u32, library: $crate::CUlibrary
            ) since 12040;
            /// Writes the library of a kernel.
            fn cuKernelGetLibrary(
                library: *mut $crate::CUlibrary, kernel: $crate::CUkernel
            ) since 12050;
            /// Writes the name of a kernel; the text belongs to the library.
            fn cuKernelGetName(
                name: *mut *const $crate::c_char, kernel: $crate::CUkernel
            ) since 12030;
            /// Writes the offset and size of a parameter in the parameter block, in bytes;
            /// an index past the last one is refused.
            fn cuKernelGetParamInfo(
                kernel: $crate::CUkernel, index: usize, offset: *mut usize, size: *mut usize
            ) since 12040;
        }
        }
    };
}
