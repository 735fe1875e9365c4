//! Loads, stores and atomics.

use retrograph_ptx::ast::{
    Address, AddressBase, Instruction, Modifier as M, Opcode as O, Operand, Space, Symbol, Type,
};

use super::arithmetic::for_type;
use super::half::{is_brain, is_half, is_packed};
use super::{Decoder, Op, Reason, Slot, Width, only, operands, type_of};
use crate::exec::access::locate;
use crate::exec::half::{self, HalfMode, HalfOperation};
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
        let slots = self.values(values, ty, load)?;
        let space = instruction.space();
        if load && self.load_parameter(&slots, memory, (ty, space))? {
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
        for (part, slots) in slots.chunks(4).enumerate() {
            let offset = access.offset + part as i64 * 4 * i64::from(ty.size());
            self.move_values(slots, address, (Access { offset, ..access }, load));
        }
        Ok(())
    }

    /// Emits a load or store of up to four values.
    fn move_values(&mut self, slots: &[Slot], address: Slot, (access, load): (Access, bool)) {
        let value = self.width(slots[0]);
        let access = Access { count: slots.len() as u32, value, ..access };
        self.accesses.push(access);
        let index = self.accesses.len() as u32 - 1;
        let op = fast(access, load).unwrap_or(if load { Op::Load } else { Op::Store });
        if load {
            self.emit(op, slots, &[address], index);
        } else {
            let reads: Vec<Slot> = [address].iter().chain(slots).copied().collect();
            self.emit(op, &[], &reads, index);
        }
    }

    /// `isspacep`
    pub(super) fn space_test(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        only(instruction, SPACES)?;
        let [to, address] = operands::<2>(instruction)?;
        let to = self.write(to, Type::Pred)?;
        let address = self.read(address, Type::U64)?;
        let space = instruction.space().ok_or_else(|| "a test without a space".to_owned())?;
        self.emit_lanes(is_in_space, space as u64, to, &[address]);
        Ok(())
    }

    fn values(&mut self, list: &[Operand], ty: Type, load: bool) -> Result<Vec<Slot>, Reason> {
        // What is thrown away is as wide as the rest.
        let known = list.iter().find_map(|operand| match operand {
            Operand::Register(register) => self.register(*register).ok(),
            _ => None,
        });
        let mut slots = Vec::new();
        for operand in list {
            slots.push(match operand {
                Operand::Register(register) => self.register(*register)?,
                Operand::Sink => {
                    let width = known.map_or(Width::Word, |slot| self.width(slot));
                    self.temporary(width)
                }
                Operand::Immediate(immediate) => {
                    let width = known.map_or(super::width_of(ty), |slot| self.width(slot));
                    let bits = super::operand::bits_of(*immediate, ty)?;
                    self.constant(bits, width)
                }
                other if load => self.write(other, ty)?,
                other => self.read_any_width(other, ty)?,
            });
        }
        let width = slots.first().map(|&slot| self.width(slot));
        let narrow =
            width.is_none_or(|w| w == Width::Predicate || w == Width::Word && ty.bits() > 32);
        if narrow || slots.len() > 8 || slots.iter().any(|&slot| Some(self.width(slot)) != width) {
            return Err("values of this width".to_owned());
        }
        Ok(slots)
    }

    /// Emits the load of one whole parameter, and says whether this was one.
    fn load_parameter(
        &mut self,
        slots: &[Slot],
        memory: &Operand,
        (ty, space): (Type, Option<Space>),
    ) -> Result<bool, Reason> {
        let (Operand::Address(address), &[to]) = (memory, slots) else { return Ok(false) };
        let AddressBase::Symbol(symbol @ Symbol::Parameter(_)) = address.base else {
            return Ok(false);
        };
        let op = match (ty.bits(), self.width(to)) {
            (32, Width::Word) => Op::Parameter32,
            (64, Width::Double) => Op::Parameter64,
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
            || inside.is_none_or(|end| end > u64::from(self.places.parameters.1))
        {
            return Err("a load outside of the parameters".to_owned());
        }
        self.emit(op, &[to], &[], offset as u32);
        Ok(true)
    }

    /// The slot of the address, and the access as far as the address says what it is.
    pub(super) fn address(
        &mut self,
        operand: &Operand,
        space: Option<Space>,
    ) -> Result<(Slot, Access), Reason> {
        let Operand::Address(Address { base, offset }) = operand else {
            return Err("an operand that is not an address".to_owned());
        };
        let mut space = space;
        let (slot, offset) = match *base {
            AddressBase::Register(register) => {
                // What is passed to a function lies in local memory.
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
        let address = self.width(slot);
        if address == Width::Predicate {
            return Err("a predicate as an address".to_owned());
        }
        let value = Width::Word;
        Ok((
            slot,
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
            let index = self.atomics.len() as u32 - 1;
            self.emit(Op::Atomic, &[to], &[address, b, c], index);
        }
        Ok(())
    }
}

/// Whether a generic address is in the space that `constant` numbers.
fn is_in_space([address, _, _]: [u64; 3], constant: u64) -> u64 {
    let (space, _) = locate(None, address);
    // Constant memory is a part of global memory here, and has no window of its own.
    u64::from(space as u64 == constant)
}

fn fast(access: Access, load: bool) -> Option<Op> {
    if access.bytes != 4 || access.value != Width::Word {
        return None;
    }
    Some(match (access.space?, access.count, load) {
        (Space::Global, 1, true) => Op::LoadGlobal1,
        (Space::Global, 2, true) => Op::LoadGlobal2,
        (Space::Global, 4, true) => Op::LoadGlobal4,
        (Space::Global, 1, false) => Op::StoreGlobal1,
        (Space::Global, 2, false) => Op::StoreGlobal2,
        (Space::Global, 4, false) => Op::StoreGlobal4,
        (Space::Shared, 1, true) => Op::LoadShared1,
        (Space::Shared, 2, true) => Op::LoadShared2,
        (Space::Shared, 4, true) => Op::LoadShared4,
        (Space::Shared, 1, false) => Op::StoreShared1,
        (Space::Shared, 2, false) => Op::StoreShared2,
        (Space::Shared, 4, false) => Op::StoreShared4,
        _ => return None,
    })
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
            let mode = HalfMode {
                brain: is_brain(ty),
                packed: is_packed(ty),
                ..HalfMode::plain(operation)
            };
            A::Function(half::execute, mode.encode())
        }
        (M::Cas, Type::B16) => A::CompareAndSwap,
        (_, _) if ty.is_float() || !matches!(ty.bits(), 32 | 64) => {
            return Err(format!("this atomic of .{ty}"));
        }
        (M::Add, _) => A::Function(for_type!(add, ty), 0),
        (M::Min, _) => A::Function(for_type!(min, ty), 0),
        (M::Max, _) => A::Function(for_type!(max, ty), 0),
        (M::And, _) => A::Function(for_type!(and, ty), 0),
        (M::Or, _) => A::Function(for_type!(or, ty), 0),
        (M::Xor, _) => A::Function(for_type!(xor, ty), 0),
        (M::Exch, _) => A::Exchange,
        (M::Cas, _) => A::CompareAndSwap,
        (M::Inc, _) => A::Increment,
        _ => A::Decrement,
    })
}
