//! Barriers, fences, and warp operations.

use super::prelude::*;

const SYNC: ModifierChoice = one(&[Modifier::Sync]);
const CTA: ModifierChoice = one(&[Modifier::Cta]);
const RED: ModifierChoice = one(&[Modifier::Red]);
const POPC: ModifierChoice = one(&[Modifier::Popc]);
const LOGIC_OPERATION: ModifierChoice = one(&[Modifier::And, Modifier::Or]);
const SYNC_ARRIVE: ModifierChoice = one(&[Modifier::Sync, Modifier::Arrive]);
const CLUSTER: ModifierChoice = one(&[Modifier::Cluster]);
const VALUES: &[Type] = B32_64;
const PREDICATE: &[Type] = &[Type::Pred];
const ID: Shape = Shape::Within(15);
const THREADS: Shape = Shape::Threads;
const RED_COUNT: &[Shape] = &[D, ID, THREADS, Shape::Predicate];

forms! {
    BAR [
        Form::new(&[SYNC], &[], &[ID]),
        Form::new(&[SYNC_ARRIVE], &[], &[ID, THREADS]),
        Form::new(&[one(&[Modifier::Warp]), SYNC], &[], &[U]),
        Form::new(&[CTA, SYNC], &[], &[ID]).since(ISA_7_8, 30),
        Form::new(&[CTA, SYNC_ARRIVE], &[], &[ID, THREADS]).since(ISA_7_8, 30),
        Form::new(&[RED, POPC], &[U32], &[D, ID, Shape::Predicate]),
        Form::new(&[RED, POPC], &[U32], RED_COUNT),
        Form::new(&[RED, LOGIC_OPERATION], &[PREDICATE], &[D, ID, Shape::Predicate]),
        Form::new(&[RED, LOGIC_OPERATION], &[PREDICATE], RED_COUNT),
        Form::new(&[CTA, RED, POPC], &[U32], &[D, ID, Shape::Predicate]).since(ISA_7_8, 30),
        Form::new(&[CTA, RED, POPC], &[U32], RED_COUNT).since(ISA_7_8, 30),
        Form::new(&[CTA, RED, LOGIC_OPERATION], &[PREDICATE], &[D, ID, Shape::Predicate])
            .since(ISA_7_8, 30),
        Form::new(&[CTA, RED, LOGIC_OPERATION], &[PREDICATE], RED_COUNT).since(ISA_7_8, 30),
    ]
    BARRIER [
        Form::new(&[SYNC, ALIGNED], &[], &[ID]),
        Form::new(&[SYNC_ARRIVE, ALIGNED], &[], &[ID, THREADS]),
        Form::new(&[CTA, SYNC, ALIGNED], &[], &[ID]).since(ISA_7_8, 30),
        Form::new(&[CTA, SYNC_ARRIVE, ALIGNED], &[], &[ID, THREADS]).since(ISA_7_8, 30),
        Form::new(&[RED, POPC, ALIGNED], &[U32], &[D, ID, Shape::Predicate]),
        Form::new(&[RED, POPC, ALIGNED], &[U32], RED_COUNT),
        Form::new(&[RED, LOGIC_OPERATION, ALIGNED], &[PREDICATE], &[D, ID, Shape::Predicate]),
        Form::new(&[RED, LOGIC_OPERATION, ALIGNED], &[PREDICATE], RED_COUNT),
        Form::new(&[CTA, RED, POPC, ALIGNED], &[U32], &[D, ID, Shape::Predicate])
            .since(ISA_7_8, 30),
        Form::new(&[CTA, RED, POPC, ALIGNED], &[U32], RED_COUNT).since(ISA_7_8, 30),
        Form::new(&[CTA, RED, LOGIC_OPERATION, ALIGNED], &[PREDICATE],
            &[D, ID, Shape::Predicate]).since(ISA_7_8, 30),
        Form::new(&[CTA, RED, LOGIC_OPERATION, ALIGNED], &[PREDICATE], RED_COUNT)
            .since(ISA_7_8, 30),
        Form::new(&[CLUSTER, one(&[Modifier::Arrive, Modifier::Wait]), ALIGNED], &[], &[])
            .since(ISA_7_8, 90),
        Form::new(&[CLUSTER, one(&[Modifier::Arrive]), one(&[Modifier::Release,
            Modifier::Relaxed]), ALIGNED], &[], &[]).since(ISA_8_0, 90),
        Form::new(&[CLUSTER, one(&[Modifier::Wait]), one(&[Modifier::Acquire]), ALIGNED], &[], &[])
            .since(ISA_8_0, 90),
    ]
    MEMBAR [
        Form::new(&[one(&[Modifier::Cta, Modifier::Gl, Modifier::Sys])], &[], &[]),
        Form::new(&[one(&[Modifier::ProxyAlias])], &[], &[]).since(ISA_7_7, 70),
    ]
    FENCE [
        Form::new(&[maybe(&[Modifier::AcqRel, Modifier::Sc, Modifier::Acquire,
            Modifier::Release]), one(SCOPES)], &[], &[]),
        Form::new(&[one(&[Modifier::ProxyAlias])], &[], &[]).since(ISA_7_7, 70),
        Form::new(&[one(&[Modifier::MbarrierInit]), one(&[Modifier::Release]), CLUSTER], &[], &[])
            .since(ISA_8_0, 90),
        Form::new(&[one(&[Modifier::ProxyAsync]), maybe(&[Modifier::Global, Modifier::SharedCta,
            Modifier::SharedCluster])], &[], &[]).since(ISA_8_0, 90),
    ]
    ACTIVEMASK [
        Form::new(&[], &[B32], &[D]).since(ISA_6_2, 30),
    ]
    SHFL [
        Form::new(&[SYNC, one(SHUFFLES)], &[B32],
            &[Shape::DestinationAndPredicate(Ty::First), S, U, U, U]),
    ]
    VOTE [
        Form::new(&[SYNC, one(VOTES)], &[PREDICATE], &[D, Shape::Predicate, U]),
        Form::new(&[SYNC, one(&[Modifier::Ballot])], &[B32], &[D, Shape::Predicate, U]),
    ]
    MATCH [
        Form::new(&[SYNC, one(&[Modifier::Any])], &[VALUES], &[D32, S, U]),
        Form::new(&[SYNC, one(&[Modifier::All])], &[VALUES],
            &[Shape::DestinationAndPredicate(Ty::Is(Type::B32)), S, U]),
    ]
    REDUX [
        Form::new(&[SYNC, one(&[Modifier::Add, Modifier::Min, Modifier::Max])], &[INT32],
            &[D, S, U]).since(ISA_7_0, 80),
        Form::new(&[SYNC, one(COMBINE)], &[B32], &[D, S, U]).since(ISA_7_0, 80),
    ]
    ELECT [
        Form::new(&[SYNC], &[], &[Shape::SinkAndPredicate(Ty::Is(Type::B32)), U])
            .since(ISA_8_0, 90),
    ]
}
