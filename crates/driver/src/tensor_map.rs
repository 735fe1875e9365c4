//! Tensor maps, which describe tensors to the tensor memory accelerator (TMA).

use std::ffi::c_void;

use retrograph_driver_sys::{
    CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave,
    CUtensorMapL2promotion, CUtensorMapSwizzle,
};

use crate::driver::Driver;
use crate::error::Result;

/// The element type of a tensor map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TensorMapType {
    /// Bytes.
    U8,
    /// binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// binary32.
    F32,
}

/// The span in bytes within which 16-byte chunks of a box are swizzled in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TensorMapSwizzle {
    /// No swizzle.
    None,
    /// 32 bytes.
    Bytes32,
    /// 64 bytes.
    Bytes64,
    /// 128 bytes.
    Bytes128,
}

/// The layout of a tensor in global memory, and the box in which it is copied. Dimensions are
/// ordered from the innermost one, whose elements are contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMapLayout<'a> {
    /// The element type.
    pub dtype: TensorMapType,
    /// Elements of each dimension: 1 to 5 dimensions of 1 to 2³².
    pub sizes: &'a [u64],
    /// Strides in bytes of each dimension except the innermost: multiples of 16, less than 2⁴⁰.
    pub strides: &'a [u64],
    /// Elements of the box in each dimension, at most 256. The innermost ones fill a multiple of 16
    /// bytes, and at most the span of the swizzle.
    pub box_sizes: &'a [u32],
    /// The swizzle.
    pub swizzle: TensorMapSwizzle,
}

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
///     sizes: &[1536, 512],
///     strides: &[1536 * 2],
///     box_sizes: &[64, 64],
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
    /// A failed driver call: `CUDA_ERROR_INVALID_VALUE` if the address or a number of the layout is
    /// out of range.
    ///
    /// # Panics
    /// If `strides` is not one shorter than `sizes`, or `box_sizes` has another length than
    /// `sizes`.
    pub fn tiled(driver: &Driver, address: u64, layout: &TensorMapLayout<'_>) -> Result<Self> {
        let TensorMapLayout { dtype, sizes, strides, box_sizes, swizzle } = *layout;
        let rank = sizes.len();
        assert_eq!(strides.len() + 1, rank, "one stride for each dimension except the innermost");
        assert_eq!(box_sizes.len(), rank, "a box size for each dimension");
        let (element_strides, mut map) = (vec![1; rank], Self::UNUSED);
        // SAFETY: the map is valid for writing, and each array has as many elements as the call
        // reads: one per dimension, strides one less.
        let code = unsafe {
            (driver.table().cuTensorMapEncodeTiled)(
                &raw mut map.0,
                dtype.raw(),
                rank as u32,
                address as *mut c_void,
                sizes.as_ptr(),
                strides.as_ptr(),
                box_sizes.as_ptr(),
                element_strides.as_ptr(),
                CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle.raw(),
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

impl TensorMapType {
    fn raw(self) -> CUtensorMapDataType {
        match self {
            Self::U8 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
            Self::F16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            Self::Bf16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            Self::F32 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        }
    }
}

impl TensorMapSwizzle {
    fn raw(self) -> CUtensorMapSwizzle {
        match self {
            Self::None => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
            Self::Bytes32 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_32B,
            Self::Bytes64 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
            Self::Bytes128 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        }
    }
}
