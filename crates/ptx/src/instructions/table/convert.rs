//! Conversions between types.

use super::prelude::*;

forms! {
    CVT [
        Form::new(&[], &[INTEGERS, INTEGERS], CONVERT),
        // Saturation exists where the source has values that the destination has not.
        Form::new(&[one(&[Modifier::Sat])], &[&[Type::U8], BEYOND_U8], CONVERT),
        Form::new(&[one(&[Modifier::Sat])], &[&[Type::U16], BEYOND_U16], CONVERT),
        Form::new(&[one(&[Modifier::Sat])], &[&[Type::U32], BEYOND_U32], CONVERT),
        Form::new(&[one(&[Modifier::Sat])], &[&[Type::U64], BEYOND_U64], CONVERT),
        Form::new(&[one(&[Modifier::Sat])], &[&[Type::S8], BEYOND_S8], CONVERT),
        Form::new(&[one(&[Modifier::Sat])], &[&[Type::S16], BEYOND_S16], CONVERT),
        Form::new(&[one(&[Modifier::Sat])], &[&[Type::S32], BEYOND_S32], CONVERT),
        Form::new(&[one(&[Modifier::Sat])], &[&[Type::S64], BEYOND_S64], CONVERT),
        Form::new(&[one(ROUND), SAT], &[FLOATS_AND_HALF, INTEGERS], CONVERT),
        Form::new(&[one(ROUND_INTEGER), FTZ, SAT], &[INTEGERS, F32], CONVERT),
        Form::new(&[one(ROUND_INTEGER), SAT], &[INTEGERS, &[Type::F16, Type::F64]], CONVERT),
        Form::new(&[maybe(ROUND_INTEGER), FTZ, SAT], &[F32, F32], CONVERT),
        Form::new(&[maybe(ROUND_INTEGER), SAT], &[F64, F64], CONVERT),
        Form::new(&[FTZ, SAT], &[F64, F32], CONVERT),
        Form::new(&[one(ROUND), FTZ, SAT], &[F32, F64], CONVERT),
        Form::new(&[FTZ, SAT], &[F32, F16], CONVERT),
        Form::new(&[SAT], &[F64, F16], CONVERT),
        Form::new(&[one(ROUND), FTZ, SAT], &[F16, F32], CONVERT),
        Form::new(&[one(ROUND), SAT], &[F16, F64], CONVERT),
        Form::new(&[one(&[Modifier::Rn, Modifier::Rz])], &[BF16, F32], CONVERT).since(ISA_7_0, 80),
        Form::new(&[], &[F32, BF16], CONVERT).since(ISA_7_1, 80),
    ]
}
