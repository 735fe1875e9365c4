//! Products of matrices in shared memory, made by the four warps of a warpgroup together.
//!
//! Absent on purpose: operands in registers, sparse ones, and types other than bf16 with f32 sums.

use super::prelude::*;
use crate::ast::Modifier as M;
use crate::instructions::form::Slot;

const SYNC: Slot = one(&[M::Sync]);
const FENCE: Slot = one(&[M::Fence]);
const COMMIT: Slot = one(&[M::CommitGroup]);
const WAIT: Slot = one(&[M::WaitGroup]);
const MULTIPLY: Slot = one(&[M::MmaAsync]);
const M64N64K16: Slot = one(&[M::M64n64k16]);
const M64N128K16: Slot = one(&[M::M64n128k16]);
const M64N256K16: Slot = one(&[M::M64n256k16]);

/// The sums of a thread, both matrices, whether the sums are added to, the signs of the matrices,
/// and whether they lie transposed.
const fn product(sums: usize) -> [Shape; 8] {
    const DESCRIPTOR: Shape = Shape::Register(Type::B64);
    const SIGN: Shape = Shape::OneOf(&[1, -1]);
    const TRANSPOSED: Shape = Shape::OneOf(&[0, 1]);
    let sums = Shape::Accumulators(Type::F32, sums);
    [sums, DESCRIPTOR, DESCRIPTOR, Shape::Predicate, SIGN, SIGN, TRANSPOSED, TRANSPOSED]
}

forms! {
    WGMMA [
        Form::new(&[FENCE, SYNC, ALIGNED], &[], &[]).since(ISA_8_0, 90).exactly(),
        Form::new(&[COMMIT, SYNC, ALIGNED], &[], &[]).since(ISA_8_0, 90).exactly(),
        Form::new(&[WAIT, SYNC, ALIGNED], &[], &[Shape::Count]).since(ISA_8_0, 90).exactly(),
        Form::new(&[MULTIPLY, SYNC, ALIGNED, M64N64K16], &[F32, BF16, BF16], &product(32))
            .since(ISA_8_0, 90).exactly(),
        Form::new(&[MULTIPLY, SYNC, ALIGNED, M64N128K16], &[F32, BF16, BF16], &product(64))
            .since(ISA_8_0, 90).exactly(),
        Form::new(&[MULTIPLY, SYNC, ALIGNED, M64N256K16], &[F32, BF16, BF16], &product(128))
            .since(ISA_8_0, 90).exactly(),
    ]
}
