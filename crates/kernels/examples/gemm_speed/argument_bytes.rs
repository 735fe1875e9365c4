//! The bytes of arguments for a launch through the driver's functions.

use std::ffi::c_void;

use retrograph_driver_sys::{
    CUresult, CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave,
    CUtensorMapL2promotion, CUtensorMapSwizzle, DriverTable,
};
use retrograph_kernels::{
    Argument, BufferArgument, TensorMapArgument, TensorMapSwizzle, TensorMapType,
};

/// A buffer for the longest argument. The driver reads as many bytes as the parameter has.
pub(crate) type Bytes = CUtensorMap;

/// The bytes of `argument`; `table` uploads the cells of a table.
pub(crate) fn bytes(
    driver: &DriverTable,
    argument: &Argument<u64>,
    table: impl FnOnce(&[retrograph_kernels::Cell<u64>]) -> u64,
) -> Bytes {
    let number = match argument {
        Argument::Buffer(buffer) => address(buffer),
        Argument::Null => 0,
        Argument::U32(value) | Argument::F32(value) => u64::from(*value),
        Argument::U64(value) => *value,
        Argument::Table(cells) => table(cells),
        Argument::Value(_) => unreachable!("our kernels have no such parameter"),
        Argument::TensorMap(None) => 0,
        Argument::TensorMap(Some(map)) => return encoded(driver, map),
    };
    let mut bytes = Bytes::default();
    bytes.opaque[0] = number;
    bytes
}

/// The address of a range.
pub(crate) fn address(range: &BufferArgument<u64>) -> u64 {
    range.buffer + range.bytes.start as u64
}

fn encoded(driver: &DriverTable, map: &TensorMapArgument<u64>) -> CUtensorMap {
    let layout = &map.layout;
    let dtype = match layout.dtype {
        TensorMapType::Bf16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        TensorMapType::F16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        TensorMapType::F32 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        TensorMapType::U8 => panic!("no kernel copies boxes of bytes"),
    };
    assert_eq!(layout.swizzle, TensorMapSwizzle::Bytes128, "the swizzle of our kernels");
    let (mut encoded, ones) = (CUtensorMap::default(), [1u32; 5]);
    let address = (map.buffer + map.bytes.start as u64) as *mut c_void;
    // SAFETY: the map is valid for writing, and the arrays have one element per dimension, strides
    // one less.
    let code = unsafe {
        (driver.cuTensorMapEncodeTiled)(
            &raw mut encoded,
            dtype,
            layout.sizes.len() as u32,
            address,
            layout.sizes.as_ptr(),
            layout.strides.as_ptr(),
            layout.box_sizes.as_ptr(),
            ones.as_ptr(),
            CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    assert_eq!(code, CUresult::CUDA_SUCCESS, "cuTensorMapEncodeTiled of {map:?}");
    encoded
}
