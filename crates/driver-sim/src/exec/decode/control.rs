//! Branches, barriers, and instructions between the lanes of a warp.

use retrograph_ptx::ast::{Instruction, Modifier as M, Opcode as O, Operand, Type};

use super::{Decoder, Op, Reason, Width, only, operands};
use crate::exec::program::{ShuffleMode, Undefined};

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
            O::Trap => self.emit(Op::Trap, &[], &[], 0),
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
}
