//! Decoding of mbarriers, bulk copies, `setmaxnreg`, `mapa` and `getctarank`.

use retrograph_ptx::ast::{Immediate, Instruction, Modifier as M, Operand, StateSpace, Type};

use super::{Decoder, Reason, VirtualRegister, Width, only, operands};
use crate::bulk::{BulkInstruction, Input, Kind};
use crate::operation::{Bulk, Operation};
use crate::registers::Offset;

use super::Micro;

/// An operand whose register has no offset yet.
type Placed = (VirtualRegister, Input);

const DOES: &[M] = &[
    M::Init,
    M::Inval,
    M::Arrive,
    M::ArriveExpectTx,
    M::ArriveNoComplete,
    M::ExpectTx,
    M::CompleteTx,
    M::TestWait,
    M::TestWaitParity,
    M::TryWait,
    M::TryWaitParity,
];
/// Scopes and orders, which have no effect here: memory is coherent.
const HINTS: &[M] = &[
    M::Release,
    M::Acquire,
    M::Relaxed,
    M::Cta,
    M::Cluster,
    M::Shared,
    M::SharedCta,
    M::SharedCluster,
];

impl Decoder<'_> {
    /// `mbarrier`.
    pub(super) fn mbarrier(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        only(instruction, &[DOES, HINTS].concat())?;
        let list = &instruction.operands[..];
        let does = instruction.modifiers.first_of(DOES);
        let address = |list: &[Operand], index: usize| {
            list.get(index).cloned().ok_or_else(|| "an instruction without an address".to_owned())
        };
        match does {
            Some(M::Init) => {
                let [at, count] = operands::<2>(instruction)?;
                let inputs = [self.at(at, instruction)?, self.value(count, Type::U32)?];
                self.emit_bulk(Kind::Init, &inputs, None);
            }
            Some(M::Inval) => {
                let inputs = [self.at(&address(list, 0)?, instruction)?];
                self.emit_bulk(Kind::Invalidate, &inputs, None);
            }
            Some(M::ExpectTx | M::CompleteTx) => {
                let [at, bytes] = operands::<2>(instruction)?;
                let inputs = [self.at(at, instruction)?, self.value(bytes, Type::U32)?];
                let expected = does == Some(M::ExpectTx);
                self.emit_bulk(Kind::CountBytes { expected }, &inputs, None);
            }
            Some(M::Arrive | M::ArriveExpectTx | M::ArriveNoComplete) => {
                let at = self.at(&address(list, 1)?, instruction)?;
                let constant = |value| Operand::Immediate(Immediate::Integer(value));
                let third = list.get(2).cloned().unwrap_or(constant(1));
                let (count, bytes) = match does {
                    Some(M::ArriveExpectTx) => (constant(1), third),
                    _ => (third, constant(0)),
                };
                let inputs = [at, self.value(&count, Type::U32)?, self.value(&bytes, Type::U32)?];
                let output = self.output(&list[0], Type::B64)?;
                let completes = does != Some(M::ArriveNoComplete);
                let expects = does == Some(M::ArriveExpectTx);
                self.emit_bulk(Kind::Arrive { completes, expects }, &inputs, output);
            }
            // A fourth operand is a time limit.
            _ => {
                let parity = matches!(does, Some(M::TestWaitParity | M::TryWaitParity));
                let at = self.at(&address(list, 1)?, instruction)?;
                let ty = if parity { Type::U32 } else { Type::B64 };
                let inputs = [at, self.value(&address(list, 2)?, ty)?];
                let output = self.output(&list[0], Type::Pred)?;
                self.emit_bulk(Kind::Wait { parity }, &inputs, output);
            }
        }
        Ok(())
    }

    /// `fence.mbarrier_init`.
    pub(super) fn fence_mbarrier_init(&mut self) {
        self.emit_bulk(Kind::Fence, &[], None);
    }

    /// `cp.async.bulk`.
    pub(super) fn bulk_copy(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        let has = |modifier| instruction.modifiers.has(modifier);
        if has(M::BulkCommitGroup) {
            self.emit_bulk(Kind::Commit, &[], None);
            return Ok(());
        }
        if has(M::BulkWaitGroup) {
            let [Operand::Immediate(Immediate::Integer(open))] = operands::<1>(instruction)? else {
                return Err("a count that is no constant".to_owned());
            };
            let kind = Kind::WaitGroup { open: *open as u32, read: has(M::Read) };
            self.emit_bulk(kind, &[], None);
            return Ok(());
        }
        if has(M::Min) || has(M::Max) {
            return Err("the least or greatest of what is there".to_owned());
        }
        let multicast = has(M::MulticastCluster);
        let shared =
            |this: &mut Self, operand: &Operand| this.place_in(operand, StateSpace::Shared);
        let global =
            |this: &mut Self, operand: &Operand| this.place_in(operand, StateSpace::Global);
        match &instruction.operands[..] {
            [to, Operand::TensorCoordinates(map, first), mbarrier, rest @ ..]
                if has(M::SharedClusterGlobal) =>
            {
                let (to, mbarrier) = (shared(self, to)?, shared(self, mbarrier)?);
                let map = self.value(&Operand::Register(*map), Type::U64)?;
                let mut inputs = vec![to, map, mbarrier];
                for one in first {
                    inputs.push(self.value(one, Type::S32)?);
                }
                inputs.extend(self.blocks(rest, multicast)?);
                self.emit_bulk(Kind::LoadBox { multicast }, &inputs, None);
            }
            [Operand::TensorCoordinates(map, first), from, ..] => {
                let adds = has(M::ReduceAsyncBulkTensor);
                self.communicates |= adds;
                let map = self.value(&Operand::Register(*map), Type::U64)?;
                let mut inputs = vec![shared(self, from)?, map];
                for one in first {
                    inputs.push(self.value(one, Type::S32)?);
                }
                self.emit_bulk(Kind::StoreBox { adds }, &inputs, None);
            }
            [to, from, bytes, mbarrier, rest @ ..] if has(M::SharedClusterGlobal) => {
                let mut inputs = vec![
                    shared(self, to)?,
                    global(self, from)?,
                    self.value(bytes, Type::U32)?,
                    shared(self, mbarrier)?,
                ];
                inputs.extend(self.blocks(rest, multicast)?);
                self.emit_bulk(Kind::LoadRun { multicast }, &inputs, None);
            }
            [to, from, bytes, ..] => {
                let inputs =
                    [global(self, to)?, shared(self, from)?, self.value(bytes, Type::U32)?];
                let adds =
                    has(M::ReduceAsyncBulk).then(|| super::type_of(instruction)).transpose()?;
                self.communicates |= adds.is_some();
                self.emit_bulk(Kind::StoreRun { adds }, &inputs, None);
            }
            list => return Err(format!("{} operands", list.len())),
        }
        Ok(())
    }

    /// `setmaxnreg`.
    pub(super) fn set_registers(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        let limits = self.frame.entry.limits;
        let known = [limits.max_threads.is_some(), limits.required_threads.is_some()];
        if !known.contains(&true) && limits.max_registers.is_none() {
            return Err("the registers of a kernel without .maxntid, .reqntid or .maxnreg, which \
                 ptxas leaves as they are"
                .to_owned());
        }
        let [Operand::Immediate(Immediate::Integer(count))] = operands::<1>(instruction)? else {
            return Err("a count that is no constant".to_owned());
        };
        let increases = instruction.modifiers.has(M::IncSync);
        self.emit_bulk(Kind::Registers { count: *count as u32, increases }, &[], None);
        Ok(())
    }

    /// `mapa`.
    pub(super) fn map_address(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        let ty = super::type_of(instruction)?;
        let [to, from, rank] = operands::<3>(instruction)?;
        let inputs = [self.value(from, ty)?, self.value(rank, Type::U32)?];
        let output = self.output(to, ty)?;
        self.emit_bulk(Kind::MapAddress, &inputs, output);
        Ok(())
    }

    /// `getctarank`.
    pub(super) fn rank_of_address(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        let ty = super::type_of(instruction)?;
        let [to, address] = operands::<2>(instruction)?;
        let (register, input) = self.value(address, ty)?;
        let inputs = [(register, Input { space: instruction.space(), ..input })];
        let output = self.output(to, Type::U32)?;
        self.emit_bulk(Kind::RankOfAddress, &inputs, output);
        Ok(())
    }

    /// The block mask of a multicast copy, its first further operand.
    fn blocks(&mut self, rest: &[Operand], multicast: bool) -> Result<Option<Placed>, Reason> {
        match rest {
            [mask, ..] if multicast => Ok(Some(self.value(mask, Type::U16)?)),
            [] if multicast => Err("a copy to several blocks without their mask".to_owned()),
            _ => Ok(None),
        }
    }

    /// The address of an mbarrier.
    fn at(&mut self, operand: &Operand, instruction: &Instruction) -> Result<Placed, Reason> {
        let (register, access) = self.address(operand, instruction.space())?;
        Ok(self.placed(register, access.offset, access.space))
    }

    fn place_in(&mut self, operand: &Operand, space: StateSpace) -> Result<Placed, Reason> {
        let (register, access) = self.address(operand, Some(space))?;
        Ok(self.placed(register, access.offset, access.space))
    }

    fn value(&mut self, operand: &Operand, ty: Type) -> Result<Placed, Reason> {
        let register = self.read(operand, ty)?;
        Ok(self.placed(register, 0, None))
    }

    fn placed(&self, register: VirtualRegister, offset: i64, space: Option<StateSpace>) -> Placed {
        let width = self.width(register);
        // Register layout sets the offset.
        (register, Input { register: Offset::default(), width, offset, space })
    }

    fn output(
        &mut self,
        operand: &Operand,
        ty: Type,
    ) -> Result<Option<(VirtualRegister, Width)>, Reason> {
        if *operand == Operand::Sink {
            return Ok(None);
        }
        let register = self.write(operand, ty)?;
        Ok(Some((register, self.width(register))))
    }

    fn emit_bulk(
        &mut self,
        kind: Kind,
        inputs: &[Placed],
        output: Option<(VirtualRegister, Width)>,
    ) {
        let reads = inputs.iter().map(|(register, _)| *register).collect();
        let writes = output.iter().map(|(register, _)| *register).collect();
        let inputs = inputs.iter().map(|(_, input)| *input).collect();
        let output = output.map(|(_, width)| (Offset::default(), width));
        self.bulk.push(BulkInstruction { kind, inputs, output });
        let instruction = self.bulk.len() as u32 - 1;
        let operation = Operation::Bulk(Bulk { instruction });
        self.code.push(Micro { operation, guard: self.guard, writes, reads, site: self.site });
    }

    /// Sets the register offsets of the operands of bulk instructions.
    pub(super) fn assign_bulk(&mut self, offset_of: &dyn Fn(VirtualRegister) -> Offset) {
        for micro in &self.code {
            let Operation::Bulk(Bulk { instruction }) = micro.operation else { continue };
            let instruction = &mut self.bulk[instruction as usize];
            for (input, register) in instruction.inputs.iter_mut().zip(&micro.reads) {
                input.register = offset_of(*register);
            }
            if let (Some(output), Some(register)) = (&mut instruction.output, micro.writes.first())
            {
                output.0 = offset_of(*register);
            }
        }
    }
}
