//! Arithmetic on integers and floats.

use super::prelude::*;

const RN: &[Modifier] = &[Modifier::Rn];
const PROPAGATE: ModifierChoice = maybe(&[Modifier::PropagateNan]);
const XOR_SIGN: ModifierChoice = one(&[Modifier::XorSignAbs]);
const LOW_HIGH: &[Modifier] = &[Modifier::Lo, Modifier::Hi];
const PAIRS16: &[Type] = &[Type::U16x2, Type::S16x2];

forms! {
    ADD [
        Form::new(&[], &[WIDE_INTEGERS], DSS),
        Form::new(&[one(&[Modifier::Sat])], &[S32], DSS),
        Form::new(&[one(&[Modifier::Cc])], &[INT32_64], DSS),
        Form::new(&[maybe(ROUND), FTZ, SAT], &[F32], DSS),
        Form::new(&[maybe(ROUND)], &[F64], DSS),
        Form::new(&[maybe(RN), FTZ, SAT], &[F16S], DSS),
        Form::new(&[maybe(RN)], &[BF16S], DSS).since(ISA_7_8, 90),
        Form::new(&[], &[PAIRS16], DSS).since(ISA_8_0, 90),
    ]
    SUB [
        Form::new(&[], &[WIDE_INTEGERS], DSS),
        Form::new(&[one(&[Modifier::Sat])], &[S32], DSS),
        Form::new(&[one(&[Modifier::Cc])], &[INT32_64], DSS),
        Form::new(&[maybe(ROUND), FTZ, SAT], &[F32], DSS),
        Form::new(&[maybe(ROUND)], &[F64], DSS),
        Form::new(&[maybe(RN), FTZ, SAT], &[F16S], DSS),
        Form::new(&[maybe(RN)], &[BF16S], DSS).since(ISA_7_8, 90),
    ]
    ADDC [
        Form::new(&[], &[WIDE_INTEGERS], DSS),
        Form::new(&[one(&[Modifier::Cc])], &[INT32_64], DSS),
    ]
    SUBC [
        Form::new(&[], &[WIDE_INTEGERS], DSS),
        Form::new(&[one(&[Modifier::Cc])], &[INT32_64], DSS),
    ]
    MUL [
        Form::new(&[one(LOW_HIGH)], &[WIDE_INTEGERS], DSS),
        Form::new(&[one(&[Modifier::Wide])], &[NARROW_INTEGERS], &[D2, S, S]),
        Form::new(&[maybe(ROUND), FTZ, SAT], &[F32], DSS),
        Form::new(&[maybe(ROUND)], &[F64], DSS),
        Form::new(&[maybe(RN), FTZ, SAT], &[F16S], DSS),
        Form::new(&[maybe(RN)], &[BF16S], DSS).since(ISA_7_8, 90),
    ]
    MAD [
        Form::new(&[one(LOW_HIGH)], &[WIDE_INTEGERS], DSSS),
        Form::new(&[one(LOW_HIGH), one(&[Modifier::Cc])], &[INT32_64], DSSS),
        Form::new(&[one(&[Modifier::Wide])], &[NARROW_INTEGERS], &[D2, S, S,
            Shape::Source(Ty::Double)]),
        Form::new(&[one(&[Modifier::Hi]), one(&[Modifier::Sat])], &[S32], DSSS),
        Form::new(&[one(ROUND), FTZ, SAT], &[F32], DSSS),
        Form::new(&[one(ROUND)], &[F64], DSSS),
    ]
    MADC [
        Form::new(&[one(LOW_HIGH)], &[WIDE_INTEGERS], DSSS),
        Form::new(&[one(LOW_HIGH), one(&[Modifier::Cc])], &[INT32_64], DSSS),
        Form::new(&[one(&[Modifier::Hi]), one(&[Modifier::Sat])], &[S32], DSSS),
    ]
    FMA [
        Form::new(&[one(ROUND), FTZ, SAT], &[F32], DSSS),
        Form::new(&[one(ROUND)], &[F64], DSSS),
        Form::new(&[one(RN), FTZ, SAT], &[F16S], DSSS),
        Form::new(&[one(RN), FTZ, one(&[Modifier::Relu])], &[F16S], DSSS).since(ISA_7_0, 80),
        Form::new(&[one(ROUND), maybe(&[Modifier::Relu])], &[BF16S], DSSS).since(ISA_7_0, 80),
        Form::new(&[one(RN), one(&[Modifier::Oob]), maybe(&[Modifier::Relu])], &[F16S], DSSS)
            .since(ISA_8_1, 90),
        Form::new(&[one(ROUND), one(&[Modifier::Oob]), maybe(&[Modifier::Relu])], &[BF16S], DSSS)
            .since(ISA_8_1, 90),
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
        Form::new(&[FTZ], &[F16S], DS).since(ISA_6_5, 53),
        Form::new(&[], &[BF16S], DS).since(ISA_7_0, 80),
    ]
    NEG [
        Form::new(&[], &[SIGNED], DS),
        Form::new(&[FTZ], &[F32], DS),
        Form::new(&[], &[F64], DS),
        Form::new(&[FTZ], &[F16S], DS),
        Form::new(&[], &[BF16S], DS).since(ISA_7_0, 80),
    ]
    MIN [
        Form::new(&[], &[WIDE_INTEGERS], DSS),
        Form::new(&[FTZ], &[F32], DSS),
        Form::new(&[FTZ, one(&[Modifier::PropagateNan])], &[F32], DSS).since(ISA_7_0, 80),
        Form::new(&[], &[F64], DSS),
        Form::new(&[FTZ, PROPAGATE], &[F16S], DSS).since(ISA_7_0, 80),
        Form::new(&[PROPAGATE], &[BF16S], DSS).since(ISA_7_0, 80),
        Form::new(&[FTZ, PROPAGATE, XOR_SIGN], &[F32], DSS).since(ISA_7_2, 86),
        Form::new(&[FTZ, PROPAGATE, XOR_SIGN], &[F16S], DSS).since(ISA_7_2, 86),
        Form::new(&[PROPAGATE, XOR_SIGN], &[BF16S], DSS).since(ISA_7_2, 86),
        Form::new(&[one(&[Modifier::Relu])], &[S32], DSS).since(ISA_8_0, 90),
        Form::new(&[], &[PAIRS16], DSS).since(ISA_8_0, 90),
        Form::new(&[one(&[Modifier::Relu])], &[&[Type::S16x2]], DSS).since(ISA_8_0, 90),
        Form::new(&[FTZ, PROPAGATE, maybe(&[Modifier::Abs])], &[F32], DSSS).since(ISA_8_8, 100),
    ]
    MAX [
        Form::new(&[], &[WIDE_INTEGERS], DSS),
        Form::new(&[FTZ], &[F32], DSS),
        Form::new(&[FTZ, one(&[Modifier::PropagateNan])], &[F32], DSS).since(ISA_7_0, 80),
        Form::new(&[], &[F64], DSS),
        Form::new(&[FTZ, PROPAGATE], &[F16S], DSS).since(ISA_7_0, 80),
        Form::new(&[PROPAGATE], &[BF16S], DSS).since(ISA_7_0, 80),
        Form::new(&[FTZ, PROPAGATE, XOR_SIGN], &[F32], DSS).since(ISA_7_2, 86),
        Form::new(&[FTZ, PROPAGATE, XOR_SIGN], &[F16S], DSS).since(ISA_7_2, 86),
        Form::new(&[PROPAGATE, XOR_SIGN], &[BF16S], DSS).since(ISA_7_2, 86),
        Form::new(&[one(&[Modifier::Relu])], &[S32], DSS).since(ISA_8_0, 90),
        Form::new(&[], &[PAIRS16], DSS).since(ISA_8_0, 90),
        Form::new(&[one(&[Modifier::Relu])], &[&[Type::S16x2]], DSS).since(ISA_8_0, 90),
        Form::new(&[FTZ, PROPAGATE, maybe(&[Modifier::Abs])], &[F32], DSSS).since(ISA_8_8, 100),
    ]
    MUL24 [
        Form::new(&[one(LOW_HIGH)], &[INT32], DSS),
    ]
    MAD24 [
        Form::new(&[one(LOW_HIGH)], &[INT32], DSSS),
        Form::new(&[one(&[Modifier::Hi]), one(&[Modifier::Sat])], &[S32], DSSS),
    ]
    SAD [
        Form::new(&[], &[WIDE_INTEGERS], DSSS),
    ]
    DP4A [
        Form::new(&[], &[INT32, INT32], &[D32, U, U, U]),
    ]
    DP2A [
        Form::new(&[one(LOW_HIGH)], &[INT32, INT32], &[D32, U, U, U]),
    ]
}
