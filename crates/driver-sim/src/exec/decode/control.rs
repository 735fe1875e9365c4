//! Branches, barriers, and instructions between the lanes of a warp.

use retrograph_ptx::ast::{Instruction, Modifier as M, Opcode as O, Operand, Type};

use super::{Decoder, Op, Reason, Width, only, operands};
use crate::exec::cross::ReduceOperation;
use crate::exec::program::{CLUSTER_BARRIER, ShuffleMode, Undefined};

impl Decoder<'_> {
    /// Branches, barriers, fences and ends.
    pub(super) fn control(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        match instruction.opcode {
            O::Bra => {
                only(instruction, &[M::Uni])?;
                let [Operand::Label(label)] = operands::<1>(instruction)? else {
                    return Err("a branch to something other than a label".to_owned());
                };
                let label = self.frame.label(label.0);
                self.emit(Op::Branch, &[], &[], label);
            }
            O::Brx => return self.branch_by_table(instruction),
            O::Ret | O::Exit => {
                only(instruction, &[M::Uni])?;
                match self.frame.end() {
                    Some(end) if instruction.opcode == O::Ret => {
                        self.emit(Op::Branch, &[], &[], end);
                    }
                    _ => self.emit(Op::Exit, &[], &[], 0),
                }
            }
            // Without a debugger a breakpoint stops the kernel, too.
            O::Trap | O::Brkpt => self.emit(Op::Trap, &[], &[], 0),
            O::Fence if instruction.modifiers.has(M::ProxyAsync) => {
                self.emit(Op::FenceAsync, &[], &[], 0);
            }
            // Memory is coherent, and threads of a block take turns, so that fences are kept.
            O::Membar | O::Fence => {}
            _ => return self.barrier(instruction),
        }
        Ok(())
    }

    /// `brx.idx`: a branch for each label, by a comparison with its place in the table.
    fn branch_by_table(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        only(instruction, &[M::Idx, M::Uni])?;
        let [index, Operand::Targets(table)] = operands::<2>(instruction)? else {
            return Err("a branch by something other than a table of labels".to_owned());
        };
        let index = self.read(index, Type::U32)?;
        let table = self.frame.entry.tables.get(*table as usize);
        let table = table.ok_or_else(|| "an unknown table of labels".to_owned())?;
        let guard = self.guard;
        for (place, label) in table.labels.iter().enumerate() {
            let place = self.constant(place as u64, Width::Word);
            let here = self.temporary(Width::Predicate);
            self.unguarded(Op::Equal32, &[here], &[index, place], 0);
            if let Some((guard, negated)) = guard {
                let executes = self.temporary(Width::Predicate);
                let invert = if negated { u32::MAX } else { 0 };
                self.unguarded(Op::PredicateOr, &[executes], &[guard, guard], invert);
                self.unguarded(Op::PredicateAnd, &[here], &[here, executes], 0);
            }
            self.guard = Some((here, false));
            let label = self.frame.label(label.0);
            self.emit(Op::Branch, &[], &[], label);
        }
        self.guard = guard;
        self.emit(Op::Undefined, &[], &[], Undefined::BranchIndex as u32);
        Ok(())
    }

    fn barrier(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        if instruction.modifiers.has(M::Cluster) {
            // Clusters have one block here, so that a barrier of one is a barrier of the block.
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
            self.emit(Op::WarpBarrier, &[], &[members], 0);
            return Ok(());
        }
        let (id, count) = match list {
            [id] => (self.read(id, Type::U32)?, self.constant(0, Width::Word)),
            [id, count] => (self.read(id, Type::U32)?, self.read(count, Type::U32)?),
            _ => return Err(format!("{} operands", list.len())),
        };
        let arrive = instruction.modifiers.has(M::Arrive);
        self.emit(Op::Barrier, &[], &[id, count], u32::from(arrive));
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
                self.emit(Op::ActiveMask, &[to], &[], 0);
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
        // First into a temporary, because the value may be written over an operand.
        let in_range = valid.map(|valid| (valid, self.temporary(Width::Predicate)));
        if let Some((_, temporary)) = in_range {
            self.emit(Op::ShuffleInRange, &[temporary], &[b, c, members], mode as u32);
        }
        self.emit(Op::Shuffle, &[to], &[a, b, c, members], mode as u32);
        if let Some((valid, temporary)) = in_range {
            self.copy(valid, temporary);
        }
        Ok(())
    }

    fn vote(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        only(instruction, &[M::Sync, M::All, M::Any, M::Uni, M::Ballot])?;
        let (op, ty) = match instruction.modifiers.first_of(&[M::All, M::Any, M::Uni, M::Ballot]) {
            Some(M::All) => (Op::VoteAll, Type::Pred),
            Some(M::Any) => (Op::VoteAny, Type::Pred),
            Some(M::Uni) => (Op::VoteUniform, Type::Pred),
            Some(M::Ballot) => (Op::VoteBallot, Type::B32),
            _ => return Err("a vote without a mode".to_owned()),
        };
        let [to, predicate, members] = operands::<3>(instruction)?;
        let to = self.write(to, ty)?;
        let reads = [self.read(predicate, Type::Pred)?, self.read(members, Type::B32)?];
        self.emit(op, &[to], &reads, 0);
        Ok(())
    }

    fn match_lanes(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        only(instruction, &[M::Sync, M::Any, M::All])?;
        let ty = super::type_of(instruction)?;
        let [to, value, members] = operands::<3>(instruction)?;
        let (to, flag) = self.write_pair(to, Type::B32)?;
        let (value, members) = (self.read(value, ty)?, self.read(members, Type::B32)?);
        let wide = u32::from(ty.bits() == 64);
        if instruction.modifiers.has(M::Any) {
            self.emit(Op::MatchAny, &[to], &[value, members], wide);
            return Ok(());
        }
        let flag = flag.unwrap_or_else(|| self.temporary(Width::Predicate));
        self.emit(Op::MatchAll, &[to, flag], &[value, members], wide);
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
        let reads = [self.read(value, ty)?, self.read(members, Type::B32)?];
        self.emit(Op::Reduce, &[to], &reads, operation as u32);
        Ok(())
    }

    /// `elect.sync`: the first of the lanes that are named.
    fn elect(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        only(instruction, &[M::Sync])?;
        let [to, members] = operands::<2>(instruction)?;
        let (to, flag) = self.write_pair(to, Type::B32)?;
        let members = self.read(members, Type::B32)?;
        let flag = flag.unwrap_or_else(|| self.temporary(Width::Predicate));
        self.emit(Op::Elect, &[to, flag], &[members], 0);
        Ok(())
    }

    /// `bar.red`: the warps write what they contribute, wait, and read what all did.
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
        self.emit(Op::Contribute, &[], &[id, predicate], 0);
        self.emit(Op::Barrier, &[], &[id, count], 2);
        let op = match instruction.modifiers.first_of(&[M::Popc, M::And, M::Or]) {
            Some(M::Popc) => Op::ContributionCount,
            Some(M::And) => Op::ContributionAll,
            _ => Op::ContributionAny,
        };
        self.emit(op, &[to], &[id], 0);
        Ok(())
    }

    /// `barrier.cluster`: arriving does nothing, and waiting is a barrier of the block.
    fn cluster_barrier(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        let order = [M::Release, M::Relaxed, M::Acquire];
        let words = [M::Cluster, M::Arrive, M::Wait, M::Aligned];
        only(instruction, &[&order[..], &words].concat())?;
        if instruction.modifiers.has(M::Wait) {
            let id = self.constant(u64::from(CLUSTER_BARRIER), Width::Word);
            let all = self.constant(0, Width::Word);
            self.emit(Op::Barrier, &[], &[id, all], 0);
        }
        Ok(())
    }
}
