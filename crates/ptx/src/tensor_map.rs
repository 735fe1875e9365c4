//! Layouts of tensor maps, through which `cp.async.bulk.tensor` copies.

/// The element type of a tensor map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl TensorMapType {
    /// Bytes of one element.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::U8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 => 4,
        }
    }
}

/// The span in bytes within which 16-byte chunks of a box are swizzled in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl TensorMapSwizzle {
    /// All modes, in the order of `CUtensorMapSwizzle`.
    pub const ALL: &[Self] = &[Self::None, Self::Bytes32, Self::Bytes64, Self::Bytes128];

    /// The maximum bytes of a box row, if the mode has a limit.
    pub const fn span(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Bytes32 => Some(32),
            Self::Bytes64 => Some(64),
            Self::Bytes128 => Some(128),
        }
    }

    /// The swizzled address in shared memory: bits 4 to 6 xor bits 7 to 9, limited to the span.
    pub const fn apply(self, address: u64) -> u64 {
        let mask = match self {
            Self::None => 0,
            Self::Bytes32 => 0x10,
            Self::Bytes64 => 0x30,
            Self::Bytes128 => 0x70,
        };
        address ^ (address >> 3 & mask)
    }
}

/// The layout of a tensor in global memory, and the box in which it is copied. Dimensions are
/// ordered from the innermost one, whose elements are contiguous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMapLayout {
    /// The element type.
    pub dtype: TensorMapType,
    /// Elements of each dimension: 1 to 5 dimensions of 1 to 2³².
    pub sizes: Vec<u64>,
    /// Strides in bytes of each dimension except the innermost: multiples of 16, less than 2⁴⁰.
    pub strides: Vec<u64>,
    /// Elements of the box in each dimension, at most 256. The innermost ones fill a multiple of 16
    /// bytes, and at most the span of the swizzle.
    pub box_sizes: Vec<u32>,
    /// The swizzle.
    pub swizzle: TensorMapSwizzle,
}

impl TensorMapLayout {
    /// Whether there are 1 to 5 dimensions, with a stride for each except the innermost and a box
    /// size for each.
    pub fn has_matching_dimensions(&self) -> bool {
        let rank = self.sizes.len();
        (1..=5).contains(&rank) && self.strides.len() + 1 == rank && self.box_sizes.len() == rank
    }

    /// Bytes from the first element to the end of the last one. Saturates.
    pub fn bytes(&self) -> u64 {
        let steps = std::iter::once(self.dtype.bytes()).chain(self.strides.iter().copied());
        let last = self.sizes.iter().zip(steps).fold(0_u64, |offset, (&size, step)| {
            offset.saturating_add(size.saturating_sub(1).saturating_mul(step))
        });
        last.saturating_add(self.dtype.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_reaches_to_the_end_of_its_last_element() {
        let layout = TensorMapLayout {
            dtype: TensorMapType::Bf16,
            sizes: vec![5, 3, 2],
            strides: vec![16, 64],
            box_sizes: vec![8, 3, 1],
            swizzle: TensorMapSwizzle::None,
        };
        assert!(layout.has_matching_dimensions());
        assert_eq!(layout.bytes(), 64 + 2 * 16 + 5 * 2);
        let other = TensorMapLayout { strides: vec![16], ..layout.clone() };
        assert!(!other.has_matching_dimensions());
        let huge = TensorMapLayout { sizes: vec![1 << 32; 3], strides: vec![1 << 40; 2], ..layout };
        assert_eq!(huge.bytes(), u64::MAX);
    }
}
