//! `min` and `max`.

use super::{FloatMode, NAN_F32, canonical, d, f, quiet64};

/// `min`: the other operand if one is a NaN; −0 is below +0.
#[inline(always)]
pub(crate) fn min(a: u32, b: u32) -> u32 {
    let (x, y) = (f(a), f(b));
    let less = if x < y { a } else { b };
    // Equal numbers have equal bits, except zeros; −0 is the lower one.
    let ordered = if x == y { a | b } else { less };
    let left = if x.is_nan() { b } else { ordered };
    let right = if y.is_nan() { a } else { left };
    if x.is_nan() & y.is_nan() { NAN_F32 } else { right }
}

/// `max`: the other operand if one is a NaN; +0 is above −0.
#[inline(always)]
pub(crate) fn max(a: u32, b: u32) -> u32 {
    let (x, y) = (f(a), f(b));
    let greater = if x > y { a } else { b };
    let ordered = if x == y { a & b } else { greater };
    let left = if x.is_nan() { b } else { ordered };
    let right = if y.is_nan() { a } else { left };
    if x.is_nan() & y.is_nan() { NAN_F32 } else { right }
}

/// `min.f64` and `max.f64`.
pub(crate) fn extremum64(a: u64, b: u64, greatest: bool) -> u64 {
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

/// A function of two numbers, or a NaN if one of them is a NaN.
pub(super) fn unless_nan(a: f32, b: f32, function: fn(u32, u32) -> u32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::NAN } else { f(function(a.to_bits(), b.to_bits())) }
}

/// `min` or `max` of `f32` with modifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extremum {
    /// `max` instead of `min`.
    pub(crate) max: bool,
    /// `.NaN`: the result is NaN if an operand is.
    pub(crate) propagate_nan: bool,
    /// `.xorsign.abs`: magnitudes are compared, and the result has the product of the signs.
    pub(crate) xor_sign: bool,
    /// `.abs`: magnitudes are compared.
    pub(crate) magnitudes: bool,
    /// Whether there are three operands instead of two.
    pub(crate) ternary: bool,
    /// Flushing and saturation.
    pub(crate) mode: FloatMode,
}

impl Extremum {
    /// The result for one lane.
    pub(crate) fn apply(self, values: [u64; 3]) -> u64 {
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
