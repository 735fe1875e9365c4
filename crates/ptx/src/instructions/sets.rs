//! Sets of modifiers and types, and lists of operands, that rows of the table share.

use super::form::{ModifierChoice, Shape, Ty, maybe, one};
use crate::ast::{Modifier as M, Type};
use crate::target::IsaVersion;

pub(super) const ISA_6_2: IsaVersion = IsaVersion::new(6, 2);
pub(super) const ISA_6_3: IsaVersion = IsaVersion::new(6, 3);
pub(super) const ISA_6_5: IsaVersion = IsaVersion::new(6, 5);
pub(super) const ISA_7_0: IsaVersion = IsaVersion::new(7, 0);
pub(super) const ISA_7_1: IsaVersion = IsaVersion::new(7, 1);
pub(super) const ISA_7_2: IsaVersion = IsaVersion::new(7, 2);
pub(super) const ISA_7_4: IsaVersion = IsaVersion::new(7, 4);
pub(super) const ISA_7_5: IsaVersion = IsaVersion::new(7, 5);
pub(super) const ISA_7_7: IsaVersion = IsaVersion::new(7, 7);
pub(super) const ISA_7_8: IsaVersion = IsaVersion::new(7, 8);
pub(super) const ISA_8_0: IsaVersion = IsaVersion::new(8, 0);
pub(super) const ISA_8_1: IsaVersion = IsaVersion::new(8, 1);
pub(super) const ISA_8_3: IsaVersion = IsaVersion::new(8, 3);
pub(super) const ISA_8_4: IsaVersion = IsaVersion::new(8, 4);
pub(super) const ISA_8_6: IsaVersion = IsaVersion::new(8, 6);
pub(super) const ISA_8_8: IsaVersion = IsaVersion::new(8, 8);

// Modifiers.
pub(super) const FTZ: ModifierChoice = maybe(&[M::Ftz]);
pub(super) const SAT: ModifierChoice = maybe(&[M::Sat]);
pub(super) const ALIGNED: ModifierChoice = maybe(&[M::Aligned]);
pub(super) const APPROX: ModifierChoice = one(&[M::Approx]);
pub(super) const ROUND: &[M] = &[M::Rn, M::Rz, M::Rm, M::Rp];
pub(super) const ROUND_OR_APPROX: &[M] = &[M::Rn, M::Rz, M::Rm, M::Rp, M::Approx];
pub(super) const ROUND_INTEGER: &[M] = &[M::Rni, M::Rzi, M::Rmi, M::Rpi];
pub(super) const SPACES: &[M] = &[
    M::Global,
    M::Shared,
    M::SharedCta,
    M::SharedCluster,
    M::Local,
    M::Const,
    M::Param,
    M::ParamEntry,
    M::ParamFunc,
];
/// The spaces of stores: parameters are arguments of calls and results of functions.
pub(super) const STORE_SPACES: &[M] =
    &[M::Global, M::Shared, M::SharedCta, M::SharedCluster, M::Local, M::Param, M::ParamFunc];
pub(super) const ATOMIC_SPACES: &[M] = &[M::Global, M::Shared, M::SharedCta, M::SharedCluster];
pub(super) const WMMA_SPACES: &[M] = &[M::Global, M::Shared, M::SharedCta];
pub(super) const CVTA_SPACES: &[M] =
    &[M::Global, M::Shared, M::SharedCta, M::SharedCluster, M::Local, M::Const];
pub(super) const ISSPACEP_SPACES: &[M] =
    &[M::Global, M::Shared, M::SharedCta, M::SharedCluster, M::Local, M::Const];
pub(super) const SCOPES: &[M] = &[M::Cta, M::Cluster, M::Gpu, M::Sys];
pub(super) const LOAD_CACHE: &[M] = &[M::Ca, M::Cg, M::Cs, M::Lu, M::Cv];
/// Eviction priority of the L1 cache.
pub(super) const L1_EVICTION: ModifierChoice = maybe(&[
    M::L1EvictNormal,
    M::L1EvictUnchanged,
    M::L1EvictFirst,
    M::L1EvictLast,
    M::L1NoAllocate,
]);
/// The L2 prefetch size.
pub(super) const L2_FETCH: ModifierChoice = maybe(&[M::L2Bytes64, M::L2Bytes128, M::L2Bytes256]);
pub(super) const GENERIC_OR_GLOBAL: ModifierChoice = maybe(&[M::Global]);
pub(super) const L2_EVICTION: ModifierChoice =
    maybe(&[M::L2EvictNormal, M::L2EvictFirst, M::L2EvictLast]);
pub(super) const CACHE_HINT: ModifierChoice = one(&[M::L2CacheHint]);
pub(super) const READ_ONLY_CACHE: &[M] = &[M::Ca, M::Cg, M::Cs];
pub(super) const STORE_CACHE: &[M] = &[M::Wb, M::Cg, M::Cs, M::Wt];
pub(super) const VECTOR: &[M] = &[M::V2, M::V4];
pub(super) const SHUFFLES: &[M] = &[M::Bfly, M::Up, M::Down, M::Idx];
pub(super) const VOTES: &[M] = &[M::Any, M::All, M::Uni];
pub(super) const COMBINE: &[M] = &[M::And, M::Or, M::Xor];
pub(super) const COMPARE_BITS: &[M] = &[M::Eq, M::Ne];
pub(super) const COMPARE_SIGNED: &[M] = &[M::Eq, M::Ne, M::Lt, M::Le, M::Gt, M::Ge];
pub(super) const COMPARE_UNSIGNED: &[M] =
    &[M::Eq, M::Ne, M::Lt, M::Le, M::Gt, M::Ge, M::Lo, M::Ls, M::Hi, M::Hs];
pub(super) const COMPARE_FLOAT: &[M] = &[
    M::Eq,
    M::Ne,
    M::Lt,
    M::Le,
    M::Gt,
    M::Ge,
    M::Equ,
    M::Neu,
    M::Ltu,
    M::Leu,
    M::Gtu,
    M::Geu,
    M::Num,
    M::Nan,
];
pub(super) const CLASSES: &[M] =
    &[M::Finite, M::Infinite, M::Number, M::NotANumber, M::Normal, M::Subnormal];

pub(super) const ATOMIC_ORDER: ModifierChoice =
    maybe(&[M::Relaxed, M::Acquire, M::Release, M::AcqRel]);
pub(super) const REDUCE_ORDER: ModifierChoice = maybe(&[M::Relaxed, M::Release]);
pub(super) const ATOMIC_SCOPE: ModifierChoice = maybe(SCOPES);
const WHERE: ModifierChoice = maybe(ATOMIC_SPACES);
const ADD_HALF: [ModifierChoice; 2] = [one(&[M::Add]), one(&[M::NoFtz])];

/// The slots of an atomic operation.
const fn atomic(operation: ModifierChoice) -> [ModifierChoice; 4] {
    [ATOMIC_ORDER, ATOMIC_SCOPE, WHERE, operation]
}

/// The slots of a reduction.
const fn reduction(operation: ModifierChoice) -> [ModifierChoice; 4] {
    [REDUCE_ORDER, ATOMIC_SCOPE, WHERE, operation]
}

pub(super) const ATOMIC_ADD: &[ModifierChoice] = &atomic(one(&[M::Add]));
pub(super) const ATOMIC_EXTREME: &[ModifierChoice] = &atomic(one(&[M::Min, M::Max]));
pub(super) const ATOMIC_LOGIC: &[ModifierChoice] = &atomic(one(COMBINE));
pub(super) const ATOMIC_COUNT: &[ModifierChoice] = &atomic(one(&[M::Inc, M::Dec]));
pub(super) const ATOMIC_EXCHANGE: &[ModifierChoice] = &atomic(one(&[M::Exch]));
pub(super) const ATOMIC_COMPARE: &[ModifierChoice] = &atomic(one(&[M::Cas]));
pub(super) const ATOMIC_ADD_HALF: &[ModifierChoice] =
    &[ATOMIC_ORDER, ATOMIC_SCOPE, WHERE, ADD_HALF[0], ADD_HALF[1]];

pub(super) const REDUCE_ADD: &[ModifierChoice] = &reduction(one(&[M::Add]));
pub(super) const REDUCE_EXTREME: &[ModifierChoice] = &reduction(one(&[M::Min, M::Max]));
pub(super) const REDUCE_LOGIC: &[ModifierChoice] = &reduction(one(COMBINE));
pub(super) const REDUCE_COUNT: &[ModifierChoice] = &reduction(one(&[M::Inc, M::Dec]));
pub(super) const REDUCE_ADD_HALF: &[ModifierChoice] =
    &[REDUCE_ORDER, ATOMIC_SCOPE, WHERE, ADD_HALF[0], ADD_HALF[1]];

// Types.
pub(super) const F16: &[Type] = &[Type::F16];
pub(super) const F16S: &[Type] = &[Type::F16, Type::F16x2];
pub(super) const BF16S: &[Type] = &[Type::Bf16, Type::Bf16x2];
pub(super) const FLOATS8: &[Type] = &[Type::E4m3x2, Type::E5m2x2];
pub(super) const BF16: &[Type] = &[Type::Bf16];
pub(super) const F32: &[Type] = &[Type::F32];
pub(super) const F64: &[Type] = &[Type::F64];
pub(super) const U32: &[Type] = &[Type::U32];
pub(super) const S32: &[Type] = &[Type::S32];
pub(super) const B32: &[Type] = &[Type::B32];
pub(super) const FLOATS: &[Type] = &[Type::F32, Type::F64];
pub(super) const SIGNED: &[Type] = &[Type::S16, Type::S32, Type::S64];
pub(super) const UNSIGNED: &[Type] = &[Type::U16, Type::U32, Type::U64];
pub(super) const INT32: &[Type] = &[Type::U32, Type::S32];
pub(super) const INT32_64: &[Type] = &[Type::U32, Type::U64, Type::S32, Type::S64];
pub(super) const B32_64: &[Type] = &[Type::B32, Type::B64];
pub(super) const BITS: &[Type] = &[Type::B16, Type::B32, Type::B64];
pub(super) const LOGIC: &[Type] = &[Type::Pred, Type::B16, Type::B32, Type::B64];
pub(super) const SET_RESULT: &[Type] = &[Type::U32, Type::S32, Type::F32];
/// Integer results of `set` for halves.
pub(super) const SET_INTEGER: &[Type] = &[Type::U16, Type::S16, Type::U32, Type::S32];
pub(super) const ADDED: &[Type] = &[Type::U32, Type::S32, Type::U64, Type::F32, Type::F64];
pub(super) const NARROW_INTEGERS: &[Type] = &[Type::U16, Type::U32, Type::S16, Type::S32];
pub(super) const WIDE_INTEGERS: &[Type] =
    &[Type::U16, Type::U32, Type::U64, Type::S16, Type::S32, Type::S64];
pub(super) const INTEGERS: &[Type] =
    &[Type::U8, Type::U16, Type::U32, Type::U64, Type::S8, Type::S16, Type::S32, Type::S64];
pub(super) const SHIFTED_RIGHT: &[Type] = &[
    Type::B16,
    Type::B32,
    Type::B64,
    Type::U16,
    Type::U32,
    Type::U64,
    Type::S16,
    Type::S32,
    Type::S64,
];
pub(super) const SELECTED: &[Type] = &[
    Type::B16,
    Type::B32,
    Type::B64,
    Type::U16,
    Type::U32,
    Type::U64,
    Type::S16,
    Type::S32,
    Type::S64,
    Type::F32,
    Type::F64,
];
pub(super) const MOVED: &[Type] = &[
    Type::Pred,
    Type::B16,
    Type::B32,
    Type::B64,
    Type::U16,
    Type::U32,
    Type::U64,
    Type::S16,
    Type::S32,
    Type::S64,
    Type::F32,
    Type::F64,
];
pub(super) const MEMORY: &[Type] = &[
    Type::B8,
    Type::B16,
    Type::B32,
    Type::B64,
    Type::U8,
    Type::U16,
    Type::U32,
    Type::U64,
    Type::S8,
    Type::S16,
    Type::S32,
    Type::S64,
    Type::F32,
    Type::F64,
];

/// Types of 32 and 64 bits.
pub(super) const WORDS: &[Type] = &[Type::B32, Type::U32, Type::S32, Type::F32];

// Integers with values outside of the range of the named type.
const ALL_SIGNED: &[Type] = &[Type::S8, Type::S16, Type::S32, Type::S64];
pub(super) const BEYOND_U8: &[Type] =
    &[Type::U16, Type::U32, Type::U64, Type::S8, Type::S16, Type::S32, Type::S64];
pub(super) const BEYOND_U16: &[Type] =
    &[Type::U32, Type::U64, Type::S8, Type::S16, Type::S32, Type::S64];
pub(super) const BEYOND_U32: &[Type] = &[Type::U64, Type::S8, Type::S16, Type::S32, Type::S64];
pub(super) const BEYOND_U64: &[Type] = ALL_SIGNED;
pub(super) const BEYOND_S8: &[Type] =
    &[Type::U8, Type::U16, Type::U32, Type::U64, Type::S16, Type::S32, Type::S64];
pub(super) const BEYOND_S16: &[Type] = &[Type::U16, Type::U32, Type::U64, Type::S32, Type::S64];
pub(super) const BEYOND_S32: &[Type] = &[Type::U32, Type::U64, Type::S64];
pub(super) const BEYOND_S64: &[Type] = &[Type::U64];

// Operands: D is a destination, S a source, both of the first type; U is a 32-bit source.
pub(super) const D: Shape = Shape::Destination(Ty::First);
pub(super) const D2: Shape = Shape::Destination(Ty::Double);
pub(super) const D32: Shape = Shape::Destination(Ty::Is(Type::U32));
pub(super) const DS_OR_SINK: Shape = Shape::DestinationOrSink(Ty::First);
pub(super) const S: Shape = Shape::Source(Ty::First);
/// A source of the second type.
pub(super) const S2: Shape = Shape::Source(Ty::Second);
pub(super) const U: Shape = Shape::Source(Ty::Is(Type::U32));
pub(super) const P: Shape = Shape::Destination(Ty::Is(Type::Pred));
pub(super) const DS: &[Shape] = &[D, S];
pub(super) const DSS: &[Shape] = &[D, S, S];
pub(super) const DSSS: &[Shape] = &[D, S, S, S];
pub(super) const POLICY: Shape = Shape::Source(Ty::Is(Type::B64));
pub(super) const LOAD: &[Shape] = &[Shape::Loaded, Shape::Memory];
pub(super) const STORE: &[Shape] = &[Shape::Memory, Shape::Stored];
pub(super) const CONVERT: &[Shape] =
    &[Shape::WideDestination(Ty::First), Shape::WideSource(Ty::Second)];
const COMPARED: Shape = Shape::Predicates;
pub(super) const COMPARE: &[Shape] = &[COMPARED, S, S];
pub(super) const COMPARE_ONE: &[Shape] = &[P, S, S];
pub(super) const COMPARE_ONE_AND_COMBINE: &[Shape] = &[P, S, S, Shape::Predicate];
pub(super) const COMPARE_AND_COMBINE: &[Shape] = &[COMPARED, S, S, Shape::Predicate];
pub(super) const SET_OPERANDS: &[Shape] = &[D, S2, S2];
pub(super) const SET_AND_COMBINE: &[Shape] = &[D, S2, S2, Shape::Predicate];
pub(super) const ATOM_OPERANDS: &[Shape] = &[DS_OR_SINK, Shape::Memory, S];
