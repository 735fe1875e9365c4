//! Matrix products of a warpgroup (`wgmma`).
//!
//! The first matrix is in shared memory or registers for bf16 and f16, in registers for tf32.
//! The second matrix is always in shared memory.
//!
//! Other operand locations, sparse operands, and accumulators other than f32 are not supported.

use super::prelude::*;
use crate::ast::Modifier as M;
use crate::instructions::form::ModifierChoice;

const SYNC: ModifierChoice = one(&[M::Sync]);
const FENCE: ModifierChoice = one(&[M::Fence]);
const COMMIT: ModifierChoice = one(&[M::CommitGroup]);
const WAIT: ModifierChoice = one(&[M::WaitGroup]);
const MULTIPLY: ModifierChoice = one(&[M::MmaAsync]);
const M64N32K8: ModifierChoice = one(&[M::M64n32k8]);
const M64N64K8: ModifierChoice = one(&[M::M64n64k8]);

const TF32: &[Type] = &[Type::Tf32];
const DESCRIPTOR: Shape = Shape::Register(Type::B64);
const SIGN: Shape = Shape::OneOf(&[1, -1]);
const TRANSPOSED: Shape = Shape::OneOf(&[0, 1]);

/// Operands: accumulators, a in registers, descriptor of b, scale-d, and the signs of a and b.
const fn of_registers(sums: usize) -> [Shape; 6] {
    let sums = Shape::Accumulators(Type::F32, sums);
    [sums, Shape::Registers(Type::Tf32, 4), DESCRIPTOR, Shape::Predicate, SIGN, SIGN]
}

/// Operands: accumulators, a in registers as packed pairs, descriptor of b, scale-d, the signs of a
/// and b, and whether b is transposed.
const fn of_packed_registers(sums: usize) -> [Shape; 7] {
    let sums = Shape::Accumulators(Type::F32, sums);
    let a = Shape::Registers(Type::F16x2, 4);
    [sums, a, DESCRIPTOR, Shape::Predicate, SIGN, SIGN, TRANSPOSED]
}

/// Operands: accumulators, descriptors of a and b, scale-d, the signs of a and b, and whether they
/// are transposed.
const fn product(sums: usize) -> [Shape; 8] {
    let sums = Shape::Accumulators(Type::F32, sums);
    [sums, DESCRIPTOR, DESCRIPTOR, Shape::Predicate, SIGN, SIGN, TRANSPOSED, TRANSPOSED]
}

/// The forms of `wgmma`. Products of 16-bit elements have these shapes and accumulators per thread.
macro_rules! wgmma {
    ($($shape:ident $sums:literal)*) => {
        forms! {
            WGMMA [
                Form::new(&[FENCE, SYNC, ALIGNED], &[], &[]).since(ISA_8_0, 90).exactly(),
                Form::new(&[COMMIT, SYNC, ALIGNED], &[], &[]).since(ISA_8_0, 90).exactly(),
                Form::new(&[WAIT, SYNC, ALIGNED], &[], &[Shape::Count])
                    .since(ISA_8_0, 90).exactly(),
                Form::new(&[MULTIPLY, SYNC, ALIGNED, M64N32K8], &[F32, TF32, TF32],
                    &of_registers(16)).since(ISA_8_0, 90).exactly(),
                Form::new(&[MULTIPLY, SYNC, ALIGNED, M64N64K8], &[F32, TF32, TF32],
                    &of_registers(32)).since(ISA_8_0, 90).exactly(),
                $(
                    Form::new(&[MULTIPLY, SYNC, ALIGNED, one(&[M::$shape])], &[F32, BF16, BF16],
                        &product($sums)).since(ISA_8_0, 90).exactly(),
                    Form::new(&[MULTIPLY, SYNC, ALIGNED, one(&[M::$shape])], &[F32, BF16, BF16],
                        &of_packed_registers($sums)).since(ISA_8_0, 90).exactly(),
                    Form::new(&[MULTIPLY, SYNC, ALIGNED, one(&[M::$shape])], &[F32, F16, F16],
                        &product($sums)).since(ISA_8_0, 90).exactly(),
                    Form::new(&[MULTIPLY, SYNC, ALIGNED, one(&[M::$shape])], &[F32, F16, F16],
                        &of_packed_registers($sums)).since(ISA_8_0, 90).exactly(),
                )*
            ]
        }
    };
}

wgmma! {
    M64n32k16 16
    M64n64k16 32
    M64n96k16 48
    M64n128k16 64
    M64n192k16 96
    M64n224k16 112
    M64n256k16 128
}
