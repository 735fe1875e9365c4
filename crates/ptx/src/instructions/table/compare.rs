//! Comparisons and selections.

use super::prelude::*;

forms! {
    SETP [
        Form::new(&[one(COMPARE_BITS)], &[BITS], COMPARE),
        Form::new(&[one(COMPARE_UNSIGNED)], &[UNSIGNED], COMPARE),
        Form::new(&[one(COMPARE_SIGNED)], &[SIGNED], COMPARE),
        Form::new(&[one(COMPARE_FLOAT), FTZ], &[F32], COMPARE),
        Form::new(&[one(COMPARE_FLOAT)], &[F64], COMPARE),
        Form::new(&[one(COMPARE_BITS), one(COMBINE)], &[BITS], COMPARE_AND_COMBINE),
        Form::new(&[one(COMPARE_UNSIGNED), one(COMBINE)], &[UNSIGNED], COMPARE_AND_COMBINE),
        Form::new(&[one(COMPARE_SIGNED), one(COMBINE)], &[SIGNED], COMPARE_AND_COMBINE),
        Form::new(&[one(COMPARE_FLOAT), one(COMBINE), FTZ], &[F32], COMPARE_AND_COMBINE),
        Form::new(&[one(COMPARE_FLOAT), one(COMBINE)], &[F64], COMPARE_AND_COMBINE),
    ]
    SET [
        Form::new(&[one(COMPARE_BITS)], &[SET_RESULT, BITS], SET_OPERANDS),
        Form::new(&[one(COMPARE_UNSIGNED)], &[SET_RESULT, UNSIGNED], SET_OPERANDS),
        Form::new(&[one(COMPARE_SIGNED)], &[SET_RESULT, SIGNED], SET_OPERANDS),
        Form::new(&[one(COMPARE_FLOAT), FTZ], &[SET_RESULT, F32], SET_OPERANDS),
        Form::new(&[one(COMPARE_FLOAT)], &[SET_RESULT, F64], SET_OPERANDS),
    ]
    SELP [
        Form::new(&[], &[SELECTED], &[D, S, S, Shape::Predicate]),
    ]
    SLCT [
        Form::new(&[], &[SELECTED, S32], &[D, S, S, Shape::Source(Ty::Second)]),
        Form::new(&[FTZ], &[SELECTED, F32], &[D, S, S, Shape::Source(Ty::Second)]),
    ]
}
