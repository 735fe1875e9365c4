//! Arithmetic on integers and floats.

use super::prelude::*;

forms! {
    ADD [
        Form::new(&[], &[WIDE_INTEGERS], DSS),
        Form::new(&[one(&[Modifier::Sat])], &[S32], DSS),
        Form::new(&[maybe(ROUND), FTZ, SAT], &[F32], DSS),
        Form::new(&[maybe(ROUND)], &[F64], DSS),
    ]
    SUB [
        Form::new(&[], &[WIDE_INTEGERS], DSS),
        Form::new(&[one(&[Modifier::Sat])], &[S32], DSS),
        Form::new(&[maybe(ROUND), FTZ, SAT], &[F32], DSS),
        Form::new(&[maybe(ROUND)], &[F64], DSS),
    ]
    MUL [
        Form::new(&[one(&[Modifier::Lo, Modifier::Hi])], &[WIDE_INTEGERS], DSS),
        Form::new(&[one(&[Modifier::Wide])], &[NARROW_INTEGERS], &[D2, S, S]),
        Form::new(&[maybe(ROUND), FTZ, SAT], &[F32], DSS),
        Form::new(&[maybe(ROUND)], &[F64], DSS),
    ]
    MAD [
        Form::new(&[one(&[Modifier::Lo, Modifier::Hi])], &[WIDE_INTEGERS], DSSS),
        Form::new(&[one(&[Modifier::Wide])], &[NARROW_INTEGERS], &[D2, S, S,
            Shape::Source(Ty::Double)]),
        Form::new(&[one(&[Modifier::Hi]), one(&[Modifier::Sat])], &[S32], DSSS),
        Form::new(&[one(ROUND), FTZ, SAT], &[F32], DSSS),
        Form::new(&[one(ROUND)], &[F64], DSSS),
    ]
    FMA [
        Form::new(&[one(ROUND), FTZ, SAT], &[F32], DSSS),
        Form::new(&[one(ROUND)], &[F64], DSSS),
    ]
    DIV [
        Form::new(&[], &[WIDE_INTEGERS], DSS),
        Form::new(&[one(ROUND), FTZ], &[F32], DSS),
        Form::new(&[one(&[Modifier::Approx, Modifier::Full]), FTZ], &[F32], DSS),
        Form::new(&[one(ROUND)], &[F64], DSS),
    ]
    REM [
        Form::new(&[], &[WIDE_INTEGERS], DSS),
    ]
    ABS [
        Form::new(&[], &[SIGNED], DS),
        Form::new(&[FTZ], &[F32], DS),
        Form::new(&[], &[F64], DS),
    ]
    NEG [
        Form::new(&[], &[SIGNED], DS),
        Form::new(&[FTZ], &[F32], DS),
        Form::new(&[], &[F64], DS),
    ]
    MIN [
        Form::new(&[], &[WIDE_INTEGERS], DSS),
        Form::new(&[FTZ], &[F32], DSS),
        Form::new(&[FTZ, one(&[Modifier::PropagateNan])], &[F32], DSS).since(ISA_7_0, 80),
        Form::new(&[], &[F64], DSS),
    ]
    MAX [
        Form::new(&[], &[WIDE_INTEGERS], DSS),
        Form::new(&[FTZ], &[F32], DSS),
        Form::new(&[FTZ, one(&[Modifier::PropagateNan])], &[F32], DSS).since(ISA_7_0, 80),
        Form::new(&[], &[F64], DSS),
    ]
    MUL24 [
        Form::new(&[one(&[Modifier::Lo, Modifier::Hi])], &[INT32], DSS),
    ]
    MAD24 [
        Form::new(&[one(&[Modifier::Lo, Modifier::Hi])], &[INT32], DSSS),
    ]
}
