//! Roots, reciprocals, transcendental functions, and properties of floats.

use super::prelude::*;

forms! {
    SQRT [
        Form::new(&[one(ROUND_OR_APPROX), FTZ], &[F32], DS),
        Form::new(&[one(ROUND)], &[F64], DS),
    ]
    RSQRT [
        Form::new(&[APPROX, FTZ], &[F32], DS),
        Form::new(&[APPROX, FTZ], &[F64], DS),
    ]
    RCP [
        Form::new(&[one(ROUND_OR_APPROX), FTZ], &[F32], DS),
        Form::new(&[one(ROUND), FTZ], &[F64], DS),
        Form::new(&[APPROX, one(&[Modifier::Ftz])], &[F64], DS),
    ]
    EX2 [
        Form::new(&[APPROX, FTZ], &[F32], DS),
        Form::new(&[APPROX], &[F16S], DS).since(ISA_7_0, 75),
        Form::new(&[APPROX, one(&[Modifier::Ftz])], &[BF16S], DS).since(ISA_7_8, 90),
    ]
    LG2 [
        Form::new(&[APPROX, FTZ], &[F32], DS),
    ]
    SIN [
        Form::new(&[APPROX, FTZ], &[F32], DS),
    ]
    COS [
        Form::new(&[APPROX, FTZ], &[F32], DS),
    ]
    TANH [
        Form::new(&[APPROX], &[F32], DS).since(ISA_7_0, 75),
        Form::new(&[APPROX], &[F16S], DS).since(ISA_7_0, 75),
        Form::new(&[APPROX], &[BF16S], DS).since(ISA_7_8, 90),
    ]
    COPYSIGN [
        Form::new(&[], &[FLOATS], DSS),
    ]
    TESTP [
        Form::new(&[one(CLASSES)], &[FLOATS], &[P, S]),
    ]
}
