//! The dtypes of parameters on the device.

use retrograph_kernels::nf4::{BLOCK, NESTED_BLOCK};

/// The dtype of a parameter on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storage {
    /// f32.
    #[default]
    F32,
    /// bf16.
    Bf16,
    /// f32 master weights, with a bf16 copy that matrix products read. The optimizer updates both;
    /// checkpoints have only the master weights.
    F32WithBf16,
    /// A frozen f32 matrix, with an f16 copy that products of many rows read. The copy has one
    /// scale per row, see [`SplitMatrix`](retrograph_kernels::ops::SplitMatrix).
    F32WithF16 {
        /// Rows of the matrix.
        rows: usize,
        /// Terms of an element: 2, or 1 if the elements are exactly bf16 or f16.
        terms: usize,
    },
    /// 4-bit codes with scales.
    Nf4 {
        /// Whether the scales are quantized to 8 bits.
        double: bool,
    },
}

impl Storage {
    /// Returns the bytes of `len` elements. The dequantization map of nested scales, one per model,
    /// is not counted.
    pub fn bytes(self, len: usize) -> usize {
        self.buffers(len).into_iter().sum()
    }

    /// Returns the bytes of each buffer of `len` elements: values, and scales if there are any.
    pub(crate) fn buffers(self, len: usize) -> Vec<usize> {
        let blocks = len.div_ceil(BLOCK);
        match self {
            Self::F32 => vec![len * size_of::<f32>()],
            Self::Bf16 => vec![len * 2],
            Self::F32WithBf16 => vec![len * size_of::<f32>(), len * 2],
            Self::F32WithF16 { rows, terms } => {
                vec![len * size_of::<f32>(), terms * len * 2, rows * size_of::<f32>()]
            }
            Self::Nf4 { double: false } => vec![len.div_ceil(2), blocks * size_of::<f32>()],
            Self::Nf4 { double: true } => {
                let nested = blocks.div_ceil(NESTED_BLOCK) + 1;
                vec![len.div_ceil(2), blocks, nested * size_of::<f32>()]
            }
        }
    }

    /// The name of the dtype.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F32WithBf16 => "f32 with a bf16 copy",
            Self::F32WithF16 { terms: 1, .. } => "f32 with an f16 copy",
            Self::F32WithF16 { .. } => "f32 with an f16 copy of two terms",
            Self::Nf4 { double: false } => "NF4",
            Self::Nf4 { double: true } => "NF4 with 8-bit scales",
        }
    }
}
