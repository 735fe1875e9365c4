//! `cvt`: conversions between any two numeric types.
//!
//! Conversion of a NaN to an integer gives 0; from `f64` or to a 64-bit integer, it gives the value
//! with only the top bit set, as the PTX manual specifies. Floats out of range saturate.

use std::cmp::Ordering;

use retrograph_ptx::ast::{Type, TypeKind};

use super::float::{FloatMode, NAN_F32, canonical64, d, flush, narrow, quiet64, saturate, widen};
use super::half::to_odd;
use super::rounding::{Format, Rounding};

/// A conversion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conversion {
    /// The type of the operand.
    pub(super) from: Type,
    /// The type of the result.
    pub(super) to: Type,
    /// Rounding, `.ftz` and `.sat`.
    pub(super) mode: FloatMode,
    /// Whether the rounding is to an integer, `.rni` and the like.
    pub(super) integral: bool,
}

impl Conversion {
    /// Converts the low bits of `bits`. The result is zero-extended.
    pub(super) fn apply(self, bits: u64) -> u64 {
        match (self.from.is_float(), self.to.is_float()) {
            (false, false) => self.integer_to_integer(bits),
            (false, true) => self.integer_to_float(bits),
            (true, false) => self.float_to_integer(self.operand(bits)),
            (true, true) => {
                self.nan(bits).unwrap_or_else(|| self.float_to_float(self.operand(bits)))
            }
        }
    }

    /// Converts `bits` for a register that may be wider than the type; signed results are
    /// sign-extended.
    pub(super) fn execute(self, [bits, _, _]: [u64; 3]) -> u64 {
        let result = self.apply(bits);
        let unused = 64 - self.to.bits();
        if self.to.is_signed() { ((result << unused) as i64 >> unused) as u64 } else { result }
    }

    fn operand(self, bits: u64) -> f64 {
        match self.from {
            Type::F16 => Format::F16.widen(bits as u32 & 0xffff),
            Type::Bf16 if self.mode.flush && bits & 0x7f80 == 0 => {
                f64::from(f32::from_bits((bits as u32 & 0x8000) << 16))
            }
            Type::Bf16 => Format::BF16.widen(bits as u32 & 0xffff),
            // Conversions to f16 do not flush subnormals.
            Type::F32 if self.mode.flush && self.to != Type::F16 => {
                f64::from(f32::from_bits(flush(bits as u32)))
            }
            Type::F32 => f64::from(f32::from_bits(bits as u32)),
            _ => d(bits),
        }
    }

    /// The result for a NaN: conversions from and to `f64` and from bf16 keep its sign and upper
    /// bits; others give the canonical NaN.
    fn nan(self, bits: u64) -> Option<u64> {
        let (Type::F64 | Type::F32 | Type::F16 | Type::Bf16) = self.to else { return None };
        if !self.operand(bits).is_nan() || self.mode.saturate {
            return None;
        }
        let keeps = match (self.from, self.to) {
            (Type::F32, Type::F32) => !self.integral && !self.mode.flush,
            (Type::Bf16, Type::F32) => !self.mode.flush,
            (Type::F64, _) | (_, Type::F64) => true,
            _ => false,
        };
        if !keeps {
            return None;
        }
        // A conversion without computation does not even quiet a signalling NaN.
        match (self.from, self.to) {
            (Type::F32, Type::F32) => return Some(bits),
            (Type::F64, Type::F64) if !self.integral => return Some(bits),
            (Type::Bf16, Type::F32) => return Some((bits & 0xffff) << 16),
            _ => {}
        }
        let wide = match self.from {
            Type::F64 => bits,
            Type::F32 if self.mode.flush => widen(NAN_F32),
            Type::F32 => widen(bits as u32),
            Type::Bf16 => widen((bits as u32) << 16),
            _ => (bits & 0x8000) << 48 | 0x7ff8 << 48 | (bits & 0x1ff) << 42,
        };
        Some(match self.to {
            Type::F64 => quiet64(wide),
            Type::F32 => u64::from(narrow(wide)),
            Type::Bf16 => u64::from(narrow(wide) >> 16),
            _ => wide >> 48 & 0x8000 | 0x7e00 | wide >> 42 & 0x1ff,
        })
    }

    fn integer_to_integer(self, bits: u64) -> u64 {
        let value = integer(bits, self.from);
        let (least, greatest) = range(self.to);
        let value = if self.mode.saturate { value.clamp(least, greatest) } else { value };
        truncate(value, self.to)
    }

    fn integer_to_float(self, bits: u64) -> u64 {
        let value = integer(bits, self.from);
        let rounding = self.mode.rounding;
        match self.to {
            Type::F32 => {
                let nearest = value as f32;
                let step = rounding.step(value.cmp(&(nearest as i128)), nearest < 0.0);
                let result = move_f32(nearest, step).to_bits();
                u64::from(if self.mode.saturate { saturate(result) } else { result })
            }
            Type::F64 => {
                let nearest = value as f64;
                let bits = match rounding.step(value.cmp(&(nearest as i128)), nearest < 0.0) {
                    -1 => nearest.next_down().to_bits(),
                    1 => nearest.next_up().to_bits(),
                    _ => nearest.to_bits(),
                };
                if self.mode.saturate { saturate64(bits) } else { bits }
            }
            other => {
                // Integers above 2^53 may be inexact in f64, so they are rounded to odd first.
                let nearest = value as f64;
                let wide = to_odd(nearest, (value - nearest as i128) as f64);
                let bits = half(other).narrow(wide, rounding);
                u64::from(if self.mode.saturate { saturate_half(bits, other) } else { bits })
            }
        }
    }

    fn float_to_integer(self, value: f64) -> u64 {
        if value.is_nan() {
            let zero = self.from != Type::F64 && self.to.bits() != 64;
            return if zero { 0 } else { 1 << (self.to.bits() - 1) };
        }
        let (least, greatest) = range(self.to);
        // The cast saturates to i128, which contains the range of every integer type.
        let rounded = to_integral(value, self.mode.rounding) as i128;
        truncate(rounded.clamp(least, greatest), self.to)
    }

    fn float_to_float(self, value: f64) -> u64 {
        let value = if self.integral { to_integral(value, self.mode.rounding) } else { value };
        let rounding = if self.integral { Rounding::Nearest } else { self.mode.rounding };
        let clamp = |value: f64| if value > 0.0 { value.min(1.0) } else { 0.0 };
        let value = if self.mode.saturate { clamp(value) } else { value };
        match self.to {
            Type::F64 => canonical64(value),
            Type::F32 => {
                let bits = Format::F32.narrow(value, rounding);
                u64::from(if self.mode.flush { flush(bits) } else { bits })
            }
            other => u64::from(half(other).narrow(value, rounding)),
        }
    }
}

/// Clamps the bits of an `f64` to [0, 1].
fn saturate64(bits: u64) -> u64 {
    let value = d(bits);
    if value > 0.0 { value.min(1.0).to_bits() } else { 0 }
}

/// Clamps an f16 or bf16 to [0, 1].
fn saturate_half(bits: u32, ty: Type) -> u32 {
    let value = half(ty).widen(bits);
    let one = half(ty).narrow(1.0, Rounding::Nearest);
    if value >= 1.0 {
        one
    } else if value > 0.0 {
        bits
    } else {
        0
    }
}

fn move_f32(value: f32, step: i32) -> f32 {
    match step.cmp(&0) {
        Ordering::Less => value.next_down(),
        Ordering::Equal => value,
        Ordering::Greater => value.next_up(),
    }
}

/// The 16-bit format of `ty`.
pub(super) fn half(ty: Type) -> Format {
    if matches!(ty, Type::Bf16 | Type::Bf16x2) { Format::BF16 } else { Format::F16 }
}

/// The value of the low bits as an integer of type `ty`.
fn integer(bits: u64, ty: Type) -> i128 {
    let unused = 64 - ty.bits();
    if ty.kind() == TypeKind::Signed {
        i128::from((bits << unused) as i64 >> unused)
    } else {
        i128::from(bits << unused >> unused)
    }
}

fn range(ty: Type) -> (i128, i128) {
    if ty.kind() == TypeKind::Signed {
        (-(1 << (ty.bits() - 1)), (1 << (ty.bits() - 1)) - 1)
    } else {
        (0, (1 << ty.bits()) - 1)
    }
}

fn truncate(value: i128, ty: Type) -> u64 {
    value as u64 & u64::MAX >> (64 - ty.bits())
}

fn to_integral(value: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest => value.round_ties_even(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}
