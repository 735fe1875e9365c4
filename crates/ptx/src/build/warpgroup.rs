//! Products of matrices in shared memory by the four warps of a warpgroup (`wgmma`), which run
//! while the threads go on. sm_90a alone has them.
//!
//! The order of a group of products: [`Kernel::fence_async`] and a barrier after whatever wrote the
//! matrices, [`Kernel::begin_products`], any number of [`Kernel::multiply_async`] or
//! [`Kernel::multiply_async_tf32`], [`Kernel::commit_products`], and [`Kernel::wait_products`]
//! before the sums are read or the matrices overwritten.
//!
//! Only the 128-byte swizzle is supported, which has no bank conflicts.

use super::kernel::{Emit, Kernel};
use super::shared::Shared;
use super::value::Value;
use super::var::Var;
use crate::ast::{Immediate, Modifier, Opcode, Operand, Type};

/// Bytes of eight lines, which belong together.
const EIGHT_LINES: u64 = 1024;
/// The mode in which the pieces of eight lines are mixed.
const SWIZZLE_128: u64 = 1 << 62;

/// A matrix of bf16 or tf32 in shared memory, in lines of 128 bytes one after another: the piece of
/// 16 bytes with number p of line l lies where piece p xor (l mod 8) would.
#[derive(Clone, Copy, Debug)]
pub struct Swizzled<'k> {
    descriptor: Value<'k, u64>,
    transposed: bool,
}

/// What a line of a matrix holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// 64 steps of the contraction of bf16, or 32 of tf32, of one row of a or one column of b.
    Contraction,
    /// 64 rows of a or columns of b, of one step of the contraction, in bf16. The next 64 lie so
    /// many bytes further.
    Extent(u32),
}

impl<'k> Shared<'k, u32> {
    /// The matrix whose lines begin here, at a multiple of 1024 bytes.
    ///
    /// Source: "Matrix Descriptor Format" of `wgmma` in the PTX ISA manual. Byte offsets are in
    /// units of 16; the one from eight lines to the next eight is the stride, and the one from 64
    /// rows or columns to the next, where a line holds them, the leading one.
    #[track_caller]
    pub fn swizzled(self, line: Line) -> Swizzled<'k> {
        let (leading, transposed) = match line {
            Line::Contraction => (16, false),
            Line::Extent(apart) => (u64::from(apart), true),
        };
        let rest = SWIZZLE_128 | (EIGHT_LINES >> 4) << 32 | (leading >> 4) << 16;
        let start: Value<'k, u64> = (self.address() >> 4).cast();
        Swizzled { descriptor: start + rest, transposed }
    }
}

impl Swizzled<'_> {
    /// The matrix that begins `bytes` further, a multiple of 16: whole lines in eights, or within
    /// the first line of eight.
    #[track_caller]
    #[must_use]
    pub fn offset(self, bytes: u32) -> Self {
        assert!(bytes.is_multiple_of(16), "matrices begin at multiples of 16 bytes");
        Self { descriptor: self.descriptor + u64::from(bytes >> 4), ..self }
    }
}

impl<'k> Kernel<'k> {
    /// Makes what this thread has written to shared memory, or what its copies have, visible to
    /// the async proxy (`fence.proxy.async`). sm_90 and later.
    pub fn fence_async(&self) {
        let modifiers = &[Modifier::ProxyAsync, Modifier::SharedCta];
        self.emit(Emit { opcode: Opcode::Fence, modifiers, types: &[], operands: Vec::new() });
    }

    /// Orders register accesses before products (`wgmma.fence`).
    pub fn begin_products(&self) {
        self.warpgroup(Modifier::Fence, Vec::new());
    }

    /// Makes one group of the products that were started since the last one
    /// (`wgmma.commit_group`).
    pub fn commit_products(&self) {
        self.warpgroup(Modifier::CommitGroup, Vec::new());
    }

    /// Waits until all groups of products but the last `under_way` are done (`wgmma.wait_group`).
    pub fn wait_products(&self, under_way: u32) {
        let operands = vec![Operand::Immediate(Immediate::Integer(under_way.into()))];
        self.warpgroup(Modifier::WaitGroup, operands);
    }

    fn warpgroup(&self, does: Modifier, operands: Vec<Operand>) {
        let modifiers = &[does, Modifier::Sync, Modifier::Aligned];
        self.emit(Emit { opcode: Opcode::Wgmma, modifiers, types: &[], operands });
    }

    /// Starts `sums += a · b`, for 64 × 16 elements of a and 16 × N of b (`wgmma.mma_async`): N is
    /// 64, 128, 192 or 256, and every thread of the warpgroup has N ÷ 2 sums. The sums may not be
    /// touched before a wait.
    ///
    /// With warp = thread ÷ 32 mod 4, group = lane ÷ 4 and member = lane mod 4, a lane holds for
    /// each eight columns the columns 2·member and 2·member + 1 of row 16·warp + group, and of the
    /// row 8 further.
    ///
    /// # Panics
    /// When there are other numbers of sums.
    #[track_caller]
    pub fn multiply_async(&self, [a, b]: [Swizzled<'k>; 2], sums: &[Var<'k, f32>]) {
        let shape = match sums.len() {
            32 => Modifier::M64n64k16,
            64 => Modifier::M64n128k16,
            96 => Modifier::M64n192k16,
            128 => Modifier::M64n256k16,
            other => panic!("a product of a warpgroup has 32, 64, 96 or 128 sums, not {other}"),
        };
        let constant = |value: i64| Operand::Immediate(Immediate::Integer(value));
        let operands = vec![
            Operand::Vector(sums.iter().map(|sum| Operand::Register(sum.register())).collect()),
            Operand::Register(a.descriptor.register()),
            Operand::Register(b.descriptor.register()),
            // The sums are added to, and neither sign is changed.
            constant(1),
            constant(1),
            constant(1),
            constant(a.transposed.into()),
            constant(b.transposed.into()),
        ];
        let modifiers = &[Modifier::MmaAsync, Modifier::Sync, Modifier::Aligned, shape];
        let types = &[Type::F32, Type::Bf16, Type::Bf16];
        self.emit(Emit { opcode: Opcode::Wgmma, modifiers, types, operands });
    }

    /// Starts `sums += a · b`, or `sums = a · b` where they begin `anew`, for 64 × 8 elements of a
    /// and 8 × N of b, of whose bits as f32 the lowest 13 are ignored (`wgmma.mma_async` of tf32).
    /// N is 32 or 64, and a lane holds the sums that it does in [`Kernel::multiply_async`]. Of a it
    /// gives what a lane of [`Kernel::multiply_tf32`] does, for the 16 rows of its warp: the column
    /// member of the rows group and group + 8, and then the same 4 columns further.
    /// [`Kernel::begin_products`] must come after these values were made.
    ///
    /// # Panics
    /// When there are other numbers of sums, or a line of b holds no steps.
    #[track_caller]
    pub fn multiply_async_tf32(
        &self,
        (a, b): ([Value<'k, u32>; 4], Swizzled<'k>),
        sums: &[Var<'k, f32>],
        anew: bool,
    ) {
        let shape = match sums.len() {
            16 => Modifier::M64n32k8,
            32 => Modifier::M64n64k8,
            other => panic!("a product of a warpgroup in tf32 has 16 or 32 sums, not {other}"),
        };
        assert!(!b.transposed, "a line of tf32 holds steps of the contraction");
        let constant = |value: i64| Operand::Immediate(Immediate::Integer(value));
        let operands = vec![
            Operand::Vector(sums.iter().map(|sum| Operand::Register(sum.register())).collect()),
            Operand::Vector(a.iter().map(|value| Operand::Register(value.register())).collect()),
            Operand::Register(b.descriptor.register()),
            constant((!anew).into()),
            constant(1),
            constant(1),
        ];
        let modifiers = &[Modifier::MmaAsync, Modifier::Sync, Modifier::Aligned, shape];
        let types = &[Type::F32, Type::Tf32, Type::Tf32];
        self.emit(Emit { opcode: Opcode::Wgmma, modifiers, types, operands });
    }
}
