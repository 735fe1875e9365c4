//! The flow of control.

use super::prelude::*;

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
    GRIDDEPCONTROL [
        Form::new(&[one(&[Modifier::LaunchDependents, Modifier::Wait])], &[], &[])
            .since(ISA_7_8, 90),
    ]
}
