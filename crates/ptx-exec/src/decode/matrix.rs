//! Decoding of asynchronous copies and matrix instructions.

use retrograph_ptx::ast::{Instruction, Modifier as M, Opcode as O, Operand, StateSpace, Type};

use super::float::mode_of;
use super::{Decoder, Reason, VirtualRegister, Width, only, operands, type_of};
use crate::async_copy::AsyncCopy;
use crate::matrix::{Element, Fragment, Matrix, Operation, Product, Role, Size};
use crate::operation::{Memory, Tensor};
use crate::program::Access;

const SIZES: &[(M, [usize; 3])] = &[
    (M::M8n8k4, [8, 8, 4]),
    (M::M8n8k16, [8, 8, 16]),
    (M::M16n8k4, [16, 8, 4]),
    (M::M16n8k8, [16, 8, 8]),
    (M::M16n8k16, [16, 8, 16]),
    (M::M16n8k32, [16, 8, 32]),
    (M::M16n16k8, [16, 16, 8]),
    (M::M16n16k16, [16, 16, 16]),
    (M::M32n8k16, [32, 8, 16]),
    (M::M8n32k16, [8, 32, 16]),
];
const LAYOUTS: &[M] = &[M::Row, M::Col, M::RowRow, M::RowCol, M::ColRow, M::ColCol];
const DOES: &[M] = &[M::LoadA, M::LoadB, M::LoadC, M::StoreD, M::Mma];

impl Decoder<'_> {
    /// `cp.async` and its waits.
    pub(super) fn async_copy(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        if instruction.modifiers.has(M::BulkPrefetch) {
            // Caches are not simulated.
            return Ok(());
        }
        let bulk = [M::AsyncBulk, M::AsyncBulkTensor, M::ReduceAsyncBulk, M::ReduceAsyncBulkTensor];
        let groups = [M::BulkCommitGroup, M::BulkWaitGroup];
        if instruction.modifiers.first_of(&[&bulk[..], &groups].concat()).is_some() {
            return self.bulk_copy(instruction);
        }
        let hints = [M::L2Bytes64, M::L2Bytes128, M::L2Bytes256];
        let words = [M::Async, M::Ca, M::Cg, M::SharedGlobal];
        let waits = [M::CommitGroup, M::WaitGroup, M::WaitAll];
        only(instruction, &[&hints[..], &words, &waits].concat())?;
        match instruction.modifiers.first_of(&waits) {
            Some(M::CommitGroup) => self.emit(Memory::CommitGroup {}),
            Some(M::WaitAll) => self.emit(Memory::WaitAll {}),
            Some(_) => {
                let pending = constant(&operands::<1>(instruction)?[0])? as u32;
                self.emit(Memory::WaitGroup { pending });
            }
            None => return self.cp_async(instruction),
        }
        Ok(())
    }

    fn cp_async(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        let [to, from, size, rest @ ..] = &instruction.operands[..] else {
            return Err(format!("{} operands", instruction.operands.len()));
        };
        let bytes = constant(size)? as u32;
        let (to_register, to) = self.address(to, Some(StateSpace::Shared))?;
        let (from_register, from) = self.address(from, Some(StateSpace::Global))?;
        let predicate = |operand: &Operand| match operand {
            Operand::NotPredicate(_) => true,
            Operand::Register(register) => self
                .register(*register)
                .is_ok_and(|register| self.width(register) == Width::Predicate),
            _ => false,
        };
        let (ignores, third) = match rest {
            [] => (false, self.constant(u64::from(bytes), Width::Word)),
            [one] if predicate(one) => (true, self.read(one, Type::Pred)?),
            [one] => (false, self.read(one, Type::U32)?),
            _ => return Err("a cache policy".to_owned()),
        };
        let (to, from) = (Access { bytes, ..to }, Access { bytes, ..from });
        self.copies.push(AsyncCopy { to, from, ignores });
        let copy = self.copies.len() as u32 - 1;
        let (target, source, size) = (to_register, from_register, third);
        self.emit(Memory::CpAsync { target, source, size, copy });
        Ok(())
    }

    /// `ldmatrix`, `stmatrix`, `movmatrix`, `mma` and `wmma`.
    pub(super) fn matrix(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        let mut allowed = vec![M::Sync, M::Aligned, M::M8n8, M::X1, M::X2, M::X4, M::Trans];
        allowed.extend([M::Shared, M::Global, M::Satfinite, M::Rn, M::Rz, M::Rm, M::Rp]);
        allowed.extend(SIZES.iter().map(|(word, _)| *word));
        allowed.extend(LAYOUTS.iter().chain(DOES));
        only(instruction, &allowed)?;
        match instruction.opcode {
            O::Ldmatrix => self.load_matrix(instruction),
            O::Stmatrix => self.store_matrix(instruction),
            O::Movmatrix => {
                let [to, from] = operands::<2>(instruction)?;
                let (to, from) = (self.write(to, Type::B32)?, self.read(from, Type::B32)?);
                self.emit_matrix(Operation::Transpose, None, 1, &[to], &[from]);
                Ok(())
            }
            _ => match instruction.modifiers.first_of(DOES) {
                Some(M::LoadA) => self.load_fragment(instruction, Role::A),
                Some(M::LoadB) => self.load_fragment(instruction, Role::B),
                Some(M::LoadC) => self.load_fragment(instruction, Role::C),
                Some(M::StoreD) => self.store_fragment(instruction),
                _ => self.product(instruction),
            },
        }
    }

    fn emit_matrix(
        &mut self,
        operation: Operation,
        access: Option<Access>,
        count: usize,
        writes: &[VirtualRegister],
        reads: &[VirtualRegister],
    ) {
        // Register layout fills in the registers.
        let registers = Vec::new();
        self.matrices.push(Matrix { operation, access, count, registers });
        let matrix = self.matrices.len() as u32 - 1;
        self.emit_tensor(Tensor::Matrix { matrix }, writes, reads);
    }

    fn load_matrix(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        let [to, from] = operands::<2>(instruction)?;
        let to = self.written(to, Type::B32)?;
        let (address, access) = self.address(from, instruction.space())?;
        let access = Some(Access { bytes: 16, ..access });
        let transposed = instruction.modifiers.has(M::Trans);
        self.emit_matrix(Operation::Load { transposed }, access, to.len(), &to, &[address]);
        Ok(())
    }

    fn store_matrix(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        let [to, from] = operands::<2>(instruction)?;
        let from = self.values_of(from, Type::B32)?;
        let (address, access) = self.address(to, instruction.space())?;
        let access = Some(Access { bytes: 16, ..access });
        let transposed = instruction.modifiers.has(M::Trans);
        let reads = [&[address], &from[..]].concat();
        self.emit_matrix(Operation::Store { transposed }, access, from.len(), &[], &reads);
        Ok(())
    }

    fn load_fragment(&mut self, instruction: &Instruction, role: Role) -> Result<(), Reason> {
        let [to, from, rest @ ..] = &instruction.operands[..] else {
            return Err(format!("{} operands", instruction.operands.len()));
        };
        let fragment = fragment_of(instruction, role)?;
        let to = self.written(to, register_type(fragment.ty))?;
        let (address, access) = self.address(from, instruction.space())?;
        let distance = self.distance(rest, &fragment)?;
        let access = Some(Access { bytes: fragment.ty.size(), ..access });
        let operation = Operation::LoadFragment(fragment);
        self.emit_matrix(operation, access, to.len(), &to, &[address, distance]);
        Ok(())
    }

    fn store_fragment(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        let [to, from, rest @ ..] = &instruction.operands[..] else {
            return Err(format!("{} operands", instruction.operands.len()));
        };
        let fragment = fragment_of(instruction, Role::C)?;
        let from = self.values_of(from, register_type(fragment.ty))?;
        let (address, access) = self.address(to, instruction.space())?;
        let distance = self.distance(rest, &fragment)?;
        let access = Some(Access { bytes: fragment.ty.size(), ..access });
        let reads = [&[address, distance], &from[..]].concat();
        self.emit_matrix(Operation::StoreFragment(fragment), access, from.len(), &[], &reads);
        Ok(())
    }

    /// The leading dimension in elements; without an operand, lines are contiguous.
    fn distance(
        &mut self,
        rest: &[Operand],
        fragment: &Fragment,
    ) -> Result<VirtualRegister, Reason> {
        let (rows, columns) = fragment.size.of(fragment.role);
        match rest {
            [] => {
                let line = if fragment.by_columns { rows } else { columns };
                Ok(self.constant(line as u64, Width::Word))
            }
            [one] => self.read(one, Type::U32),
            _ => Err("too many operands".to_owned()),
        }
    }

    fn product(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        let [d, a, b, c] = operands::<4>(instruction)?;
        let types: [Type; 4] = match instruction.types[..] {
            [d, c] => [d, Type::F16, Type::F16, c],
            [d, a, b, c] => [d, a, b, c],
            _ => return Err("a product of these types".to_owned()),
        };
        let [td, ta, tb, tc] = types;
        let saturates = instruction.modifiers.has(M::Satfinite);
        if saturates && tc != Type::S32 {
            return Err("saturation of floats".to_owned());
        }
        let elements = [element(ta)?, element(tb)?, element(tc)?, element(td)?];
        let d = self.written(d, register_type(td))?;
        let a = self.values_of(a, register_type(ta))?;
        let b = self.values_of(b, register_type(tb))?;
        let c = self.values_of(c, register_type(tc))?;
        let counts = [d.len(), a.len(), b.len(), c.len()];
        let rounding = mode_of(instruction.modifiers).rounding;
        let size = size_of(instruction)?;
        let product = Product { size, elements, counts, rounding, saturates };
        if !product.has_enough_registers() {
            return Err("a fragment with too few registers".to_owned());
        }
        let reads = [a, b, c].concat();
        self.emit_matrix(Operation::Product(product), None, d.len(), &d, &reads);
        Ok(())
    }

    fn written(&mut self, operand: &Operand, ty: Type) -> Result<Vec<VirtualRegister>, Reason> {
        vector(operand)?.iter().map(|one| self.write(one, ty)).collect()
    }

    fn values_of(&mut self, operand: &Operand, ty: Type) -> Result<Vec<VirtualRegister>, Reason> {
        vector(operand)?.iter().map(|one| self.read(one, ty)).collect()
    }
}

fn vector(operand: &Operand) -> Result<&[Operand], Reason> {
    match operand {
        Operand::Vector(list) if list.len() <= 8 => Ok(list),
        _ => Err("an operand that is no fragment".to_owned()),
    }
}

fn constant(operand: &Operand) -> Result<i64, Reason> {
    match operand {
        Operand::Immediate(retrograph_ptx::ast::Immediate::Integer(value)) => Ok(*value),
        _ => Err("a size or count that is no constant".to_owned()),
    }
}

fn size_of(instruction: &Instruction) -> Result<Size, Reason> {
    let found = SIZES.iter().find(|(word, _)| instruction.modifiers.has(*word));
    let (_, [m, n, k]) = *found.ok_or_else(|| "a product without a shape".to_owned())?;
    Ok(Size { m, n, k })
}

fn fragment_of(instruction: &Instruction, role: Role) -> Result<Fragment, Reason> {
    let by_columns = instruction.modifiers.has(M::Col);
    Ok(Fragment { size: size_of(instruction)?, role, ty: type_of(instruction)?, by_columns })
}

/// The type of the registers that hold elements of a type.
fn register_type(ty: Type) -> Type {
    match ty {
        Type::F64 => Type::F64,
        Type::F32 => Type::F32,
        _ => Type::B32,
    }
}

fn element(ty: Type) -> Result<Element, Reason> {
    Ok(match ty {
        Type::F16 => Element::F16,
        Type::Bf16 => Element::Bf16,
        Type::Tf32 => Element::Tf32,
        Type::F32 => Element::F32,
        Type::F64 => Element::F64,
        Type::U8 => Element::U8,
        Type::S8 => Element::S8,
        Type::S32 => Element::S32,
        other => return Err(format!("a product of .{other}")),
    })
}
