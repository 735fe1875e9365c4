//! Indices of pointers: constants and values.

use super::{Value, Var};

/// An index: a Rust integer, or a value of type `u32`, `i32` or `u64`.
pub trait Index<'k>: Copy {
    #[doc(hidden)]
    fn split(self) -> Position<'k>;
}

/// An index by its form.
#[derive(Clone, Copy)]
pub enum Position<'k> {
    /// A constant.
    Fixed(i64),
    /// A 32-bit value.
    Unsigned(Value<'k, u32>),
    /// A signed 32-bit value.
    Signed(Value<'k, i32>),
    /// A 64-bit value.
    Long(Value<'k, u64>),
}

macro_rules! index {
    (fixed $($ty:ident)*) => { $(
        impl<'k> Index<'k> for $ty {
            fn split(self) -> Position<'k> {
                Position::Fixed(self as i64)
            }
        }
    )* };
    (value $($ty:ident $variant:ident)*) => { $(
        impl<'k> Index<'k> for Value<'k, $ty> {
            fn split(self) -> Position<'k> {
                match self.known() {
                    Some(known) => Position::Fixed(known as i64),
                    None => Position::$variant(self),
                }
            }
        }
        impl<'k> Index<'k> for Var<'k, $ty> {
            fn split(self) -> Position<'k> {
                Position::$variant(self.get())
            }
        }
    )* };
}

index!(fixed u32 i32 u64 i64 usize);
index!(value u32 Unsigned i32 Signed u64 Long);
