//! Conversions between types.

use super::prelude::*;

const ROUND_NEAR: &[Modifier] = &[Modifier::Rn, Modifier::Rz];
const RN: &[Modifier] = &[Modifier::Rn];
const RELU: ModifierChoice = maybe(&[Modifier::Relu]);
const FINITE: ModifierChoice = one(&[Modifier::Satfinite]);
const BYTES: &[Type] = &[Type::U8, Type::S8];
const TF32: &[Type] = &[Type::Tf32];
const PACKED_HALVES: &[Type] = &[Type::F16x2, Type::Bf16x2];
/// A packed result and the values of its upper and lower half.
const PACK: &[Shape] = &[D, S2, S2];

forms! {
    CVT [
        Form::new(&[], &[INTEGERS, INTEGERS], CONVERT),
        // Saturation exists if the source has values outside of the range of the destination.
        Form::new(&[one(&[Modifier::Sat])], &[&[Type::U8], BEYOND_U8], CONVERT),
        Form::new(&[one(&[Modifier::Sat])], &[&[Type::U16], BEYOND_U16], CONVERT),
        Form::new(&[one(&[Modifier::Sat])], &[&[Type::U32], BEYOND_U32], CONVERT),
        Form::new(&[one(&[Modifier::Sat])], &[&[Type::U64], BEYOND_U64], CONVERT),
        Form::new(&[one(&[Modifier::Sat])], &[&[Type::S8], BEYOND_S8], CONVERT),
        Form::new(&[one(&[Modifier::Sat])], &[&[Type::S16], BEYOND_S16], CONVERT),
        Form::new(&[one(&[Modifier::Sat])], &[&[Type::S32], BEYOND_S32], CONVERT),
        Form::new(&[one(&[Modifier::Sat])], &[&[Type::S64], BEYOND_S64], CONVERT),
        // Integers and floats.
        Form::new(&[one(ROUND), SAT], &[&[Type::F16, Type::F64], INTEGERS], CONVERT),
        Form::new(&[one(ROUND), FTZ, SAT], &[F32, INTEGERS], CONVERT),
        Form::new(&[one(ROUND)], &[BF16, WIDE_INTEGERS], CONVERT).since(ISA_7_8, 90),
        Form::new(&[one(ROUND)], &[BF16, BYTES], CONVERT).since(ISA_7_8, 90),
        Form::new(&[one(ROUND_INTEGER), FTZ, SAT], &[INTEGERS, F32], CONVERT),
        Form::new(&[one(ROUND_INTEGER), SAT], &[INTEGERS, &[Type::F16, Type::F64]], CONVERT),
        Form::new(&[one(ROUND_INTEGER)], &[WIDE_INTEGERS, BF16], CONVERT).since(ISA_7_8, 90),
        Form::new(&[one(ROUND_INTEGER)], &[BYTES, BF16], CONVERT).since(ISA_7_8, 90),
        // Rounding to an integer in the same type.
        Form::new(&[maybe(ROUND_INTEGER), FTZ, SAT], &[F32, F32], CONVERT),
        Form::new(&[maybe(ROUND_INTEGER), SAT], &[F64, F64], CONVERT),
        Form::new(&[maybe(ROUND_INTEGER), SAT], &[F16, F16], CONVERT),
        Form::new(&[maybe(ROUND_INTEGER)], &[BF16, BF16], CONVERT).since(ISA_7_8, 90),
        // Wider floats.
        Form::new(&[FTZ, SAT], &[F64, F32], CONVERT),
        Form::new(&[FTZ, SAT], &[F32, F16], CONVERT),
        Form::new(&[SAT], &[F64, F16], CONVERT),
        Form::new(&[maybe(ROUND)], &[F32, BF16], CONVERT).since(ISA_7_1, 80),
        Form::new(&[maybe(ROUND), one(&[Modifier::Ftz])], &[F32, BF16], CONVERT)
            .since(ISA_7_8, 90),
        Form::new(&[maybe(ROUND)], &[F64, BF16], CONVERT).since(ISA_7_8, 90),
        // Narrower floats.
        Form::new(&[one(ROUND), FTZ, SAT], &[F32, F64], CONVERT),
        Form::new(&[one(ROUND), FTZ, SAT], &[F16, F32], CONVERT),
        Form::new(&[one(ROUND), SAT], &[F16, F64], CONVERT),
        Form::new(&[one(ROUND_NEAR), one(&[Modifier::Relu])], &[F16, F32], CONVERT)
            .since(ISA_7_0, 80),
        Form::new(&[one(ROUND), FTZ], &[BF16, F32], CONVERT).since(ISA_7_0, 80),
        Form::new(&[one(ROUND_NEAR), one(&[Modifier::Relu])], &[BF16, F32], CONVERT)
            .since(ISA_7_0, 80),
        Form::new(&[one(ROUND_NEAR), RELU, FINITE], &[&[Type::F16, Type::Bf16], F32], CONVERT)
            .since(ISA_8_1, 89),
        Form::new(&[one(ROUND)], &[BF16, F64], CONVERT).since(ISA_7_8, 90),
        Form::new(&[maybe(ROUND)], &[F16, BF16], CONVERT).since(ISA_7_8, 90),
        Form::new(&[maybe(ROUND)], &[BF16, F16], CONVERT).since(ISA_7_8, 90),
        Form::new(&[one(&[Modifier::Rna])], &[TF32, F32], CONVERT).since(ISA_7_0, 80),
        Form::new(&[one(&[Modifier::Rna]), FINITE], &[TF32, F32], CONVERT).since(ISA_8_1, 89),
        Form::new(&[one(ROUND_NEAR), RELU], &[TF32, F32], CONVERT).since(ISA_7_8, 90),
        Form::new(&[one(ROUND_NEAR), RELU, FINITE], &[TF32, F32], CONVERT).since(ISA_8_6, 100),
        // Two values in one register.
        Form::new(&[one(ROUND_NEAR), RELU], &[PACKED_HALVES, F32], PACK).since(ISA_7_0, 80),
        Form::new(&[one(ROUND_NEAR), RELU, FINITE], &[PACKED_HALVES, F32], PACK)
            .since(ISA_8_1, 89),
        Form::new(&[one(RN), RELU, FINITE], &[FLOATS8, F32], PACK).since(ISA_7_8, 90),
        Form::new(&[one(RN), RELU, FINITE], &[FLOATS8, F32], PACK).since(ISA_8_1, 89),
        Form::new(&[one(RN), RELU, FINITE], &[FLOATS8, &[Type::F16x2]], &[D, S2])
            .since(ISA_7_8, 90),
        Form::new(&[one(RN), RELU, FINITE], &[FLOATS8, &[Type::F16x2]], &[D, S2])
            .since(ISA_8_1, 89),
        Form::new(&[one(RN), RELU], &[&[Type::F16x2], FLOATS8], &[D, S2]).since(ISA_7_8, 90),
        Form::new(&[one(RN), RELU], &[&[Type::F16x2], FLOATS8], &[D, S2]).since(ISA_8_1, 89),
    ]
}
