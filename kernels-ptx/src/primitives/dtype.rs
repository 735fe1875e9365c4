//! Element types of tensors.

/// How the elements of a tensor are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DType {
    /// IEEE single precision.
    F32,
    /// bfloat16.
    Bf16,
    /// NormalFloat4: codes of 4 bits, with one scale per block in a tensor of its own.
    Nf4,
}

impl DType {
    /// Bytes of one element.
    ///
    /// # Panics
    /// For NF4, of which two elements share a byte.
    pub(crate) const fn bytes(self) -> u32 {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
            Self::Nf4 => panic!("two NF4 elements share a byte"),
        }
    }
}
