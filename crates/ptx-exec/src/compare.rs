//! Comparisons and tests in one lane.

use std::cmp::Ordering;

use super::float::{d, f, flush};
use super::integer::Int;
use super::rounding::Format;

/// The outcomes of a comparison for which a relation is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outcomes {
    /// a < b.
    pub(super) less: bool,
    /// a = b.
    pub(super) equal: bool,
    /// a > b.
    pub(super) greater: bool,
    /// An operand is NaN.
    pub(super) unordered: bool,
}

impl Outcomes {
    /// Returns whether the relation holds for an outcome; `None` means unordered.
    fn hold(self, outcome: Option<Ordering>) -> u64 {
        u64::from(match outcome {
            Some(Ordering::Less) => self.less,
            Some(Ordering::Equal) => self.equal,
            Some(Ordering::Greater) => self.greater,
            None => self.unordered,
        })
    }
}

/// Compares two integers.
pub(super) fn integers<T: Int>([a, b, _]: [u64; 3], outcomes: Outcomes) -> u64 {
    outcomes.hold(Some(T::of(a).cmp(&T::of(b))))
}

/// Compares two `f32`.
pub(super) fn floats([a, b, _]: [u64; 3], outcomes: Outcomes) -> u64 {
    outcomes.hold(f(a as u32).partial_cmp(&f(b as u32)))
}

/// Compares two `f32`, flushing subnormals.
pub(super) fn flushed_floats([a, b, _]: [u64; 3], outcomes: Outcomes) -> u64 {
    outcomes.hold(f(flush(a as u32)).partial_cmp(&f(flush(b as u32))))
}

/// Compares two `f64`.
pub(super) fn doubles([a, b, _]: [u64; 3], outcomes: Outcomes) -> u64 {
    outcomes.hold(d(a).partial_cmp(&d(b)))
}

/// A comparison of f16 or bf16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HalfComparison {
    /// bf16 instead of f16.
    pub(super) bf16: bool,
    /// Whether subnormals are flushed.
    pub(super) flush: bool,
    /// Whether the upper values of packed registers are compared.
    pub(super) upper: bool,
    /// The outcomes for which the relation is true.
    pub(super) outcomes: Outcomes,
}

impl HalfComparison {
    /// Compares the two values.
    pub(super) fn apply(self, [a, b, _]: [u64; 3]) -> u64 {
        let format = if self.bf16 { Format::BF16 } else { Format::F16 };
        let exponent = if self.bf16 { 0x7f80 } else { 0x7c00 };
        let value = |bits: u64| {
            let bits = (bits >> if self.upper { 16 } else { 0 }) as u32 & 0xffff;
            let flushed = self.flush && bits & exponent == 0;
            format.widen(if flushed { bits & 0x8000 } else { bits })
        };
        self.outcomes.hold(value(a).partial_cmp(&value(b)))
    }
}

/// A property that `testp` tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FloatClass {
    Finite,
    Infinite,
    Number,
    NotANumber,
    /// Zeros are normal numbers on hardware.
    Normal,
    Subnormal,
}

macro_rules! has_class {
    ($(#[$doc:meta])* $name:ident, $float:ident, $bits:ident) => {
        $(#[$doc])*
        pub(super) fn $name([a, _, _]: [u64; 3], class: FloatClass) -> u64 {
            let x = $float::from_bits(a as $bits);
            u64::from(match class {
                FloatClass::Finite => x.is_finite(),
                FloatClass::Infinite => x.is_infinite(),
                FloatClass::Number => !x.is_nan(),
                FloatClass::NotANumber => x.is_nan(),
                FloatClass::Normal => x.is_normal() || x == 0.0,
                FloatClass::Subnormal => x.is_subnormal(),
            })
        }
    };
}
has_class!(
    /// `testp.f32`.
    float_has_class, f32, u32
);
has_class!(
    /// `testp.f64`.
    double_has_class, f64, u64
);
