//! Atomic operations and reductions in memory.

use super::prelude::*;

const NOFTZ: ModifierChoice = one(&[Modifier::NoFtz]);
const EXTREME_OR_ADD: ModifierChoice = one(&[Modifier::Add, Modifier::Min, Modifier::Max]);
const GLOBAL: ModifierChoice = maybe(&[Modifier::Global]);
const HALVES: &[Type] = &[Type::F16, Type::Bf16];
const PACKED: &[Type] = &[Type::F16x2, Type::Bf16x2];
const ATOM_VECTOR: &[Shape] = &[Shape::LoadedOrSink, Shape::Memory, Shape::Stored];
const RED_VECTOR: &[Shape] = &[Shape::Memory, Shape::Stored];
const V8: &[Modifier] = &[Modifier::V2, Modifier::V4, Modifier::V8];
const CAS: &[Shape] = &[DS_OR_SINK, Shape::Memory, S, S];

forms! {
    ATOM [
        Form::new(ATOMIC_ADD, &[ADDED], ATOM_OPERANDS),
        Form::new(ATOMIC_EXTREME, &[INT32_64], ATOM_OPERANDS),
        Form::new(ATOMIC_LOGIC, &[B32_64], ATOM_OPERANDS),
        Form::new(ATOMIC_COUNT, &[U32], ATOM_OPERANDS),
        Form::new(ATOMIC_EXCHANGE, &[B32_64], ATOM_OPERANDS),
        Form::new(ATOMIC_COMPARE, &[&[Type::B16, Type::B32, Type::B64]], CAS),
        Form::new(ATOMIC_EXCHANGE, &[&[Type::B128]], ATOM_OPERANDS).since(ISA_8_4, 90),
        Form::new(ATOMIC_COMPARE, &[&[Type::B128]], CAS).since(ISA_8_4, 90),
        Form::new(ATOMIC_ADD_HALF, &[F16S], ATOM_OPERANDS).since(ISA_6_3, 70),
        Form::new(ATOMIC_ADD_HALF, &[BF16S], ATOM_OPERANDS).since(ISA_7_8, 90),
        Form::new(&[ATOMIC_ORDER, ATOMIC_SCOPE, GLOBAL, one(&[Modifier::Add]), one(VECTOR)], &[F32],
            ATOM_VECTOR).since(ISA_8_1, 90),
        Form::new(&[ATOMIC_ORDER, ATOMIC_SCOPE, GLOBAL, EXTREME_OR_ADD, NOFTZ, one(VECTOR)],
            &[PACKED], ATOM_VECTOR).since(ISA_8_1, 90),
        Form::new(&[ATOMIC_ORDER, ATOMIC_SCOPE, GLOBAL, EXTREME_OR_ADD, NOFTZ, one(V8)], &[HALVES],
            ATOM_VECTOR).since(ISA_8_1, 90),
    ]
    RED [
        Form::new(REDUCE_ADD, &[ADDED], &[Shape::Memory, S]),
        Form::new(REDUCE_EXTREME, &[INT32_64], &[Shape::Memory, S]),
        Form::new(REDUCE_LOGIC, &[B32_64], &[Shape::Memory, S]),
        Form::new(REDUCE_COUNT, &[U32], &[Shape::Memory, S]),
        Form::new(REDUCE_ADD_HALF, &[F16S], &[Shape::Memory, S]).since(ISA_6_3, 70),
        Form::new(REDUCE_ADD_HALF, &[BF16S], &[Shape::Memory, S]).since(ISA_7_8, 90),
        Form::new(&[REDUCE_ORDER, ATOMIC_SCOPE, GLOBAL, one(&[Modifier::Add]), one(VECTOR)], &[F32],
            RED_VECTOR).since(ISA_8_1, 90),
        Form::new(&[REDUCE_ORDER, ATOMIC_SCOPE, GLOBAL, EXTREME_OR_ADD, NOFTZ, one(VECTOR)],
            &[PACKED], RED_VECTOR).since(ISA_8_1, 90),
        Form::new(&[REDUCE_ORDER, ATOMIC_SCOPE, GLOBAL, EXTREME_OR_ADD, NOFTZ, one(V8)], &[HALVES],
            RED_VECTOR).since(ISA_8_1, 90),
    ]
}
