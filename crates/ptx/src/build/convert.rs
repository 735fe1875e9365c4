//! Conversions between types.

use super::kernel::Emit;
use super::predicate::Pred;
use super::scalar::{Float, Scalar};
use super::value::{Value, ValueSource};
use crate::ast::{Modifier, Opcode, Operand, Type};

impl<'k, T: Scalar> Value<'k, T> {
    /// Converts the value like Rust's `as`: integers wrap, floats round to the nearest float, and
    /// towards zero to a saturated integer.
    ///
    /// One difference: NaN converts to the hardware's integer, which is 0 for 32 bits.
    #[track_caller]
    pub fn cast<U: Scalar>(self) -> Value<'k, U> {
        let (from, to) = (T::TYPE, U::TYPE);
        if !from.is_float() && !to.is_float() {
            if let ValueSource::Constant(bits) = self.source() {
                return Value::new(
                    self.kernel(),
                    ValueSource::Constant(U::from_bits(bits).to_bits()),
                );
            }
            if from.size() == to.size() {
                return Value::new(self.kernel(), self.source());
            }
        }
        if from == to {
            return Value::new(self.kernel(), self.source());
        }
        let rounding: &[Modifier] = match (from.is_float(), to.is_float()) {
            (true, false) => &[Modifier::Rzi],
            (true, true) if to.size() > from.size() => &[],
            (_, true) => &[Modifier::Rn],
            (false, false) => &[],
        };
        let operands = vec![Operand::Register(self.register())];
        let emit = Emit { opcode: Opcode::Cvt, modifiers: rounding, types: &[to, from], operands };
        Value::from_register(self.kernel(), self.kernel().compute(to, emit))
    }

    /// Copies the bits into a register of another type of the same size.
    #[track_caller]
    fn reinterpret<U: Scalar>(self) -> Value<'k, U> {
        if let ValueSource::Constant(bits) = self.source() {
            return Value::new(self.kernel(), ValueSource::Constant(bits));
        }
        let ty = if U::TYPE.size() == 8 { Type::B64 } else { Type::B32 };
        let operands = vec![self.operand()];
        let emit = Emit { opcode: Opcode::Mov, modifiers: &[], types: &[ty], operands };
        Value::from_register(self.kernel(), self.kernel().compute(U::TYPE, emit))
    }
}

impl<'k> Value<'k, f32> {
    /// The bits of the float.
    #[track_caller]
    pub fn bits(self) -> Value<'k, u32> {
        self.reinterpret()
    }

    /// The float with these bits.
    #[track_caller]
    pub fn from_bits(bits: Value<'k, u32>) -> Self {
        bits.reinterpret()
    }

    /// Packs this value (lower half) and `upper` (upper half) as bf16, each rounded to nearest even
    /// (`cvt.rn.bf16x2.f32`). Needs sm_80.
    #[track_caller]
    pub fn cvt_rn_bf16x2(self, upper: Self) -> Value<'k, u32> {
        self.pack(upper, Type::Bf16x2)
    }

    /// The same as f16 (`cvt.rn.f16x2.f32`). Needs sm_80.
    #[track_caller]
    pub fn cvt_rn_f16x2(self, upper: Self) -> Value<'k, u32> {
        self.pack(upper, Type::F16x2)
    }

    #[track_caller]
    fn pack(self, upper: Self, packed: Type) -> Value<'k, u32> {
        let kernel = self.kernel();
        let operands =
            vec![Operand::Register(upper.register()), Operand::Register(self.register())];
        let (modifiers, types) = (&[Modifier::Rn], &[packed, Type::F32]);
        let emit = Emit { opcode: Opcode::Cvt, modifiers, types, operands };
        Value::from_register(kernel, kernel.compute(Type::U32, emit))
    }
}

impl<'k> Value<'k, f64> {
    /// The bits of the float.
    #[track_caller]
    pub fn bits(self) -> Value<'k, u64> {
        self.reinterpret()
    }

    /// The float with these bits.
    #[track_caller]
    pub fn from_bits(bits: Value<'k, u64>) -> Self {
        bits.reinterpret()
    }
}

impl<'k, T: Float> Value<'k, T> {
    /// Whether the value is neither infinite nor NaN (`testp.finite`).
    #[track_caller]
    pub fn is_finite(self) -> Pred<'k> {
        let operands = vec![Operand::Register(self.register())];
        let (modifiers, types) = (&[Modifier::Finite], &[T::TYPE]);
        let emit = Emit { opcode: Opcode::Testp, modifiers, types, operands };
        Pred::new(self.kernel(), self.kernel().compute(Type::Pred, emit))
    }
}
