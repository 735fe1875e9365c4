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
