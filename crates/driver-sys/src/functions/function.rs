//! Functions and their launch.

/// Passes on the functions of this area; see [`driver_functions!`](crate::driver_functions).
#[doc(hidden)]
#[macro_export]
macro_rules! __function_functions {
    ($next:ident $($state:tt)*) => {
        $crate::$next! { $($state)*
        required {
            /// Writes a property of a function.
            fn cuFuncGetAttribute(
                value: *mut i32, attribute: $crate::CUfunction_attribute,
                function: $crate::CUfunction
            );
            /// Sets a property of a function.
            fn cuFuncSetAttribute(
                function: $crate::CUfunction, attribute: $crate::CUfunction_attribute, value: i32
            );
            /// Sets the preferred cache configuration of a function.
            fn cuFuncSetCacheConfig(function: $crate::CUfunction, config: $crate::CUfunc_cache);
            /// Writes the module that holds a function.
            fn cuFuncGetModule(module: *mut $crate::CUmodule, function: $crate::CUfunction);
            /// Launches a function; the parameter values are copied during the call.
            fn cuLaunchKernel(
                function: $crate::CUfunction, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32,
                block_y: u32, block_z: u32, shared_bytes: u32, stream: $crate::CUstream,
                parameters: *mut *mut $crate::c_void, extra: *mut *mut $crate::c_void
            );
            /// Launches a function with attributes; the parameter values are copied during the
            /// call.
            fn cuLaunchKernelEx(
                config: *const $crate::CUlaunchConfig, function: $crate::CUfunction,
                parameters: *mut *mut $crate::c_void, extra: *mut *mut $crate::c_void
            );
            /// Launches a function with all blocks resident at once, so that they can wait for each
            /// other.
            fn cuLaunchCooperativeKernel(
                function: $crate::CUfunction, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32,
                block_y: u32, block_z: u32, shared_bytes: u32, stream: $crate::CUstream,
                parameters: *mut *mut $crate::c_void
            );
            /// Sets the block shape of legacy launches of a function.
            fn cuFuncSetBlockShape(function: $crate::CUfunction, x: i32, y: i32, z: i32);
            /// Sets the dynamic shared memory of legacy launches of a function, in bytes.
            fn cuFuncSetSharedSize(function: $crate::CUfunction, bytes: u32);
            /// Sets the size of the parameters of legacy launches of a function, in bytes.
            fn cuParamSetSize(function: $crate::CUfunction, bytes: u32);
            /// Sets four bytes of the parameters of legacy launches, at an offset in bytes.
            fn cuParamSeti(function: $crate::CUfunction, offset: i32, value: u32);
            /// Sets a float in the parameters of legacy launches, at an offset in bytes.
            fn cuParamSetf(function: $crate::CUfunction, offset: i32, value: f32);
            /// Copies bytes into the parameters of legacy launches, at an offset in bytes.
            fn cuParamSetv(
                function: $crate::CUfunction, offset: i32, value: *mut $crate::c_void, bytes: u32
            );
            /// Launches one block with what was set for legacy launches, on the default stream.
            fn cuLaunch(function: $crate::CUfunction);
            /// Launches a grid with what was set for legacy launches, on the default stream.
            fn cuLaunchGrid(function: $crate::CUfunction, width: i32, height: i32);
            /// Launches a grid with what was set for legacy launches. `cuLaunchKernel` invalidates
            /// what was set.
            fn cuLaunchGridAsync(
                function: $crate::CUfunction, width: i32, height: i32, stream: $crate::CUstream
            );
            /// Calls a host function in stream order. It must not call the driver, and it is not
            /// called after an error.
            fn cuLaunchHostFunc(
                stream: $crate::CUstream, function: $crate::CUhostFn, data: *mut $crate::c_void
            );
        }
        optional {
            /// Writes the name of a function; the text belongs to the module.
            fn cuFuncGetName(
                name: *mut *const $crate::c_char, function: $crate::CUfunction
            ) since 12030;
            /// Writes the offset and size of a parameter in the parameter block, in bytes;
            /// an index past the last one is refused.
            fn cuFuncGetParamInfo(
                function: $crate::CUfunction, index: usize, offset: *mut usize, size: *mut usize
            ) since 12040;
            /// Writes whether a function is loaded; with lazy loading it may not be.
            fn cuFuncIsLoaded(
                state: *mut $crate::CUfunctionLoadingState, function: $crate::CUfunction
            ) since 12040;
            /// Loads a function now instead of at its first launch.
            fn cuFuncLoad(function: $crate::CUfunction) since 12040;
        }
        }
    };
}
