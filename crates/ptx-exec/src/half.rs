//! Arithmetic of f16 and bf16, one value or two per register.
//!
//! Values are widened to `f64`, which represents sums and products of two f16 exactly. An inexact
//! sum is first rounded to odd, so the final rounding is correct. NaN results are the canonical
//! `0x7fff` of both formats.

use super::float;
use super::rounding::{Format, Rounding};

/// The canonical NaN of both formats.
const NAN: u32 = 0x7fff;
const SIGN: u32 = 0x8000;

/// An operation on f16 or bf16 values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HalfOperation {
    Add,
    Sub,
    Mul,
    Fma,
    Min,
    Max,
    Neg,
    Abs,
    Exp2,
    Tanh,
}

/// An instruction on f16 or bf16 with its modifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HalfInstruction {
    /// The operation.
    pub(super) operation: HalfOperation,
    /// bf16 instead of f16.
    pub(super) bf16: bool,
    /// Whether a register holds two values.
    pub(super) packed: bool,
    /// Rounding.
    pub(super) rounding: Rounding,
    /// Whether subnormal operands and results are flushed to zero.
    pub(super) flush: bool,
    /// Whether the result is clamped to [0, 1], with 0 for a NaN.
    pub(super) saturate: bool,
    /// Whether negative results become 0, and a NaN the canonical NaN.
    pub(super) relu: bool,
    /// Whether `min` and `max` return NaN if an operand is NaN.
    pub(super) propagate: bool,
    /// Whether `min` and `max` compare magnitudes and multiply the signs.
    pub(super) xor_sign: bool,
}

impl HalfInstruction {
    /// An operation on one f16 value without modifiers.
    pub(super) const fn plain(operation: HalfOperation) -> Self {
        Self {
            operation,
            bf16: false,
            packed: false,
            rounding: Rounding::Nearest,
            flush: false,
            saturate: false,
            relu: false,
            propagate: false,
            xor_sign: false,
        }
    }

    /// Executes the instruction in one lane.
    pub(super) fn execute(self, values: [u64; 3]) -> u64 {
        let low = self.apply(values.map(|value| value as u32 & 0xffff));
        if !self.packed {
            return u64::from(low);
        }
        let high = self.apply(values.map(|value| value as u32 >> 16));
        u64::from(high << 16 | low)
    }

    fn format(self) -> Format {
        if self.bf16 { Format::BF16 } else { Format::F16 }
    }

    /// Flushes a subnormal to a zero of its sign if `flush` is set.
    fn flushed(self, bits: u32) -> u32 {
        let exponent = if self.bf16 { 0x7f80 } else { 0x7c00 };
        if self.flush && bits & exponent == 0 { bits & SIGN } else { bits }
    }

    /// Whether an exact product is flushed before it is rounded.
    fn is_flushed(self, exact: f64) -> bool {
        let least = if self.bf16 { f64::from(f32::MIN_POSITIVE) } else { 2f64.powi(-14) };
        self.flush && exact != 0.0 && exact.abs() < least
    }

    fn apply(self, operands: [u32; 3]) -> u32 {
        let [a, b, c] = operands.map(|bits| self.flushed(bits));
        let value = |bits: u32| self.format().widen(bits);
        let round = |value: f64| self.format().narrow(value, self.rounding);
        let result = match self.operation {
            HalfOperation::Add => round(self.sum(value(a), value(b))),
            HalfOperation::Sub => round(self.sum(value(a), value(b ^ SIGN))),
            HalfOperation::Mul if self.is_flushed(value(a) * value(b)) => (a ^ b) & SIGN,
            HalfOperation::Mul => round(value(a) * value(b)),
            HalfOperation::Fma => round(self.sum(value(a) * value(b), value(c))),
            HalfOperation::Min => self.extremum(a, b, false),
            HalfOperation::Max => self.extremum(a, b, true),
            HalfOperation::Neg | HalfOperation::Abs if value(a).is_nan() => return NAN,
            HalfOperation::Neg => return a ^ SIGN,
            HalfOperation::Abs => return a & !SIGN,
            HalfOperation::Exp2 => {
                let exact = f32::from_bits(float::exp2((value(a) as f32).to_bits()));
                round(f64::from(exact))
            }
            HalfOperation::Tanh => round(value(a).tanh()),
        };
        self.clamped(self.flushed(result))
    }

    /// `a + b`, rounded to odd, with the sign of zero that the rounding mode requires.
    fn sum(self, a: f64, b: f64) -> f64 {
        let sum = add_to_odd(a, b);
        let cancelled = sum == 0.0 && (a != 0.0 || a.is_sign_negative() != b.is_sign_negative());
        if cancelled && self.rounding == Rounding::Down { -0.0 } else { sum }
    }

    fn extremum(self, a: u32, b: u32, greatest: bool) -> u32 {
        let is_nan = |bits: u32| self.format().widen(bits).is_nan();
        if is_nan(a) && is_nan(b) || self.propagate && (is_nan(a) || is_nan(b)) {
            return NAN;
        }
        let sign = (a ^ b) & SIGN;
        let (x, y) = if self.xor_sign { (a & !SIGN, b & !SIGN) } else { (a, b) };
        let chosen = match (is_nan(x), is_nan(y)) {
            (true, _) => y,
            (_, true) => x,
            _ => {
                // The keys order values as integers, with −0 below +0.
                let key = |bits: u32| {
                    let magnitude = (bits & !SIGN) as i32;
                    if bits & SIGN != 0 { -1 - magnitude } else { magnitude }
                };
                if (key(x) < key(y)) != greatest { x } else { y }
            }
        };
        if self.xor_sign { chosen & !SIGN | sign } else { chosen }
    }

    fn clamped(self, bits: u32) -> u32 {
        let value = self.format().widen(bits);
        let one = if self.bf16 { 0x3f80 } else { 0x3c00 };
        if self.saturate {
            return if value >= 1.0 {
                one
            } else if value > 0.0 {
                bits
            } else {
                0
            };
        }
        if self.relu && !value.is_nan() && bits & SIGN != 0 { 0 } else { bits }
    }
}

/// `a + b` as the nearest `f64` towards zero, with the last bit set if that is not exact.
pub(super) fn add_to_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    if !sum.is_finite() {
        return sum;
    }
    let tail = sum - a;
    to_odd(sum, (a - (sum - tail)) + (b - tail))
}

/// Converts `nearest`, rounded with the given error, to rounding to odd.
pub(super) fn to_odd(nearest: f64, error: f64) -> f64 {
    if error == 0.0 || nearest.to_bits() & 1 == 1 {
        nearest
    } else if error > 0.0 {
        nearest.next_up()
    } else {
        nearest.next_down()
    }
}
