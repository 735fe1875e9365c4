//! Comparisons and selections.

use super::prelude::*;

const HALF_RESULT: &[Type] = &[Type::F16];

forms! {
    SETP [
        Form::new(&[one(COMPARE_BITS)], &[BITS], COMPARE),
        Form::new(&[one(COMPARE_UNSIGNED)], &[UNSIGNED], COMPARE),
        Form::new(&[one(COMPARE_SIGNED)], &[SIGNED], COMPARE),
        Form::new(&[one(COMPARE_FLOAT), FTZ], &[F32], COMPARE),
        Form::new(&[one(COMPARE_FLOAT)], &[F64], COMPARE),
        Form::new(&[one(COMPARE_FLOAT), FTZ], &[F16], COMPARE_ONE),
        Form::new(&[one(COMPARE_FLOAT), FTZ], &[&[Type::F16x2]], COMPARE),
        Form::new(&[one(COMPARE_FLOAT)], &[BF16], COMPARE_ONE).since(ISA_7_8, 90),
        Form::new(&[one(COMPARE_FLOAT)], &[&[Type::Bf16x2]], COMPARE).since(ISA_7_8, 90),
        Form::new(&[one(COMPARE_BITS), one(COMBINE)], &[BITS], COMPARE_AND_COMBINE),
        Form::new(&[one(COMPARE_UNSIGNED), one(COMBINE)], &[UNSIGNED], COMPARE_AND_COMBINE),
        Form::new(&[one(COMPARE_SIGNED), one(COMBINE)], &[SIGNED], COMPARE_AND_COMBINE),
        Form::new(&[one(COMPARE_FLOAT), one(COMBINE), FTZ], &[F32], COMPARE_AND_COMBINE),
        Form::new(&[one(COMPARE_FLOAT), one(COMBINE)], &[F64], COMPARE_AND_COMBINE),
        Form::new(&[one(COMPARE_FLOAT), one(COMBINE), FTZ], &[F16], COMPARE_ONE_AND_COMBINE),
        Form::new(&[one(COMPARE_FLOAT), one(COMBINE), FTZ], &[&[Type::F16x2]],
            COMPARE_AND_COMBINE),
        Form::new(&[one(COMPARE_FLOAT), one(COMBINE)], &[BF16], COMPARE_ONE_AND_COMBINE)
            .since(ISA_7_8, 90),
        Form::new(&[one(COMPARE_FLOAT), one(COMBINE)], &[&[Type::Bf16x2]], COMPARE_AND_COMBINE)
            .since(ISA_7_8, 90),
    ]
    SET [
        Form::new(&[one(COMPARE_BITS)], &[SET_RESULT, BITS], SET_OPERANDS),
        Form::new(&[one(COMPARE_UNSIGNED)], &[SET_RESULT, UNSIGNED], SET_OPERANDS),
        Form::new(&[one(COMPARE_SIGNED)], &[SET_RESULT, SIGNED], SET_OPERANDS),
        Form::new(&[one(COMPARE_FLOAT), FTZ], &[SET_RESULT, F32], SET_OPERANDS),
        Form::new(&[one(COMPARE_FLOAT)], &[SET_RESULT, F64], SET_OPERANDS),
        Form::new(&[one(COMPARE_BITS)], &[HALF_RESULT, BITS], SET_OPERANDS),
        Form::new(&[one(COMPARE_UNSIGNED)], &[HALF_RESULT, UNSIGNED], SET_OPERANDS),
        Form::new(&[one(COMPARE_SIGNED)], &[HALF_RESULT, SIGNED], SET_OPERANDS),
        Form::new(&[one(COMPARE_FLOAT), FTZ],
            &[HALF_RESULT, &[Type::F16, Type::F32]], SET_OPERANDS),
        Form::new(&[one(COMPARE_FLOAT)], &[HALF_RESULT, F64], SET_OPERANDS),
        Form::new(&[one(COMPARE_FLOAT), FTZ], &[&[Type::F16x2], &[Type::F16x2]], SET_OPERANDS),
        Form::new(&[one(COMPARE_FLOAT), FTZ], &[SET_INTEGER, F16], SET_OPERANDS).since(ISA_6_5, 53),
        Form::new(&[one(COMPARE_FLOAT), FTZ],
            &[INT32, &[Type::F16x2]], SET_OPERANDS).since(ISA_6_5, 53),
        Form::new(&[one(COMPARE_FLOAT)], &[SET_INTEGER, BF16], SET_OPERANDS).since(ISA_7_8, 90),
        Form::new(&[one(COMPARE_FLOAT)],
            &[INT32, &[Type::Bf16x2]], SET_OPERANDS).since(ISA_7_8, 90),
        Form::new(&[one(COMPARE_BITS)], &[BF16, BITS], SET_OPERANDS).since(ISA_7_8, 90),
        Form::new(&[one(COMPARE_UNSIGNED)], &[BF16, UNSIGNED], SET_OPERANDS).since(ISA_7_8, 90),
        Form::new(&[one(COMPARE_SIGNED)], &[BF16, SIGNED], SET_OPERANDS).since(ISA_7_8, 90),
        Form::new(&[one(COMPARE_FLOAT)],
            &[BF16, &[Type::F16, Type::Bf16, Type::F32, Type::F64]], SET_OPERANDS)
            .since(ISA_7_8, 90),
        Form::new(&[one(COMPARE_FLOAT)],
            &[&[Type::Bf16x2], &[Type::Bf16x2]], SET_OPERANDS).since(ISA_7_8, 90),
        Form::new(&[one(COMPARE_BITS), one(COMBINE)], &[SET_RESULT, BITS], SET_AND_COMBINE),
        Form::new(&[one(COMPARE_UNSIGNED), one(COMBINE)], &[SET_RESULT, UNSIGNED], SET_AND_COMBINE),
        Form::new(&[one(COMPARE_SIGNED), one(COMBINE)], &[SET_RESULT, SIGNED], SET_AND_COMBINE),
        Form::new(&[one(COMPARE_FLOAT), one(COMBINE), FTZ], &[SET_RESULT, F32], SET_AND_COMBINE),
        Form::new(&[one(COMPARE_FLOAT), one(COMBINE)], &[SET_RESULT, F64], SET_AND_COMBINE),
        Form::new(&[one(COMPARE_BITS), one(COMBINE)], &[HALF_RESULT, BITS], SET_AND_COMBINE),
        Form::new(&[one(COMPARE_UNSIGNED), one(COMBINE)],
            &[HALF_RESULT, UNSIGNED], SET_AND_COMBINE),
        Form::new(&[one(COMPARE_SIGNED), one(COMBINE)], &[HALF_RESULT, SIGNED], SET_AND_COMBINE),
        Form::new(&[one(COMPARE_FLOAT), one(COMBINE), FTZ],
            &[HALF_RESULT, &[Type::F16, Type::F32]], SET_AND_COMBINE),
        Form::new(&[one(COMPARE_FLOAT), one(COMBINE)], &[HALF_RESULT, F64], SET_AND_COMBINE),
        Form::new(&[one(COMPARE_FLOAT), one(COMBINE), FTZ],
            &[&[Type::F16x2], &[Type::F16x2]], SET_AND_COMBINE),
        Form::new(&[one(COMPARE_FLOAT), one(COMBINE), FTZ],
            &[SET_INTEGER, F16], SET_AND_COMBINE).since(ISA_6_5, 53),
        Form::new(&[one(COMPARE_FLOAT), one(COMBINE), FTZ],
            &[INT32, &[Type::F16x2]], SET_AND_COMBINE).since(ISA_6_5, 53),
        Form::new(&[one(COMPARE_FLOAT), one(COMBINE)],
            &[SET_INTEGER, BF16], SET_AND_COMBINE).since(ISA_7_8, 90),
        Form::new(&[one(COMPARE_FLOAT), one(COMBINE)],
            &[INT32, &[Type::Bf16x2]], SET_AND_COMBINE).since(ISA_7_8, 90),
        Form::new(&[one(COMPARE_BITS), one(COMBINE)],
            &[BF16, BITS], SET_AND_COMBINE).since(ISA_7_8, 90),
        Form::new(&[one(COMPARE_UNSIGNED), one(COMBINE)],
            &[BF16, UNSIGNED], SET_AND_COMBINE).since(ISA_7_8, 90),
        Form::new(&[one(COMPARE_SIGNED), one(COMBINE)],
            &[BF16, SIGNED], SET_AND_COMBINE).since(ISA_7_8, 90),
        Form::new(&[one(COMPARE_FLOAT), one(COMBINE)],
            &[BF16, &[Type::F16, Type::Bf16, Type::F32, Type::F64]], SET_AND_COMBINE)
            .since(ISA_7_8, 90),
        Form::new(&[one(COMPARE_FLOAT), one(COMBINE)],
            &[&[Type::Bf16x2], &[Type::Bf16x2]], SET_AND_COMBINE).since(ISA_7_8, 90),
    ]
    SELP [
        Form::new(&[], &[SELECTED], &[D, S, S, Shape::Predicate]),
    ]
    SLCT [
        Form::new(&[], &[SELECTED, S32], &[D, S, S, S2]),
        Form::new(&[FTZ], &[SELECTED, F32], &[D, S, S, S2]),
    ]
}
