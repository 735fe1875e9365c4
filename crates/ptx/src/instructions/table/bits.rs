//! Logic, shifts, and fields of bits.

use super::prelude::*;

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
    ]
    BFE [
        Form::new(&[], &[INT32_64], &[D, S, U, U]),
    ]
    BFI [
        Form::new(&[], &[B32_64], &[D, S, S, U, U]),
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
        Form::new(&[], &[B32], DSSS),
    ]
}
