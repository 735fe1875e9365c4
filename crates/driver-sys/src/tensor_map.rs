//! Tensor maps, which describe tensors in global memory to tensor copies (`cp.async.bulk.tensor`).

use crate::enumeration::enumerations;
use crate::structure::{structures, zeroed};

enumerations! {
    /// The type of the elements of a tensor.
    CUtensorMapDataType: u32 {
        /// Unsigned 8-bit integer.
        CU_TENSOR_MAP_DATA_TYPE_UINT8 = 0;
        /// Unsigned 16-bit integer.
        CU_TENSOR_MAP_DATA_TYPE_UINT16 = 1;
        /// Unsigned 32-bit integer.
        CU_TENSOR_MAP_DATA_TYPE_UINT32 = 2;
        /// Signed 32-bit integer.
        CU_TENSOR_MAP_DATA_TYPE_INT32 = 3;
        /// Unsigned 64-bit integer.
        CU_TENSOR_MAP_DATA_TYPE_UINT64 = 4;
        /// Signed 64-bit integer.
        CU_TENSOR_MAP_DATA_TYPE_INT64 = 5;
        /// f16.
        CU_TENSOR_MAP_DATA_TYPE_FLOAT16 = 6;
        /// f32.
        CU_TENSOR_MAP_DATA_TYPE_FLOAT32 = 7;
        /// f64.
        CU_TENSOR_MAP_DATA_TYPE_FLOAT64 = 8;
        /// bf16.
        CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9;
        /// f32, with subnormals as zeros.
        CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ = 10;
        /// tf32.
        CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 = 11;
        /// tf32, with subnormals as zeros.
        CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ = 12;
    }

    /// How channels of images are interleaved.
    CUtensorMapInterleave: u32 {
        /// Not at all.
        CU_TENSOR_MAP_INTERLEAVE_NONE = 0;
        /// In slices of 16 bytes.
        CU_TENSOR_MAP_INTERLEAVE_16B = 1;
        /// In slices of 32 bytes.
        CU_TENSOR_MAP_INTERLEAVE_32B = 2;
    }

    /// How the 16-byte chunks of a box are swizzled in shared memory.
    CUtensorMapSwizzle: u32 {
        /// Not at all.
        CU_TENSOR_MAP_SWIZZLE_NONE = 0;
        /// Within 32 bytes.
        CU_TENSOR_MAP_SWIZZLE_32B = 1;
        /// Within 64 bytes.
        CU_TENSOR_MAP_SWIZZLE_64B = 2;
        /// Within 128 bytes.
        CU_TENSOR_MAP_SWIZZLE_128B = 3;
    }

    /// The L2 fetch granularity.
    CUtensorMapL2promotion: u32 {
        /// No promotion.
        CU_TENSOR_MAP_L2_PROMOTION_NONE = 0;
        /// 64 bytes.
        CU_TENSOR_MAP_L2_PROMOTION_L2_64B = 1;
        /// 128 bytes.
        CU_TENSOR_MAP_L2_PROMOTION_L2_128B = 2;
        /// 256 bytes.
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3;
    }

    /// The value of elements outside of a tensor.
    CUtensorMapFloatOOBfill: u32 {
        /// Zeros.
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0;
        /// A NaN that fused multiply-adds treat as zero.
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA = 1;
    }
}

structures! {
    /// A tensor map, which `cuTensorMapEncodeTiled` writes. Kernels take it by value, as a
    /// parameter of 128 bytes.
    ///
    /// CUDA 13 headers align it to 128 bytes, CUDA 12 headers to 64.
    #[repr(align(128))]
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUtensorMap {
        /// Opaque.
        pub opaque: [u64; 16],
    }
}

zeroed!(CUtensorMap);
