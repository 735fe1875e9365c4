//! The flow of control.

use super::prelude::*;

forms! {
    BRA [
        Form::new(&[maybe(&[Modifier::Uni])], &[], &[Shape::Target]),
    ]
    RET [
        Form::new(&[maybe(&[Modifier::Uni])], &[], &[]),
    ]
    EXIT [
        Form::new(&[], &[], &[]),
    ]
    TRAP [
        Form::new(&[], &[], &[]),
    ]
}
