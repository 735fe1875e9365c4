//! Tensor maps.

/// Passes on the functions of this area; see [`driver_functions!`](crate::driver_functions).
#[doc(hidden)]
#[macro_export]
macro_rules! __tensor_map_functions {
    ($next:ident $($state:tt)*) => {
        $crate::$next! { $($state)*
        required {
            /// Writes the map of a tensor of `rank` dimensions, the contiguous one first. `strides`
            /// are in bytes, without the first dimension.
            fn cuTensorMapEncodeTiled(
                map: *mut $crate::CUtensorMap, data_type: $crate::CUtensorMapDataType, rank: u32,
                address: *mut $crate::c_void, dimensions: *const u64, strides: *const u64,
                box_dimensions: *const u32, element_strides: *const u32,
                interleave: $crate::CUtensorMapInterleave, swizzle: $crate::CUtensorMapSwizzle,
                l2_promotion: $crate::CUtensorMapL2promotion,
                oob_fill: $crate::CUtensorMapFloatOOBfill
            );
            /// Replaces the address of a map's tensor.
            fn cuTensorMapReplaceAddress(
                map: *mut $crate::CUtensorMap, address: *mut $crate::c_void
            );
        }
        optional {
        }
        }
    };
}
