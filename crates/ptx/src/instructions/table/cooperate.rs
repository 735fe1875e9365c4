//! Barriers, fences, and what the lanes of a warp do together.

use super::prelude::*;

forms! {
    BAR [
        Form::new(&[one(&[Modifier::Sync])], &[], &[U]),
        Form::new(&[one(&[Modifier::Sync, Modifier::Arrive])], &[], &[U, U]),
        Form::new(&[one(&[Modifier::Warp]), one(&[Modifier::Sync])], &[], &[U]),
        Form::new(&[one(&[Modifier::Cta]), one(&[Modifier::Sync])], &[], &[U]).since(ISA_7_8, 30),
        Form::new(&[one(&[Modifier::Cta]), one(&[Modifier::Sync, Modifier::Arrive])], &[],
            &[U, U]).since(ISA_7_8, 30),
    ]
    BARRIER [
        Form::new(&[one(&[Modifier::Sync]), ALIGNED], &[], &[U]),
        Form::new(&[one(&[Modifier::Sync, Modifier::Arrive]), ALIGNED], &[], &[U, U]),
        Form::new(&[one(&[Modifier::Cta]), one(&[Modifier::Sync]), ALIGNED], &[], &[U])
            .since(ISA_7_8, 30),
        Form::new(&[one(&[Modifier::Cta]), one(&[Modifier::Sync, Modifier::Arrive]), ALIGNED], &[],
            &[U, U]).since(ISA_7_8, 30),
    ]
    MEMBAR [
        Form::new(&[one(&[Modifier::Cta, Modifier::Gl, Modifier::Sys])], &[], &[]),
    ]
    FENCE [
        Form::new(&[maybe(&[Modifier::AcqRel, Modifier::Sc]), one(SCOPES)], &[], &[]),
    ]
    ACTIVEMASK [
        Form::new(&[], &[B32], &[D]).since(ISA_6_2, 30),
    ]
    SHFL [
        Form::new(&[one(&[Modifier::Sync]), one(SHUFFLES)], &[B32],
            &[Shape::DestinationAndPredicate(Ty::First), S, U, U, U]),
    ]
    VOTE [
        Form::new(&[one(&[Modifier::Sync]), one(VOTES)], &[&[Type::Pred]],
            &[D, Shape::Predicate, U]),
        Form::new(&[one(&[Modifier::Sync]), one(&[Modifier::Ballot])], &[B32],
            &[D, Shape::Predicate, U]),
    ]
}
