//! Macros that declare the enumerations and flags of cuda.h as integers with constants.

/// Declares enumerations of cuda.h as transparent newtypes over their integer, so that a value from
/// a newer driver is a number and not undefined behavior. Constants keep the exact names; `since N`
/// marks constants that are newer than the first driver of CUDA 12.
///
/// One invocation per module: it also lists the constants for [`crate::constants`].
macro_rules! enumerations {
    ($(
        $(#[$doc:meta])*
        $name:ident: $integer:ty {
            $(
                $(#[$constant_doc:meta])*
                $constant:ident = $value:literal $(since $since:literal)?;
            )*
        }
    )*) => {
        $(
            $(#[$doc])*
            #[repr(transparent)]
            #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub struct $name(pub $integer);

            impl $name {
                $(
                    $(#[$constant_doc])*
                    $(#[doc = concat!("\n\nSince driver ", stringify!($since), ".")])?
                    pub const $constant: Self = Self($value);
                )*
            }

            impl std::fmt::Debug for $name {
                // Some names of cuda.h have the same value; the first one is printed.
                #[allow(unreachable_patterns)]
                fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    match self.0 {
                        $($value => f.write_str(stringify!($constant)),)*
                        other => write!(f, concat!(stringify!($name), "({})"), other),
                    }
                }
            }
        )*

        /// The constants of this module's enumerations.
        pub(crate) const ENUMERATIONS: &[crate::constants::Constant] = &[
            $($(crate::constants::Constant {
                name: stringify!($constant),
                group: stringify!($name),
                value: $value,
            },)*)*
        ];
    };
}

/// Declares flags of cuda.h: plain constants of the integer that functions take, and an alias of
/// that integer under the name of the enumeration.
///
/// One invocation per module: it also lists the constants for [`crate::constants`].
macro_rules! flags {
    ($(
        $(#[$doc:meta])*
        $name:ident: $integer:ty {
            $(
                $(#[$constant_doc:meta])*
                $constant:ident = $value:literal $(since $since:literal)?;
            )*
        }
    )*) => {
        $(
            $(#[$doc])*
            pub type $name = $integer;
            $(
                $(#[$constant_doc])*
                $(#[doc = concat!("\n\nSince driver ", stringify!($since), ".")])?
                pub const $constant: $name = $value;
            )*
        )*

        /// The flags of this module.
        pub(crate) const FLAGS: &[crate::constants::Constant] = &[
            $($(crate::constants::Constant {
                name: stringify!($constant),
                group: stringify!($name),
                value: $value,
            },)*)*
        ];
    };
}

pub(crate) use {enumerations, flags};
