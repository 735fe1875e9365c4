//! Logic, shifts, and bit fields.

use super::prelude::*;

/// Start or length of a bit field.
const BYTE: Shape = Shape::Within(255);

forms! {
    AND [
        Form::new(&[], &[LOGIC], DSS),
    ]
    OR [
        Form::new(&[], &[LOGIC], DSS),
    ]
    XOR [
        Form::new(&[], &[LOGIC], DSS),
    ]
    NOT [
        Form::new(&[], &[LOGIC], DS),
    ]
    CNOT [
        Form::new(&[], &[BITS], DS),
    ]
    SHL [
        Form::new(&[], &[BITS], &[D, S, U]),
    ]
    SHR [
        Form::new(&[], &[SHIFTED_RIGHT], &[D, S, U]),
    ]
    SHF [
        Form::new(&[one(&[Modifier::L, Modifier::R]), one(&[Modifier::Wrap, Modifier::Clamp])],
            &[B32], &[D, S, S, U]),
    ]
    LOP3 [
        Form::new(&[], &[B32], &[D, S, S, S, Shape::Constant]),
        Form::new(&[one(&[Modifier::And, Modifier::Or])], &[B32],
            &[Shape::SinkAndPredicate(Ty::First), S, S, S, Shape::Constant, Shape::Predicate])
            .since(ISA_8_3, 70),
    ]
    BFE [
        Form::new(&[], &[INT32_64], &[D, S, BYTE, BYTE]),
    ]
    BFI [
        Form::new(&[], &[B32_64], &[D, S, S, BYTE, BYTE]),
    ]
    BFIND [
        Form::new(&[maybe(&[Modifier::ShiftAmount])], &[INT32_64], &[D32, S]),
    ]
    BREV [
        Form::new(&[], &[B32_64], DS),
    ]
    CLZ [
        Form::new(&[], &[B32_64], &[D32, S]),
    ]
    POPC [
        Form::new(&[], &[B32_64], &[D32, S]),
    ]
    PRMT [
        Form::new(&[maybe(&[Modifier::ForwardExtract, Modifier::BackwardExtract,
            Modifier::Replicate8, Modifier::EdgeClampLeft, Modifier::EdgeClampRight,
            Modifier::Replicate16])], &[B32], DSSS),
    ]
    BMSK [
        Form::new(&[one(&[Modifier::Clamp, Modifier::Wrap])], &[B32], DSS).since(ISA_7_7, 70),
    ]
    SZEXT [
        Form::new(&[one(&[Modifier::Clamp, Modifier::Wrap])], &[INT32], &[D, S, U])
            .since(ISA_7_7, 70),
    ]
    FNS [
        Form::new(&[], &[B32], &[D, S, S, Shape::Source(Ty::Is(Type::S32))]),
    ]
}
