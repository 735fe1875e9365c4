//! The approximate functions of `f32`: powers of two, logarithms and reciprocal roots.
//!
//! They compute in `f64` and round once.

use super::{NAN_F32, canonical, f};

/// `ex2.approx.f32`.
#[inline(always)]
pub(crate) fn exp2(bits: u32) -> u32 {
    let x = f(bits);
    // Beyond these bounds the result is always zero or infinite.
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
pub(crate) fn log2(bits: u32) -> u32 {
    let x = f(bits);
    let wide = f64::from(x).to_bits();
    // The mantissa between √½ and √2, and the corresponding exponent.
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
pub(crate) fn rsqrt(bits: u32) -> u32 {
    canonical((1.0 / f64::from(f(bits)).sqrt()) as f32)
}
