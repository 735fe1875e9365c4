//! `f64` arithmetic in every rounding mode.
//!
//! As for `f32`, the result is rounded to nearest first; its exact error determines whether the
//! mode requires the neighbour. Fused multiply-adds compute the errors of products, quotients and
//! roots. Tiny operands are scaled up first, so the errors do not underflow.

use std::cmp::Ordering;

use super::float::{canonical64, d, nan_of};
use super::rounding::Rounding;

/// The power of two that scales tiny operands; its square is finite, too.
const SCALE: f64 = f64::from_bits((1023 + 400) << 52);
/// Below this an error may underflow.
const TINY: f64 = f64::from_bits((1023 - 960) << 52);
/// Relative to a number above this, a number below [`TINY`] is less than a unit in the last place.
const SMALL: f64 = f64::from_bits((1023 - 850) << 52);

/// Moves `nearest` to its neighbour if the mode rounds to that side of the exact result.
fn adjust(nearest: f64, exact: Ordering, rounding: Rounding) -> u64 {
    let moved = match rounding.step(exact, nearest.is_sign_negative()) {
        -1 => nearest.next_down(),
        1 => nearest.next_up(),
        _ => nearest,
    };
    canonical64(moved)
}

fn sign(value: f64) -> Ordering {
    value.partial_cmp(&0.0).unwrap_or(Ordering::Equal)
}

/// The sum rounded to nearest, and the rounding error.
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let tail = sum - a;
    (sum, (a - (sum - tail)) + (b - tail))
}

/// Compares the exact sum of three numbers with `nearest`.
fn side_of_sum(terms: [f64; 3], nearest: f64) -> Ordering {
    // Largest first; each addition keeps its error, so only the last one rounds.
    let (high, low) = two_sum(terms[0], terms[1]);
    let (rest, lost) = two_sum(low, terms[2]);
    let (difference, error) = two_sum(high, -nearest);
    let (sum, small) = two_sum(difference, rest);
    match sign(sum) {
        Ordering::Equal => sign(error + small + lost),
        order => order,
    }
}

/// The result of an overflow, which is infinite in some modes only.
fn overflowed(nearest: f64, rounding: Rounding) -> u64 {
    let exact = if nearest > 0.0 { Ordering::Less } else { Ordering::Greater };
    adjust(nearest, exact, rounding)
}

fn add_in(a: f64, b: f64, rounding: Rounding) -> u64 {
    let (sum, error) = two_sum(a, b);
    if !a.is_finite() || !b.is_finite() {
        return canonical64(sum);
    }
    if sum.is_infinite() {
        return overflowed(sum, rounding);
    }
    if sum == 0.0 {
        let both_positive = a.is_sign_positive() && b.is_sign_positive();
        let negative = rounding == Rounding::Down && !both_positive;
        return if negative { (-0.0f64).to_bits() } else { sum.to_bits() };
    }
    adjust(sum, sign(error), rounding)
}

/// Compares an exact product that underflowed to `zero` with it.
fn side_of_zero(zero: f64) -> Ordering {
    if zero.is_sign_negative() { Ordering::Less } else { Ordering::Greater }
}

fn mul_in(a: f64, b: f64, rounding: Rounding) -> u64 {
    let product = a * b;
    if !a.is_finite() || !b.is_finite() || a == 0.0 || b == 0.0 {
        return canonical64(product);
    }
    if product.is_infinite() {
        return overflowed(product, rounding);
    }
    if product == 0.0 {
        return adjust(product, side_of_zero(product), rounding);
    }
    // Scaled up, the product is exact enough for a comparison with the scaled result.
    let (x, y) = if product.abs() < TINY { (a * SCALE, b * SCALE) } else { (a, b) };
    let scaled = if product.abs() < TINY { product * SCALE * SCALE } else { product };
    adjust(product, sign(x.mul_add(y, -scaled)), rounding)
}

/// a · b + c, rounded once.
pub(super) fn fma_in(a: f64, b: f64, c: f64, rounding: Rounding) -> u64 {
    let nearest = a.mul_add(b, c);
    if !a.is_finite() || !b.is_finite() || !c.is_finite() {
        return canonical64(nearest);
    }
    if a == 0.0 || b == 0.0 {
        return add_in(a * b, c, rounding);
    }
    if nearest.is_infinite() {
        return overflowed(nearest, rounding);
    }
    let product = a * b;
    if product.abs() < TINY && c.abs() >= SMALL {
        // Only the sign of the product matters.
        let product = f64::MIN_POSITIVE * a.signum() * b.signum();
        return adjust(nearest, side_of_sum([c, product, 0.0], nearest), rounding);
    }
    if product.is_infinite() || product.abs() < TINY {
        // Both terms are far from the middle of the exponent range; scaling moves them there.
        let factor = if product.is_infinite() { 1.0 / SCALE } else { SCALE };
        let (x, y) = (a * factor, b * factor);
        let product = x * y;
        if product == 0.0 && nearest == c {
            return adjust(nearest, side_of_zero(product), rounding);
        }
        let terms = [product, c * factor * factor, x.mul_add(y, -product)];
        let scaled = nearest * factor * factor;
        return adjust(nearest, side_of_sum(ordered(terms), scaled), rounding);
    }
    if nearest == 0.0 {
        let (sum, rest) = two_sum(product, c);
        if sum == 0.0 && rest == 0.0 && a.mul_add(b, -product) == 0.0 {
            return if rounding == Rounding::Down { 1 << 63 } else { 0 };
        }
    }
    let terms = [product, c, a.mul_add(b, -product)];
    adjust(nearest, side_of_sum(ordered(terms), nearest), rounding)
}

/// The terms, with the larger of the first two in front.
fn ordered([a, b, c]: [f64; 3]) -> [f64; 3] {
    if a.abs() < b.abs() { [b, a, c] } else { [a, b, c] }
}

fn div_in(a: f64, b: f64, rounding: Rounding) -> u64 {
    let quotient = a / b;
    if !a.is_finite() || !b.is_finite() || a == 0.0 || b == 0.0 {
        return canonical64(quotient);
    }
    if quotient.is_infinite() {
        return overflowed(quotient, rounding);
    }
    // The rest a − q b has the sign of the error times the sign of b. Scaling a and q alike keeps
    // it.
    let tiny = a.abs() < TINY || quotient.abs() < TINY || (quotient * b).abs() < TINY;
    let (x, q) = if tiny { (a * SCALE, quotient * SCALE) } else { (a, quotient) };
    let (q, y) = if b.abs() > 1.0 / TINY { (q, b / SCALE) } else { (q, b) };
    let x = if b.abs() > 1.0 / TINY { x / SCALE } else { x };
    let rest = (-q).mul_add(y, x);
    adjust(quotient, sign(if b > 0.0 { rest } else { -rest }), rounding)
}

fn sqrt_in(a: f64, rounding: Rounding) -> u64 {
    let root = a.sqrt();
    if !root.is_finite() || root == 0.0 {
        return canonical64(root);
    }
    let (x, r) = if a < TINY { (a * SCALE * SCALE, root * SCALE) } else { (a, root) };
    adjust(root, sign((-r).mul_add(r, x)), rounding)
}

macro_rules! in_modes {
    ($($(#[$doc:meta])* $name:ident($a:ident, $b:ident, $c:ident, $r:ident) = $value:expr;)*) => {$(
        $(#[$doc])*
        pub(super) fn $name([a, b, c]: [u64; 3], rounding: Rounding) -> u64 {
            let bits = [a, b, c];
            let ($a, $b, $c, $r) = (d(a), d(b), d(c), rounding);
            let _ = (&$a, &$b, &$c);
            if [$a, $b, $c].into_iter().any(f64::is_nan) { nan_of(&bits) } else { $value }
        }
    )*};
}

in_modes! {
    /// `add.f64`.
    add(a, b, _c, r) = add_in(a, b, r);
    /// `sub.f64`.
    sub(a, b, _c, r) = add_in(a, -b, r);
    /// `mul.f64`.
    mul(a, b, _c, r) = mul_in(a, b, r);
    /// `fma.f64`.
    fma_in_order(a, c, b, r) = fma_in(a, b, c, r);
    /// `div.f64`.
    div_unless_nan(a, b, _c, r) = div_in(a, b, r);
    /// `rcp.f64`.
    rcp(a, _b, _c, r) = div_in(1.0, a, r);
    /// `sqrt.f64`.
    sqrt(a, _b, _c, r) = sqrt_in(a, r);
}

/// `fma.f64`. A NaN result comes from the second operand, else the third, else the first.
pub(super) fn fma([a, b, c]: [u64; 3], rounding: Rounding) -> u64 {
    fma_in_order([a, c, b], rounding)
}

/// `div.f64`. A NaN result comes from the first NaN operand, not the last.
pub(super) fn div([a, b, c]: [u64; 3], rounding: Rounding) -> u64 {
    if d(a).is_nan() { nan_of(&[a]) } else { div_unless_nan([a, b, c], rounding) }
}
