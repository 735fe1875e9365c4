//! Tensor maps, which describe tensors to the tensor memory accelerator (TMA).

use std::ffi::c_void;

use retrograph_driver_sys::{
    CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave,
    CUtensorMapL2promotion, CUtensorMapSwizzle,
};

use crate::driver::Driver;
use crate::error::{Error, Result};

pub use retrograph_ptx::{TensorMapLayout, TensorMapSwizzle, TensorMapType};

/// An encoded tensor map (`CUtensorMap`): an argument for kernels that copy by TMA. Elements
/// outside of the tensor are read as zeros and not written.
///
/// The map holds the address of the tensor. It keeps no memory alive.
///
/// ```
/// # #[cfg(feature = "sim")] {
/// use retrograph_driver::{Driver, TensorMap, TensorMapLayout, TensorMapSwizzle, TensorMapType};
///
/// let driver = Driver::simulated(Default::default())?;
/// // 512 rows of 1536 elements, in boxes of 64 × 64.
/// let layout = TensorMapLayout {
///     dtype: TensorMapType::Bf16,
///     sizes: vec![1536, 512],
///     strides: vec![1536 * 2],
///     box_sizes: vec![64, 64],
///     swizzle: TensorMapSwizzle::Bytes128,
/// };
/// let map = TensorMap::tiled(&driver, 0x7000_0000, &layout)?;
/// assert!(TensorMap::tiled(&driver, 0x7000_0001, &layout).is_err());
/// assert_eq!(map.bytes().len(), 128);
/// # }
/// # Ok::<(), retrograph_driver::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMap(CUtensorMap);

impl TensorMap {
    /// 128 zero bytes, for a parameter that the kernel does not use.
    pub const UNUSED: Self = Self(CUtensorMap { opaque: [0; 16] });

    /// Encodes the map of the tensor at `address`, a multiple of 16.
    ///
    /// # Errors
    /// [`Error::TensorMapDimensions`], or a failed driver call: `CUDA_ERROR_INVALID_VALUE` if the
    /// address or a number of the layout is out of range.
    pub fn tiled(driver: &Driver, address: u64, layout: &TensorMapLayout) -> Result<Self> {
        let TensorMapLayout { dtype, sizes, strides, box_sizes, swizzle } = layout;
        let rank = sizes.len();
        if !layout.has_matching_dimensions() {
            let (strides, box_sizes) = (strides.len(), box_sizes.len());
            return Err(Error::TensorMapDimensions { sizes: rank, strides, box_sizes });
        }
        let (element_strides, mut map) = (vec![1; rank], Self::UNUSED);
        // SAFETY: the map is valid for writing, and each array has as many elements as the call
        // reads: one per dimension, strides one less.
        let code = unsafe {
            (driver.table().cuTensorMapEncodeTiled)(
                &raw mut map.0,
                raw_type(*dtype),
                rank as u32,
                address as *mut c_void,
                sizes.as_ptr(),
                strides.as_ptr(),
                box_sizes.as_ptr(),
                element_strides.as_ptr(),
                CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                raw_swizzle(*swizzle),
                CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        driver.check("cuTensorMapEncodeTiled", code)?;
        Ok(map)
    }

    /// The same map of a tensor at another address, a multiple of 16.
    ///
    /// # Errors
    /// A failed driver call.
    pub fn at(&self, driver: &Driver, address: u64) -> Result<Self> {
        let mut map = *self;
        // SAFETY: the map is valid for reading and writing.
        let code = unsafe {
            (driver.table().cuTensorMapReplaceAddress)(&raw mut map.0, address as *mut c_void)
        };
        driver.check("cuTensorMapReplaceAddress", code)?;
        Ok(map)
    }

    /// The encoded bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the map consists of 16 integers without padding.
        unsafe { std::slice::from_raw_parts((&raw const self.0.opaque).cast(), 128) }
    }
}

fn raw_type(dtype: TensorMapType) -> CUtensorMapDataType {
    match dtype {
        TensorMapType::U8 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
        TensorMapType::F16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        TensorMapType::Bf16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        TensorMapType::F32 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
    }
}

fn raw_swizzle(swizzle: TensorMapSwizzle) -> CUtensorMapSwizzle {
    match swizzle {
        TensorMapSwizzle::None => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
        TensorMapSwizzle::Bytes32 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        TensorMapSwizzle::Bytes64 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        TensorMapSwizzle::Bytes128 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
    }
}
