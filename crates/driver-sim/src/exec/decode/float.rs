//! Floating-point arithmetic.
//!
//! Rounding to nearest without flushing and saturation is fast. Other modes are exact but slow.

use retrograph_ptx::ast::{Instruction, Modifier as M, Modifiers, Opcode as O, Type};

use super::{Decoder, Op, Reason, Slot, only, type_of};
use crate::exec::double;
use crate::exec::float::{self, FloatMode, ModedOperation, d, extremum64, flush64, result64};
use crate::exec::rounding::Rounding;

/// The rounding, flushing and saturation that modifiers ask for.
pub(super) fn mode_of(modifiers: Modifiers) -> FloatMode {
    let rounding = match modifiers.first_of(&[M::Rz, M::Rm, M::Rp, M::Rzi, M::Rmi, M::Rpi]) {
        Some(M::Rz | M::Rzi) => Rounding::Zero,
        Some(M::Rm | M::Rmi) => Rounding::Down,
        Some(M::Rp | M::Rpi) => Rounding::Up,
        _ => Rounding::Nearest,
    };
    FloatMode { rounding, flush: modifiers.has(M::Ftz), saturate: modifiers.has(M::Sat) }
}

/// Modifiers that a float instruction may have, as far as the table of instructions allows them.
const ALLOWED: &[M] = &[
    M::Rn,
    M::Rz,
    M::Rm,
    M::Rp,
    M::Ftz,
    M::Sat,
    M::Approx,
    M::Full,
    M::PropagateNan,
    M::XorSignAbs,
    M::Abs,
];

impl Decoder<'_> {
    /// Arithmetic of `f32` and `f64`.
    pub(super) fn float(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        only(instruction, ALLOWED)?;
        let ty = type_of(instruction)?;
        let (Some(to), from) = (instruction.operands.first(), instruction.operands.get(1..)) else {
            return Err("no operands".to_owned());
        };
        let to = self.write(to, ty)?;
        let mut slots = Vec::new();
        for operand in from.unwrap_or_default() {
            slots.push(self.read(operand, ty)?);
        }
        let wanted = match instruction.opcode {
            O::Fma | O::Mad => 3,
            O::Min | O::Max if slots.len() == 3 => 3,
            O::Add | O::Sub | O::Mul | O::Div | O::Min | O::Max | O::Copysign => 2,
            _ => 1,
        };
        if slots.len() != wanted {
            return Err(format!("{} operands", instruction.operands.len()));
        }
        match ty {
            Type::F32 => self.float32(instruction, to, &slots),
            Type::F64 => self.float64(instruction, to, &slots),
            other => Err(format!("arithmetic of .{other}")),
        }
    }

    fn float32(&mut self, i: &Instruction, to: Slot, from: &[Slot]) -> Result<(), Reason> {
        let mode = mode_of(i.modifiers);
        let nan = i.modifiers.has(M::PropagateNan);
        let signs = [M::XorSignAbs, M::Abs].into_iter().any(|word| i.modifiers.has(word));
        if signs || from.len() == 3 && matches!(i.opcode, O::Min | O::Max) {
            let code = mode.encode()
                | u64::from(i.opcode == O::Max) << 8
                | u64::from(nan) << 9
                | u64::from(i.modifiers.has(M::XorSignAbs)) << 10
                | u64::from(i.modifiers.has(M::Abs)) << 11
                | u64::from(from.len() == 3) << 12;
            self.emit_lanes(float::extremum, code, to, from);
            return Ok(());
        }
        let approximate = [M::Approx, M::Full].into_iter().find(|&word| i.modifiers.has(word));
        if let (O::Div, Some(word)) = (i.opcode, approximate) {
            let is_full = word == M::Full;
            let function = if is_full { float::div_full } else { float::div_approx };
            self.emit_lanes(function, mode.encode(), to, from);
            return Ok(());
        }
        if mode.is_plain()
            && !nan
            && let Some(op) = fast32(i.opcode)
        {
            self.emit(op, &[to], from, 0);
            return Ok(());
        }
        if i.opcode == O::Copysign {
            self.emit_lanes(copysign32, 0, to, from);
            return Ok(());
        }
        let function = moded(i.opcode, nan).ok_or_else(|| format!("{} of .f32", i.opcode))?;
        self.emit_lanes(function, mode.encode(), to, from);
        Ok(())
    }

    fn float64(&mut self, i: &Instruction, to: Slot, from: &[Slot]) -> Result<(), Reason> {
        let mode = mode_of(i.modifiers);
        if mode.rounding != Rounding::Nearest {
            let function = directed64(i.opcode).ok_or_else(|| format!("{} of .f64", i.opcode))?;
            self.emit_lanes(function, mode.rounding as u64, to, from);
            return Ok(());
        }
        if mode.flush && matches!(i.opcode, O::Rcp | O::Rsqrt) && i.modifiers.has(M::Approx) {
            let function: ModedOperation = match i.opcode {
                O::Rcp => |[a, _, _], _| flush64(result64(1.0 / d(upper(a)), &[a])),
                _ => |[a, _, _], _| result64(1.0 / d(upper(a)).sqrt(), &[a]),
            };
            self.emit_lanes(function, 0, to, from);
            return Ok(());
        }
        let fast = match i.opcode {
            O::Add => Op::AddF64,
            O::Sub => Op::SubF64,
            O::Mul => Op::MulF64,
            O::Fma | O::Mad => Op::FmaF64,
            O::Div => Op::DivF64,
            O::Sqrt => Op::SqrtF64,
            O::Neg => Op::NegF64,
            _ => {
                let function = lanes64(i.opcode).ok_or_else(|| format!("{} of .f64", i.opcode))?;
                self.emit_lanes(function, 0, to, from);
                return Ok(());
            }
        };
        self.emit(fast, &[to], from, 0);
        Ok(())
    }
}

fn fast32(opcode: O) -> Option<Op> {
    Some(match opcode {
        O::Add => Op::AddF32,
        O::Sub => Op::SubF32,
        O::Mul => Op::MulF32,
        O::Fma | O::Mad => Op::FmaF32,
        O::Div => Op::DivF32,
        O::Min => Op::MinF32,
        O::Max => Op::MaxF32,
        O::Neg => Op::NegF32,
        O::Abs => Op::AbsF32,
        O::Sqrt => Op::SqrtF32,
        O::Rcp => Op::RcpF32,
        O::Rsqrt => Op::RsqrtF32,
        O::Ex2 => Op::Exp2F32,
        O::Lg2 => Op::Log2F32,
        _ => return None,
    })
}

fn moded(opcode: O, propagate_nan: bool) -> Option<ModedOperation> {
    Some(match opcode {
        O::Add => float::add,
        O::Sub => float::sub,
        O::Mul => float::mul,
        O::Fma | O::Mad => float::fma,
        O::Div => float::div,
        O::Rcp => float::rcp,
        O::Sqrt => float::sqrt,
        O::Rsqrt => float::rsqrt_moded,
        O::Ex2 => float::exp2_moded,
        O::Lg2 => float::log2_moded,
        O::Sin => float::sin,
        O::Cos => float::cos,
        O::Tanh => float::tanh,
        O::Min if propagate_nan => float::min_nan,
        O::Max if propagate_nan => float::max_nan,
        O::Min => float::min_moded,
        O::Max => float::max_moded,
        O::Abs => float::abs,
        O::Neg => float::neg,
        _ => return None,
    })
}

/// What approximations of `f64` read: the upper half, and a zero for a subnormal.
fn upper(bits: u64) -> u64 {
    flush64(bits & !0xffff_ffff)
}

/// `copysign` gives the second operand the sign of the first.
fn copysign32([a, b, _]: [u64; 3], _: u64) -> u64 {
    a & 0x8000_0000 | b & 0x7fff_ffff
}

/// The operations of `f64` that have rounding modes. What is flushed of approximations is no more
/// than what the hardware leaves open.
fn directed64(opcode: O) -> Option<ModedOperation> {
    Some(match opcode {
        O::Add => double::add,
        O::Sub => double::sub,
        O::Mul => double::mul,
        O::Fma | O::Mad => double::fma,
        O::Div => double::div,
        O::Rcp => double::rcp,
        O::Sqrt => double::sqrt,
        _ => return None,
    })
}

fn lanes64(opcode: O) -> Option<ModedOperation> {
    Some(match opcode {
        O::Min => |[a, b, _], _| extremum64(a, b, false),
        O::Max => |[a, b, _], _| extremum64(a, b, true),
        O::Abs => |[a, _, _], _| float::abs64(a),
        O::Rcp => |[a, _, _], _| result64(1.0 / d(a), &[a]),
        O::Rsqrt => |[a, _, _], _| result64(1.0 / d(a).sqrt(), &[a]),
        O::Copysign => |[a, b, _], _| a & 1 << 63 | b & !(1 << 63),
        _ => return None,
    })
}
