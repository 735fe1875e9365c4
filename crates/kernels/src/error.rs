//! Errors of launch constructors.

use std::fmt;

use crate::DType;

/// An invalid launch: its operands do not fit its shape.
///
/// All of these are detected when the launch is constructed, before any device is involved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// A view does not have the number of elements that the shape requires.
    #[error("{kernel}: `{operand}` has {actual} elements, but the shape needs {expected}")]
    Length {
        /// The kernel.
        kernel: &'static str,
        /// The operand, by the name of its field.
        operand: &'static str,
        /// The number of elements that the shape requires.
        expected: usize,
        /// The number of elements that the view has.
        actual: usize,
    },
    /// A size exceeds the index range of the kernel or the limits of a grid.
    #[error("{kernel}: {what} is {value}, but the kernel handles at most {limit}")]
    TooLarge {
        /// The kernel.
        kernel: &'static str,
        /// The size that is too large.
        what: &'static str,
        /// Its value.
        value: usize,
        /// The largest value that the kernel handles.
        limit: usize,
    },
    /// A product of sizes does not fit `usize`.
    #[error("{kernel}: {what} is too large: the product of {sizes:?} overflows; reduce the sizes")]
    Overflow {
        /// The kernel.
        kernel: &'static str,
        /// The product.
        what: &'static str,
        /// The sizes.
        sizes: Vec<usize>,
    },
    /// Sizes that contradict each other or that the kernel cannot divide.
    #[error("{kernel}: {rule}{found}")]
    Shape {
        /// The kernel.
        kernel: &'static str,
        /// The violated rule, a sentence without a full stop.
        rule: &'static str,
        /// The sizes that violate it.
        found: FoundSizes,
    },
    /// A constant is outside the range for which the formula is defined.
    #[error("{kernel}: `{operand}` is {value}, but it must be {rule}")]
    Constant {
        /// The kernel.
        kernel: &'static str,
        /// The constant, by the name of its field.
        operand: &'static str,
        /// The value, printed (so that the error stays comparable).
        value: String,
        /// The valid values, for example "finite and not negative".
        rule: &'static str,
    },
    /// No kernel supports operands of these types.
    #[error("{kernel}: no variant computes in {compute} with an operand in {dtype}; {help}")]
    UnsupportedDType {
        /// The kernel.
        kernel: &'static str,
        /// The compute type.
        compute: DType,
        /// The type of the operand.
        dtype: DType,
        /// Advice for the caller.
        help: &'static str,
    },
}

/// The sizes that violate the rule of a [`KernelError::Shape`], in the order of the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FoundSizes {
    /// The rule is not about sizes.
    None,
    /// One size.
    One(usize),
    /// Two sizes.
    Two(usize, usize),
}

impl fmt::Display for FoundSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::One(size) => write!(f, " (found {size})"),
            Self::Two(first, second) => write!(f, " (found {first} and {second})"),
        }
    }
}

impl From<()> for FoundSizes {
    fn from((): ()) -> Self {
        Self::None
    }
}

impl From<usize> for FoundSizes {
    fn from(size: usize) -> Self {
        Self::One(size)
    }
}

impl From<[usize; 2]> for FoundSizes {
    fn from([first, second]: [usize; 2]) -> Self {
        Self::Two(first, second)
    }
}
