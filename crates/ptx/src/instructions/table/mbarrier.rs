//! Barriers in shared memory (`mbarrier`), which also count the bytes of asynchronous copies.
//!
//! `arrive_drop`, `pending_count` and `noComplete` with a scope are not supported.

use super::prelude::*;
use crate::ast::Modifier as M;

/// The space of the object; generic if absent.
const OWN: ModifierChoice = maybe(&[M::Shared, M::SharedCta]);
const CLUSTER_WIDE: ModifierChoice = one(&[M::SharedCluster]);
const SCOPE: ModifierChoice = one(&[M::Cta, M::Cluster]);
const RELEASE: ModifierChoice = one(&[M::Release]);
const ACQUIRE: ModifierChoice = one(&[M::Acquire]);
const RELAXED: ModifierChoice = one(&[M::Relaxed]);
const INIT: ModifierChoice = one(&[M::Init]);
const ARRIVE: ModifierChoice = one(&[M::Arrive]);
const ARRIVE_EXPECT: ModifierChoice = one(&[M::ArriveExpectTx]);
const COUNT_BYTES: ModifierChoice = one(&[M::ExpectTx, M::CompleteTx]);
const B64: &[Type] = &[Type::B64];
const PHASE: Shape = Shape::DestinationOrSink(Ty::Is(Type::U64));
const NEW_PHASE: Shape = Shape::Destination(Ty::Is(Type::U64));
const NO_PHASE: Shape = Shape::Sink;
const STATE: Shape = Shape::Source(Ty::Is(Type::U64));
const WAIT_STATE: &[Shape] = &[P, Shape::Memory, STATE];
const PARITY: Shape = Shape::Within(1);
const WAIT_PARITY: &[Shape] = &[P, Shape::Memory, PARITY];

forms! {
    MBARRIER [
        Form::new(&[INIT, OWN], &[B64], &[Shape::Memory, U]).since(ISA_7_0, 80),
        Form::new(&[one(&[M::Inval]), OWN], &[B64], &[Shape::Memory]).since(ISA_7_0, 80),
        Form::new(&[ARRIVE, OWN], &[B64], &[NEW_PHASE, Shape::Memory]).since(ISA_7_0, 80),
        Form::new(&[ARRIVE, OWN], &[B64], &[NO_PHASE, Shape::Memory]).since(ISA_7_1, 80),
        Form::new(&[ARRIVE, OWN], &[B64], &[PHASE, Shape::Memory, U]).since(ISA_7_8, 90),
        Form::new(&[ARRIVE, RELEASE, SCOPE, OWN], &[B64], &[PHASE, Shape::Memory])
            .since(ISA_8_0, 80),
        Form::new(&[ARRIVE, RELEASE, SCOPE, OWN], &[B64], &[PHASE, Shape::Memory, U])
            .since(ISA_8_0, 90),
        Form::new(&[ARRIVE, CLUSTER_WIDE], &[B64], &[NO_PHASE, Shape::Memory])
            .since(ISA_8_0, 90),
        Form::new(&[ARRIVE, CLUSTER_WIDE], &[B64], &[NO_PHASE, Shape::Memory, U])
            .since(ISA_8_0, 90),
        Form::new(&[ARRIVE, RELEASE, SCOPE, CLUSTER_WIDE], &[B64], &[NO_PHASE, Shape::Memory])
            .since(ISA_8_0, 90),
        Form::new(&[ARRIVE, RELEASE, SCOPE, CLUSTER_WIDE], &[B64],
            &[NO_PHASE, Shape::Memory, U]).since(ISA_8_0, 90),
        Form::new(&[one(&[M::ArriveNoComplete]), OWN], &[B64], &[NEW_PHASE, Shape::Memory, U])
            .since(ISA_7_0, 80),
        Form::new(&[one(&[M::ArriveNoComplete]), OWN], &[B64], &[NO_PHASE, Shape::Memory, U])
            .since(ISA_7_1, 80),
        Form::new(&[ARRIVE_EXPECT, OWN], &[B64], &[PHASE, Shape::Memory, U]).since(ISA_8_0, 90),
        Form::new(&[ARRIVE_EXPECT, RELEASE, SCOPE, OWN], &[B64], &[PHASE, Shape::Memory, U])
            .since(ISA_8_0, 90),
        Form::new(&[ARRIVE_EXPECT, CLUSTER_WIDE], &[B64], &[NO_PHASE, Shape::Memory, U])
            .since(ISA_8_0, 90),
        Form::new(&[ARRIVE_EXPECT, RELEASE, SCOPE, CLUSTER_WIDE], &[B64],
            &[NO_PHASE, Shape::Memory, U]).since(ISA_8_0, 90),
        Form::new(&[COUNT_BYTES, OWN], &[B64], &[Shape::Memory, U]).since(ISA_8_0, 90),
        Form::new(&[COUNT_BYTES, CLUSTER_WIDE], &[B64], &[Shape::Memory, U]).since(ISA_8_0, 90),
        Form::new(&[COUNT_BYTES, RELAXED, SCOPE, OWN], &[B64], &[Shape::Memory, U])
            .since(ISA_8_0, 90),
        Form::new(&[COUNT_BYTES, RELAXED, SCOPE, CLUSTER_WIDE], &[B64], &[Shape::Memory, U])
            .since(ISA_8_0, 90),
        Form::new(&[one(&[M::TestWait]), OWN], &[B64], WAIT_STATE).since(ISA_7_0, 80),
        Form::new(&[one(&[M::TestWaitParity]), OWN], &[B64], WAIT_PARITY).since(ISA_7_1, 80),
        Form::new(&[one(&[M::TestWait]), ACQUIRE, SCOPE, OWN], &[B64], WAIT_STATE)
            .since(ISA_8_0, 80),
        Form::new(&[one(&[M::TestWaitParity]), ACQUIRE, SCOPE, OWN], &[B64], WAIT_PARITY)
            .since(ISA_8_0, 80),
        Form::new(&[one(&[M::TryWait]), OWN], &[B64], WAIT_STATE).since(ISA_7_8, 90),
        Form::new(&[one(&[M::TryWait]), OWN], &[B64], &[P, Shape::Memory, STATE, U])
            .since(ISA_7_8, 90),
        Form::new(&[one(&[M::TryWaitParity]), OWN], &[B64], WAIT_PARITY).since(ISA_7_8, 90),
        Form::new(&[one(&[M::TryWaitParity]), OWN], &[B64], &[P, Shape::Memory, PARITY, U])
            .since(ISA_7_8, 90),
        Form::new(&[one(&[M::TryWait]), ACQUIRE, SCOPE, OWN], &[B64], WAIT_STATE)
            .since(ISA_8_0, 90),
        Form::new(&[one(&[M::TryWait]), ACQUIRE, SCOPE, OWN], &[B64],
            &[P, Shape::Memory, STATE, U]).since(ISA_8_0, 90),
        Form::new(&[one(&[M::TryWaitParity]), ACQUIRE, SCOPE, OWN], &[B64], WAIT_PARITY)
            .since(ISA_8_0, 90),
        Form::new(&[one(&[M::TryWaitParity]), ACQUIRE, SCOPE, OWN], &[B64],
            &[P, Shape::Memory, PARITY, U]).since(ISA_8_0, 90),
    ]
}
