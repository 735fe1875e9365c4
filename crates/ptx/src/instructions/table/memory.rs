//! Moves, loads, stores and conversions of addresses.

use super::prelude::*;

forms! {
    MOV [
        Form::new(&[], &[MOVED], &[D, Shape::Anything]),
        Form::new(&[], &[&[Type::B32, Type::B64]], &[Shape::Unpacked, S]),
    ]
    LD [
        Form::new(&[maybe(SPACES), maybe(LOAD_CACHE), maybe(VECTOR)], &[MEMORY], LOAD),
        Form::new(&[one(&[Modifier::Global]), maybe(READ_ONLY_CACHE), one(&[Modifier::Nc]),
            maybe(VECTOR)], &[MEMORY], LOAD),
        Form::new(&[one(WEAK), maybe(SPACES), maybe(VECTOR)], &[MEMORY], LOAD),
        Form::new(&[one(&[Modifier::Relaxed, Modifier::Acquire]), one(SCOPES), maybe(ATOMIC_SPACES),
            maybe(VECTOR)], &[MEMORY], LOAD),
    ]
    ST [
        Form::new(&[maybe(STORE_SPACES), maybe(STORE_CACHE), maybe(VECTOR)], &[MEMORY], STORE),
        Form::new(&[one(WEAK), maybe(STORE_SPACES), maybe(VECTOR)], &[MEMORY], STORE),
        Form::new(&[one(&[Modifier::Relaxed, Modifier::Release]), one(SCOPES), maybe(ATOMIC_SPACES),
            maybe(VECTOR)], &[MEMORY], STORE),
    ]
    CVTA [
        Form::new(&[maybe(&[Modifier::To]), one(CVTA_SPACES)], &[&[Type::U64]],
            &[D, Shape::AddressValue]),
    ]
}
