//! Decoding of branches, barriers, and instructions between the lanes of a warp.

use retrograph_ptx::ast::{Instruction, Modifier as M, Opcode as O, Operand, Type};

use super::{Decoder, Reason, Width, only, operands};
use crate::cross::ReduceOperation;
use crate::operation::{Comparison, Control, Predicate, ShuffleMode, Tensor, WarpWide};
use crate::program::CLUSTER_BARRIER;

impl Decoder<'_> {
    /// Branches, barriers, fences and exits.
    pub(super) fn control(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        match instruction.opcode {
            O::Bra => {
                only(instruction, &[M::Uni])?;
                let [Operand::Label(label)] = operands::<1>(instruction)? else {
                    return Err("a branch to something other than a label".to_owned());
                };
                let label = self.frame.label(label.0);
                self.emit(Control::Branch { target: label });
            }
            O::Brx => return self.branch_by_table(instruction),
            O::Ret | O::Exit => {
                only(instruction, &[M::Uni])?;
                match self.frame.end() {
                    Some(end) if instruction.opcode == O::Ret => {
                        self.emit(Control::Branch { target: end });
                    }
                    None if instruction.opcode == O::Ret && self.region != 0 => {
                        self.emit(Control::Return {});
                    }
                    _ => self.emit(Control::Exit {}),
                }
            }
            // Without a debugger a breakpoint stops the kernel, too.
            O::Trap | O::Brkpt => self.emit(Control::Trap {}),
            O::Fence if instruction.modifiers.has(M::MbarrierInit) => self.fence_mbarrier_init(),
            // A proxy fence of only global memory does not cover shared memory.
            O::Fence
                if instruction.modifiers.has(M::ProxyAsync)
                    && !instruction.modifiers.has(M::Global) =>
            {
                self.emit(Tensor::FenceAsync);
            }
            // Memory is coherent, and threads of a block take turns, so fences need no operation.
            O::Membar | O::Fence => {}
            _ => return self.barrier(instruction),
        }
        Ok(())
    }

    /// `brx.idx`: for each label, a comparison with its table index and a branch.
    fn branch_by_table(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        only(instruction, &[M::Idx, M::Uni])?;
        let [index, Operand::Targets(table)] = operands::<2>(instruction)? else {
            return Err("a branch by something other than a table of labels".to_owned());
        };
        let index = self.read(index, Type::U32)?;
        let table = self.frame.entry.tables.get(*table as usize);
        let table = table.ok_or_else(|| "an unknown table of labels".to_owned())?;
        let guard = self.guard;
        for (position, label) in table.labels.iter().enumerate() {
            let position = self.constant(position as u64, Width::Word);
            let here = self.temporary(Width::Predicate);
            let test = Comparison::Equal32;
            let (d, a, b) = (here, index, position);
            self.unguarded(Predicate::Compare { d, a, b, test, inverted: false });
            if let Some((guard, negated)) = guard {
                let executes = self.temporary(Width::Predicate);
                let (d, a, b) = (executes, guard, guard);
                self.unguarded(Predicate::Or { d, a, b, inverted: negated });
                let (d, a, b) = (here, here, executes);
                self.unguarded(Predicate::And { d, a, b, inverted: false });
            }
            self.guard = Some((here, false));
            let label = self.frame.label(label.0);
            self.emit(Control::Branch { target: label });
        }
        self.guard = guard;
        self.emit(Control::BranchOutOfTable {});
        Ok(())
    }

    fn barrier(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        if instruction.modifiers.has(M::Cluster) {
            return self.cluster_barrier(instruction);
        }
        if instruction.modifiers.has(M::Red) {
            return self.reducing_barrier(instruction);
        }
        only(instruction, &[M::Sync, M::Arrive, M::Warp, M::Cta, M::Aligned])?;
        let list = &instruction.operands[..];
        if instruction.modifiers.has(M::Warp) {
            let [members] = operands::<1>(instruction)?;
            let members = self.read(members, Type::B32)?;
            self.emit(WarpWide::Barrier { members });
            return Ok(());
        }
        let (id, count) = match list {
            [id] => (self.read(id, Type::U32)?, self.constant(0, Width::Word)),
            [id, count] => (self.read(id, Type::U32)?, self.read(count, Type::U32)?),
            _ => return Err(format!("{} operands", list.len())),
        };
        let arrives = instruction.modifiers.has(M::Arrive);
        self.emit(Control::Barrier { id, count, arrives });
        Ok(())
    }

    /// `shfl`, `vote` and `activemask`.
    pub(super) fn warp_wide(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        match instruction.opcode {
            O::Shfl => self.shuffle(instruction),
            O::Vote => self.vote(instruction),
            O::Match => self.match_lanes(instruction),
            O::Redux => self.reduce_lanes(instruction),
            O::Elect => self.elect(instruction),
            _ => {
                only(instruction, &[])?;
                let [to] = operands::<1>(instruction)?;
                let to = self.write(to, Type::B32)?;
                self.emit(WarpWide::ActiveMask { d: to });
                Ok(())
            }
        }
    }

    fn shuffle(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        only(instruction, &[M::Sync, M::Up, M::Down, M::Bfly, M::Idx])?;
        let mode = match instruction.modifiers.first_of(&[M::Up, M::Down, M::Bfly, M::Idx]) {
            Some(M::Up) => ShuffleMode::Up,
            Some(M::Down) => ShuffleMode::Down,
            Some(M::Bfly) => ShuffleMode::Butterfly,
            Some(M::Idx) => ShuffleMode::Index,
            _ => return Err("a shuffle without a mode".to_owned()),
        };
        let [to, a, b, c, members] = operands::<5>(instruction)?;
        let (to, valid) = self.write_pair(to, Type::B32)?;
        let a = self.read(a, Type::B32)?;
        let (b, c) = (self.read(b, Type::B32)?, self.read(c, Type::B32)?);
        let members = self.read(members, Type::B32)?;
        // The predicate first goes to a temporary, because the value may overwrite an operand.
        let in_range = valid.map(|valid| (valid, self.temporary(Width::Predicate)));
        if let Some((_, temporary)) = in_range {
            self.emit(WarpWide::ShuffleInRange { d: temporary, b, c, members, mode });
        }
        self.emit(WarpWide::Shuffle { d: to, a, b, c, members, mode });
        if let Some((valid, temporary)) = in_range {
            self.copy(valid, temporary);
        }
        Ok(())
    }

    fn vote(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        only(instruction, &[M::Sync, M::All, M::Any, M::Uni, M::Ballot])?;
        let mode = instruction.modifiers.first_of(&[M::All, M::Any, M::Uni, M::Ballot]);
        let ty = if mode == Some(M::Ballot) { Type::B32 } else { Type::Pred };
        let [to, predicate, members] = operands::<3>(instruction)?;
        let d = self.write(to, ty)?;
        let predicate = self.read(predicate, Type::Pred)?;
        let members = self.read(members, Type::B32)?;
        self.emit(match mode {
            Some(M::All) => WarpWide::All { d, predicate, members },
            Some(M::Any) => WarpWide::Any { d, predicate, members },
            Some(M::Uni) => WarpWide::Uniform { d, predicate, members },
            Some(M::Ballot) => WarpWide::Ballot { d, predicate, members },
            _ => return Err("a vote without a mode".to_owned()),
        });
        Ok(())
    }

    fn match_lanes(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        only(instruction, &[M::Sync, M::Any, M::All])?;
        let ty = super::type_of(instruction)?;
        let [to, value, members] = operands::<3>(instruction)?;
        let (to, flag) = self.write_pair(to, Type::B32)?;
        let (value, members) = (self.read(value, ty)?, self.read(members, Type::B32)?);
        let wide = ty.bits() == 64;
        if instruction.modifiers.has(M::Any) {
            self.emit(WarpWide::MatchAny { d: to, value, members, wide });
            return Ok(());
        }
        let flag = flag.unwrap_or_else(|| self.temporary(Width::Predicate));
        self.emit(WarpWide::MatchAll { d: to, predicate: flag, value, members, wide });
        Ok(())
    }

    fn reduce_lanes(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        const OPERATIONS: &[M] = &[M::Add, M::Min, M::Max, M::And, M::Or, M::Xor];
        only(instruction, &[OPERATIONS, &[M::Sync]].concat())?;
        let ty = super::type_of(instruction)?;
        let operation = instruction.modifiers.first_of(OPERATIONS);
        let operation = match (operation, ty.is_signed()) {
            (Some(M::Add), _) => ReduceOperation::Add,
            (Some(M::Min), false) => ReduceOperation::MinU32,
            (Some(M::Min), true) => ReduceOperation::MinS32,
            (Some(M::Max), false) => ReduceOperation::MaxU32,
            (Some(M::Max), true) => ReduceOperation::MaxS32,
            (Some(M::And), _) => ReduceOperation::And,
            (Some(M::Or), _) => ReduceOperation::Or,
            (Some(_), _) => ReduceOperation::Xor,
            (None, _) => return Err("a reduction without an operation".to_owned()),
        };
        let [to, value, members] = operands::<3>(instruction)?;
        let to = self.write(to, ty)?;
        let (value, members) = (self.read(value, ty)?, self.read(members, Type::B32)?);
        self.emit(WarpWide::Reduce { d: to, value, members, operation });
        Ok(())
    }

    /// `elect.sync`: the first member.
    fn elect(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        only(instruction, &[M::Sync])?;
        let [to, members] = operands::<2>(instruction)?;
        let (to, flag) = self.write_pair(to, Type::B32)?;
        let members = self.read(members, Type::B32)?;
        let flag = flag.unwrap_or_else(|| self.temporary(Width::Predicate));
        self.emit(WarpWide::Elect { d: to, predicate: flag, members });
        Ok(())
    }

    /// `bar.red`: the warps write their contributions, wait, and read the result.
    fn reducing_barrier(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        only(instruction, &[M::Red, M::Popc, M::And, M::Or, M::Cta, M::Aligned])?;
        let ty = super::type_of(instruction)?;
        let (to, id, count, predicate) = match &instruction.operands[..] {
            [to, id, predicate] => (to, id, None, predicate),
            [to, id, count, predicate] => (to, id, Some(count), predicate),
            list => return Err(format!("{} operands", list.len())),
        };
        let to = self.write(to, ty)?;
        let id = self.read(id, Type::U32)?;
        let count = match count {
            Some(count) => self.read(count, Type::U32)?,
            None => self.constant(0, Width::Word),
        };
        let predicate = self.read(predicate, Type::Pred)?;
        self.emit(Control::Contribute { id, predicate });
        self.emit(Control::Barrier { id, count, arrives: false });
        self.emit(match instruction.modifiers.first_of(&[M::Popc, M::And, M::Or]) {
            Some(M::Popc) => Control::ContributionCount { d: to, id },
            Some(M::And) => Control::ContributionAll { d: to, id },
            _ => Control::ContributionAny { d: to, id },
        });
        Ok(())
    }

    /// `barrier.cluster`.
    fn cluster_barrier(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        let order = [M::Release, M::Relaxed, M::Acquire];
        let words = [M::Cluster, M::Arrive, M::Wait, M::Aligned];
        only(instruction, &[&order[..], &words].concat())?;
        let id = self.constant(u64::from(CLUSTER_BARRIER), Width::Word);
        let count = self.constant(0, Width::Word);
        let arrives = !instruction.modifiers.has(M::Wait);
        self.emit(Control::Barrier { id, count, arrives });
        Ok(())
    }
}
