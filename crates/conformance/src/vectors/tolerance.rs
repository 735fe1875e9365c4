//! Allowed distances between the results of the simulator and of hardware.
//!
//! IEEE operations, integers and conversions are exact. For approximate instructions, both results
//! are within a bound of the true value, so their distance is at most twice the bound. Source of
//! the bounds: PTX ISA manual 9.0, sections of the instructions.

use retrograph_ptx::ast::Type;

use super::instance::Instance;

/// The largest allowed distance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Zero: equal bits.
    Exact,
    /// Units in the last place.
    Ulps(f64),
    /// A fraction of the value, plus one unit in the last place for rounding.
    Relative(f64),
    /// An absolute distance, plus one unit in the last place for rounding.
    Absolute(f64),
    /// An absolute distance that depends on the argument: sine and cosine.
    Angle,
}

/// The bound of an instance.
pub fn bound(instance: &Instance) -> Bound {
    let (opcode, name) = (instance.opcode.text(), instance.name.as_str());
    let is = |part: &str| name.contains(part);
    if !is(".approx") && !is(".full") {
        return Bound::Exact;
    }
    match opcode {
        // Two units, for divisors from 2^-126 to 2^126.
        "div" => Bound::Ulps(2.0),
        "rcp" if is(".f32") => Bound::Ulps(1.0),
        // 2^-23 of the value.
        "sqrt" => Bound::Relative(2f64.powi(-23)),
        // 2^-22.9 of the value.
        "rsqrt" if is(".f32") => Bound::Relative(2f64.powf(-22.9)),
        // The manual gives no bound for f64, but the lower word is zero, which leaves 20 bits of
        // the fraction.
        "rcp" | "rsqrt" => Bound::Relative(2f64.powi(-20)),
        // Two units of f32; 2^-9.9 for f16, 2^-7 for bf16.
        "ex2" if is("bf16") => Bound::Relative(2f64.powi(-7)),
        "ex2" if is("f16") => Bound::Relative(2f64.powf(-9.9)),
        "ex2" => Bound::Ulps(2.0),
        // 2^-22 absolute between 0.5 and 2, of the value elsewhere.
        "lg2" => Bound::Absolute(2f64.powi(-22)),
        "sin" | "cos" => Bound::Angle,
        // 2^-11 of the value for f32, 2^-10.987 absolute for f16, 2^-8 for bf16.
        "tanh" if is("bf16") => Bound::Absolute(2f64.powi(-8)),
        "tanh" if is("f16") => Bound::Absolute(2f64.powf(-10.987)),
        "tanh" => Bound::Relative(2f64.powi(-11)),
        _ => Bound::Exact,
    }
}

/// The distance of two results in units in the last place, element by element. Infinite if exactly
/// one is NaN.
pub fn measure(of: Type, expected: u64, actual: u64) -> f64 {
    elements(of, expected)
        .into_iter()
        .zip(elements(of, actual))
        .map(|(one, other)| (one.ordinal - other.ordinal).abs() as f64)
        .fold(0.0, f64::max)
}

/// A float with its ordinal among all floats of its type.
#[derive(Clone, Copy, Debug)]
struct Element {
    value: f64,
    /// The value of one unit in the last place.
    unit: f64,
    ordinal: i128,
}

/// Whether a result is within a bound. `argument` is the first source.
pub(super) fn agrees(bound: Bound, of: Type, expected: u64, actual: u64, argument: u64) -> bool {
    if expected == actual || bound == Bound::Exact {
        return expected == actual;
    }
    let pairs = elements(of, expected).into_iter().zip(elements(of, actual));
    let mut angles = elements(of, argument).into_iter();
    for (one, other) in pairs {
        let angle = angles.next().map_or(0.0, |angle| angle.value.abs());
        if one.ordinal == other.ordinal {
            continue;
        }
        if !one.value.is_finite() || !other.value.is_finite() {
            return false;
        }
        let unit = one.unit.max(other.unit);
        let most = match bound {
            Bound::Exact => 0.0,
            Bound::Ulps(count) => (count + 1.0) * unit,
            Bound::Relative(part) => one.value.abs() * part + unit,
            Bound::Absolute(size) => (one.value.abs().max(1.0)) * size + unit,
            Bound::Angle if angle <= std::f64::consts::TAU => 2f64.powf(-20.5) + unit,
            Bound::Angle if angle <= 100.0 * std::f64::consts::PI => 2f64.powf(-14.7) + unit,
            // The manual gives no bound for larger arguments.
            Bound::Angle => 2.0,
        };
        if (one.value - other.value).abs() > most {
            return false;
        }
    }
    true
}

fn elements(of: Type, bits: u64) -> Vec<Element> {
    match of {
        Type::F32 | Type::Tf32 => vec![element(bits, 8, 23)],
        Type::F64 => vec![element(bits, 11, 52)],
        Type::F16 => vec![element(bits & 0xffff, 5, 10)],
        Type::Bf16 => vec![element(bits & 0xffff, 8, 7)],
        Type::F16x2 => vec![element(bits & 0xffff, 5, 10), element(bits >> 16 & 0xffff, 5, 10)],
        Type::Bf16x2 => vec![element(bits & 0xffff, 8, 7), element(bits >> 16 & 0xffff, 8, 7)],
        _ => vec![Element { value: bits as f64, unit: 1.0, ordinal: i128::from(bits) }],
    }
}

/// A float format by its exponent and fraction bits.
fn element(bits: u64, exponent_bits: u32, fraction_bits: u32) -> Element {
    let magnitude_bits = exponent_bits + fraction_bits;
    let sign = if bits >> magnitude_bits & 1 == 1 { -1.0 } else { 1.0 };
    let magnitude = bits & ((1 << magnitude_bits) - 1);
    let (exponent, fraction) = (magnitude >> fraction_bits, magnitude & ((1 << fraction_bits) - 1));
    let (bias, top) = ((1i32 << (exponent_bits - 1)) - 1, (1u64 << exponent_bits) - 1);
    let power = (exponent.max(1) as i32) - bias - fraction_bits as i32;
    let unit = match power {
        ..-1022 => f64::from_bits(1 << (power + 1074)),
        _ => 2f64.powi(power),
    };
    let hidden = if exponent == 0 { 0 } else { 1u64 << fraction_bits };
    let value = match (exponent == top, fraction == 0) {
        (true, true) => sign * f64::INFINITY,
        (true, false) => f64::NAN,
        (false, _) => sign * (hidden + fraction) as f64 * unit,
    };
    // Both zeros have the same ordinal; NaN is far from all numbers.
    let ordinal = match value.is_nan() {
        true => i128::MAX / 4,
        false => sign as i128 * i128::from(magnitude),
    };
    Element { value, unit, ordinal }
}
