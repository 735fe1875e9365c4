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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_agrees_with_the_language_for_f32() {
        let mut state = 3u64;
        for _ in 0..200_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Exponents around the range of f32, to cover every case.
            let exponent = 1023 - 160 + (state >> 20) % 300;
            let bits = state & 0x800f_ffff_ffff_ffff | exponent << 52;
            let value = f64::from_bits(bits);
            let nearest = Format::F32.narrow(value, Rounding::Nearest);
            assert_eq!(nearest, (value as f32).to_bits(), "{value:e}");
            let [zero, down, up] = [Rounding::Zero, Rounding::Down, Rounding::Up]
                .map(|mode| f32::from_bits(Format::F32.narrow(value, mode)));
            assert!(f64::from(down) <= value && value <= f64::from(up));
            assert!(f64::from(zero).abs() <= value.abs());
            assert!(down == up || down.next_up() == up || down.next_up() == 0.0, "{down} {up}");
        }
    }

    #[test]
    fn half_formats_round_trip() {
        for bits in 0..=0xffffu32 {
            for format in [Format::F16, Format::BF16] {
                let value = format.widen(bits);
                if !value.is_nan() {
                    assert_eq!(format.narrow(value, Rounding::Nearest), bits);
                }
            }
        }
        assert_eq!(Format::F16.narrow(65519.0, Rounding::Nearest), 0x7bff);
        assert_eq!(Format::F16.narrow(65520.0, Rounding::Nearest), 0x7c00);
        assert_eq!(Format::F16.narrow(f64::NAN, Rounding::Nearest), 0x7fff);
    }

    #[test]
    fn directed_results_enclose_the_exact_one() {
        use directed_f32::{quotient, root, sum};
        assert_eq!(sum(1.0, 1e-30, 1.0, Rounding::Up), 1.0f32.next_up());
        assert_eq!(sum(1.0, -1e-30, 1.0, Rounding::Zero), 1.0f32.next_down());
        assert_eq!(sum(1.0, -1.0, 0.0, Rounding::Down).to_bits(), (-0.0f32).to_bits());
        let third = 1.0f32 / 3.0;
        let down = quotient(1.0, 3.0, Rounding::Down);
        let up = quotient(1.0, 3.0, Rounding::Up);
        assert!(down.next_up() == up && (third == down || third == up));
        assert_eq!(root(4.0, Rounding::Up), 2.0);
        assert!(root(2.0, Rounding::Down).next_up() == root(2.0, Rounding::Up));
        let most = f32::MAX;
        assert_eq!(sum(f64::from(most), most, f32::INFINITY, Rounding::Zero), most);
        let tiny = f32::from_bits(1);
        let product = f64::from(tiny) * f64::from(tiny);
        assert_eq!(directed_f32::exact(product, 0.0, Rounding::Up), tiny);
        assert_eq!(directed_f32::exact(product, 0.0, Rounding::Down), 0.0);
    }
}
