//! The dtypes of parameters on the device.

use retrograph_kernels::nf4::{BLOCK, NESTED_BLOCK};

/// The dtype of a parameter on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storage {
    /// As f32.
    #[default]
    F32,
    /// As bf16.
    Bf16,
    /// As codes of 4 bits with scales.
    Nf4 {
        /// Whether the scales are quantized in turn.
        double: bool,
    },
}

impl Storage {
    /// Bytes of `len` elements. The map of quantized scales is not counted: a model has one.
    pub fn bytes(self, len: usize) -> usize {
        self.buffers(len).into_iter().sum()
    }

    /// Bytes of each buffer that `len` elements take: values, and scales where there are some.
    pub(crate) fn buffers(self, len: usize) -> Vec<usize> {
        let blocks = len.div_ceil(BLOCK);
        match self {
            Self::F32 => vec![len * size_of::<f32>()],
            Self::Bf16 => vec![len * 2],
            Self::Nf4 { double: false } => vec![len.div_ceil(2), blocks * size_of::<f32>()],
            Self::Nf4 { double: true } => {
                let nested = blocks.div_ceil(NESTED_BLOCK) + 1;
                vec![len.div_ceil(2), blocks, nested * size_of::<f32>()]
            }
        }
    }

    /// The name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Nf4 { double: false } => "NF4",
            Self::Nf4 { double: true } => "NF4 with 8-bit scales",
        }
    }
}
