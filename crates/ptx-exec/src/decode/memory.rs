//! Decoding of loads and stores.

mod operation;

use retrograph_ptx::ast::{
    Address, AddressBase, Instruction, Modifier as M, Opcode as O, Operand, SpecialRegister,
    StateSpace, Symbol, Type,
};

use self::operation::{any_load, any_store, word_load, word_store};
use super::{Decoder, Reason, VirtualRegister, Width, only, operands, type_of};
use crate::lane_function::LaneFunction;
use crate::operation::Memory;
use crate::program::Access;

/// Modifiers without effect, because the simulator's memory is always coherent.
pub(super) const HINTS: &[M] = &[
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
/// Modifiers by which threads communicate.
const STRONG: &[M] = &[M::Volatile, M::Relaxed, M::Acquire, M::Release, M::AcqRel];
/// State spaces.
pub(super) const SPACES: &[M] = &[
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

/// Whether an access can reach the shared memory of other blocks of the cluster.
pub(super) fn reaches_cluster(instruction: &Instruction) -> bool {
    instruction.space().is_none() || instruction.modifiers.has(M::SharedCluster)
}

impl Decoder<'_> {
    /// `ld`, `ldu` and `st`.
    pub(super) fn access(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        let mut allowed = vec![M::V2, M::V4, M::V8];
        allowed.extend(HINTS.iter().chain(SPACES));
        only(instruction, &allowed)?;
        let ty = type_of(instruction)?;
        let load = instruction.opcode != O::St;
        // A third operand is a cache policy.
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
        if load && self.load_parameter(&registers, memory, ty, space)? {
            return Ok(());
        }
        if !load && space == Some(StateSpace::Const) {
            return Err("a store to memory that is only read".to_owned());
        }
        let strong = instruction.modifiers.first_of(STRONG).is_some();
        if strong && space != Some(StateSpace::Shared) {
            self.communicates = true;
        }
        let (address, access) = self.address(memory, space)?;
        let reaches_cluster = reaches_cluster(instruction);
        let signed = ty.is_signed();
        let access = Access { bytes: ty.size(), signed, strong, reaches_cluster, ..access };
        // Eight values are two accesses of four. The first one checks the whole alignment.
        let bytes = registers.len() as u32 * ty.size();
        for (part, registers) in registers.chunks(4).enumerate() {
            let offset = access.offset + part as i64 * 4 * i64::from(ty.size());
            let align = if part == 0 { bytes } else { 0 };
            self.move_values(registers, address, Access { offset, align, ..access }, load);
        }
        Ok(())
    }

    /// Emits a load or store of up to four values.
    fn move_values(
        &mut self,
        registers: &[VirtualRegister],
        address: VirtualRegister,
        access: Access,
        load: bool,
    ) {
        let value = self.width(registers[0]);
        let access = Access { count: registers.len() as u32, value, ..access };
        let words = if load { word_load } else { word_store };
        let lanes = if load { any_load } else { any_store };
        self.accesses.push(access);
        let index = self.accesses.len() as u32 - 1;
        let operation = words(&access, registers, address, index);
        self.emit(operation.unwrap_or_else(|| lanes(registers, address, index)));
    }

    /// `isspacep`
    pub(super) fn space_test(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        only(instruction, SPACES)?;
        let [to, address] = operands::<2>(instruction)?;
        let to = self.write(to, Type::Pred)?;
        let address = self.read(address, Type::U64)?;
        let space = instruction.space().ok_or_else(|| "a test without a space".to_owned())?;
        if space == StateSpace::Shared && !instruction.modifiers.has(M::SharedCluster) {
            let rank = self.read(&Operand::Special(SpecialRegister::ClusterCtarank), Type::U32)?;
            self.emit_lanes(LaneFunction::IsInBlock, to, &[address, rank]);
        } else {
            self.emit_lanes(LaneFunction::IsInSpace(space), to, &[address]);
        }
        Ok(())
    }

    fn values(
        &mut self,
        list: &[Operand],
        ty: Type,
        load: bool,
    ) -> Result<Vec<VirtualRegister>, Reason> {
        // Discarded elements have the width of the others.
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

    /// Emits the load of a whole parameter. Returns false if the access is not one.
    fn load_parameter(
        &mut self,
        registers: &[VirtualRegister],
        memory: &Operand,
        ty: Type,
        space: Option<StateSpace>,
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
        let variable = self.address_of(symbol);
        let (_, start) = variable.ok_or_else(|| "a parameter that is not declared".to_owned())?;
        let offset = start.wrapping_add(address.offset as u64);
        let inside = offset.checked_add(u64::from(ty.size()));
        if self.frame.code != 0 {
            return Ok(false);
        }
        if space != Some(StateSpace::Param)
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

    /// Returns the register of the address, and the part of the access that the address determines.
    pub(super) fn address(
        &mut self,
        operand: &Operand,
        space: Option<StateSpace>,
    ) -> Result<(VirtualRegister, Access), Reason> {
        let Operand::Address(Address { base, offset }) = operand else {
            return Err("an operand that is not an address".to_owned());
        };
        let mut space = space;
        let (register, offset) = match *base {
            AddressBase::Register(register) => {
                // Parameters of functions are in local memory.
                if space == Some(StateSpace::Param) && self.frame.code != 0 {
                    space = Some(StateSpace::Local);
                }
                (self.register(register)?, *offset)
            }
            AddressBase::Symbol(symbol) => {
                let (home, at) = self.symbol_address(symbol, *offset, Width::Double)?;
                if space == Some(StateSpace::Param) && home == StateSpace::Local {
                    space = Some(home);
                }
                if space != Some(home) {
                    return Err(format!("a variable in .{home} as another space"));
                }
                (at, 0)
            }
            AddressBase::Absolute => (self.constant(*offset as u64, Width::Double), 0),
        };
        let address = self.width(register);
        if address == Width::Predicate {
            return Err("a predicate as an address".to_owned());
        }
        let value = Width::Word;
        Ok((register, Access { space, value, address, offset, ..Access::generic(0) }))
    }
}
