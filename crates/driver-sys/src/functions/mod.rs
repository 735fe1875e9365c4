//! Every function of the table, once: [`driver_functions!`](crate::driver_functions).
//!
//! Each area is a macro in its own file, named `__<file>_functions`. It passes its functions to the
//! given macro, and `__gather_functions` collects them.

mod array;
mod capture;
mod context;
mod copy;
mod coredump;
mod device;
mod event;
mod exec;
mod fill;
mod function;
mod graph;
mod library;
mod managed;
mod memory;
mod module;
mod node;
mod occupancy;
mod pool;
mod resource;
mod stream;
mod tensor_map;
mod version;
mod virtual_memory;

/// Passes the list of all functions to a macro.
///
/// `driver_functions!(my_macro)` expands to `my_macro! { required { … } optional { … } }`. Each
/// function is declared as in cuda.h under its exact exported symbol, with names and types of its
/// arguments; all return [`CUresult`](crate::CUresult). Required functions are those that every
/// driver from CUDA 12.0 to 13.0 exports. Optional functions end in `since N`, the CUDA version of
/// the first driver that exports them.
///
/// The headers of CUDA 13 rename a few functions by macro (`cuGraphGetEdges` means
/// `cuGraphGetEdges_v2` there); the symbols here keep their meaning in all drivers.
///
/// ```
/// macro_rules! names {
///     (
///         required { $($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*);)* }
///         optional { $($(#[$o_doc:meta])* fn $o_name:ident($($o_arg:ident: $o_type:ty),*)
///             since $since:literal;)* }
///     ) => {
///         [$(stringify!($name)),*]
///     };
/// }
/// let names = retrograph_driver_sys::driver_functions!(names);
/// assert!(names.contains(&"cuStreamBeginCapture_v2"));
/// ```
#[macro_export]
macro_rules! driver_functions {
    ($callback:ident) => {
        $crate::__gather_functions! {
            $callback
            [
                __device_functions __context_functions __memory_functions __managed_functions
                __pool_functions __virtual_memory_functions __copy_functions __fill_functions
                __stream_functions __event_functions __module_functions __library_functions
                __function_functions __occupancy_functions __capture_functions __graph_functions
                __node_functions __exec_functions __tensor_map_functions __array_functions
                __resource_functions __coredump_functions
            ]
            required {}
            optional {}
            next __version_functions
        }
    };
}

/// Collects the functions of one area after the other, and passes all to the callback.
#[doc(hidden)]
#[macro_export]
macro_rules! __gather_functions {
    // Appends the functions of the next area.
    ($callback:ident [$($areas:ident)*] required $required:tt optional $optional:tt
        next $area:ident
    ) => {
        $crate::$area! {
            __gather_functions $callback [$($areas)*] required $required optional $optional
        }
    };
    ($callback:ident []
        required { $($required:tt)* } optional { $($optional:tt)* }
        required { $($more_required:tt)* } optional { $($more_optional:tt)* }
    ) => {
        $callback! {
            required { $($required)* $($more_required)* }
            optional { $($optional)* $($more_optional)* }
        }
    };
    ($callback:ident [$next:ident $($areas:ident)*]
        required { $($required:tt)* } optional { $($optional:tt)* }
        required { $($more_required:tt)* } optional { $($more_optional:tt)* }
    ) => {
        $crate::__gather_functions! {
            $callback [$($areas)*]
            required { $($required)* $($more_required)* }
            optional { $($optional)* $($more_optional)* }
            next $next
        }
    };
}
