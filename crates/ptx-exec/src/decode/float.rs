//! Decoding of floating-point arithmetic.
//!
//! Instructions rounded to nearest without flushing and saturation are fast, as are flushing
//! exponentials and approximate reciprocals. Other modes are exact but slow.

use retrograph_ptx::ast::{Instruction, Modifier as M, Modifiers, Opcode as O, Type};

use super::arithmetic::padded;
use super::{Decoder, Reason, VirtualRegister, only, type_of};
use crate::double;
use crate::float::{self, Extremum, FloatMode, d, extremum64, flush64, result64};
use crate::lane_function::LaneFunction;
use crate::operation::Float;
use crate::rounding::Rounding;

/// The rounding, flushing and saturation of modifiers.
pub(super) fn mode_of(modifiers: Modifiers) -> FloatMode {
    let rounding = match modifiers.first_of(&[M::Rz, M::Rm, M::Rp, M::Rzi, M::Rmi, M::Rpi]) {
        Some(M::Rz | M::Rzi) => Rounding::Zero,
        Some(M::Rm | M::Rmi) => Rounding::Down,
        Some(M::Rp | M::Rpi) => Rounding::Up,
        _ => Rounding::Nearest,
    };
    FloatMode { rounding, flush: modifiers.has(M::Ftz), saturate: modifiers.has(M::Sat) }
}

/// Modifiers that a float instruction may have, subject to the instruction table.
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
        let mut registers = Vec::new();
        for operand in from.unwrap_or_default() {
            registers.push(self.read(operand, ty)?);
        }
        let wanted = match instruction.opcode {
            O::Fma | O::Mad => 3,
            O::Min | O::Max if registers.len() == 3 => 3,
            O::Add | O::Sub | O::Mul | O::Div | O::Min | O::Max | O::Copysign => 2,
            _ => 1,
        };
        if registers.len() != wanted {
            return Err(format!("{} operands", instruction.operands.len()));
        }
        match ty {
            Type::F32 => self.float32(instruction, to, &registers),
            Type::F64 => self.float64(instruction, to, &registers),
            other => Err(format!("arithmetic of .{other}")),
        }
    }

    fn float32(
        &mut self,
        i: &Instruction,
        to: VirtualRegister,
        from: &[VirtualRegister],
    ) -> Result<(), Reason> {
        let mode = mode_of(i.modifiers);
        let nan = i.modifiers.has(M::PropagateNan);
        let signs = [M::XorSignAbs, M::Abs].into_iter().any(|word| i.modifiers.has(word));
        if signs || from.len() == 3 && matches!(i.opcode, O::Min | O::Max) {
            let extremum = Extremum {
                max: i.opcode == O::Max,
                propagate_nan: nan,
                xor_sign: i.modifiers.has(M::XorSignAbs),
                magnitudes: i.modifiers.has(M::Abs),
                ternary: from.len() == 3,
                mode,
            };
            self.emit_lanes(LaneFunction::Extremum(extremum), to, from);
            return Ok(());
        }
        let approximate = [M::Approx, M::Full].into_iter().find(|&word| i.modifiers.has(word));
        if let (O::Div, Some(word)) = (i.opcode, approximate) {
            let is_full = word == M::Full;
            let function = if is_full { float::div_full } else { float::div_approx };
            self.emit_lanes(LaneFunction::Float { function, mode }, to, from);
            return Ok(());
        }
        if mode.is_plain()
            && !nan
            && let Some(operation) = operation32(i.opcode, to, from)
        {
            self.emit(operation);
            return Ok(());
        }
        let flushes = FloatMode { flush: true, ..FloatMode::default() };
        match i.opcode {
            O::Ex2 if mode == flushes => {
                self.emit(Float::Exp2Ftz { d: to, a: from[0] });
                return Ok(());
            }
            O::Rcp if mode == flushes && approximate.is_some() => {
                self.emit(Float::RcpFtz { d: to, a: from[0] });
                return Ok(());
            }
            _ => {}
        }
        if i.opcode == O::Copysign {
            self.emit_lanes(LaneFunction::Plain(copysign32), to, from);
            return Ok(());
        }
        let function = moded(i.opcode, nan).ok_or_else(|| format!("{} of .f32", i.opcode))?;
        self.emit_lanes(LaneFunction::Float { function, mode }, to, from);
        Ok(())
    }

    fn float64(
        &mut self,
        i: &Instruction,
        to: VirtualRegister,
        from: &[VirtualRegister],
    ) -> Result<(), Reason> {
        let mode = mode_of(i.modifiers);
        if mode.rounding != Rounding::Nearest {
            let function = directed64(i.opcode).ok_or_else(|| format!("{} of .f64", i.opcode))?;
            let rounding = mode.rounding;
            self.emit_lanes(LaneFunction::Double { function, rounding }, to, from);
            return Ok(());
        }
        if mode.flush && matches!(i.opcode, O::Rcp | O::Rsqrt) && i.modifiers.has(M::Approx) {
            let function: PlainFunction = match i.opcode {
                O::Rcp => |[a, _, _]| flush64(result64(1.0 / d(upper(a)), &[a])),
                _ => |[a, _, _]| result64(1.0 / d(upper(a)).sqrt(), &[a]),
            };
            self.emit_lanes(LaneFunction::Plain(function), to, from);
            return Ok(());
        }
        if let Some(operation) = operation64(i.opcode, to, from) {
            self.emit(operation);
            return Ok(());
        }
        let function = function64(i.opcode).ok_or_else(|| format!("{} of .f64", i.opcode))?;
        self.emit_lanes(LaneFunction::Plain(function), to, from);
        Ok(())
    }
}

/// A function of `f32` that rounds, flushes and saturates according to its mode.
type ModedFunction = fn([u64; 3], FloatMode) -> u64;
/// A function without modifiers.
type PlainFunction = fn([u64; 3]) -> u64;

fn operation32(
    opcode: O,
    d: VirtualRegister,
    from: &[VirtualRegister],
) -> Option<Float<VirtualRegister>> {
    use Float as F;
    let [a, b, c] = padded(d, from);
    Some(match opcode {
        O::Add => F::Add32 { d, a, b },
        O::Sub => F::Sub32 { d, a, b },
        O::Mul => F::Mul32 { d, a, b },
        O::Fma | O::Mad => F::Fma32 { d, a, b, c },
        O::Div => F::Div32 { d, a, b },
        O::Min => F::Min32 { d, a, b },
        O::Max => F::Max32 { d, a, b },
        O::Neg => F::Neg32 { d, a },
        O::Abs => F::Abs32 { d, a },
        O::Sqrt => F::Sqrt32 { d, a },
        O::Rcp => F::Rcp32 { d, a },
        O::Rsqrt => F::Rsqrt32 { d, a },
        O::Ex2 => F::Exp2 { d, a },
        O::Lg2 => F::Log2 { d, a },
        _ => return None,
    })
}

fn operation64(
    opcode: O,
    d: VirtualRegister,
    from: &[VirtualRegister],
) -> Option<Float<VirtualRegister>> {
    use Float as F;
    let [a, b, c] = padded(d, from);
    Some(match opcode {
        O::Add => F::Add64 { d, a, b },
        O::Sub => F::Sub64 { d, a, b },
        O::Mul => F::Mul64 { d, a, b },
        O::Fma | O::Mad => F::Fma64 { d, a, b, c },
        O::Div => F::Div64 { d, a, b },
        O::Sqrt => F::Sqrt64 { d, a },
        O::Neg => F::Neg64 { d, a },
        _ => return None,
    })
}

fn moded(opcode: O, propagate_nan: bool) -> Option<ModedFunction> {
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

/// The input of approximations of `f64`: the upper half, and zero for a subnormal.
fn upper(bits: u64) -> u64 {
    flush64(bits & !0xffff_ffff)
}

/// `copysign`: the second operand with the sign of the first.
fn copysign32([a, b, _]: [u64; 3]) -> u64 {
    a & 0x8000_0000 | b & 0x7fff_ffff
}

/// The operations of `f64` that have rounding modes. Flushing approximate results stays within the
/// documented bounds.
fn directed64(opcode: O) -> Option<fn([u64; 3], Rounding) -> u64> {
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

fn function64(opcode: O) -> Option<PlainFunction> {
    Some(match opcode {
        O::Min => |[a, b, _]| extremum64(a, b, false),
        O::Max => |[a, b, _]| extremum64(a, b, true),
        O::Abs => |[a, _, _]| float::abs64(a),
        O::Rcp => |[a, _, _]| result64(1.0 / d(a), &[a]),
        O::Rsqrt => |[a, _, _]| result64(1.0 / d(a).sqrt(), &[a]),
        O::Copysign => |[a, b, _]| a & 1 << 63 | b & !(1 << 63),
        _ => return None,
    })
}
