//! What PTX floating-point instructions compute, one lane at a time.
//!
//! Functions marked `#[inline(always)]` are the ones that the interpreter applies to whole warps;
//! they are written without branches so that they vectorise. All arithmetic is on bits, because a
//! NaN that passes through a Rust float may change its payload. NaN results of `f32` arithmetic are
//! the canonical `0x7fffffff` that NVIDIA hardware returns. Arithmetic of `f64` passes on the last
//! operand that is a NaN (a division the first), made quiet, and gives `0xfff8000000000000` where
//! none is.
//!
//! The `.approx` functions are computed in `f64` and rounded once, so that they are better than
//! hardware (which promises about 2 ulp), and use nothing but correctly rounded operations, so that
//! they give the same bits on every host.

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

/// The bits of a result, with the canonical NaN.
#[inline(always)]
pub(super) fn canonical(value: f32) -> u32 {
    if value.is_nan() { NAN_F32 } else { value.to_bits() }
}

/// The NaN that an operation on `f64` gives: the last operand that is one, made quiet.
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

/// `min`: the number where one operand is a NaN, and −0 below +0.
#[inline(always)]
pub(super) fn min(a: u32, b: u32) -> u32 {
    let (x, y) = (f(a), f(b));
    let less = if x < y { a } else { b };
    // Equal numbers have equal bits, except for zeros, of which the negative one is the less.
    let ordered = if x == y { a | b } else { less };
    let left = if x.is_nan() { b } else { ordered };
    let right = if y.is_nan() { a } else { left };
    if x.is_nan() & y.is_nan() { NAN_F32 } else { right }
}

/// `max`: the number where one operand is a NaN, and +0 above −0.
#[inline(always)]
pub(super) fn max(a: u32, b: u32) -> u32 {
    let (x, y) = (f(a), f(b));
    let greater = if x > y { a } else { b };
    let ordered = if x == y { a & b } else { greater };
    let left = if x.is_nan() { b } else { ordered };
    let right = if y.is_nan() { a } else { left };
    if x.is_nan() & y.is_nan() { NAN_F32 } else { right }
}

/// `min.f64` and `max.f64`.
pub(super) fn extremum64(a: u64, b: u64, greatest: bool) -> u64 {
    let (x, y) = (d(a), d(b));
    match (x.is_nan(), y.is_nan()) {
        (true, true) => quiet64(b),
        (true, false) => b,
        (false, true) => a,
        _ if x == y => {
            if greatest {
                a & b
            } else {
                a | b
            }
        }
        _ if (x < y) != greatest => a,
        _ => b,
    }
}

/// Flushes a subnormal to a zero of its sign.
pub(super) fn flush(bits: u32) -> u32 {
    if f(bits).is_subnormal() { bits & 0x8000_0000 } else { bits }
}

/// Flushes a subnormal to a zero of its sign.
pub(super) fn flush64(bits: u64) -> u64 {
    if d(bits).is_subnormal() { bits & 1 << 63 } else { bits }
}

/// `ex2.approx.f32`.
#[inline(always)]
pub(super) fn exp2(bits: u32) -> u32 {
    let x = f(bits);
    // Beyond these bounds the result is zero or infinite whatever the argument.
    let clamped = f64::from(x).clamp(-200.0, 200.0);
    // Adding and subtracting 1.5 · 2^52 rounds to an integer.
    const SHIFT: f64 = 6_755_399_441_055_744.0;
    let whole = (clamped + SHIFT) - SHIFT;
    let fraction = (clamped - whole) * std::f64::consts::LN_2;
    let scale = f64::from_bits((((whole + 1023.0 + SHIFT).to_bits()) & 0xfff) << 52);
    let result = exp_series(fraction) * scale;
    if x.is_nan() { NAN_F32 } else { (result as f32).to_bits() }
}

/// e^x for |x| ≤ ln 2 / 2: the Taylor series, whose rest is below 2^-52.
#[inline(always)]
fn exp_series(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 13] = [
        1.0 / 479_001_600.0,
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ];
    let mut sum = COEFFICIENTS[0];
    for coefficient in &COEFFICIENTS[1..] {
        sum = sum * x + coefficient;
    }
    sum
}

/// `lg2.approx.f32`.
#[inline(always)]
pub(super) fn log2(bits: u32) -> u32 {
    let x = f(bits);
    let wide = f64::from(x).to_bits();
    // The mantissa between √½ and √2, and the exponent that goes with it.
    const HALF_ROOT: u64 = 0x3fe6_a09e_667f_3bcd;
    let shifted = wide.wrapping_sub(HALF_ROOT) >> 52 & 0xfff;
    let exponent = (shifted as i32) << 20 >> 20;
    let mantissa = f64::from_bits(wide.wrapping_sub((i64::from(exponent) << 52) as u64));
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let result = f64::from(exponent) + log_series(s) * std::f64::consts::LOG2_E;
    let regular = (result as f32).to_bits();
    let at_infinity = if x == f32::INFINITY { bits } else { regular };
    let at_zero = if x == 0.0 { f32::NEG_INFINITY.to_bits() } else { at_infinity };
    if x.is_nan() | (x < 0.0) { NAN_F32 } else { at_zero }
}

/// ln((1 + s) / (1 − s)) = 2 (s + s³/3 + s⁵/5 + …) for |s| ≤ 0.172.
#[inline(always)]
fn log_series(s: f64) -> f64 {
    const ODD: [f64; 12] = [
        1.0 / 23.0,
        1.0 / 21.0,
        1.0 / 19.0,
        1.0 / 17.0,
        1.0 / 15.0,
        1.0 / 13.0,
        1.0 / 11.0,
        1.0 / 9.0,
        1.0 / 7.0,
        1.0 / 5.0,
        1.0 / 3.0,
        1.0,
    ];
    let square = s * s;
    let mut sum = ODD[0];
    for coefficient in &ODD[1..] {
        sum = sum * square + coefficient;
    }
    2.0 * s * sum
}

/// `rsqrt.approx.f32`.
#[inline(always)]
pub(super) fn rsqrt(bits: u32) -> u32 {
    canonical((1.0 / f64::from(f(bits)).sqrt()) as f32)
}

/// How an `f32` instruction treats its operands and its result beyond rounding to nearest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FloatMode {
    /// The rounding.
    pub(super) rounding: Rounding,
    /// Subnormal operands and results are flushed to zero.
    pub(super) flush: bool,
    /// The result is clamped to [0, 1], and a NaN becomes 0.
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

/// A function of two numbers, or a NaN where one of them is a NaN.
fn unless_nan(a: f32, b: f32, function: fn(u32, u32) -> u32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::NAN } else { f(function(a.to_bits(), b.to_bits())) }
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

/// The reciprocals of larger numbers are not normal: 2^126.
const LARGE: f32 = f32::from_bits(0x7e80_0000);

/// Whether a result that is not zero is less than every normal `f32`.
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
            // What is too small to be normal is flushed before it is rounded.
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

/// `min` or `max` of `f32` with modifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extremum {
    /// `max` and not `min`.
    pub(super) max: bool,
    /// `.NaN`: the result is NaN if an operand is.
    pub(super) propagate_nan: bool,
    /// `.xorsign.abs`: magnitudes are compared, and the result has the product of the signs.
    pub(super) xor_sign: bool,
    /// `.abs`: magnitudes are compared.
    pub(super) magnitudes: bool,
    /// Three operands and not two.
    pub(super) ternary: bool,
    /// Flushing and saturation.
    pub(super) mode: FloatMode,
}

impl Extremum {
    /// The result for one lane.
    pub(super) fn apply(self, values: [u64; 3]) -> u64 {
        let magnitudes = self.xor_sign || self.magnitudes;
        let operand = |bits: u64| {
            let bits = self.mode.operand(bits).to_bits();
            if magnitudes { bits & 0x7fff_ffff } else { bits }
        };
        let choose = |a: u32, b: u32| {
            let function = if self.max { max } else { min };
            if self.propagate_nan {
                canonical(unless_nan(f(a), f(b), function))
            } else {
                function(a, b)
            }
        };
        let [a, b, c] = values.map(operand);
        let pair = choose(a, b);
        let result = if self.ternary { choose(pair, c) } else { pair };
        let signed = self.xor_sign && !f(result).is_nan();
        let sign = (values[0] ^ values[1]) as u32 & 0x8000_0000;
        u64::from(if signed { result | sign } else { result })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp2_and_log2_are_correctly_rounded_on_a_sweep() {
        let mut state = 1u32;
        for _ in 0..200_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let x = f(state);
            let (exp, log) = (f(exp2(state)), f(log2(state)));
            if x.is_nan() {
                assert_eq!((exp2(state), log2(state)), (NAN_F32, NAN_F32));
                continue;
            }
            // The host library may be off in the last place of f64, which can move a tie.
            let near = |got: f32, want: f64| {
                let want = want as f32;
                got == want || (got.to_bits() as i64 - want.to_bits() as i64).abs() <= 1
            };
            assert!(near(exp, f64::from(x).exp2()), "exp2({x}) = {exp}");
            assert!(
                if x < 0.0 { log.is_nan() } else { near(log, f64::from(x).log2()) },
                "{x} {log}"
            );
        }
        assert_eq!(f(exp2((-140.0f32).to_bits())).to_bits(), 1 << 9);
        assert_eq!(f(exp2(f32::NEG_INFINITY.to_bits())), 0.0);
        assert_eq!(f(exp2(f32::INFINITY.to_bits())), f32::INFINITY);
        assert_eq!(f(log2(0)), f32::NEG_INFINITY);
        assert_eq!(f(log2(1)), -149.0);
        assert_eq!(f(log2(8.0f32.to_bits())), 3.0);
    }

    #[test]
    fn minimum_and_maximum_order_zeros_and_skip_nans() {
        let (plus, minus, nan) = (0u32, 0x8000_0000u32, 0x7fc0_0001u32);
        assert_eq!((min(plus, minus), min(minus, plus)), (minus, minus));
        assert_eq!((max(plus, minus), max(minus, plus)), (plus, plus));
        assert_eq!((min(nan, minus), max(minus, nan)), (minus, minus));
        assert_eq!((min(nan, nan), max(nan, nan)), (NAN_F32, NAN_F32));
        let (one, two) = (1.0f32.to_bits(), 2.0f32.to_bits());
        assert_eq!((min(two, one), max(one, two)), (one, two));
        assert_eq!(extremum64(0, 1 << 63, false), 1 << 63);
        assert_eq!(extremum64(1 << 63, 0, true), 0);
    }

    #[test]
    fn saturation_turns_nan_into_zero() {
        let clamp = |x: f32| f(saturate(x.to_bits()));
        assert_eq!([clamp(f32::NAN), clamp(-1.0), clamp(0.25), clamp(7.0)], [0.0, 0.0, 0.25, 1.0]);
    }
}
