//! Tensor maps, which `cuTensorMapEncodeTiled` writes and tensor copies read.
//!
//! The 128 bytes have a simulator-specific format with a magic number and a checksum, so bytes that
//! no call has encoded are detected.

pub use retrograph_ptx::TensorMapSwizzle;
use retrograph_ptx::ast::Type;

/// Bytes of a tensor map.
pub const TENSOR_MAP_BYTES: usize = 128;
/// The maximum number of dimensions.
pub const MAX_DIMENSIONS: usize = 5;

const MAGIC: u64 = u64::from_le_bytes(*b"rgTENSOR");
/// Bytes that the checksum covers.
const CHECKED: std::ops::Range<usize> = 16..TENSOR_MAP_BYTES;

/// The element types, in the order of `CUtensorMapDataType`.
pub const ELEMENT_TYPES: &[Type] = &[
    Type::U8,
    Type::U16,
    Type::U32,
    Type::S32,
    Type::U64,
    Type::S64,
    Type::F16,
    Type::F32,
    Type::F64,
    Type::Bf16,
];

/// A tensor in global memory and the box that one copy moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMap {
    /// The type of the elements, one of [`ELEMENT_TYPES`].
    pub element: Type,
    /// The address of the first element.
    pub address: u64,
    /// Elements in each dimension, the contiguous one first.
    pub dimensions: Vec<u64>,
    /// Bytes from one element to the next in each dimension but the first.
    pub strides: Vec<u64>,
    /// Elements of a box in each dimension.
    pub extent: Vec<u32>,
    /// The layout of a box in shared memory.
    pub swizzle: TensorMapSwizzle,
}

impl TensorMap {
    /// Returns why the map is invalid, or `None` if it is valid.
    ///
    /// Source: `cuTensorMapEncodeTiled` in the CUDA driver API manual.
    pub fn fault(&self) -> Option<&'static str> {
        let (bytes, rank) = (u64::from(self.element.size()), self.dimensions.len());
        let row = u64::from(self.extent.first().copied().unwrap_or(0)) * bytes;
        let faults = [
            (!ELEMENT_TYPES.contains(&self.element), "the type is one of CUtensorMapDataType"),
            (!(1..=MAX_DIMENSIONS).contains(&rank), "a tensor has 1 to 5 dimensions"),
            (!self.address.is_multiple_of(16), "the address is a multiple of 16"),
            (
                self.dimensions.iter().any(|&size| size == 0 || size > 1 << 32),
                "a dimension has 1 to 2^32 elements",
            ),
            (
                self.strides.iter().any(|&stride| !stride.is_multiple_of(16)),
                "a stride is a multiple of 16",
            ),
            (self.strides.iter().any(|&stride| stride >= 1 << 40), "a stride is less than 2^40"),
            (
                self.extent.iter().any(|&size| size == 0 || size > 256),
                "a box has 1 to 256 elements in each dimension",
            ),
            (!row.is_multiple_of(16), "a row of a box is a multiple of 16 bytes"),
            (
                self.swizzle.span().is_some_and(|span| row > span),
                "a row of a box is at most as long as the span of its swizzle",
            ),
        ];
        faults.into_iter().find(|(fails, _)| *fails).map(|(_, fault)| fault)
    }

    /// Bytes of a box.
    pub fn box_bytes(&self) -> u64 {
        let elements: u64 = self.extent.iter().map(|&size| u64::from(size)).product();
        elements * u64::from(self.element.size())
    }

    /// Bytes of shared memory that a box takes. With a swizzle, each row takes its span, also if it
    /// is shorter.
    pub fn shared_bytes(&self) -> u64 {
        let row = u64::from(self.extent.first().copied().unwrap_or(0));
        let row = (row * u64::from(self.element.size())).max(1);
        self.box_bytes() / row * self.swizzle.span().unwrap_or(row)
    }

    /// The map as bytes.
    pub fn encode(&self) -> [u8; TENSOR_MAP_BYTES] {
        let mut out = [0; TENSOR_MAP_BYTES];
        let mut at = CHECKED.start;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        let rank = self.dimensions.len();
        let position = |found: Option<usize>| found.unwrap_or(0) as u8;
        let element = position(ELEMENT_TYPES.iter().position(|one| *one == self.element));
        let swizzle = position(TensorMapSwizzle::ALL.iter().position(|one| *one == self.swizzle));
        put(&[rank as u8, element, swizzle, 0, 0, 0, 0, 0]);
        put(&self.address.to_le_bytes());
        let padded = |list: &[u64], index: usize| list.get(index).copied().unwrap_or(0);
        for index in 0..MAX_DIMENSIONS {
            put(&padded(&self.dimensions, index).to_le_bytes());
        }
        for index in 0..MAX_DIMENSIONS - 1 {
            put(&padded(&self.strides, index).to_le_bytes());
        }
        for index in 0..MAX_DIMENSIONS {
            let size = self.extent.get(index).copied().unwrap_or(0);
            put(&(size as u16).to_le_bytes());
        }
        out[..8].copy_from_slice(&MAGIC.to_le_bytes());
        let sum = checksum(&out[CHECKED]);
        out[8..16].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Decodes a map.
    ///
    /// # Errors
    /// [`TensorMapError`] if the bytes are not an encoded map.
    pub fn decode(bytes: &[u8; TENSOR_MAP_BYTES]) -> Result<Self, TensorMapError> {
        let word = |at: usize| {
            let mut raw = [0; 8];
            raw.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(raw)
        };
        if word(0) != MAGIC {
            return Err(TensorMapError::NotEncoded);
        }
        if word(8) != checksum(&bytes[CHECKED]) {
            return Err(TensorMapError::Changed);
        }
        let start = CHECKED.start;
        let rank = usize::from(bytes[start]).clamp(1, MAX_DIMENSIONS);
        let element = ELEMENT_TYPES.get(usize::from(bytes[start + 1])).copied();
        let swizzle = TensorMapSwizzle::ALL.get(usize::from(bytes[start + 2])).copied();
        let (Some(element), Some(swizzle)) = (element, swizzle) else {
            return Err(TensorMapError::Unknown);
        };
        let sizes = start + 16;
        let strides = sizes + 8 * MAX_DIMENSIONS;
        let extent = strides + 8 * (MAX_DIMENSIONS - 1);
        let size_of = |index: usize| {
            let at = extent + 2 * index;
            u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
        };
        Ok(Self {
            element,
            address: word(start + 8),
            dimensions: (0..rank).map(|index| word(sizes + 8 * index)).collect(),
            strides: (0..rank - 1).map(|index| word(strides + 8 * index)).collect(),
            extent: (0..rank).map(size_of).collect(),
            swizzle,
        })
    }
}

/// The reason why bytes are not a tensor map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorMapError {
    /// The magic number is missing.
    #[error("a tensor map that cuTensorMapEncodeTiled has not encoded")]
    NotEncoded,
    /// The checksum does not match.
    #[error("a tensor map that was changed after cuTensorMapEncodeTiled")]
    Changed,
    /// The element type or swizzle is unknown.
    #[error("a tensor map with an unknown type or swizzle")]
    Unknown,
}

/// The 64-bit FNV-1a hash.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
