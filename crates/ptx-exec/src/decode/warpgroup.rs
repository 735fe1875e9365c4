//! Decoding of `wgmma`.

use retrograph_ptx::ast::{Immediate, Instruction, Modifier as M, Operand, Type};

use super::{Decoder, Micro, Reason, VirtualRegister, only, operands};
use crate::operation::{Operation, Tensor};
use crate::warpgroup::{Product, Warpgroup};

const COLUMNS: &[(M, usize)] = &[
    (M::M64n32k8, 32),
    (M::M64n64k8, 64),
    (M::M64n32k16, 32),
    (M::M64n64k16, 64),
    (M::M64n96k16, 96),
    (M::M64n128k16, 128),
    (M::M64n192k16, 192),
    (M::M64n224k16, 224),
    (M::M64n256k16, 256),
];
const DOES: &[M] = &[M::Fence, M::CommitGroup, M::WaitGroup, M::MmaAsync];

impl Decoder<'_> {
    /// `wgmma`.
    pub(super) fn warpgroup(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        let shapes: Vec<M> = COLUMNS.iter().map(|(word, ..)| *word).collect();
        only(instruction, &[&[M::Sync, M::Aligned], DOES, &shapes].concat())?;
        match instruction.modifiers.first_of(DOES) {
            Some(M::Fence) => self.emit_warpgroup(Warpgroup::Fence(Vec::new())),
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
        let instruction = self.last_warpgroup();
        self.emit_tensor(instruction, &[], &[]);
    }

    fn last_warpgroup(&self) -> Tensor {
        Tensor::Warpgroup { instruction: self.warpgroups.len() as u32 - 1 }
    }

    fn warpgroup_product(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        let shape = COLUMNS.iter().find(|(word, ..)| instruction.modifiers.has(*word));
        let (_, columns) = *shape.ok_or_else(|| "a product without a shape".to_owned())?;
        let Some(&dtype @ (Type::Bf16 | Type::F16 | Type::Tf32)) = instruction.types.get(1) else {
            return Err("a product of these types".to_owned());
        };
        let [Operand::Vector(accumulators), a, b, adds, signs @ ..] = &instruction.operands[..]
        else {
            return Err("accumulators that are no list".to_owned());
        };
        let [mut reads, mut writes] = [Vec::new(), Vec::new()];
        for accumulator in accumulators {
            reads.push(self.read(accumulator, Type::F32)?);
            writes.push(self.write(accumulator, Type::F32)?);
        }
        let a_in_registers = matches!(a, Operand::Vector(_));
        match a {
            Operand::Vector(a) => {
                for one in a {
                    reads.push(self.read(one, Type::B32)?);
                }
            }
            a => reads.push(self.read(a, Type::B64)?),
        }
        reads.extend([self.read(b, Type::B64)?, self.read(adds, Type::Pred)?]);
        let (negated, transposed) = match signs {
            [a, b] => ([a, b], [None, None]),
            [a, b, right] => ([a, b], [None, Some(right)]),
            [a, b, left, right] => ([a, b], [Some(left), Some(right)]),
            _ => return Err(format!("{} operands", instruction.operands.len())),
        };
        let negated = [constant(negated[0])? < 0, constant(negated[1])? < 0];
        let is_set = |operand: Option<&Operand>| match operand {
            Some(operand) => Ok(constant(operand)? != 0),
            None => Ok::<bool, Reason>(false),
        };
        let transposed = [is_set(transposed[0])?, is_set(transposed[1])?];
        // Register layout fills in the registers.
        let registers = Vec::new();
        let product = Product { columns, dtype, a_in_registers, negated, transposed, registers };
        self.warpgroups.push(Warpgroup::Start(product));
        let instruction = self.last_warpgroup();
        self.emit_tensor(instruction, &writes, &reads);
        Ok(())
    }

    /// Marks the accumulators of all products, which waits write back, and their matrices a in
    /// registers as read by every wait. So no other register shares their offset before the wait.
    pub(super) fn keep_accumulators(&mut self) {
        let mut kept: Vec<_> =
            self.products().flat_map(|(micro, _)| micro.writes.clone()).collect();
        kept.extend(self.fenced_inputs());
        kept.sort_unstable_by_key(|register| register.0);
        kept.dedup();
        for micro in &mut self.code {
            if let Some(index) = warpgroup_of(micro)
                && let Warpgroup::Wait(_) = self.warpgroups[index]
            {
                micro.reads.clone_from(&kept);
            }
        }
    }

    /// Makes every store to shared memory record its range if there are products or bulk copies,
    /// which need a later fence; with bulk copies, also checks every access.
    pub(super) fn watch_stores(&mut self) {
        let copies = !self.bulk.is_empty();
        if self.warpgroups.is_empty() && !copies {
            return;
        }
        for micro in &mut self.code {
            if let Operation::Memory(access) = &mut micro.operation
                && (access.stores_shared_words() || copies && access.loads_shared_words())
            {
                *access = access.lane_by_lane();
            }
        }
    }

    /// The registers of all matrices a that are in registers.
    pub(super) fn fenced_inputs(&self) -> Vec<VirtualRegister> {
        let of_registers = self.products().filter(|(_, product)| product.a_in_registers);
        let fenced_inputs = of_registers.flat_map(|(micro, product)| {
            micro.reads[product.columns / 2..][..product.a_registers()].iter().copied()
        });
        let mut fenced_inputs: Vec<VirtualRegister> = fenced_inputs.collect();
        fenced_inputs.sort_unstable_by_key(|register| register.0);
        fenced_inputs.dedup();
        fenced_inputs
    }

    fn products(&self) -> impl Iterator<Item = (&Micro, &Product)> {
        self.code.iter().filter_map(|micro| match &self.warpgroups[warpgroup_of(micro)?] {
            Warpgroup::Start(product) => Some((micro, product)),
            _ => None,
        })
    }
}

/// The index of the `wgmma` instruction; `None` for other instructions.
fn warpgroup_of(micro: &Micro) -> Option<usize> {
    match micro.operation {
        Operation::Tensor(Tensor::Warpgroup { instruction }) => Some(instruction as usize),
        _ => None,
    }
}

fn constant(operand: &Operand) -> Result<i64, Reason> {
    match operand {
        Operand::Immediate(Immediate::Integer(value)) => Ok(*value),
        _ => Err("a sign, order or count that is no constant".to_owned()),
    }
}
