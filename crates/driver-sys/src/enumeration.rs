//! How the enumerations of cuda.h become newtypes with constants.

/// Declares enumerations of cuda.h as transparent newtypes over their integer, so that a value
/// from a newer driver is a number and not undefined behaviour. Constants keep the exact names.
macro_rules! enumerations {
    ($(
        $(#[$doc:meta])*
        $name:ident: $integer:ty { $($(#[$constant_doc:meta])* $constant:ident = $value:literal;)* }
    )*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $integer);

        impl $name {
            $($(#[$constant_doc])* pub const $constant: Self = Self($value);)*
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.0 {
                    $($value => f.write_str(stringify!($constant)),)*
                    other => write!(f, concat!(stringify!($name), "({})"), other),
                }
            }
        }
    )*};
}

pub(crate) use enumerations;
