//! Moves, loads, stores and conversions of addresses.

use super::prelude::*;

const LOAD_ORDER: &[Modifier] = &[Modifier::Relaxed, Modifier::Acquire];
const STORE_ORDER: &[Modifier] = &[Modifier::Relaxed, Modifier::Release];
const WEAK: ModifierChoice = maybe(&[Modifier::Weak]);
const VOLATILE: ModifierChoice = one(&[Modifier::Volatile]);
const VECTOR8: ModifierChoice = one(&[Modifier::V8]);
const GLOBAL: ModifierChoice = one(&[Modifier::Global]);
const NC: ModifierChoice = one(&[Modifier::Nc]);
/// The spaces of volatile accesses, which other threads can access.
const SEEN: ModifierChoice = maybe(ATOMIC_SPACES);
const LOAD_BY_POLICY: &[Shape] = &[Shape::Loaded, Shape::Memory, POLICY];
const STORE_BY_POLICY: &[Shape] = &[Shape::Memory, Shape::Stored, POLICY];
const B128: &[Type] = &[Type::B128];
/// Types of addresses in a cluster. The manual names the unsigned ones; `ptxas` takes both.
const ADDRESS_TYPES: &[Type] = &[Type::U32, Type::S32, Type::U64, Type::S64];
/// The space of a tensor map; generic if absent.
const PREFETCHED: ModifierChoice = maybe(&[Modifier::Param, Modifier::Const]);
const PARAM: ModifierChoice = one(&[Modifier::Param, Modifier::ParamEntry]);

forms! {
    MOV [
        Form::new(&[], &[MOVED], &[D, Shape::Anything]),
        Form::new(&[], &[&[Type::B32, Type::B64]], &[Shape::Unpacked, S]),
        Form::new(&[], &[&[Type::B16]], &[Shape::Unpacked, S]),
        Form::new(&[], &[B128], &[D, Shape::Anything]).since(ISA_8_3, 70),
        Form::new(&[], &[B128], &[Shape::Unpacked, S]).since(ISA_8_3, 70),
    ]
    LD [
        Form::new(&[WEAK, maybe(SPACES), maybe(LOAD_CACHE), maybe(VECTOR)], &[MEMORY], LOAD),
        Form::new(&[GLOBAL, maybe(READ_ONLY_CACHE), NC, maybe(VECTOR)], &[MEMORY], LOAD),
        Form::new(&[VOLATILE, SEEN, maybe(VECTOR)], &[MEMORY], LOAD),
        Form::new(&[one(LOAD_ORDER), one(SCOPES), SEEN, maybe(VECTOR)], &[MEMORY], LOAD),
        Form::new(&[WEAK, GENERIC_OR_GLOBAL, L1_EVICTION, L2_FETCH, maybe(VECTOR)], &[MEMORY],
            LOAD),
        Form::new(&[GLOBAL, maybe(READ_ONLY_CACHE), NC, L2_FETCH, maybe(VECTOR)], &[MEMORY], LOAD),
        Form::new(&[GLOBAL, NC, L1_EVICTION, L2_FETCH, maybe(VECTOR)], &[MEMORY], LOAD),
        Form::new(&[VOLATILE, GENERIC_OR_GLOBAL, L2_FETCH, maybe(VECTOR)], &[MEMORY], LOAD),
        Form::new(&[one(LOAD_ORDER), one(SCOPES), GENERIC_OR_GLOBAL, L1_EVICTION, L2_FETCH,
            maybe(VECTOR)], &[MEMORY], LOAD),
        Form::new(&[WEAK, GENERIC_OR_GLOBAL, L1_EVICTION, CACHE_HINT, L2_FETCH, maybe(VECTOR)],
            &[MEMORY], LOAD_BY_POLICY),
        Form::new(&[GLOBAL, NC, L1_EVICTION, CACHE_HINT, L2_FETCH, maybe(VECTOR)], &[MEMORY],
            LOAD_BY_POLICY),
        Form::new(&[one(&[Modifier::Mmio]), one(&[Modifier::Relaxed]), one(&[Modifier::Sys]),
            GENERIC_OR_GLOBAL], &[MEMORY], LOAD),
        Form::new(&[WEAK, maybe(SPACES)], &[B128], LOAD).since(ISA_8_3, 70),
        Form::new(&[GLOBAL, NC, L1_EVICTION, L2_FETCH], &[B128], LOAD).since(ISA_8_3, 70),
        Form::new(&[WEAK, GLOBAL, L1_EVICTION, L2_EVICTION, L2_FETCH, VECTOR8], &[WORDS], LOAD)
            .since(ISA_8_8, 100),
        Form::new(&[GLOBAL, NC, L1_EVICTION, L2_EVICTION, L2_FETCH, VECTOR8], &[WORDS], LOAD)
            .since(ISA_8_8, 100),
    ]
    LDU [
        Form::new(&[GENERIC_OR_GLOBAL, maybe(VECTOR)], &[MEMORY], LOAD),
    ]
    ST [
        Form::new(&[WEAK, maybe(STORE_SPACES), maybe(STORE_CACHE), maybe(VECTOR)], &[MEMORY],
            STORE),
        Form::new(&[VOLATILE, SEEN, maybe(VECTOR)], &[MEMORY], STORE),
        Form::new(&[one(STORE_ORDER), one(SCOPES), SEEN, maybe(VECTOR)], &[MEMORY], STORE),
        Form::new(&[WEAK, GENERIC_OR_GLOBAL, L1_EVICTION, maybe(VECTOR)], &[MEMORY], STORE),
        Form::new(&[one(STORE_ORDER), one(SCOPES), GENERIC_OR_GLOBAL, L1_EVICTION, maybe(VECTOR)],
            &[MEMORY], STORE),
        Form::new(&[WEAK, GENERIC_OR_GLOBAL, L1_EVICTION, CACHE_HINT, maybe(VECTOR)], &[MEMORY],
            STORE_BY_POLICY),
        Form::new(&[one(&[Modifier::Mmio]), one(&[Modifier::Relaxed]), one(&[Modifier::Sys]),
            GENERIC_OR_GLOBAL], &[MEMORY], STORE),
        Form::new(&[WEAK, maybe(STORE_SPACES)], &[B128], STORE).since(ISA_8_3, 70),
        Form::new(&[WEAK, GLOBAL, L1_EVICTION, L2_EVICTION, VECTOR8], &[WORDS], STORE)
            .since(ISA_8_8, 100),
    ]
    CVTA [
        Form::new(&[maybe(&[Modifier::To]), one(CVTA_SPACES)], &[&[Type::U64]],
            &[D, Shape::AddressValue]),
        Form::new(&[maybe(&[Modifier::To]), PARAM], &[&[Type::U64]], &[D, Shape::AddressValue])
            .since(ISA_7_7, 70),
    ]
    ISSPACEP [
        Form::new(&[one(ISSPACEP_SPACES)], &[], &[P, Shape::Source(Ty::Is(Type::U64))]),
        Form::new(&[PARAM], &[], &[P, Shape::Source(Ty::Is(Type::U64))]).since(ISA_7_7, 70),
    ]
    PREFETCH [
        Form::new(&[maybe(&[Modifier::Global, Modifier::Local]),
            one(&[Modifier::L1, Modifier::L2])], &[], &[Shape::Memory]),
        Form::new(&[PREFETCHED, one(&[Modifier::Tensormap])], &[], &[Shape::Memory])
            .since(ISA_8_0, 90),
        Form::new(&[GLOBAL, one(&[Modifier::L2EvictNormal, Modifier::L2EvictLast])], &[],
            &[Shape::Memory]).since(ISA_7_4, 80),
    ]
    MAPA [
        Form::new(&[maybe(&[Modifier::SharedCluster])], &[ADDRESS_TYPES],
            &[D, Shape::AddressValue, U]).since(ISA_7_8, 90),
    ]
    GETCTARANK [
        Form::new(&[maybe(&[Modifier::SharedCluster])], &[ADDRESS_TYPES],
            &[D32, Shape::AddressValue]).since(ISA_7_8, 90),
    ]
    PREFETCHU [
        Form::new(&[one(&[Modifier::L1])], &[], &[Shape::Memory]),
    ]
}
