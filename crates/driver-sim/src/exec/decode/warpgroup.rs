//! Products of warpgroups.

use retrograph_ptx::ast::{Immediate, Instruction, Modifier as M, Operand, Type};

use super::{Decoder, Op, Reason, only, operands};
use crate::exec::warpgroup::{Product, Warpgroup};

const COLUMNS: &[(M, usize)] = &[(M::M64n64k16, 64), (M::M64n128k16, 128), (M::M64n256k16, 256)];
const DOES: &[M] = &[M::Fence, M::CommitGroup, M::WaitGroup, M::MmaAsync];

impl Decoder<'_> {
    /// `wgmma`.
    pub(super) fn warpgroup(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        let shapes: Vec<M> = COLUMNS.iter().map(|(word, _)| *word).collect();
        only(instruction, &[&[M::Sync, M::Aligned], DOES, &shapes].concat())?;
        match instruction.modifiers.first_of(DOES) {
            Some(M::Fence) => self.emit_warpgroup(Warpgroup::Fence),
            Some(M::CommitGroup) => self.emit_warpgroup(Warpgroup::Commit),
            Some(M::WaitGroup) => {
                let open = constant(&operands::<1>(instruction)?[0])?;
                self.emit_warpgroup(Warpgroup::Wait(open as u32));
            }
            _ => return self.warpgroup_product(instruction),
        }
        Ok(())
    }

    fn emit_warpgroup(&mut self, what: Warpgroup) {
        self.warpgroups.push(what);
        self.emit(Op::Warpgroup, &[], &[], self.warpgroups.len() as u32 - 1);
    }

    fn warpgroup_product(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        let [sums, a, b, adds, signs @ .., left, right] = operands::<8>(instruction)?;
        let shape = COLUMNS.iter().find(|(word, _)| instruction.modifiers.has(*word));
        let (_, columns) = *shape.ok_or_else(|| "a product without a shape".to_owned())?;
        let Operand::Vector(sums) = sums else {
            return Err("sums that are no list".to_owned());
        };
        let [mut reads, mut writes] = [Vec::new(), Vec::new()];
        for sum in sums {
            reads.push(self.read(sum, Type::F32)?);
            writes.push(self.write(sum, Type::F32)?);
        }
        reads.extend([self.read(a, Type::B64)?, self.read(b, Type::B64)?]);
        reads.push(self.read(adds, Type::Pred)?);
        let negated = [constant(&signs[0])? < 0, constant(&signs[1])? < 0];
        let transposed = [constant(left)? != 0, constant(right)? != 0];
        // The slots are known when the file is laid out.
        let product = Product { columns, negated, transposed, slots: Vec::new() };
        self.warpgroups.push(Warpgroup::Start(product));
        self.emit(Op::Warpgroup, &writes, &reads, self.warpgroups.len() as u32 - 1);
        Ok(())
    }

    /// Makes every wait read the sums of all products, since it brings them back: until then no
    /// other register may have their place.
    pub(super) fn keep_sums(&mut self) {
        let is_start = |index: u32| matches!(self.warpgroups[index as usize], Warpgroup::Start(_));
        let is_wait = |index: u32| matches!(self.warpgroups[index as usize], Warpgroup::Wait(_));
        let products = self.code.iter().filter(|m| m.op == Op::Warpgroup && is_start(m.extra));
        let mut sums: Vec<_> = products.flat_map(|micro| micro.writes.iter().copied()).collect();
        sums.sort_unstable_by_key(|slot| slot.0);
        sums.dedup();
        let waits = self.code.iter_mut().filter(|m| m.op == Op::Warpgroup && is_wait(m.extra));
        waits.for_each(|micro| micro.reads.clone_from(&sums));
    }
}

fn constant(operand: &Operand) -> Result<i64, Reason> {
    match operand {
        Operand::Immediate(Immediate::Integer(value)) => Ok(*value),
        _ => Err("a sign, order or count that is no constant".to_owned()),
    }
}
