//! Kernel parameters, and structs that are lists of them.

/// The type of a kernel parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// A 64-bit device pointer (`.u64` in PTX). It may be null if the kernel says so.
    Pointer,
    /// `.u32`.
    U32,
    /// `.u64`.
    U64,
    /// `.f32`.
    F32,
}

impl ParameterKind {
    /// The size in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Pointer | Self::U64 => 8,
            Self::U32 | Self::F32 => 4,
        }
    }
}

/// One parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The name in the PTX source.
    pub name: &'static str,
    /// The type.
    pub kind: ParameterKind,
}

impl Parameter {
    /// A pointer.
    pub const fn pointer(name: &'static str) -> Self {
        Self { name, kind: ParameterKind::Pointer }
    }

    /// A `.u32`.
    pub const fn u32(name: &'static str) -> Self {
        Self { name, kind: ParameterKind::U32 }
    }

    /// A `.u64`.
    pub const fn u64(name: &'static str) -> Self {
        Self { name, kind: ParameterKind::U64 }
    }

    /// A `.f32`.
    pub const fn f32(name: &'static str) -> Self {
        Self { name, kind: ParameterKind::F32 }
    }
}

/// What stands for a parameter of each kind: typed registers in a source, values in a launch.
pub trait ParameterTypes {
    /// A pointer.
    type Pointer;
    /// A `.u32`.
    type U32;
    /// A `.f32`.
    type F32;
}

/// Nothing: for uses that need the list of parameters alone.
impl ParameterTypes for () {
    type Pointer = ();
    type U32 = ();
    type F32 = ();
}

/// Declares the parameters of a kernel, one call for each in the order of the list.
pub trait Declare: ParameterTypes {
    /// Declares a pointer.
    fn pointer(&mut self, name: &'static str) -> Self::Pointer;
    /// Declares a `.u32`.
    fn u32(&mut self, name: &'static str) -> Self::U32;
    /// Declares a `.f32`.
    fn f32(&mut self, name: &'static str) -> Self::F32;
}

/// Defines a struct with one field per kernel parameter, in the order of the kernel's signature.
///
/// It has the constant `LIST`, the constructor `declare` for sources, and `into_arguments` for
/// launches.
macro_rules! parameters {
    (
        $(#[$doc:meta])*
        pub struct $name:ident {
            $($(#[$field_doc:meta])* $field:ident: $kind:ident,)*
        }
    ) => {
        $(#[$doc])*
        pub struct $name<T: $crate::ParameterTypes> {
            $($(#[$field_doc])* pub $field: parameters!(@type T $kind),)*
        }

        impl<T: $crate::ParameterTypes> $name<T> {
            /// The parameters in order.
            pub const LIST: &'static [$crate::Parameter] =
                &[$($crate::Parameter::$kind(stringify!($field)),)*];

            /// Declares every parameter.
            pub fn declare(kernel: &mut T) -> Self
            where
                T: $crate::Declare,
            {
                Self { $($field: kernel.$kind(stringify!($field)),)* }
            }

            /// The arguments in order.
            pub fn into_arguments<A>(self) -> Vec<A>
            where
                T::Pointer: Into<A>,
                T::U32: Into<A>,
                T::F32: Into<A>,
            {
                vec![$(self.$field.into(),)*]
            }
        }
    };
    (@type $types:ident pointer) => { $types::Pointer };
    (@type $types:ident u32) => { $types::U32 };
    (@type $types:ident f32) => { $types::F32 };
}

pub(crate) use parameters;
