//! Decoding of f16 and bf16 arithmetic.

use retrograph_ptx::ast::{Instruction, Modifier as M, Opcode as O, Type};

use super::float::mode_of;
use super::{Decoder, Reason, only, type_of};
use crate::half::{HalfInstruction, HalfOperation};
use crate::lane_function::LaneFunction;
use crate::rounding::Rounding;

/// Whether values of the type are f16 or bf16.
pub(super) fn is_half(ty: Type) -> bool {
    matches!(ty, Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2)
}

/// Whether values of the type are bf16.
pub(super) fn is_bf16(ty: Type) -> bool {
    matches!(ty, Type::Bf16 | Type::Bf16x2)
}

/// Whether a register holds two values.
pub(super) fn is_packed(ty: Type) -> bool {
    matches!(ty, Type::F16x2 | Type::Bf16x2)
}

const ALLOWED: &[M] = &[
    M::Rn,
    M::Rz,
    M::Rm,
    M::Rp,
    M::Ftz,
    M::Sat,
    M::Relu,
    M::Approx,
    M::PropagateNan,
    M::XorSignAbs,
];

impl Decoder<'_> {
    /// Arithmetic of f16 and bf16.
    pub(super) fn half(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        only(instruction, ALLOWED)?;
        let ty = type_of(instruction)?;
        let operation = match instruction.opcode {
            O::Add => HalfOperation::Add,
            O::Sub => HalfOperation::Sub,
            O::Mul => HalfOperation::Mul,
            O::Fma => HalfOperation::Fma,
            O::Min => HalfOperation::Min,
            O::Max => HalfOperation::Max,
            O::Neg => HalfOperation::Neg,
            O::Abs => HalfOperation::Abs,
            O::Ex2 => HalfOperation::Exp2,
            O::Tanh => HalfOperation::Tanh,
            other => return Err(format!("{other} of .{ty}")),
        };
        let [to, from @ ..] = &instruction.operands[..] else {
            return Err("no operands".to_owned());
        };
        let to = self.write(to, ty)?;
        let mut registers = Vec::new();
        for operand in from {
            registers.push(self.read(operand, ty)?);
        }
        let has = |modifier| instruction.modifiers.has(modifier);
        let mode = mode_of(instruction.modifiers);
        let is_directed = mode.rounding != Rounding::Nearest;
        if operation == HalfOperation::Fma && is_bf16(ty) && is_directed {
            return Err(format!("directed rounding in fma of .{ty}, whose meaning is not told"));
        }
        let instruction = HalfInstruction {
            operation,
            bf16: is_bf16(ty),
            packed: is_packed(ty),
            rounding: mode.rounding,
            flush: mode.flush,
            saturate: mode.saturate,
            relu: has(M::Relu),
            propagate: has(M::PropagateNan),
            xor_sign: has(M::XorSignAbs),
        };
        self.emit_lanes(LaneFunction::Half(instruction), to, &registers);
        Ok(())
    }
}
