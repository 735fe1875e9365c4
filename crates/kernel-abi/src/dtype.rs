//! Element types of tensors.

/// The type of the elements of a tensor, or of the operands of tensor-core instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE 754 binary32.
    #[default]
    F32,
    /// bfloat16.
    Bf16,
    /// IEEE 754 binary16.
    F16,
    /// NormalFloat4: 4-bit codes, two per byte, and one scale per block of 64 elements in a
    /// separate tensor.
    Nf4,
    /// IEEE 754 binary64.
    F64,
    /// Unsigned integers of 8 bits.
    U8,
    /// Unsigned integers of 32 bits.
    U32,
    /// Unsigned integers of 64 bits.
    U64,
}

impl DType {
    /// The name in messages: `f32`, `bf16`, `NF4` and so on.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::Nf4 => "NF4",
            Self::F64 => "f64",
            Self::U8 => "u8",
            Self::U32 => "u32",
            Self::U64 => "u64",
        }
    }

    /// Bits of one element.
    pub const fn bits(self) -> u32 {
        match self {
            Self::Nf4 => 4,
            Self::U8 => 8,
            Self::Bf16 | Self::F16 => 16,
            Self::F32 | Self::U32 => 32,
            Self::F64 | Self::U64 => 64,
        }
    }

    /// Bytes of one element.
    ///
    /// # Panics
    /// For NF4, because two elements share a byte.
    pub const fn bytes(self) -> u32 {
        assert!(!matches!(self, Self::Nf4), "two NF4 elements share a byte");
        self.bits() / 8
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
