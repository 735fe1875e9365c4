//! Rounding other than to nearest.
//!
//! Every function starts from the result rounded to nearest, compares it with the exact result, and
//! moves to the neighbour if the mode requires it. `f64` holds the product of two `f32` exactly,
//! and the exact error of a sum of two `f64` is known (Knuth's two-sum), so the direction is always
//! exact.

use std::cmp::Ordering;

/// A rounding mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Rounding {
    /// `.rn`: to nearest, ties to even.
    #[default]
    Nearest,
    /// `.rz`: towards zero.
    Zero,
    /// `.rm`: towards negative infinity.
    Down,
    /// `.rp`: towards positive infinity.
    Up,
}

impl Rounding {
    /// The step from the result rounded to nearest: −1 is down, 0 none, 1 up. `exact` compares the
    /// exact result with the rounded one, whose sign is `negative`.
    pub(super) fn step(self, exact: Ordering, negative: bool) -> i32 {
        match (self, exact) {
            (Self::Nearest, _) | (_, Ordering::Equal) => 0,
            (Self::Down, Ordering::Less) => -1,
            (Self::Up, Ordering::Greater) => 1,
            (Self::Zero, Ordering::Less) if !negative => -1,
            (Self::Zero, Ordering::Greater) if negative => 1,
            _ => 0,
        }
    }
}

/// `f32` results in any mode.
pub(super) mod directed_f32 {
    use super::{Ordering, Rounding};

    fn adjust(nearest: f32, exact: Ordering, rounding: Rounding) -> f32 {
        match rounding.step(exact, nearest.is_sign_negative()) {
            -1 => nearest.next_down(),
            1 => nearest.next_up(),
            _ => nearest,
        }
    }

    fn side(left: f64, right: f64) -> Ordering {
        left.partial_cmp(&right).unwrap_or(Ordering::Equal)
    }

    /// Rounds `exact`, whose rounding to nearest is `nearest`.
    pub(in super::super) fn exact(exact: f64, nearest: f32, rounding: Rounding) -> f32 {
        if nearest == 0.0 && exact != 0.0 {
            // The zero of an underflow must have the sign of the exact result.
            let signed = 0.0f32.copysign(exact as f32);
            return adjust(signed, side(exact, 0.0), rounding);
        }
        adjust(nearest, side(exact, f64::from(nearest)), rounding)
    }

    /// Rounds `left + right`, whose rounding to nearest is `nearest`.
    pub(in super::super) fn sum(left: f64, right: f32, nearest: f32, rounding: Rounding) -> f32 {
        let right = f64::from(right);
        let total = left + right;
        if !total.is_finite() || rounding == Rounding::Nearest {
            return nearest;
        }
        let tail = total - left;
        let error = (left - (total - tail)) + (right - tail);
        if total == 0.0 && error == 0.0 {
            // An exact zero is negative when rounding down, unless both addends are +0.
            let positive = left.is_sign_positive() && right.is_sign_positive();
            return if rounding == Rounding::Down && !positive { -0.0 } else { nearest };
        }
        let coarse = side(total, f64::from(nearest));
        let exact = if coarse == Ordering::Equal { side(error, 0.0) } else { coarse };
        adjust(nearest, exact, rounding)
    }

    /// `left / right`.
    pub(in super::super) fn quotient(left: f32, right: f32, rounding: Rounding) -> f32 {
        let nearest = left / right;
        if nearest.is_nan() || left.is_infinite() || right.is_infinite() || right == 0.0 {
            return nearest;
        }
        // A quotient of two f32 that is an f32 is exact in f64, and any other quotient differs from
        // an f32 by more than the precision of f64.
        let wide = f64::from(left) / f64::from(right);
        exact(wide, nearest, rounding)
    }

    /// `√value`.
    pub(in super::super) fn root(value: f32, rounding: Rounding) -> f32 {
        let nearest = value.sqrt();
        if !nearest.is_finite() || nearest == 0.0 {
            return nearest;
        }
        // The square of an f32 is exact in f64.
        let square = f64::from(nearest) * f64::from(nearest);
        adjust(nearest, side(f64::from(value), square), rounding)
    }
}

/// A binary floating-point format narrower than `f64`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    /// Stored bits of the mantissa.
    mantissa: u32,
    /// Bits of the exponent.
    exponent: u32,
}

impl Format {
    /// A format with `mantissa` and `exponent` bits.
    pub(super) const fn new(mantissa: u32, exponent: u32) -> Self {
        Self { mantissa, exponent }
    }

    /// `f16`.
    pub(super) const F16: Self = Self { mantissa: 10, exponent: 5 };
    /// `bf16`.
    pub(super) const BF16: Self = Self { mantissa: 7, exponent: 8 };
    /// `f32`.
    pub(super) const F32: Self = Self { mantissa: 23, exponent: 8 };

    /// Rounds `value` to the format. A NaN becomes the canonical NaN, with all mantissa bits set.
    pub(super) fn narrow(self, value: f64, rounding: Rounding) -> u32 {
        let bias = (1i32 << (self.exponent - 1)) - 1;
        let infinity = ((1u32 << self.exponent) - 1) << self.mantissa;
        let sign = u32::from(value.is_sign_negative()) << (self.mantissa + self.exponent);
        if value.is_nan() {
            return infinity | ((1 << self.mantissa) - 1);
        }
        if value.is_infinite() || value == 0.0 {
            return sign | if value == 0.0 { 0 } else { infinity };
        }
        let bits = value.to_bits();
        let exponent = ((bits >> 52 & 0x7ff) as i32 - 1023).max(-1022);
        let hidden = u64::from(bits >> 52 & 0x7ff != 0) << 52;
        let significand = bits & ((1 << 52) - 1) | hidden;
        // Below the minimum normal exponent, the unit in the last place is constant.
        let place = exponent.max(1 - bias);
        let shift = (52 - self.mantissa as i32 + (place - exponent)).min(63) as u32;
        let kept = significand >> shift;
        let rest = significand & ((1 << shift) - 1);
        let half = 1u64 << (shift - 1);
        let up = match rounding {
            Rounding::Nearest => rest > half || rest == half && kept & 1 == 1,
            Rounding::Zero => false,
            Rounding::Down => rest != 0 && sign != 0,
            Rounding::Up => rest != 0 && sign == 0,
        };
        // A carry out of the mantissa correctly increments the exponent.
        let biased = u64::from(kept >> self.mantissa != 0) * (place + bias) as u64;
        let magnitude = (biased << self.mantissa) + (kept & ((1 << self.mantissa) - 1));
        let magnitude = magnitude + u64::from(up);
        let finite = u64::from(infinity) - 1;
        let away = match rounding {
            Rounding::Nearest => true,
            Rounding::Zero => false,
            Rounding::Down => sign != 0,
            Rounding::Up => sign == 0,
        };
        let overflow = if away { finite + 1 } else { finite };
        sign | if magnitude > finite { overflow as u32 } else { magnitude as u32 }
    }

    /// The value of `bits`, exactly.
    pub(super) fn widen(self, bits: u32) -> f64 {
        let mantissa = bits & ((1 << self.mantissa) - 1);
        let exponent = (bits >> self.mantissa) & ((1 << self.exponent) - 1);
        let negative = bits >> (self.mantissa + self.exponent) & 1 == 1;
        let bias = (1i32 << (self.exponent - 1)) - 1;
        let scale = |power: i32| f64::from_bits(((power + 1023) as u64) << 52);
        let unit = scale(-(self.mantissa as i32));
        let magnitude = match exponent {
            0 => f64::from(mantissa) * unit * scale(1 - bias),
            e if e == (1 << self.exponent) - 1 => {
                if mantissa == 0 {
                    f64::INFINITY
                } else {
                    f64::NAN
                }
            }
            e => (1.0 + f64::from(mantissa) * unit) * scale(e as i32 - bias),
        };
        if negative { -magnitude } else { magnitude }
    }
}
