//! Kernel parameters, and the structs that list them.

/// The PTX type of a kernel parameter.
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
    /// A tensor map (`CUtensorMap`), by value: 128 bytes aligned to 64.
    TensorMap,
}

impl ParameterKind {
    /// The size in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::TensorMap => 128,
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

    /// A `.f32`.
    pub const fn f32(name: &'static str) -> Self {
        Self { name, kind: ParameterKind::F32 }
    }

    /// The bits of an f64, a `.u64`.
    pub const fn f64(name: &'static str) -> Self {
        Self { name, kind: ParameterKind::U64 }
    }

    /// 0 or 1, a `.u32`.
    pub const fn bool(name: &'static str) -> Self {
        Self::u32(name)
    }

    /// A set of flags, a `.u32`.
    pub const fn flags(name: &'static str) -> Self {
        Self::u32(name)
    }

    /// A tensor map.
    pub const fn tensor_map(name: &'static str) -> Self {
        Self { name, kind: ParameterKind::TensorMap }
    }
}

/// A set of flags that is passed as one `.u32`.
pub trait Flags: Copy {
    /// The value of the parameter.
    fn bits(self) -> u32;
}

/// The element type of a pointer to bf16.
#[derive(Clone, Copy, Debug)]
pub enum Bf16 {}

/// The element type of a pointer to f16.
#[derive(Clone, Copy, Debug)]
pub enum F16 {}

/// The element type of a pointer whose elements differ between entries or launches.
#[derive(Clone, Copy, Debug)]
pub enum Any {}

/// The Rust type of each kind of parameter: typed registers in a source, values in a launch.
pub trait ParameterTypes {
    /// A pointer to elements of type `E`: a Rust type, [`Bf16`], [`F16`] or [`Any`].
    type Pointer<E>;
    /// A `.u32`.
    type U32;
    /// A `.f32`.
    type F32;
    /// The bits of an f64.
    type F64;
    /// 0 or 1.
    type Bool;
    /// A set of flags.
    type Flags<F: Flags>;
    /// A tensor map.
    type TensorMap;
}

/// No values, for code that only needs the list of parameters.
impl ParameterTypes for () {
    type Pointer<E> = ();
    type U32 = ();
    type F32 = ();
    type F64 = ();
    type Bool = ();
    type Flags<F: Flags> = ();
    type TensorMap = ();
}

/// Declares the parameters of a kernel, one call for each in the order of the list.
pub trait Declare: ParameterTypes {
    /// Declares a pointer.
    fn pointer<E>(&mut self, name: &'static str) -> Self::Pointer<E>;
    /// Declares a `.u32`.
    fn u32(&mut self, name: &'static str) -> Self::U32;
    /// Declares a `.f32`.
    fn f32(&mut self, name: &'static str) -> Self::F32;
    /// Declares the bits of an f64.
    fn f64(&mut self, name: &'static str) -> Self::F64;
    /// Declares a `.u32` that is 0 or 1.
    fn bool(&mut self, name: &'static str) -> Self::Bool;
    /// Declares a set of flags.
    fn flags<F: Flags>(&mut self, name: &'static str) -> Self::Flags<F>;
    /// Declares a tensor map.
    fn tensor_map(&mut self, name: &'static str) -> Self::TensorMap;
}

/// Converts the values of parameters to the arguments of a launch.
pub trait Arguments: ParameterTypes {
    /// An argument of any kind.
    type Argument;
    /// Converts a pointer.
    fn pointer<E>(value: Self::Pointer<E>) -> Self::Argument;
    /// Converts a `.u32`.
    fn u32(value: Self::U32) -> Self::Argument;
    /// Converts a `.f32`.
    fn f32(value: Self::F32) -> Self::Argument;
    /// Converts an f64, which is passed as its bits.
    fn f64(value: Self::F64) -> Self::Argument;
    /// Converts a bool, which is passed as 0 or 1.
    fn bool(value: Self::Bool) -> Self::Argument;
    /// Converts a set of flags.
    fn flags<F: Flags>(value: Self::Flags<F>) -> Self::Argument;
    /// Converts a tensor map.
    fn tensor_map(value: Self::TensorMap) -> Self::Argument;
}

/// Defines a struct with one field per kernel parameter, in the order of the kernel's signature.
///
/// It has the constant `LIST`, the constructor `declare` for sources, and `into_arguments` for
/// launches. The kinds are the methods of [`Declare`]: `pointer<E>`, `u32`, `f32`, `f64`, `bool`,
/// `flags<F>` and `tensor_map`.
macro_rules! parameters {
    (
        $(#[$doc:meta])*
        pub struct $name:ident {
            $($(#[$field_doc:meta])* $field:ident: $kind:ident $(<$element:ty>)?,)*
        }
    ) => {
        $(#[$doc])*
        pub struct $name<T: $crate::ParameterTypes> {
            $(
                $(#[$field_doc])*
                pub $field: $crate::parameters::parameters!(@type T $kind $(<$element>)?),
            )*
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

            /// Returns the arguments in order.
            pub fn into_arguments(self) -> Vec<T::Argument>
            where
                T: $crate::Arguments,
            {
                vec![$(<T as $crate::Arguments>::$kind(self.$field),)*]
            }
        }
    };
    (@type $types:ident pointer<$element:ty>) => { $types::Pointer<$element> };
    (@type $types:ident flags<$flags:ty>) => { $types::Flags<$flags> };
    (@type $types:ident u32) => { $types::U32 };
    (@type $types:ident f32) => { $types::F32 };
    (@type $types:ident f64) => { $types::F64 };
    (@type $types:ident bool) => { $types::Bool };
    (@type $types:ident tensor_map) => { $types::TensorMap };
}

/// Defines a set of flags with one constant per bit.
macro_rules! flags {
    (
        $(#[$doc:meta])*
        pub struct $name:ident {
            $($(#[$flag_doc:meta])* $flag:ident = $bit:literal;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name(u32);

        impl $name {
            /// No flag.
            pub const NONE: Self = Self(0);
            $($(#[$flag_doc])* pub const $flag: Self = Self($bit);)*

            /// Returns the flags, with `flag` added if `holds`.
            #[must_use]
            pub const fn with(self, flag: Self, holds: bool) -> Self {
                if holds { Self(self.0 | flag.0) } else { self }
            }

            /// The value of the parameter.
            pub const fn bits(self) -> u32 {
                self.0
            }
        }

        impl $crate::Flags for $name {
            fn bits(self) -> u32 {
                self.0
            }
        }
    };
}

pub(crate) use {flags, parameters};
