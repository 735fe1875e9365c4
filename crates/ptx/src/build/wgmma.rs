//! Warpgroup matrix multiply-accumulate (`wgmma`), asynchronous, for sm_90a only.
//!
//! Order of the calls: [`Kernel::fence_proxy_async`] and a barrier after the threads wrote the
//! operands to shared memory, [`Kernel::wgmma_fence`], any number of [`Kernel::wgmma_mma_async`] or
//! [`Kernel::wgmma_mma_async_tf32`],
//! [`Kernel::wgmma_commit_group`], and [`Kernel::wgmma_wait_group`] before a thread reads an
//! accumulator or overwrites an operand.
//!
//! Only the 128-byte swizzle is supported; it avoids bank conflicts.

use super::kernel::{Emit, Kernel};
use super::predicate::Pred;
use super::shared::Shared;
use super::value::Value;
use super::var::Var;
use crate::ast::{Immediate, Modifier, Opcode, Operand, Type};

/// The bits of a shared address that a descriptor holds.
const ADDRESS_MASK: u32 = 0x3_ffff;
/// Bytes of a swizzle atom: 8 rows of 128 bytes.
const SWIZZLE_ATOM_BYTES: u64 = 1024;
/// The descriptor's swizzle mode for 128 bytes.
const SWIZZLE_128B: u64 = 1 << 62;

/// Descriptor of a bf16, f16 or tf32 matrix in shared memory with 128-byte rows and the 128-byte
/// swizzle.
///
/// The swizzle stores the 16-byte chunk `c` of row `r` at chunk `c ^ (r % 8)`.
#[derive(Clone, Copy, Debug)]
pub struct MatrixDescriptor<'k> {
    descriptor: Value<'k, u64>,
    /// MN-major instead of K-major.
    transposed: bool,
}

/// The first operand of a `wgmma` of 16-bit elements.
#[derive(Clone, Copy, Debug)]
pub enum MatrixA<'k> {
    /// In shared memory.
    Shared(MatrixDescriptor<'k>),
    /// In registers: the pairs that [`Kernel::mma_m16n8k16_bf16`] takes, for the 16 rows of the
    /// lane's warp.
    Registers([Value<'k, u32>; 4]),
}

/// The type of 16-bit elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HalfType {
    /// bf16.
    Bf16,
    /// f16.
    F16,
}

/// The scale-d operand: the accumulators are multiplied by it before the product is added.
#[derive(Clone, Copy, Debug)]
pub enum ScaleD<'k> {
    /// 0: the product replaces them.
    Zero,
    /// 1: the product is added to them.
    One,
    /// 1 if the condition is true, otherwise 0. The condition must be uniform in the warpgroup.
    OneIf(Pred<'k>),
}

impl<'k> Shared<'k, u32> {
    /// The descriptor of a K-major matrix: each 128-byte row holds 64 bf16 or 32 tf32 elements
    /// along K. This address must be a multiple of 1024.
    #[track_caller]
    pub fn k_major_descriptor(self) -> MatrixDescriptor<'k> {
        // The hardware ignores the leading dimension of a swizzled K-major matrix; 1 is the value
        // that CUTLASS writes.
        self.descriptor(16, false)
    }

    /// The descriptor of an MN-major bf16 matrix: each 128-byte row holds 64 elements along M or
    /// N. The next 64 are `leading_bytes` further. This address must be a multiple of 1024.
    #[track_caller]
    pub fn mn_major_descriptor(self, leading_bytes: u32) -> MatrixDescriptor<'k> {
        self.descriptor(leading_bytes.into(), true)
    }

    /// Source: "Matrix Descriptor Format" of `wgmma` in the PTX ISA manual. Offsets are in units
    /// of 16 bytes; the stride is the offset from one swizzle atom to the next.
    ///
    /// In a kernel with [`Kernel::cluster_blocks`], addresses have the rank of the block from bit
    /// 24 on, which would leak into the leading dimension. Only the 18 bits of the format are kept.
    #[track_caller]
    fn descriptor(self, leading_bytes: u64, transposed: bool) -> MatrixDescriptor<'k> {
        let rest = SWIZZLE_128B | (SWIZZLE_ATOM_BYTES >> 4) << 32 | (leading_bytes >> 4) << 16;
        let address = match self.address().kernel().is_clustered() {
            true => self.address() & ADDRESS_MASK,
            false => self.address(),
        };
        let start: Value<'k, u64> = (address >> 4).cast();
        MatrixDescriptor { descriptor: start + rest, transposed }
    }
}

impl MatrixDescriptor<'_> {
    /// The descriptor of the matrix `bytes` further: whole swizzle atoms, or a multiple of 16 bytes
    /// within the first row.
    ///
    /// # Panics
    /// If `bytes` is not a multiple of 16.
    #[track_caller]
    #[must_use]
    pub fn offset(self, bytes: u32) -> Self {
        assert!(bytes.is_multiple_of(16), "a matrix descriptor's address is a multiple of 16");
        Self { descriptor: self.descriptor + u64::from(bytes >> 4), ..self }
    }
}

impl<'k> Kernel<'k> {
    /// Makes this thread's writes to shared memory, and its completed copies to it, visible to the
    /// async proxy (`fence.proxy.async`). Needs sm_90.
    pub fn fence_proxy_async(&self) {
        let modifiers = &[Modifier::ProxyAsync, Modifier::SharedCta];
        self.emit(Emit { opcode: Opcode::Fence, modifiers, types: &[], operands: Vec::new() });
    }

    /// Orders register accesses before later `wgmma` instructions (`wgmma.fence`).
    pub fn wgmma_fence(&self) {
        self.wgmma(Modifier::Fence, Vec::new());
    }

    /// Puts the `wgmma` instructions since the last commit into one group
    /// (`wgmma.commit_group`).
    pub fn wgmma_commit_group(&self) {
        self.wgmma(Modifier::CommitGroup, Vec::new());
    }

    /// Waits until at most the `pending` most recent groups are incomplete (`wgmma.wait_group`).
    pub fn wgmma_wait_group(&self, pending: u32) {
        let operands = vec![Operand::Immediate(Immediate::Integer(pending.into()))];
        self.wgmma(Modifier::WaitGroup, operands);
    }

    fn wgmma(&self, operation: Modifier, operands: Vec<Operand>) {
        let modifiers = &[operation, Modifier::Sync, Modifier::Aligned];
        self.emit(Emit { opcode: Opcode::Wgmma, modifiers, types: &[], operands });
    }

    /// Starts `acc += a · b` for bf16 operands in shared memory: `wgmma.mma_async` m64nNk16 with an
    /// N of [`Kernel::wgmma_mma_async`]. Each thread of the warpgroup holds N ÷ 2 accumulator
    /// elements and must not access them before [`Kernel::wgmma_wait_group`].
    ///
    /// With warp = thread ÷ 32 mod 4, group = lane ÷ 4 and member = lane mod 4, a lane holds, for
    /// each 8 columns of the accumulator, columns 2·member and 2·member + 1 of row
    /// 16·warp + group, then the same columns of the row 8 further.
    ///
    /// # Panics
    /// If `acc` has another length.
    #[track_caller]
    pub fn wgmma_mma_async_bf16(&self, [a, b]: [MatrixDescriptor<'k>; 2], acc: &[Var<'k, f32>]) {
        self.wgmma_mma_async(HalfType::Bf16, MatrixA::Shared(a), b, acc, ScaleD::One);
    }

    /// Starts a product of 16-bit elements: `wgmma.mma_async` m64nNk16 with N 32, 64, 96, 128, 192,
    /// 224 or 256 and `a` in shared memory or in registers. `scale_d` selects whether it adds to
    /// the accumulators, which are distributed as in [`Kernel::wgmma_mma_async_bf16`].
    /// [`Kernel::wgmma_fence`] must follow the last write to registers of `a`.
    ///
    /// # Panics
    /// If `acc` has another length.
    #[track_caller]
    pub fn wgmma_mma_async(
        &self,
        element: HalfType,
        a: MatrixA<'k>,
        b: MatrixDescriptor<'k>,
        acc: &[Var<'k, f32>],
        scale_d: ScaleD<'k>,
    ) {
        let shape = match acc.len() {
            16 => Modifier::M64n32k16,
            32 => Modifier::M64n64k16,
            48 => Modifier::M64n96k16,
            64 => Modifier::M64n128k16,
            96 => Modifier::M64n192k16,
            112 => Modifier::M64n224k16,
            128 => Modifier::M64n256k16,
            other => panic!("no wgmma of 16-bit elements has {other} accumulators"),
        };
        let constant = |value: i64| Operand::Immediate(Immediate::Integer(value));
        let register = |value: &Value<'k, u32>| Operand::Register(value.register());
        let mut operands = vec![Operand::Vector(
            acc.iter().map(|acc| Operand::Register(acc.register())).collect(),
        )];
        operands.push(match a {
            MatrixA::Shared(a) => Operand::Register(a.descriptor.register()),
            MatrixA::Registers(a) => Operand::Vector(a.iter().map(register).collect()),
        });
        operands.push(Operand::Register(b.descriptor.register()));
        operands.push(match scale_d {
            ScaleD::Zero => constant(0),
            ScaleD::One => constant(1),
            ScaleD::OneIf(condition) => condition.operand(),
        });
        // imm-scale-a, imm-scale-b: negate neither operand.
        operands.extend([constant(1), constant(1)]);
        if let MatrixA::Shared(a) = a {
            operands.push(constant(a.transposed.into()));
        }
        operands.push(constant(b.transposed.into()));
        let ty = match element {
            HalfType::Bf16 => Type::Bf16,
            HalfType::F16 => Type::F16,
        };
        let modifiers = &[Modifier::MmaAsync, Modifier::Sync, Modifier::Aligned, shape];
        let types = &[Type::F32, ty, ty];
        self.emit(Emit { opcode: Opcode::Wgmma, modifiers, types, operands });
    }

    /// Starts `acc += a · b`, or `acc = a · b` if `from_zero`, for tf32 operands: `wgmma.mma_async`
    /// m64nNk8 with N 32 or 64. The hardware ignores the lowest 13 bits of each operand.
    ///
    /// `a` is in registers, as in [`Kernel::mma_m16n8k8_tf32`], for the 16 rows of the lane's warp;
    /// `b` is K-major. [`Kernel::wgmma_fence`] must follow the last write to the registers of `a`.
    /// Accumulators are distributed as in [`Kernel::wgmma_mma_async_bf16`].
    ///
    /// # Panics
    /// If `acc` has another length, or `b` is MN-major.
    #[track_caller]
    pub fn wgmma_mma_async_tf32(
        &self,
        a: [Value<'k, u32>; 4],
        b: MatrixDescriptor<'k>,
        acc: &[Var<'k, f32>],
        from_zero: bool,
    ) {
        let shape = match acc.len() {
            16 => Modifier::M64n32k8,
            32 => Modifier::M64n64k8,
            other => panic!("wgmma of tf32 has 16 or 32 accumulators, not {other}"),
        };
        assert!(!b.transposed, "wgmma of tf32 needs a K-major b");
        let constant = |value: i64| Operand::Immediate(Immediate::Integer(value));
        let operands = vec![
            Operand::Vector(acc.iter().map(|acc| Operand::Register(acc.register())).collect()),
            Operand::Vector(a.iter().map(|value| Operand::Register(value.register())).collect()),
            Operand::Register(b.descriptor.register()),
            constant((!from_zero).into()),
            constant(1),
            constant(1),
        ];
        let modifiers = &[Modifier::MmaAsync, Modifier::Sync, Modifier::Aligned, shape];
        let types = &[Type::F32, Type::Tf32, Type::Tf32];
        self.emit(Emit { opcode: Opcode::Wgmma, modifiers, types, operands });
    }
}
