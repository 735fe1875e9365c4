//! Loads, stores and atomics.

use retrograph_ptx::ast::{
    Address, AddressBase, Instruction, Modifier as M, Opcode as O, Operand, Space, Symbol, Type,
};

use super::arithmetic::for_type;
use super::half::{is_bf16, is_half, is_packed};
use super::{Decoder, Reason, VirtualRegister, Width, only, operands, type_of};
use crate::exec::half::{HalfInstruction, HalfOperation};
use crate::exec::lane_function::LaneFunction;
use crate::exec::operation::Memory;
use crate::exec::program::{Access, Atomic, AtomicOperation};

/// Modifiers that say nothing to a simulator whose memory is always coherent.
const HINTS: &[M] = &[
    M::Ca,
    M::Cg,
    M::Cs,
    M::Lu,
    M::Mmio,
    M::Cluster,
    M::L1EvictNormal,
    M::L1EvictUnchanged,
    M::L1EvictFirst,
    M::L1EvictLast,
    M::L1NoAllocate,
    M::L2EvictNormal,
    M::L2EvictFirst,
    M::L2EvictLast,
    M::L2CacheHint,
    M::L2Bytes64,
    M::L2Bytes128,
    M::L2Bytes256,
    M::Cv,
    M::Wb,
    M::Wt,
    M::Nc,
    M::Weak,
    M::Volatile,
    M::Relaxed,
    M::Acquire,
    M::Release,
    M::AcqRel,
    M::Cta,
    M::Gpu,
    M::Sys,
];
/// Those that a kernel uses to communicate between threads.
const STRONG: &[M] = &[M::Volatile, M::Relaxed, M::Acquire, M::Release, M::AcqRel];
const SPACES: &[M] = &[
    M::Param,
    M::ParamEntry,
    M::ParamFunc,
    M::Global,
    M::Shared,
    M::SharedCta,
    M::SharedCluster,
    M::Local,
    M::Const,
];

impl Decoder<'_> {
    /// `ld`, `ldu` and `st`.
    pub(super) fn access(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        let mut allowed = vec![M::V2, M::V4, M::V8];
        allowed.extend(HINTS.iter().chain(SPACES));
        only(instruction, &allowed)?;
        let ty = type_of(instruction)?;
        let load = instruction.opcode != O::St;
        // A third operand is a policy for caches.
        let (value, memory) = match &instruction.operands[..] {
            [value, memory, ..] if load => (value, memory),
            [memory, value, ..] => (value, memory),
            list => return Err(format!("{} operands", list.len())),
        };
        let values = match value {
            Operand::Vector(list) => &list[..],
            one => std::slice::from_ref(one),
        };
        if ty == Type::B128 {
            return Err("values of 128 bits".to_owned());
        }
        let registers = self.values(values, ty, load)?;
        let space = instruction.space();
        if load && self.load_parameter(&registers, memory, (ty, space))? {
            return Ok(());
        }
        if !load && space == Some(Space::Const) {
            return Err("a store to memory that is only read".to_owned());
        }
        let strong = instruction.modifiers.first_of(STRONG).is_some();
        if strong && space != Some(Space::Shared) {
            self.communicates = true;
        }
        let (address, access) = self.address(memory, space)?;
        let access = Access { bytes: ty.size(), signed: ty.is_signed(), strong, ..access };
        // Eight values are two times four.
        for (part, registers) in registers.chunks(4).enumerate() {
            let offset = access.offset + part as i64 * 4 * i64::from(ty.size());
            self.move_values(registers, address, (Access { offset, ..access }, load));
        }
        Ok(())
    }

    /// Emits a load or store of up to four values.
    fn move_values(
        &mut self,
        registers: &[VirtualRegister],
        address: VirtualRegister,
        (access, load): (Access, bool),
    ) {
        let value = self.width(registers[0]);
        let access = Access { count: registers.len() as u32, value, ..access };
        let words = if load { word_load } else { word_store };
        let lanes = if load { any_load } else { any_store };
        self.accesses.push(access);
        let index = self.accesses.len() as u32 - 1;
        let operation = words(&access, registers, (address, index));
        self.emit(operation.unwrap_or_else(|| lanes(registers, (address, index))));
    }

    /// `isspacep`
    pub(super) fn space_test(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        only(instruction, SPACES)?;
        let [to, address] = operands::<2>(instruction)?;
        let to = self.write(to, Type::Pred)?;
        let address = self.read(address, Type::U64)?;
        let space = instruction.space().ok_or_else(|| "a test without a space".to_owned())?;
        self.emit_lanes(LaneFunction::IsInSpace(space), to, &[address]);
        Ok(())
    }

    fn values(
        &mut self,
        list: &[Operand],
        ty: Type,
        load: bool,
    ) -> Result<Vec<VirtualRegister>, Reason> {
        // What is thrown away is as wide as the rest.
        let known = list.iter().find_map(|operand| match operand {
            Operand::Register(register) => self.register(*register).ok(),
            _ => None,
        });
        let mut registers = Vec::new();
        for operand in list {
            registers.push(match operand {
                Operand::Register(register) => self.register(*register)?,
                Operand::Sink => {
                    let width = known.map_or(Width::Word, |register| self.width(register));
                    self.temporary(width)
                }
                Operand::Immediate(immediate) => {
                    let width = known.map_or(super::width_of(ty), |register| self.width(register));
                    let bits = super::operand::bits_of(*immediate, ty)?;
                    self.constant(bits, width)
                }
                other if load => self.write(other, ty)?,
                other => self.read_any_width(other, ty)?,
            });
        }
        let width = registers.first().map(|&register| self.width(register));
        let narrow =
            width.is_none_or(|w| w == Width::Predicate || w == Width::Word && ty.bits() > 32);
        if narrow
            || registers.len() > 8
            || registers.iter().any(|&register| Some(self.width(register)) != width)
        {
            return Err("values of this width".to_owned());
        }
        Ok(registers)
    }

    /// Emits the load of one whole parameter, and says whether this was one.
    fn load_parameter(
        &mut self,
        registers: &[VirtualRegister],
        memory: &Operand,
        (ty, space): (Type, Option<Space>),
    ) -> Result<bool, Reason> {
        let (Operand::Address(address), &[to]) = (memory, registers) else { return Ok(false) };
        let AddressBase::Symbol(symbol @ Symbol::Parameter(_)) = address.base else {
            return Ok(false);
        };
        let wide = match (ty.bits(), self.width(to)) {
            (32, Width::Word) => false,
            (64, Width::Double) => true,
            _ => return Ok(false),
        };
        let place = self.place(symbol);
        let (_, start) = place.ok_or_else(|| "a parameter that is not declared".to_owned())?;
        let offset = start.wrapping_add(address.offset as u64);
        let inside = offset.checked_add(u64::from(ty.size()));
        if self.frame.code != 0 {
            return Ok(false);
        }
        if space != Some(Space::Param)
            || inside.is_none_or(|end| end > u64::from(self.variables.parameters.1))
        {
            return Err("a load outside of the parameters".to_owned());
        }
        let (d, offset) = (to, offset as u32);
        self.emit(if wide {
            Memory::Parameter64 { d, offset }
        } else {
            Memory::Parameter32 { d, offset }
        });
        Ok(true)
    }

    /// The register of the address, and the access as far as the address says what it is.
    pub(super) fn address(
        &mut self,
        operand: &Operand,
        space: Option<Space>,
    ) -> Result<(VirtualRegister, Access), Reason> {
        let Operand::Address(Address { base, offset }) = operand else {
            return Err("an operand that is not an address".to_owned());
        };
        let mut space = space;
        let (register, offset) = match *base {
            AddressBase::Register(register) => {
                // Parameters of functions are in local memory.
                if space == Some(Space::Param) && self.frame.code != 0 {
                    space = Some(Space::Local);
                }
                (self.register(register)?, *offset)
            }
            AddressBase::Symbol(symbol) => {
                let place = self.place(symbol);
                let (home, at) = place.ok_or_else(|| "a symbol without an address".to_owned())?;
                if space == Some(Space::Param) && home == Space::Local {
                    space = Some(home);
                }
                if space != Some(home) {
                    return Err(format!("a variable in .{home} as another space"));
                }
                (self.constant(at.wrapping_add(*offset as u64), Width::Double), 0)
            }
            AddressBase::Absolute => (self.constant(*offset as u64, Width::Double), 0),
        };
        let address = self.width(register);
        if address == Width::Predicate {
            return Err("a predicate as an address".to_owned());
        }
        let value = Width::Word;
        Ok((
            register,
            Access {
                space,
                bytes: 0,
                count: 1,
                signed: false,
                value,
                address,
                offset,
                strong: false,
            },
        ))
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
        self.communicates |= space != Some(Space::Shared);
        let (address, access) = self.address(memory, space)?;
        let operation = atomic_operation(operation, ty)?;
        // The parts of a vector are atomic each by itself.
        let parts = match b {
            Operand::Vector(list) => list.len(),
            _ => 1,
        };
        let part = |operand: &Operand, index: usize| match operand {
            Operand::Vector(list) => list.get(index).cloned().unwrap_or(Operand::Sink),
            other => other.clone(),
        };
        for index in 0..parts {
            let to = self.write(&part(to, index), ty)?;
            let (b, c) = (self.read(&part(b, index), ty)?, self.read(&part(c, index), ty)?);
            let offset = access.offset + index as i64 * i64::from(ty.size());
            let access = Access { bytes: ty.size(), value: self.width(to), offset, ..access };
            self.atomics.push(Atomic { access, operation });
            let atomic = self.atomics.len() as u32 - 1;
            self.emit(Memory::Atomic { d: to, address, b, c, atomic });
        }
        Ok(())
    }
}

/// The load of 32-bit words in global or shared memory, if the access is one.
fn word_load(
    access: &Access,
    values: &[VirtualRegister],
    (address, index): (VirtualRegister, u32),
) -> Option<Memory<VirtualRegister>> {
    if access.bytes != 4 || access.value != Width::Word {
        return None;
    }
    Some(match (access.space?, values) {
        (Space::Global, &[d]) => Memory::LoadGlobal1 { d, address, access: index },
        (Space::Global, &[d0, d1]) => Memory::LoadGlobal2 { d0, d1, address, access: index },
        (Space::Global, &[d0, d1, d2, d3]) => {
            Memory::LoadGlobal4 { d0, d1, d2, d3, address, access: index }
        }
        (Space::Shared, &[d]) => Memory::LoadShared1 { d, address, access: index },
        (Space::Shared, &[d0, d1]) => Memory::LoadShared2 { d0, d1, address, access: index },
        (Space::Shared, &[d0, d1, d2, d3]) => {
            Memory::LoadShared4 { d0, d1, d2, d3, address, access: index }
        }
        _ => return None,
    })
}

/// The store of 32-bit words in global or shared memory, if the access is one.
fn word_store(
    access: &Access,
    values: &[VirtualRegister],
    (address, index): (VirtualRegister, u32),
) -> Option<Memory<VirtualRegister>> {
    if access.bytes != 4 || access.value != Width::Word {
        return None;
    }
    Some(match (access.space?, values) {
        (Space::Global, &[a]) => Memory::StoreGlobal1 { address, a, access: index },
        (Space::Global, &[a0, a1]) => Memory::StoreGlobal2 { address, a0, a1, access: index },
        (Space::Global, &[a0, a1, a2, a3]) => {
            Memory::StoreGlobal4 { address, a0, a1, a2, a3, access: index }
        }
        (Space::Shared, &[a]) => Memory::StoreShared1 { address, a, access: index },
        (Space::Shared, &[a0, a1]) => Memory::StoreShared2 { address, a0, a1, access: index },
        (Space::Shared, &[a0, a1, a2, a3]) => {
            Memory::StoreShared4 { address, a0, a1, a2, a3, access: index }
        }
        _ => return None,
    })
}

/// The load of one, two or four values of any type.
fn any_load(
    values: &[VirtualRegister],
    (address, access): (VirtualRegister, u32),
) -> Memory<VirtualRegister> {
    match *values {
        [d0, d1, d2, d3] => Memory::Load4 { d0, d1, d2, d3, address, access },
        [d0, d1] => Memory::Load2 { d0, d1, address, access },
        _ => Memory::Load1 { d: values[0], address, access },
    }
}

/// The store of one, two or four values of any type.
fn any_store(
    values: &[VirtualRegister],
    (address, access): (VirtualRegister, u32),
) -> Memory<VirtualRegister> {
    match *values {
        [a0, a1, a2, a3] => Memory::Store4 { address, a0, a1, a2, a3, access },
        [a0, a1] => Memory::Store2 { address, a0, a1, access },
        _ => Memory::Store1 { address, a: values[0], access },
    }
}

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
