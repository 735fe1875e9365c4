//! Atomic operations and reductions in memory.

use super::prelude::*;

forms! {
    ATOM [
        Form::new(ATOMIC_ADD, &[ADDED], ATOM_OPERANDS),
        Form::new(ATOMIC_EXTREME, &[INT32_64], ATOM_OPERANDS),
        Form::new(ATOMIC_LOGIC, &[B32_64], ATOM_OPERANDS),
        Form::new(ATOMIC_COUNT, &[U32], ATOM_OPERANDS),
        Form::new(ATOMIC_EXCHANGE, &[B32_64], ATOM_OPERANDS),
        Form::new(ATOMIC_COMPARE, &[B32_64], &[DS_OR_SINK, Shape::Memory, S, S]),
    ]
    RED [
        Form::new(REDUCE_ADD, &[ADDED], &[Shape::Memory, S]),
        Form::new(REDUCE_EXTREME, &[INT32_64], &[Shape::Memory, S]),
        Form::new(REDUCE_LOGIC, &[B32_64], &[Shape::Memory, S]),
        Form::new(REDUCE_COUNT, &[U32], &[Shape::Memory, S]),
    ]
}
