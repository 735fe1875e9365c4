//! The fundamental types of PTX.

use crate::words::words;

words! {
    /// A fundamental type.
    pub enum Type {
        Pred = "pred",
        B8 = "b8",
        B16 = "b16",
        B32 = "b32",
        B64 = "b64",
        B128 = "b128",
        U8 = "u8",
        U16 = "u16",
        U32 = "u32",
        U64 = "u64",
        U16x2 = "u16x2",
        S8 = "s8",
        S16 = "s16",
        S32 = "s32",
        S64 = "s64",
        S16x2 = "s16x2",
        F16 = "f16",
        Bf16 = "bf16",
        F16x2 = "f16x2",
        Bf16x2 = "bf16x2",
        Tf32 = "tf32",
        E4m3x2 = "e4m3x2",
        E5m2x2 = "e5m2x2",
        F32 = "f32",
        F64 = "f64",
    }
}

/// The interpretation of the bits of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TypeKind {
    /// A predicate.
    Predicate,
    /// Bits without a meaning.
    Untyped,
    /// An unsigned integer.
    Unsigned,
    /// A signed integer.
    Signed,
    /// A floating-point number, or two packed ones.
    Float,
}

impl Type {
    /// Size in bytes; a predicate has none, so 0.
    pub const fn size(self) -> u32 {
        match self {
            Self::Pred => 0,
            Self::B8 | Self::U8 | Self::S8 => 1,
            Self::B16
            | Self::U16
            | Self::S16
            | Self::F16
            | Self::Bf16
            | Self::E4m3x2
            | Self::E5m2x2 => 2,
            Self::B32
            | Self::U32
            | Self::S32
            | Self::U16x2
            | Self::S16x2
            | Self::F16x2
            | Self::Bf16x2
            | Self::Tf32
            | Self::F32 => 4,
            Self::B64 | Self::U64 | Self::S64 | Self::F64 => 8,
            Self::B128 => 16,
        }
    }

    /// Size in bits; 0 for a predicate.
    pub const fn bits(self) -> u32 {
        self.size() * 8
    }

    /// The interpretation of the bits.
    pub const fn kind(self) -> TypeKind {
        match self {
            Self::Pred => TypeKind::Predicate,
            Self::B8 | Self::B16 | Self::B32 | Self::B64 | Self::B128 => TypeKind::Untyped,
            Self::U8 | Self::U16 | Self::U32 | Self::U64 | Self::U16x2 => TypeKind::Unsigned,
            Self::S8 | Self::S16 | Self::S32 | Self::S64 | Self::S16x2 => TypeKind::Signed,
            Self::F16
            | Self::Bf16
            | Self::F16x2
            | Self::Bf16x2
            | Self::Tf32
            | Self::E4m3x2
            | Self::E5m2x2
            | Self::F32
            | Self::F64 => TypeKind::Float,
        }
    }

    /// Whether registers and variables may be declared with the type. Others are interpretations of
    /// a register's bits by an instruction.
    pub const fn is_fundamental(self) -> bool {
        !matches!(
            self,
            Self::Bf16
                | Self::Bf16x2
                | Self::Tf32
                | Self::E4m3x2
                | Self::E5m2x2
                | Self::U16x2
                | Self::S16x2
        )
    }

    /// Whether this is a floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self.kind(), TypeKind::Float)
    }

    /// Whether this is a signed or unsigned integer type.
    pub const fn is_integer(self) -> bool {
        matches!(self.kind(), TypeKind::Signed | TypeKind::Unsigned)
    }

    /// Whether this is a signed integer type.
    pub const fn is_signed(self) -> bool {
        matches!(self.kind(), TypeKind::Signed)
    }
}
