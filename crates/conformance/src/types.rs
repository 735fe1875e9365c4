//! The types of driver arguments that the runner distinguishes.

/// A type of cuda.h.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    /// An integer or an enumeration.
    Integer { size: usize, signed: bool },
    /// `f32` or `f64`.
    Float { size: usize },
    /// A handle, by the name of its type.
    Handle(String),
    /// A device address.
    Address,
    /// A function pointer.
    Function,
    /// `void`; only pointers to it exist.
    Void,
    /// A character of a C string.
    Char,
    /// A pointer to something.
    Pointer(Box<Type>),
    /// An array with its length.
    Array(Box<Type>, usize),
    /// A structure or union by name.
    Record(String),
    /// A type that the source of driver-sys does not declare.
    Unknown(String),
}

/// A structure or union.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) is_union: bool,
    pub(crate) size: usize,
    pub(crate) align: usize,
    pub(crate) fields: Vec<Field>,
}

/// A field of a structure.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) offset: usize,
    pub(crate) of: Type,
}

impl Type {
    /// A primitive by its Rust name.
    pub(crate) fn primitive(name: &str) -> Option<Self> {
        let integer = |size, signed| Some(Self::Integer { size, signed });
        match name {
            "u8" | "bool" | "c_uchar" => integer(1, false),
            "i8" => integer(1, true),
            "u16" | "c_ushort" => integer(2, false),
            "i16" | "c_short" => integer(2, true),
            "u32" | "c_uint" => integer(4, false),
            "i32" | "c_int" => integer(4, true),
            "u64" | "usize" | "c_ulong" | "c_ulonglong" => integer(8, false),
            "i64" | "isize" | "c_long" | "c_longlong" => integer(8, true),
            "f32" => Some(Self::Float { size: 4 }),
            "f64" => Some(Self::Float { size: 8 }),
            "c_char" | "text" => Some(Self::Char),
            "c_void" => Some(Self::Void),
            "CUdeviceptr" => Some(Self::Address),
            _ => None,
        }
    }

    /// The pointee of a pointer.
    pub(crate) fn pointee(&self) -> Option<&Self> {
        match self {
            Self::Pointer(target) => Some(target),
            _ => None,
        }
    }
}
