//! Control flow.

use super::prelude::*;

/// Registers of a thread: a multiple of 8 from 24 to 256.
const REGISTERS: &[i64] = &[
    24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 136, 144, 152, 160, 168, 176, 184,
    192, 200, 208, 216, 224, 232, 240, 248, 256,
];
const UNI: ModifierChoice = maybe(&[Modifier::Uni]);

forms! {
    BRA [
        Form::new(&[UNI], &[], &[Shape::Target]),
    ]
    BRX [
        Form::new(&[one(&[Modifier::Idx]), UNI], &[], &[U, Shape::Targets]),
    ]
    CALL [
        Form::new(&[UNI], &[], &[Shape::Callee]),
        Form::new(&[UNI], &[], &[Shape::Callee, Shape::Arguments]),
        Form::new(&[UNI], &[], &[Shape::Results, Shape::Callee]),
        Form::new(&[UNI], &[], &[Shape::Results, Shape::Callee, Shape::Arguments]),
        Form::new(&[UNI], &[], &[Shape::CalledPointer, Shape::Prototype]),
        Form::new(&[UNI], &[], &[Shape::CalledPointer, Shape::Arguments, Shape::Prototype]),
        Form::new(&[UNI], &[], &[Shape::Results, Shape::CalledPointer, Shape::Prototype]),
        Form::new(&[UNI], &[], &[Shape::Results, Shape::CalledPointer, Shape::Arguments,
            Shape::Prototype]),
    ]
    RET [
        Form::new(&[UNI], &[], &[]),
    ]
    EXIT [
        Form::new(&[], &[], &[]),
    ]
    TRAP [
        Form::new(&[], &[], &[]),
    ]
    BRKPT [
        Form::new(&[], &[], &[]),
    ]
    NANOSLEEP [
        Form::new(&[], &[U32], &[U]).since(ISA_6_3, 70),
    ]
    SETMAXNREG [
        Form::new(&[one(&[Modifier::IncSync, Modifier::DecSync]), one(&[Modifier::Aligned])],
            &[U32], &[Shape::OneOf(REGISTERS)]).since(ISA_8_0, 90).exactly(),
    ]
    GRIDDEPCONTROL [
        Form::new(&[one(&[Modifier::LaunchDependents, Modifier::Wait])], &[], &[])
            .since(ISA_7_8, 90),
    ]
}
