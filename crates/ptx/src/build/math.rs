//! Functions of floats.
//!
//! | function | instructions | error |
//! |---|---|---|
//! | `sqrt`, `rcp`, `/`, `fma` | one instruction | correctly rounded |
//! | `rsqrt` (f32) | `rsqrt.approx` | 2 ulp |
//! | `rcp_approx` (f32) | `rcp.approx` | 1 ulp |
//! | `exp2` | `ex2.approx` | 2 ulp |
//! | `log2` | `lg2.approx` | 2⁻²², absolute between ½ and 2, else relative |
//! | `exp` | `ex2.approx` and a compensation | `ex2.approx` plus 1.25 ulp, denormals included |
//! | `ln` | IEEE arithmetic only | 2 ulp; the same bits everywhere |
//! | `tanh` | `exp` | 6 ulp above 0.3, 1.2e-7 absolute below |
//!
//! The bounds of the approximate instructions come from the PTX ISA manual.

use std::f32::consts;

use super::kernel::Emit;
use super::scalar::{Arg, Float, Integer, Scalar};
use super::value::Value;
use crate::ast::{Modifier, Opcode, Type};

impl<'k, T: Scalar> Value<'k, T> {
    /// The absolute value. The minimum signed integer and unsigned integers are returned unchanged.
    #[track_caller]
    pub fn abs(self) -> Self {
        match T::TYPE {
            Type::U32 | Type::U64 => self,
            _ => self.unary(Opcode::Abs, &[]),
        }
    }
}

impl<'k, T: Float> Value<'k, T> {
    /// `self * b + c`, rounded once.
    #[track_caller]
    pub fn fma(self, b: impl Arg<'k, T>, c: impl Arg<'k, T>) -> Self {
        let kernel = self.kernel();
        let operands =
            vec![self.operand(), b.into_value(kernel).operand(), c.into_value(kernel).operand()];
        let modifiers = &[Modifier::Rn];
        let emit = Emit { opcode: Opcode::Fma, modifiers, types: &[T::TYPE], operands };
        Self::from_register(kernel, kernel.compute(T::TYPE, emit))
    }

    /// The square root, correctly rounded.
    #[track_caller]
    pub fn sqrt(self) -> Self {
        self.unary(Opcode::Sqrt, &[Modifier::Rn])
    }

    /// The reciprocal, correctly rounded.
    #[track_caller]
    pub fn rcp(self) -> Self {
        self.unary(Opcode::Rcp, &[Modifier::Rn])
    }

    /// The value with the sign of `sign`.
    #[track_caller]
    pub fn copysign(self, sign: impl Arg<'k, T>) -> Self {
        // PTX takes the sign from the first operand.
        let sign = sign.into_value(self.kernel());
        sign.binary(Opcode::Copysign, &[], self)
    }
}

impl<'k, T: Integer> Value<'k, T> {
    /// `self * b + c`, wrapping (`mad.lo`).
    #[track_caller]
    pub fn mad_lo(self, b: impl Arg<'k, T>, c: impl Arg<'k, T>) -> Self {
        let kernel = self.kernel();
        let operands =
            vec![self.operand(), b.into_value(kernel).operand(), c.into_value(kernel).operand()];
        let modifiers = &[Modifier::Lo];
        let emit = Emit { opcode: Opcode::Mad, modifiers, types: &[T::TYPE], operands };
        Self::from_register(kernel, kernel.compute(T::TYPE, emit))
    }
}

impl<'k> Value<'k, u32> {
    /// The full 64-bit product (`mul.wide`).
    #[track_caller]
    pub fn mul_wide(self, right: impl Arg<'k, u32>) -> Value<'k, u64> {
        let kernel = self.kernel();
        let operands = vec![self.operand(), right.into_value(kernel).operand()];
        let modifiers = &[Modifier::Wide];
        let emit = Emit { opcode: Opcode::Mul, modifiers, types: &[Type::U32], operands };
        Value::from_register(kernel, kernel.compute(Type::U64, emit))
    }

    /// The upper half of the 64-bit product (`mul.hi`).
    #[track_caller]
    pub fn mul_hi(self, right: impl Arg<'k, u32>) -> Self {
        self.binary(Opcode::Mul, &[Modifier::Hi], right.into_value(self.kernel()))
    }

    /// Selects four of eight bytes: 0 to 3 are this value's, 4 to 7 are `other`'s (`prmt`).
    ///
    /// Hexadecimal digit i of `selector` is the number of the source byte of result byte i. If its
    /// top bit is set, the result byte replicates the sign of source byte `digit - 8`.
    #[track_caller]
    pub fn prmt(self, other: impl Arg<'k, u32>, selector: impl Arg<'k, u32>) -> Self {
        let kernel = self.kernel();
        let [other, selector] =
            [other.into_value(kernel), selector.into_value(kernel)].map(Self::operand);
        let operands = vec![self.operand(), other, selector];
        let emit = Emit { opcode: Opcode::Prmt, modifiers: &[], types: &[Type::B32], operands };
        Self::from_register(kernel, kernel.compute(Type::U32, emit))
    }

    /// The number of set bits (`popc`).
    #[track_caller]
    pub fn popc(self) -> Self {
        let (kernel, operands) = (self.kernel(), vec![self.operand()]);
        let emit = Emit { opcode: Opcode::Popc, modifiers: &[], types: &[Type::B32], operands };
        Self::from_register(kernel, kernel.compute(Type::U32, emit))
    }
}

impl Value<'_, f64> {
    /// The reciprocal square root, in two correctly rounded operations.
    #[track_caller]
    pub fn rsqrt(self) -> Self {
        self.sqrt().rcp()
    }
}

impl Value<'_, f32> {
    /// The reciprocal square root (`rsqrt.approx`).
    #[track_caller]
    pub fn rsqrt(self) -> Self {
        self.unary(Opcode::Rsqrt, &[Modifier::Approx])
    }

    /// The reciprocal (`rcp.approx`). Unlike [`Value::rcp`] it never calls a function, which would
    /// serialize `wgmma` in code that is linked.
    #[track_caller]
    pub fn rcp_approx(self) -> Self {
        self.unary(Opcode::Rcp, &[Modifier::Approx])
    }

    /// The reciprocal as one machine instruction (`rcp.approx.ftz`): subnormal operands count as 0,
    /// and subnormal results are 0.
    #[track_caller]
    pub fn rcp_approx_ftz(self) -> Self {
        self.unary(Opcode::Rcp, &[Modifier::Approx, Modifier::Ftz])
    }

    /// The logarithm to base 2 (`lg2.approx`): -∞ of 0, ∞ of ∞, NaN below 0.
    #[track_caller]
    pub fn log2(self) -> Self {
        self.unary(Opcode::Lg2, &[Modifier::Approx])
    }

    /// Two to the power of the value (`ex2.approx`).
    #[track_caller]
    pub fn exp2(self) -> Self {
        self.unary(Opcode::Ex2, &[Modifier::Approx])
    }

    /// Two to the power of the value as one machine instruction (`ex2.approx.ftz`): results below
    /// 2^-126 are 0. [`Value::exp2`] takes four.
    #[track_caller]
    pub fn exp2_ftz(self) -> Self {
        self.unary(Opcode::Ex2, &[Modifier::Approx, Modifier::Ftz])
    }

    /// e to the power of the value.
    ///
    /// exp(x) = 2^(x·log2 e). The rounding error of the product is compensated by the factor
    /// 1 + error·ln 2. exp(-∞) = 0, exp(∞) = ∞, and underflow is gradual.
    #[track_caller]
    pub fn exp(self) -> Self {
        // log2 e = LOG2_E + LOG2_E_REST to about 48 bits.
        const LOG2_E_REST: f32 = 1.925_963e-8;
        let power = self * consts::LOG2_E;
        let lost = self.fma(consts::LOG2_E, -power);
        let lost = self.fma(LOG2_E_REST, lost);
        // The error of infinite or very large arguments is infinite or NaN. Clamping the factor
        // leaves a power of 0, infinity or NaN unchanged.
        let factor = lost.fma(consts::LN_2, 1.0).min(2.0).max(0.5);
        power.exp2() * factor
    }

    /// The hyperbolic tangent, 1 - 2 / (exp(2·|x|) + 1) with the sign of x.
    #[track_caller]
    pub fn tanh(self) -> Self {
        let grown = (self.abs() * 2.0).exp();
        let magnitude = 1.0 - (grown + 1.0).rcp() * 2.0;
        magnitude.copysign(self)
    }

    /// The natural logarithm: ln 0 = -∞, ln ∞ = ∞, NaN below 0.
    ///
    /// x = m·2^e with m from √½ to √2; with s = (m-1)/(m+1), ln m = 2·(s + s³/3 + s⁵/5 + …),
    /// whose relative error stays small near 1; ln x = e·ln 2 + ln m. Uses no approximate
    /// instruction.
    #[track_caller]
    pub fn ln(self) -> Self {
        let kernel = self.kernel();
        // Denormals are scaled by 2^23 first.
        let small = self.lt(f32::MIN_POSITIVE);
        let scaled = small.select(self * 8_388_608.0, self);
        let bias = small.select(-23.0, 0.0);
        // Subtracting the bits of √½ puts the exponent of x / √½ into the upper 9 bits.
        const ROOT_HALF: u32 = consts::FRAC_1_SQRT_2.to_bits();
        let bits = scaled.bits() - ROOT_HALF;
        let exponent = (bits.cast::<i32>() >> 23).cast::<f32>() + bias;
        let mantissa = Value::<f32>::from_bits((bits & 0x007F_FFFF) + ROOT_HALF);
        let f = mantissa - 1.0;
        let s = f / (f + 2.0);
        let square = s * s;
        let series = kernel.constant(2.0 / 9.0_f32);
        let series = square.fma(series, 2.0 / 7.0);
        let series = square.fma(series, 2.0 / 5.0);
        let series = square.fma(series, 2.0 / 3.0);
        // ln m = 2s + s³·series, and 2s = f - s·f exactly in real arithmetic, where f is exact.
        let tail = square * series;
        let ln_mantissa = f - s * (f - tail);
        // ln 2 in two parts, the first with few enough bits that its product is exact.
        let result = exponent.fma(0.693_145_75, exponent.fma(1.428_606_8e-6, ln_mantissa));
        let in_domain = self.gt(0.0) & self.lt(f32::INFINITY);
        // Out of the domain: -∞ for 0, ∞ for ∞, NaN for the rest.
        let limit = self.eq(0.0).select(f32::NEG_INFINITY, self.sqrt());
        in_domain.select(result, limit)
    }
}
