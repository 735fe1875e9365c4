//! Decoding of atomics: `atom` and `red`.

use retrograph_ptx::ast::{Instruction, Modifier as M, Opcode as O, Operand, StateSpace, Type};

use super::arithmetic::for_type;
use super::half::{is_bf16, is_half, is_packed};
use super::memory::{HINTS, SPACES, reaches_cluster};
use super::{Decoder, Reason, VirtualRegister, only, type_of};
use crate::half::{HalfInstruction, HalfOperation};
use crate::lane_function::LaneFunction;
use crate::operation::Memory;
use crate::program::{Access, Atomic, AtomicOperation};

fn atomic_operation(operation: M, ty: Type) -> Result<AtomicOperation, Reason> {
    use AtomicOperation as A;
    Ok(match (operation, ty) {
        (M::Add, Type::F32) => A::AddF32,
        (M::Add, Type::F64) => A::AddF64,
        (M::Add | M::Min | M::Max, _) if is_half(ty) => {
            let operation = match operation {
                M::Add => HalfOperation::Add,
                M::Min => HalfOperation::Min,
                _ => HalfOperation::Max,
            };
            A::Function(LaneFunction::Half(HalfInstruction {
                bf16: is_bf16(ty),
                packed: is_packed(ty),
                ..HalfInstruction::plain(operation)
            }))
        }
        (M::Cas, Type::B16) => A::CompareAndSwap,
        (_, _) if ty.is_float() || !matches!(ty.bits(), 32 | 64) => {
            return Err(format!("this atomic of .{ty}"));
        }
        (M::Add, _) => A::Function(for_type!(add, ty)),
        (M::Min, _) => A::Function(for_type!(min, ty)),
        (M::Max, _) => A::Function(for_type!(max, ty)),
        (M::And, _) => A::Function(for_type!(and, ty)),
        (M::Or, _) => A::Function(for_type!(or, ty)),
        (M::Xor, _) => A::Function(for_type!(xor, ty)),
        (M::Exch, _) => A::Exchange,
        (M::Cas, _) => A::CompareAndSwap,
        (M::Inc, _) => A::Increment,
        _ => A::Decrement,
    })
}

impl Decoder<'_> {
    /// A new register with the value of another one.
    fn copy_of(&mut self, from: VirtualRegister) -> VirtualRegister {
        let to = self.temporary(self.width(from));
        self.copy(to, from);
        to
    }

    /// `atom` and `red`.
    pub(super) fn atomic(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        const OPERATIONS: &[M] =
            &[M::Add, M::Min, M::Max, M::And, M::Or, M::Xor, M::Exch, M::Cas, M::Inc, M::Dec];
        let mut allowed = OPERATIONS.to_vec();
        allowed.extend(HINTS.iter().chain(SPACES).chain(&[M::NoFtz, M::V2, M::V4, M::V8]));
        only(instruction, &allowed)?;
        let ty = type_of(instruction)?;
        let operation = instruction.modifiers.first_of(OPERATIONS);
        let operation = operation.ok_or_else(|| "an atomic without an operation".to_owned())?;
        let (to, rest) = match (instruction.opcode, &instruction.operands[..]) {
            (O::Atom, [to, rest @ ..]) => (to, rest),
            (_, rest) => (&Operand::Sink, rest),
        };
        let (memory, b, c) = match rest {
            [memory, b] if operation != M::Cas => (memory, b, b),
            [memory, b, c] if operation == M::Cas => (memory, b, c),
            _ => return Err(format!("{} operands", instruction.operands.len())),
        };
        let space = instruction.space();
        self.communicates |= space != Some(StateSpace::Shared);
        let (address, access) = self.address(memory, space)?;
        let operation = atomic_operation(operation, ty)?;
        // Each element of a vector is atomic separately.
        let parts = match b {
            Operand::Vector(list) => list.len(),
            _ => 1,
        };
        let part = |operand: &Operand, index: usize| match operand {
            Operand::Vector(list) => list.get(index).cloned().unwrap_or(Operand::Sink),
            other => other.clone(),
        };
        let mut sources = Vec::new();
        for index in 0..parts {
            let given = [self.read(&part(b, index), ty)?, self.read(&part(c, index), ty)?];
            // A result may be a source of a later element.
            let is_overwritten = index > 0 && instruction.opcode == O::Atom;
            sources.push(if is_overwritten { given.map(|from| self.copy_of(from)) } else { given });
        }
        for (index, [b, c]) in sources.into_iter().enumerate() {
            let to = self.write(&part(to, index), ty)?;
            let offset = access.offset + index as i64 * i64::from(ty.size());
            let (bytes, value) = (ty.size(), self.width(to));
            let reaches_cluster = reaches_cluster(instruction);
            // The first element checks the alignment of the vector.
            let align = if index == 0 { bytes * parts as u32 } else { 0 };
            let access = Access { bytes, align, value, offset, reaches_cluster, ..access };
            self.atomics.push(Atomic { access, operation });
            let atomic = self.atomics.len() as u32 - 1;
            self.emit(Memory::Atomic { d: to, address, b, c, atomic });
        }
        Ok(())
    }
}
