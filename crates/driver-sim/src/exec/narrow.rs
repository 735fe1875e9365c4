//! Conversions to and from tf32 and formats of 16 and 8 bits with special modifiers: `.relu`,
//! `.satfinite`, and two values in a register.

use super::rounding::{Format, Rounding};

/// A target format of narrowing from `f32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Narrow {
    F16,
    Bf16,
    E4m3,
    E5m2,
    Tf32,
}

impl Narrow {
    /// e5m2: two mantissa bits and five exponent bits.
    const FORMAT_E5M2: Format = Format::new(2, 5);
    /// e4m3 below 256.
    const FORMAT_E4M3: Format = Format::new(3, 4);

    /// The width of a value in bits.
    fn bits(self) -> u32 {
        match self {
            Self::F16 | Self::Bf16 => 16,
            Self::E4m3 | Self::E5m2 => 8,
            Self::Tf32 => 32,
        }
    }

    /// The canonical NaN and the maximum finite number.
    fn ends(self) -> (u32, u32) {
        match self {
            Self::F16 => (0x7fff, 0x7bff),
            Self::Bf16 => (0x7fff, 0x7f7f),
            Self::E4m3 => (0x7f, 0x7e),
            Self::E5m2 => (0x7f, 0x7b),
            Self::Tf32 => (0x7fff_ffff, 0x7f7f_e000),
        }
    }

    /// Rounds a number; numbers above the maximum may become infinite.
    fn round(self, value: f64, rounding: Rounding, away: bool) -> u32 {
        match self {
            Self::F16 => Format::F16.narrow(value, rounding),
            Self::Bf16 => Format::BF16.narrow(value, rounding),
            Self::E5m2 => Self::FORMAT_E5M2.narrow(value, rounding),
            // From 256 on, where other formats have infinity, e4m3 numbers are 32 apart.
            Self::E4m3 if value.abs() >= 256.0 => {
                let steps = (value.abs() / 32.0).round_ties_even().min(16.0) as u32;
                let magnitude = if steps > 14 { 0x7f } else { 0x70 + steps };
                magnitude | u32::from(value < 0.0) << 7
            }
            Self::E4m3 => Self::FORMAT_E4M3.narrow(value, rounding),
            Self::Tf32 => tf32((value as f32).to_bits(), rounding, away),
        }
    }

    /// The value of `bits`.
    fn widen(self, bits: u32) -> f64 {
        match self {
            Self::F16 => Format::F16.widen(bits),
            Self::Bf16 => Format::BF16.widen(bits),
            Self::E5m2 => Self::FORMAT_E5M2.widen(bits),
            Self::E4m3 if bits & 0x7f == 0x7f => f64::NAN,
            Self::E4m3 if bits & 0x78 == 0x78 => {
                let magnitude = 256.0 + 32.0 * f64::from(bits & 7);
                if bits & 0x80 != 0 { -magnitude } else { magnitude }
            }
            Self::E4m3 => Self::FORMAT_E4M3.widen(bits),
            Self::Tf32 => f64::from(f32::from_bits(bits)),
        }
    }
}

/// Rounds the bits of an `f32` to 10 bits of mantissa.
fn tf32(bits: u32, rounding: Rounding, away: bool) -> u32 {
    const UNIT: u32 = 1 << 13;
    let (kept, rest) = (bits & !(UNIT - 1), bits & (UNIT - 1));
    let half = UNIT / 2;
    let up = match rounding {
        _ if away => rest >= half,
        Rounding::Nearest => rest > half || rest == half && kept & UNIT != 0,
        _ => false,
    };
    // A carry runs into the exponent, up to infinity.
    if f32::from_bits(bits).is_finite() && up { kept + UNIT } else { kept }
}

/// The format and modifiers of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Narrowing {
    /// The format.
    pub(super) to: Narrow,
    /// To nearest with ties to even, or towards zero.
    pub(super) rounding: Rounding,
    /// `.rna`: ties go away from zero.
    pub(super) away: bool,
    /// Whether negative numbers become 0.
    pub(super) relu: bool,
    /// Whether numbers out of range become the maximum finite number.
    pub(super) finite: bool,
}

impl Narrowing {
    /// To bf16, rounded to nearest, which has its own operations.
    pub(super) const BF16: Self = Self {
        to: Narrow::Bf16,
        rounding: Rounding::Nearest,
        away: false,
        relu: false,
        finite: false,
    };

    fn apply(self, value: f64) -> u32 {
        let (nan, greatest) = self.to.ends();
        if value.is_nan() {
            // The canonical NaN of tf32 has only the bits of tf32, except for `.rna`.
            return if self.to == Narrow::Tf32 && !self.away { nan & !0x1fff } else { nan };
        }
        if self.relu && value.is_sign_negative() {
            return 0;
        }
        let sign = u32::from(value.is_sign_negative()) << (self.to.bits() - 1);
        let bits = self.to.round(value, self.rounding, self.away);
        if self.finite && bits & !sign > greatest { sign | greatest } else { bits }
    }
}

/// Narrows one `f32`.
pub(super) fn one([value, ..]: [u64; 3], narrowing: Narrowing) -> u64 {
    let bits = value as u32;
    if narrowing.to == Narrow::Tf32 && narrowing.away && f32::from_bits(bits).is_nan() {
        // NaNs are truncated; `satfinite` decrements their kept bits, like the bits of infinity.
        let kept = bits & !0x1fff;
        return u64::from(if narrowing.finite { kept - 0x2000 } else { kept });
    }
    u64::from(narrowing.apply(f64::from(f32::from_bits(bits))))
}

/// Narrows two `f32` into one register; the first goes to the upper half.
pub(super) fn two([high, low, _]: [u64; 3], narrowing: Narrowing) -> u64 {
    let part = |bits: u64| narrowing.apply(f64::from(f32::from_bits(bits as u32)));
    u64::from(part(high) << narrowing.to.bits() | part(low))
}

/// Narrows two f16 to two bytes.
pub(super) fn halves_to_bytes([value, ..]: [u64; 3], narrowing: Narrowing) -> u64 {
    let part = |bits: u64| narrowing.apply(Format::F16.widen(bits as u32 & 0xffff));
    u64::from(part(value >> 16) << 8 | part(value))
}

/// Widens two bytes to two f16; `narrowing` has the format of the bytes, and `.relu`.
pub(super) fn bytes_to_halves([value, ..]: [u64; 3], narrowing: Narrowing) -> u64 {
    let half = Narrowing { to: Narrow::F16, finite: false, ..narrowing };
    let part = |bits: u64| half.apply(narrowing.to.widen(bits as u32 & 0xff));
    u64::from(part(value >> 8) << 16 | part(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RN: Narrowing = Narrowing {
        to: Narrow::F16,
        rounding: Rounding::Nearest,
        away: false,
        relu: false,
        finite: false,
    };

    fn run(narrowing: Narrowing, value: f32) -> u64 {
        one([u64::from(value.to_bits()), 0, 0], narrowing)
    }

    #[test]
    fn bytes_round_trip() {
        for to in [Narrow::E4m3, Narrow::E5m2] {
            for bits in 0..=0xffu32 {
                let value = to.widen(bits);
                let finite = Narrowing { to, finite: true, ..RN };
                if value.is_finite() {
                    assert_eq!(finite.apply(value), bits, "{to:?} {value}");
                }
            }
        }
        assert_eq!(Narrow::E4m3.widen(0x7e), 448.0);
        assert_eq!(Narrow::E5m2.widen(0x7b), 57344.0);
    }

    #[test]
    fn values_out_of_range_become_infinite_or_saturate() {
        let finite = Narrowing { finite: true, ..RN };
        assert_eq!([run(RN, 1e6), run(finite, 1e6), run(finite, -1e6)], [0x7c00, 0x7bff, 0xfbff]);
        let byte = Narrowing { to: Narrow::E4m3, finite: true, ..RN };
        assert_eq!([run(byte, 464.0), run(byte, 1e9), run(byte, -1e9)], [0x7e, 0x7e, 0xfe]);
        assert_eq!([run(byte, 252.0), run(byte, f32::NAN)], [0x78, 0x7f]);
    }

    #[test]
    fn relu_clamps_negative_numbers() {
        let relu = Narrowing { relu: true, ..RN };
        assert_eq!([run(relu, -1.0), run(relu, -0.0), run(relu, 1.0)], [0, 0, 0x3c00]);
        assert_eq!(run(relu, f32::NAN), 0x7fff);
    }

    #[test]
    fn tf32_keeps_ten_bits() {
        let tie = f32::from_bits(0x3f80_1000);
        let tf32 = Narrowing { to: Narrow::Tf32, ..RN };
        let away = Narrowing { away: true, ..tf32 };
        let zero = Narrowing { rounding: Rounding::Zero, ..tf32 };
        assert_eq!([run(tf32, tie), run(away, tie)], [0x3f80_0000, 0x3f80_2000]);
        assert_eq!(run(zero, f32::from_bits(0x3f80_1fff)), 0x3f80_0000);
        assert_eq!(run(away, f32::MAX), u64::from(f32::INFINITY.to_bits()));
        assert_eq!(run(tf32, f32::NAN), 0x7fff_e000);
    }

    #[test]
    fn bf16_matches_its_own_operation() {
        let edges = [0x7f7f_7fff, 0x7f7f_8000, 0x7f80_0000, 0x7f80_0001, 0xffff_ffff, 0x8000_8000];
        let spread = (0..=0xffffu32).map(|i| i.wrapping_mul(0x1_0001).wrapping_add(i << 7));
        let ties =
            (0..=0xffffu32).flat_map(|i| [i << 16 | 0x7fff, i << 16 | 0x8000, i << 16 | 0x8001]);
        for bits in edges.into_iter().chain(spread).chain(ties) {
            let expected = Narrowing::BF16.apply(f64::from(f32::from_bits(bits)));
            assert_eq!(crate::exec::float::bf16(bits), expected, "{bits:#010x}");
        }
    }

    #[test]
    fn pairs_are_in_order() {
        let float = |value: f32| u64::from(value.to_bits());
        assert_eq!(two([float(1.0), float(2.0), 0], RN), 0x3c00_4000);
        let byte = Narrowing { to: Narrow::E5m2, finite: true, ..RN };
        assert_eq!(two([float(1.0), float(2.0), 0], byte), 0x3c40);
        assert_eq!(halves_to_bytes([0x3c00_4000, 0, 0], byte), 0x3c40);
        assert_eq!(bytes_to_halves([0x3c40, 0, 0], byte), 0x3c00_4000);
    }
}
