//! Semantics of PTX floating-point instructions, for one lane.
//!
//! The interpreter applies functions marked `#[inline(always)]` to whole warps; they are
//! branch-free to vectorise. All functions take and return bits, because a NaN in a Rust float may
//! change its payload. NaN results of `f32` arithmetic are the canonical `0x7fffffff`, as on NVIDIA
//! hardware. A NaN result of `f64` arithmetic is the last NaN operand (for a division, the first),
//! made quiet, or `0xfff8000000000000` if no operand is a NaN.
//!
//! The `.approx` functions compute in `f64` and round once, which is more accurate than hardware
//! (about 2 ulp). `ex2`, `lg2`, `rsqrt` and the quotients use only correctly rounded operations, so
//! they return the same bits on every host. `sin`, `cos` and `tanh` use the host's `libm`, whose
//! results may differ among hosts, rarely after rounding to `f32`.

mod approx;
mod extremum;

pub(super) use self::approx::{exp2, log2, rsqrt};
use self::extremum::unless_nan;
pub(super) use self::extremum::{Extremum, extremum64, max, min};
use super::rounding::{Rounding, directed_f32};

/// The canonical NaN of `f32`.
pub(super) const NAN_F32: u32 = 0x7fff_ffff;
/// The canonical NaN of `f64`.
pub(super) const NAN_F64: u64 = 0xfff8_0000_0000_0000;

#[inline(always)]
pub(super) fn f(bits: u32) -> f32 {
    f32::from_bits(bits)
}

#[inline(always)]
pub(super) fn d(bits: u64) -> f64 {
    f64::from_bits(bits)
}

/// `f32` to bf16, rounded to nearest, with the canonical NaN.
#[inline(always)]
pub(super) fn bf16(bits: u32) -> u32 {
    let is_nan = bits & 0x7fff_ffff > 0x7f80_0000;
    // The addition carries if the remainder is above a half, or a half above an odd number.
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    if is_nan { 0x7fff } else { rounded }
}

/// The bits of a result, with the canonical NaN.
#[inline(always)]
pub(super) fn canonical(value: f32) -> u32 {
    if value.is_nan() { NAN_F32 } else { value.to_bits() }
}

/// The NaN result of an operation on `f64`: the last NaN operand, made quiet.
#[cold]
pub(super) fn nan_of(operands: &[u64]) -> u64 {
    let last = operands.iter().rfind(|bits| d(**bits).is_nan());
    last.map_or(NAN_F64, |bits| quiet64(*bits))
}

/// A NaN made quiet.
pub(super) fn quiet64(bits: u64) -> u64 {
    bits | 1 << 51
}

/// The bits of a result of `f64` arithmetic.
#[inline(always)]
pub(super) fn result64(value: f64, operands: &[u64]) -> u64 {
    if value.is_nan() { nan_of(operands) } else { value.to_bits() }
}

/// `neg.f64`; a NaN keeps its sign.
#[inline(always)]
pub(super) fn neg64(bits: u64) -> u64 {
    if d(bits).is_nan() { quiet64(bits) } else { bits ^ 1 << 63 }
}

/// `abs.f64`; a NaN keeps its sign.
#[inline(always)]
pub(super) fn abs64(bits: u64) -> u64 {
    if d(bits).is_nan() { quiet64(bits) } else { bits & !(1 << 63) }
}

/// `f32` to `f64`; a NaN keeps its sign and the bits of its mantissa.
#[inline(always)]
pub(super) fn widen(bits: u32) -> u64 {
    let nan = u64::from(bits & 0x8000_0000) << 32
        | 0x7ff8_0000_0000_0000
        | u64::from(bits & 0x003f_ffff) << 29;
    if f(bits).is_nan() { nan } else { f64::from(f(bits)).to_bits() }
}

/// `f64` to `f32`, rounded to nearest; a NaN keeps its sign and the upper bits of its mantissa.
#[inline(always)]
pub(super) fn narrow(bits: u64) -> u32 {
    let nan = (bits >> 32) as u32 & 0x8000_0000 | 0x7fc0_0000 | (bits >> 29) as u32 & 0x003f_ffff;
    if d(bits).is_nan() { nan } else { (d(bits) as f32).to_bits() }
}

/// The bits of a result, with the canonical NaN.
#[inline(always)]
pub(super) fn canonical64(value: f64) -> u64 {
    if value.is_nan() { NAN_F64 } else { value.to_bits() }
}

/// Flushes a subnormal to a zero of its sign.
pub(super) fn flush(bits: u32) -> u32 {
    if f(bits).is_subnormal() { bits & 0x8000_0000 } else { bits }
}

/// Flushes a subnormal to a zero of its sign.
pub(super) fn flush64(bits: u64) -> u64 {
    if d(bits).is_subnormal() { bits & 1 << 63 } else { bits }
}

/// The rounding, flushing and saturation of an `f32` instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FloatMode {
    /// The rounding.
    pub(super) rounding: Rounding,
    /// Whether subnormal operands and results are flushed to zero.
    pub(super) flush: bool,
    /// Whether the result is clamped to [0, 1], with 0 for a NaN.
    pub(super) saturate: bool,
}

impl FloatMode {
    /// Rounding to nearest without flushing or saturation.
    pub(super) fn is_plain(self) -> bool {
        self == Self::default()
    }

    fn operand(self, bits: u64) -> f32 {
        let bits = bits as u32;
        f(if self.flush { flush(bits) } else { bits })
    }

    fn result(self, value: f32) -> u64 {
        let bits = canonical(value);
        let bits = if self.flush { flush(bits) } else { bits };
        u64::from(if self.saturate { saturate(bits) } else { bits })
    }
}

/// Clamps to [0, 1]; a NaN becomes 0.
pub(super) fn saturate(bits: u32) -> u32 {
    let x = f(bits);
    if x >= 1.0 {
        1.0f32.to_bits()
    } else if x > 0.0 {
        bits
    } else {
        0
    }
}

/// 2^126; reciprocals of larger numbers are subnormal.
const LARGE: f32 = f32::from_bits(0x7e80_0000);

/// Whether a nonzero result is below the range of normal `f32`.
fn is_tiny(exact: f64) -> bool {
    exact != 0.0 && exact.abs() < f64::from(f32::MIN_POSITIVE)
}

macro_rules! moded {
    ($(
        $(#[$doc:meta])*
        $name:ident($a:ident, $b:ident, $c:ident, $r:ident) = $value:expr
            $(, exactly $exact:expr)?;
    )*) => {$(
        $(#[$doc])*
        pub(super) fn $name(values: [u64; 3], mode: FloatMode) -> u64 {
            let [$a, $b, $c] = values.map(|value| mode.operand(value));
            let $r = mode.rounding;
            let _ = (&$a, &$b, &$c, &$r);
            // Subnormal results are flushed before rounding.
            $(if mode.flush && is_tiny($exact) {
                return mode.result(0.0f32.copysign($exact as f32));
            })?
            mode.result($value)
        }
    )*};
}

moded! {
    /// `add.f32`.
    add(a, b, _c, r) = directed_f32::sum(f64::from(a), b, a + b, r);
    /// `sub.f32`.
    sub(a, b, _c, r) = directed_f32::sum(f64::from(a), -b, a - b, r);
    /// `mul.f32`.
    mul(a, b, _c, r) = directed_f32::exact(f64::from(a) * f64::from(b), a * b, r),
        exactly f64::from(a) * f64::from(b);
    /// `fma.f32`.
    fma(a, b, c, r) = directed_f32::sum(f64::from(a) * f64::from(b), c, a.mul_add(b, c), r),
        exactly f64::from(a) * f64::from(b) + f64::from(c);
    /// `div.f32`.
    div(a, b, _c, r) = directed_f32::quotient(a, b, r);
    /// `div.approx.f32`: the reciprocal of a large divisor is flushed.
    div_approx(a, b, _c, _r) = if b.is_finite() && b.abs() > LARGE {
        a * 0.0f32.copysign(b)
    } else {
        a / b
    };
    /// `div.full.f32`.
    div_full(a, b, _c, _r) = a / b, exactly f64::from(a) / f64::from(b);
    /// `rcp.f32`.
    rcp(a, _b, _c, r) = directed_f32::quotient(1.0, a, r);
    /// `sqrt.f32`.
    sqrt(a, _b, _c, r) = directed_f32::root(a, r);
    /// `rsqrt.approx.f32`.
    rsqrt_moded(a, _b, _c, _r) = f(rsqrt(a.to_bits()));
    /// `ex2.approx.f32`.
    exp2_moded(a, _b, _c, _r) = f(exp2(a.to_bits()));
    /// `lg2.approx.f32`.
    log2_moded(a, _b, _c, _r) = f(log2(a.to_bits()));
    /// `sin.approx.f32`.
    sin(a, _b, _c, _r) = f64::from(a).sin() as f32;
    /// `cos.approx.f32`.
    cos(a, _b, _c, _r) = f64::from(a).cos() as f32;
    /// `tanh.approx.f32`.
    tanh(a, _b, _c, _r) = f64::from(a).tanh() as f32;
    /// `min.f32`.
    min_moded(a, b, _c, _r) = f(min(a.to_bits(), b.to_bits()));
    /// `max.f32`.
    max_moded(a, b, _c, _r) = f(max(a.to_bits(), b.to_bits()));
    /// `min.NaN.f32`.
    min_nan(a, b, _c, _r) = unless_nan(a, b, min);
    /// `max.NaN.f32`.
    max_nan(a, b, _c, _r) = unless_nan(a, b, max);
    /// `abs.f32`.
    abs(a, _b, _c, _r) = a.abs();
    /// `neg.f32`.
    neg(a, _b, _c, _r) = -a;
}
