//! Asynchronous copies, matrix loads and stores, and tensor cores.

use super::prelude::*;
use crate::ast::{Modifier as M, StateSpace};
use crate::instructions::form::ModifierChoice;

const ASYNC: ModifierChoice = one(&[M::Async]);
const CA: ModifierChoice = one(&[M::Ca]);
const CG: ModifierChoice = one(&[M::Cg]);
const SHARED_GLOBAL: ModifierChoice = one(&[M::SharedGlobal]);
const BULK: ModifierChoice = one(&[M::AsyncBulk]);
const TO_SHARED: ModifierChoice = one(&[M::SharedClusterGlobal]);
const TO_GLOBAL: ModifierChoice = one(&[M::GlobalSharedCta]);
const COMPLETE_TX: ModifierChoice = one(&[M::MbarrierCompleteTxBytes]);
const BULK_GROUP: ModifierChoice = one(&[M::BulkGroup]);
const MULTICAST: ModifierChoice = one(&[M::MulticastCluster]);
const TENSOR: ModifierChoice = one(&[M::AsyncBulkTensor]);
const BULK_REDUCE: ModifierChoice = one(&[M::ReduceAsyncBulk]);
const TENSOR_REDUCE: ModifierChoice = one(&[M::ReduceAsyncBulkTensor]);
const RANK: ModifierChoice = one(&[M::Dim2, M::Dim1, M::Dim3, M::Dim4, M::Dim5]);
const TILE: ModifierChoice = maybe(&[M::Tile]);
const REDUCTION: ModifierChoice = one(&[M::Add, M::Min, M::Max]);
const ADD: ModifierChoice = one(&[M::Add]);
const BOX: Shape = Shape::TensorCoordinates;
const MBARRIER: Shape = Shape::MemoryIn(StateSpace::Shared);
/// The mask of destination blocks of a multicast.
const BLOCKS: Shape = Shape::Source(Ty::Is(Type::U16));
const TO: Shape = Shape::MemoryIn(StateSpace::Shared);
const FROM: Shape = Shape::MemoryIn(StateSpace::Global);
const SIZE: Shape = Shape::OneOf(&[4, 8, 16]);
const SIZE_16: Shape = Shape::OneOf(&[16]);
const IGNORE: Shape = Shape::PredicateRegister;
const SOURCE_SIZE: Shape = Shape::UpToPrevious(Type::U32);

const SYNC: ModifierChoice = one(&[M::Sync]);
const CONVERGED: ModifierChoice = one(&[M::Aligned]);
const M8N8: ModifierChoice = one(&[M::M8n8]);
const TRANS: ModifierChoice = maybe(&[M::Trans]);
const IN_SHARED: ModifierChoice = maybe(&[M::Shared]);
const X1: ModifierChoice = one(&[M::X1]);
const X2: ModifierChoice = one(&[M::X2]);
const X4: ModifierChoice = one(&[M::X4]);
const B16: &[Type] = &[Type::B16];
const BYTES: &[Type] = &[Type::U8, Type::S8];
const TF32: &[Type] = &[Type::Tf32];

// Slots of `mma`; the first matrix is row-major, the second column-major.
const ROW_COL: ModifierChoice = one(&[M::RowCol]);
const M8N8K4: ModifierChoice = one(&[M::M8n8k4]);
const M8N8K16: ModifierChoice = one(&[M::M8n8k16]);
const M16N8K4: ModifierChoice = one(&[M::M16n8k4]);
const M16N8K8: ModifierChoice = one(&[M::M16n8k8]);
const M16N8K16: ModifierChoice = one(&[M::M16n8k16]);
const M16N8K32: ModifierChoice = one(&[M::M16n8k32]);
const SATFINITE: ModifierChoice = maybe(&[M::Satfinite]);
const F64_ROUND: ModifierChoice = maybe(ROUND);

/// The registers of a fragment: their type and number.
struct Registers {
    ty: Type,
    count: usize,
}

impl Registers {
    const fn new(ty: Type, count: usize) -> Self {
        Self { ty, count }
    }
}

/// The registers of an instruction d = a · b + c: of d, a, b and c.
const fn product(sum: Registers, factor: Type, a: usize, b: usize) -> [Shape; 4] {
    [
        Shape::FragmentDestination(sum.ty, sum.count),
        Shape::Fragment(factor, a),
        Shape::Fragment(factor, b),
        Shape::Fragment(sum.ty, sum.count),
    ]
}

const fn wide(list: [Shape; 4], d: Registers) -> [Shape; 4] {
    [Shape::FragmentDestination(d.ty, d.count), list[1], list[2], list[3]]
}

const HALVES_2: Registers = Registers::new(Type::F16x2, 2);
const HALVES_4: Registers = Registers::new(Type::F16x2, 4);
const SINGLES_4: Registers = Registers::new(Type::F32, 4);
const SINGLES_8: Registers = Registers::new(Type::F32, 8);
const INTEGERS_2: Registers = Registers::new(Type::S32, 2);
const INTEGERS_4: Registers = Registers::new(Type::S32, 4);
const INTEGERS_8: Registers = Registers::new(Type::S32, 8);
const DOUBLES_2: Registers = Registers::new(Type::F64, 2);
const DOUBLES_4: Registers = Registers::new(Type::F64, 4);

// Slots of `wmma`.
const LAYOUTS: ModifierChoice = one(&[M::RowRow, M::RowCol, M::ColRow, M::ColCol]);
const LAYOUT: ModifierChoice = one(&[M::Row, M::Col]);
const WHERE: ModifierChoice = maybe(WMMA_SPACES);
/// The shapes with a depth of 16.
const K16: ModifierChoice = one(&[M::M16n16k16, M::M32n8k16, M::M8n32k16]);
const M16N16K16: ModifierChoice = one(&[M::M16n16k16]);
const M32N8K16: ModifierChoice = one(&[M::M32n8k16]);
const M8N32K16: ModifierChoice = one(&[M::M8n32k16]);
const M16N16K8: ModifierChoice = one(&[M::M16n16k8]);
const LOAD_A: ModifierChoice = one(&[M::LoadA]);
const LOAD_B: ModifierChoice = one(&[M::LoadB]);
const LOAD_AB: ModifierChoice = one(&[M::LoadA, M::LoadB]);
const LOAD_C: ModifierChoice = one(&[M::LoadC]);
const STORE_D: ModifierChoice = one(&[M::StoreD]);
const MMA_WORD: ModifierChoice = one(&[M::Mma]);

/// A fragment and its address; the leading dimension is optional.
macro_rules! loads {
    ($($name:ident = $ty:ident $count:literal;)*) => { $(
        mod $name {
            use super::*;
            pub(super) const NEAR: &[Shape] =
                &[Shape::FragmentDestination(Type::$ty, $count), Shape::Memory];
            pub(super) const FAR: &[Shape] =
                &[Shape::FragmentDestination(Type::$ty, $count), Shape::Memory, U];
        }
    )* };
}

loads! {
    halves_8 = F16x2 8;
    halves_4 = F16x2 4;
    singles_8 = F32 8;
    bf16s_2 = Bf16x2 2;
    bf16s_4 = Bf16x2 4;
    bf16s_8 = Bf16x2 8;
    tensor_4 = Tf32 4;
    bytes_1 = B32 1;
    bytes_2 = B32 2;
    bytes_4 = B32 4;
    integers_8 = S32 8;
}

macro_rules! stores {
    ($($near:ident, $far:ident = $ty:ident $count:literal;)*) => { $(
        const $near: &[Shape] = &[Shape::Memory, Shape::Fragment(Type::$ty, $count)];
        const $far: &[Shape] = &[Shape::Memory, Shape::Fragment(Type::$ty, $count), U];
    )* };
}

stores! {
    STORE_HALVES, STORE_HALVES_FAR = F16x2 4;
    STORE_SINGLES, STORE_SINGLES_FAR = F32 8;
    STORE_INTEGERS, STORE_INTEGERS_FAR = S32 8;
}

forms! {
    CP [
        Form::new(&[ASYNC, CA, SHARED_GLOBAL], &[], &[TO, FROM, SIZE]).since(ISA_7_0, 80),
        Form::new(&[ASYNC, CG, SHARED_GLOBAL], &[], &[TO, FROM, SIZE_16]).since(ISA_7_0, 80),
        Form::new(&[ASYNC, CA, SHARED_GLOBAL], &[], &[TO, FROM, SIZE, SOURCE_SIZE])
            .since(ISA_7_0, 80),
        Form::new(&[ASYNC, CG, SHARED_GLOBAL], &[], &[TO, FROM, SIZE_16, SOURCE_SIZE])
            .since(ISA_7_0, 80),
        Form::new(&[ASYNC, CA, SHARED_GLOBAL], &[], &[TO, FROM, SIZE, IGNORE])
            .since(ISA_7_5, 80),
        Form::new(&[ASYNC, CG, SHARED_GLOBAL], &[], &[TO, FROM, SIZE_16, IGNORE])
            .since(ISA_7_5, 80),
        Form::new(&[ASYNC, one(&[M::CommitGroup])], &[], &[]).since(ISA_7_0, 80),
        Form::new(&[ASYNC, one(&[M::WaitGroup])], &[], &[Shape::Integer]).since(ISA_7_0, 80),
        Form::new(&[ASYNC, one(&[M::WaitAll])], &[], &[]).since(ISA_7_0, 80),
        Form::new(&[one(&[M::BulkPrefetch]), one(&[M::L2Global])], &[], &[FROM, U])
            .since(ISA_8_0, 90),
        Form::new(&[one(&[M::BulkCommitGroup])], &[], &[]).since(ISA_8_0, 90),
        Form::new(&[one(&[M::BulkWaitGroup]), maybe(&[M::Read])], &[], &[Shape::Count])
            .since(ISA_8_0, 90),
        Form::new(&[BULK, TO_SHARED, COMPLETE_TX], &[], &[TO, FROM, U, MBARRIER])
            .since(ISA_8_0, 90),
        Form::new(&[BULK, TO_SHARED, COMPLETE_TX, CACHE_HINT], &[],
            &[TO, FROM, U, MBARRIER, POLICY]).since(ISA_8_0, 90),
        Form::new(&[BULK, TO_SHARED, COMPLETE_TX, MULTICAST], &[],
            &[TO, FROM, U, MBARRIER, BLOCKS]).since(ISA_8_0, 90),
        Form::new(&[BULK, TO_SHARED, COMPLETE_TX, MULTICAST, CACHE_HINT], &[],
            &[TO, FROM, U, MBARRIER, BLOCKS, POLICY]).since(ISA_8_0, 90),
        Form::new(&[BULK, TO_GLOBAL, BULK_GROUP], &[], &[FROM, TO, U]).since(ISA_8_0, 90),
        Form::new(&[BULK, TO_GLOBAL, BULK_GROUP, CACHE_HINT], &[], &[FROM, TO, U, POLICY])
            .since(ISA_8_0, 90),
        Form::new(&[BULK_REDUCE, TO_GLOBAL, BULK_GROUP, ADD], &[F32], &[FROM, TO, U])
            .since(ISA_8_0, 90),
        Form::new(&[BULK_REDUCE, TO_GLOBAL, BULK_GROUP, CACHE_HINT, ADD], &[F32],
            &[FROM, TO, U, POLICY]).since(ISA_8_0, 90),
        Form::new(&[TENSOR, RANK, TO_SHARED, TILE, COMPLETE_TX], &[], &[TO, BOX, MBARRIER])
            .since(ISA_8_0, 90),
        Form::new(&[TENSOR, RANK, TO_SHARED, TILE, COMPLETE_TX, CACHE_HINT], &[],
            &[TO, BOX, MBARRIER, POLICY]).since(ISA_8_0, 90),
        Form::new(&[TENSOR, RANK, TO_SHARED, TILE, COMPLETE_TX, MULTICAST], &[],
            &[TO, BOX, MBARRIER, BLOCKS]).since(ISA_8_0, 90),
        Form::new(&[TENSOR, RANK, TO_SHARED, TILE, COMPLETE_TX, MULTICAST, CACHE_HINT], &[],
            &[TO, BOX, MBARRIER, BLOCKS, POLICY]).since(ISA_8_0, 90),
        Form::new(&[TENSOR, RANK, TO_GLOBAL, TILE, BULK_GROUP], &[], &[BOX, TO])
            .since(ISA_8_0, 90),
        Form::new(&[TENSOR, RANK, TO_GLOBAL, TILE, BULK_GROUP, CACHE_HINT], &[],
            &[BOX, TO, POLICY]).since(ISA_8_0, 90),
        Form::new(&[TENSOR_REDUCE, RANK, TO_GLOBAL, REDUCTION, TILE, BULK_GROUP], &[], &[BOX, TO])
            .since(ISA_8_0, 90),
        Form::new(&[TENSOR_REDUCE, RANK, TO_GLOBAL, REDUCTION, TILE, BULK_GROUP, CACHE_HINT], &[],
            &[BOX, TO, POLICY]).since(ISA_8_0, 90),
    ]
    LDMATRIX [
        Form::new(&[SYNC, CONVERGED, M8N8, X1, TRANS, IN_SHARED], &[B16],
            &[Shape::FragmentDestination(Type::B32, 1), Shape::Memory]).since(ISA_6_5, 75),
        Form::new(&[SYNC, CONVERGED, M8N8, X2, TRANS, IN_SHARED], &[B16],
            &[Shape::FragmentDestination(Type::B32, 2), Shape::Memory]).since(ISA_6_5, 75),
        Form::new(&[SYNC, CONVERGED, M8N8, X4, TRANS, IN_SHARED], &[B16],
            &[Shape::FragmentDestination(Type::B32, 4), Shape::Memory]).since(ISA_6_5, 75),
    ]
    STMATRIX [
        Form::new(&[SYNC, CONVERGED, M8N8, X1, TRANS, IN_SHARED], &[B16],
            &[Shape::Memory, Shape::Fragment(Type::B32, 1)]).since(ISA_7_8, 90),
        Form::new(&[SYNC, CONVERGED, M8N8, X2, TRANS, IN_SHARED], &[B16],
            &[Shape::Memory, Shape::Fragment(Type::B32, 2)]).since(ISA_7_8, 90),
        Form::new(&[SYNC, CONVERGED, M8N8, X4, TRANS, IN_SHARED], &[B16],
            &[Shape::Memory, Shape::Fragment(Type::B32, 4)]).since(ISA_7_8, 90),
    ]
    MOVMATRIX [
        Form::new(&[SYNC, CONVERGED, M8N8, one(&[M::Trans])], &[B16],
            &[Shape::Destination(Ty::Is(Type::B32)), Shape::Register(Type::B32)])
            .since(ISA_7_8, 75),
    ]
    MMA [
        Form::new(&[SYNC, CONVERGED, M16N8K8, ROW_COL], &[F16, F16, F16, F16],
            &product(HALVES_2, Type::F16x2, 2, 1)).since(ISA_6_5, 75),
        Form::new(&[SYNC, CONVERGED, M16N8K8, ROW_COL], &[F32, F16, F16, F32],
            &product(SINGLES_4, Type::F16x2, 2, 1)).since(ISA_6_5, 75),
        Form::new(&[SYNC, CONVERGED, M16N8K16, ROW_COL], &[F16, F16, F16, F16],
            &product(HALVES_2, Type::F16x2, 4, 2)).since(ISA_7_0, 80),
        Form::new(&[SYNC, CONVERGED, M16N8K16, ROW_COL], &[F32, F16, F16, F32],
            &product(SINGLES_4, Type::F16x2, 4, 2)).since(ISA_7_0, 80),
        Form::new(&[SYNC, CONVERGED, M16N8K8, ROW_COL], &[F32, BF16, BF16, F32],
            &product(SINGLES_4, Type::Bf16x2, 2, 1)).since(ISA_7_0, 80),
        Form::new(&[SYNC, CONVERGED, M16N8K16, ROW_COL], &[F32, BF16, BF16, F32],
            &product(SINGLES_4, Type::Bf16x2, 4, 2)).since(ISA_7_0, 80),
        Form::new(&[SYNC, CONVERGED, M16N8K4, ROW_COL], &[F32, TF32, TF32, F32],
            &product(SINGLES_4, Type::Tf32, 2, 1)).since(ISA_7_0, 80),
        Form::new(&[SYNC, CONVERGED, M16N8K8, ROW_COL], &[F32, TF32, TF32, F32],
            &product(SINGLES_4, Type::Tf32, 4, 2)).since(ISA_7_0, 80),
        Form::new(&[SYNC, CONVERGED, M8N8K16, ROW_COL, SATFINITE], &[S32, BYTES, BYTES, S32],
            &product(INTEGERS_2, Type::B32, 1, 1)).since(ISA_6_5, 75),
        Form::new(&[SYNC, CONVERGED, M16N8K16, ROW_COL, SATFINITE], &[S32, BYTES, BYTES, S32],
            &product(INTEGERS_4, Type::B32, 2, 1)).since(ISA_7_0, 80),
        Form::new(&[SYNC, CONVERGED, M16N8K32, ROW_COL, SATFINITE], &[S32, BYTES, BYTES, S32],
            &product(INTEGERS_4, Type::B32, 4, 2)).since(ISA_7_0, 80),
        Form::new(&[SYNC, CONVERGED, M8N8K4, ROW_COL, F64_ROUND], &[F64, F64, F64, F64],
            &product(DOUBLES_2, Type::F64, 1, 1)).since(ISA_7_0, 80),
        Form::new(&[SYNC, CONVERGED, M16N8K4, ROW_COL, F64_ROUND], &[F64, F64, F64, F64],
            &product(DOUBLES_4, Type::F64, 2, 1)).since(ISA_7_8, 90),
        Form::new(&[SYNC, CONVERGED, M16N8K8, ROW_COL, F64_ROUND], &[F64, F64, F64, F64],
            &product(DOUBLES_4, Type::F64, 4, 2)).since(ISA_7_8, 90),
        Form::new(&[SYNC, CONVERGED, M16N8K16, ROW_COL, F64_ROUND], &[F64, F64, F64, F64],
            &product(DOUBLES_4, Type::F64, 8, 4)).since(ISA_7_8, 90),
    ]
    WMMA [
        Form::new(&[LOAD_AB, SYNC, CONVERGED, LAYOUT, K16, WHERE], &[F16], halves_8::NEAR)
            .since(ISA_6_3, 70),
        Form::new(&[LOAD_AB, SYNC, CONVERGED, LAYOUT, K16, WHERE], &[F16], halves_8::FAR)
            .since(ISA_6_3, 70),
        Form::new(&[LOAD_C, SYNC, CONVERGED, LAYOUT, K16, WHERE], &[F16], halves_4::NEAR)
            .since(ISA_6_3, 70),
        Form::new(&[LOAD_C, SYNC, CONVERGED, LAYOUT, K16, WHERE], &[F16], halves_4::FAR)
            .since(ISA_6_3, 70),
        Form::new(&[LOAD_C, SYNC, CONVERGED, LAYOUT, K16, WHERE], &[F32], singles_8::NEAR)
            .since(ISA_6_3, 70),
        Form::new(&[LOAD_C, SYNC, CONVERGED, LAYOUT, K16, WHERE], &[F32], singles_8::FAR)
            .since(ISA_6_3, 70),
        Form::new(&[LOAD_C, SYNC, CONVERGED, LAYOUT, K16, WHERE], &[S32], integers_8::NEAR)
            .since(ISA_6_3, 72),
        Form::new(&[LOAD_C, SYNC, CONVERGED, LAYOUT, K16, WHERE], &[S32], integers_8::FAR)
            .since(ISA_6_3, 72),
        Form::new(&[LOAD_AB, SYNC, CONVERGED, LAYOUT, M16N16K16, WHERE], &[BYTES], bytes_2::NEAR)
            .since(ISA_6_3, 72),
        Form::new(&[LOAD_AB, SYNC, CONVERGED, LAYOUT, M16N16K16, WHERE], &[BYTES], bytes_2::FAR)
            .since(ISA_6_3, 72),
        Form::new(&[LOAD_A, SYNC, CONVERGED, LAYOUT, M32N8K16, WHERE], &[BYTES], bytes_4::NEAR)
            .since(ISA_6_3, 72),
        Form::new(&[LOAD_A, SYNC, CONVERGED, LAYOUT, M32N8K16, WHERE], &[BYTES], bytes_4::FAR)
            .since(ISA_6_3, 72),
        Form::new(&[LOAD_B, SYNC, CONVERGED, LAYOUT, M32N8K16, WHERE], &[BYTES], bytes_1::NEAR)
            .since(ISA_6_3, 72),
        Form::new(&[LOAD_B, SYNC, CONVERGED, LAYOUT, M32N8K16, WHERE], &[BYTES], bytes_1::FAR)
            .since(ISA_6_3, 72),
        Form::new(&[LOAD_A, SYNC, CONVERGED, LAYOUT, M8N32K16, WHERE], &[BYTES], bytes_1::NEAR)
            .since(ISA_6_3, 72),
        Form::new(&[LOAD_A, SYNC, CONVERGED, LAYOUT, M8N32K16, WHERE], &[BYTES], bytes_1::FAR)
            .since(ISA_6_3, 72),
        Form::new(&[LOAD_B, SYNC, CONVERGED, LAYOUT, M8N32K16, WHERE], &[BYTES], bytes_4::NEAR)
            .since(ISA_6_3, 72),
        Form::new(&[LOAD_B, SYNC, CONVERGED, LAYOUT, M8N32K16, WHERE], &[BYTES], bytes_4::FAR)
            .since(ISA_6_3, 72),
        Form::new(&[LOAD_AB, SYNC, CONVERGED, LAYOUT, M16N16K16, WHERE], &[BF16], bf16s_4::NEAR)
            .since(ISA_7_0, 80),
        Form::new(&[LOAD_AB, SYNC, CONVERGED, LAYOUT, M16N16K16, WHERE], &[BF16], bf16s_4::FAR)
            .since(ISA_7_0, 80),
        Form::new(&[LOAD_A, SYNC, CONVERGED, LAYOUT, M32N8K16, WHERE], &[BF16], bf16s_8::NEAR)
            .since(ISA_7_0, 80),
        Form::new(&[LOAD_A, SYNC, CONVERGED, LAYOUT, M32N8K16, WHERE], &[BF16], bf16s_8::FAR)
            .since(ISA_7_0, 80),
        Form::new(&[LOAD_B, SYNC, CONVERGED, LAYOUT, M32N8K16, WHERE], &[BF16], bf16s_2::NEAR)
            .since(ISA_7_0, 80),
        Form::new(&[LOAD_B, SYNC, CONVERGED, LAYOUT, M32N8K16, WHERE], &[BF16], bf16s_2::FAR)
            .since(ISA_7_0, 80),
        Form::new(&[LOAD_A, SYNC, CONVERGED, LAYOUT, M8N32K16, WHERE], &[BF16], bf16s_2::NEAR)
            .since(ISA_7_0, 80),
        Form::new(&[LOAD_A, SYNC, CONVERGED, LAYOUT, M8N32K16, WHERE], &[BF16], bf16s_2::FAR)
            .since(ISA_7_0, 80),
        Form::new(&[LOAD_B, SYNC, CONVERGED, LAYOUT, M8N32K16, WHERE], &[BF16], bf16s_8::NEAR)
            .since(ISA_7_0, 80),
        Form::new(&[LOAD_B, SYNC, CONVERGED, LAYOUT, M8N32K16, WHERE], &[BF16], bf16s_8::FAR)
            .since(ISA_7_0, 80),
        Form::new(&[LOAD_AB, SYNC, CONVERGED, LAYOUT, M16N16K8, WHERE], &[TF32], tensor_4::NEAR)
            .since(ISA_7_0, 80),
        Form::new(&[LOAD_AB, SYNC, CONVERGED, LAYOUT, M16N16K8, WHERE], &[TF32], tensor_4::FAR)
            .since(ISA_7_0, 80),
        Form::new(&[LOAD_C, SYNC, CONVERGED, LAYOUT, M16N16K8, WHERE], &[F32], singles_8::NEAR)
            .since(ISA_7_0, 80),
        Form::new(&[LOAD_C, SYNC, CONVERGED, LAYOUT, M16N16K8, WHERE], &[F32], singles_8::FAR)
            .since(ISA_7_0, 80),
        Form::new(&[STORE_D, SYNC, CONVERGED, LAYOUT, K16, WHERE], &[F16], STORE_HALVES)
            .since(ISA_6_3, 70),
        Form::new(&[STORE_D, SYNC, CONVERGED, LAYOUT, K16, WHERE], &[F16], STORE_HALVES_FAR)
            .since(ISA_6_3, 70),
        Form::new(&[STORE_D, SYNC, CONVERGED, LAYOUT, K16, WHERE], &[F32], STORE_SINGLES)
            .since(ISA_6_3, 70),
        Form::new(&[STORE_D, SYNC, CONVERGED, LAYOUT, K16, WHERE], &[F32], STORE_SINGLES_FAR)
            .since(ISA_6_3, 70),
        Form::new(&[STORE_D, SYNC, CONVERGED, LAYOUT, K16, WHERE], &[S32], STORE_INTEGERS)
            .since(ISA_6_3, 72),
        Form::new(&[STORE_D, SYNC, CONVERGED, LAYOUT, K16, WHERE], &[S32], STORE_INTEGERS_FAR)
            .since(ISA_6_3, 72),
        Form::new(&[STORE_D, SYNC, CONVERGED, LAYOUT, M16N16K8, WHERE], &[F32], STORE_SINGLES)
            .since(ISA_7_0, 80),
        Form::new(&[STORE_D, SYNC, CONVERGED, LAYOUT, M16N16K8, WHERE], &[F32], STORE_SINGLES_FAR)
            .since(ISA_7_0, 80),
        Form::new(&[MMA_WORD, SYNC, CONVERGED, LAYOUTS, K16, SATFINITE], &[F16, F16],
            &product(HALVES_4, Type::F16x2, 8, 8)).since(ISA_6_3, 70),
        Form::new(&[MMA_WORD, SYNC, CONVERGED, LAYOUTS, K16, SATFINITE], &[F32, F32],
            &product(SINGLES_8, Type::F16x2, 8, 8)).since(ISA_6_3, 70),
        Form::new(&[MMA_WORD, SYNC, CONVERGED, LAYOUTS, K16, SATFINITE], &[F16, F32],
            &wide(product(SINGLES_8, Type::F16x2, 8, 8), HALVES_4)).since(ISA_6_3, 70),
        Form::new(&[MMA_WORD, SYNC, CONVERGED, LAYOUTS, K16, SATFINITE], &[F32, F16],
            &wide(product(HALVES_4, Type::F16x2, 8, 8), SINGLES_8)).since(ISA_6_3, 70),
        Form::new(&[MMA_WORD, SYNC, CONVERGED, LAYOUTS, M16N16K16], &[F32, BF16, BF16, F32],
            &product(SINGLES_8, Type::Bf16x2, 4, 4)).since(ISA_7_0, 80),
        Form::new(&[MMA_WORD, SYNC, CONVERGED, LAYOUTS, M32N8K16], &[F32, BF16, BF16, F32],
            &product(SINGLES_8, Type::Bf16x2, 8, 2)).since(ISA_7_0, 80),
        Form::new(&[MMA_WORD, SYNC, CONVERGED, LAYOUTS, M8N32K16], &[F32, BF16, BF16, F32],
            &product(SINGLES_8, Type::Bf16x2, 2, 8)).since(ISA_7_0, 80),
        Form::new(&[MMA_WORD, SYNC, CONVERGED, LAYOUTS, M16N16K8], &[F32, TF32, TF32, F32],
            &product(SINGLES_8, Type::Tf32, 4, 4)).since(ISA_7_0, 80),
        Form::new(&[MMA_WORD, SYNC, CONVERGED, LAYOUTS, M16N16K16, SATFINITE],
            &[S32, &[Type::U8], &[Type::U8], S32], &product(INTEGERS_8, Type::B32, 2, 2))
            .since(ISA_6_3, 72),
        Form::new(&[MMA_WORD, SYNC, CONVERGED, LAYOUTS, M16N16K16, SATFINITE],
            &[S32, &[Type::S8], &[Type::S8], S32], &product(INTEGERS_8, Type::B32, 2, 2))
            .since(ISA_6_3, 72),
        Form::new(&[MMA_WORD, SYNC, CONVERGED, LAYOUTS, M32N8K16, SATFINITE],
            &[S32, &[Type::U8], &[Type::U8], S32], &product(INTEGERS_8, Type::B32, 4, 1))
            .since(ISA_6_3, 72),
        Form::new(&[MMA_WORD, SYNC, CONVERGED, LAYOUTS, M32N8K16, SATFINITE],
            &[S32, &[Type::S8], &[Type::S8], S32], &product(INTEGERS_8, Type::B32, 4, 1))
            .since(ISA_6_3, 72),
        Form::new(&[MMA_WORD, SYNC, CONVERGED, LAYOUTS, M8N32K16, SATFINITE],
            &[S32, &[Type::U8], &[Type::U8], S32], &product(INTEGERS_8, Type::B32, 1, 4))
            .since(ISA_6_3, 72),
        Form::new(&[MMA_WORD, SYNC, CONVERGED, LAYOUTS, M8N32K16, SATFINITE],
            &[S32, &[Type::S8], &[Type::S8], S32], &product(INTEGERS_8, Type::B32, 1, 4))
            .since(ISA_6_3, 72),
    ]
}
