//! Multiplication of a stage in bf16 by `wgmma`, which reads both operands from shared memory.
//!
//! The instructions of a stage form one group. Between them, threads load later stages, slot by
//! slot; afterwards they wait for the group of the previous stage.

use retrograph_kernel_abi::gemm::WGMMA_BLOCK_K;
use retrograph_ptx::build::{HalfType, Kernel, MatrixA, MatrixDescriptor, ScaleD, Shared, Value};

use super::multistage::OVERLAP_SLOTS;
use crate::gemm::accumulator::AccFragment;
use crate::gemm::operand_tile::OperandTile;
use crate::primitives::mma::acc_registers;
use crate::primitives::swizzle::LINE_WORDS;
use crate::primitives::wgmma::{ROWS, STEPS, WARPGROUP_THREADS};

/// Elements of a stage along K.
pub(in crate::gemm) const TILE_K: u32 = WGMMA_BLOCK_K;
const _: () = assert!(TILE_K / STEPS == OVERLAP_SLOTS, "one slot after each step");

/// The offset in words of this warpgroup's rows in a tile of a. The broadcast tells the compiler
/// that the value is warp-uniform.
pub(in crate::gemm) fn warpgroup_offset<'k>(
    k: &Kernel<'k>,
    acc: &[Vec<AccFragment<'k>>],
) -> Value<'k, u32> {
    let rows = acc.len() as u32 * ROWS;
    k.shfl_idx(k.tid_x() >> WARPGROUP_THREADS.ilog2(), 0) * warpgroup_words(rows)
}

/// Words of `rows` rows in a tile of a: 64 × 64 elements are 64 lines in either orientation.
pub(in crate::gemm) const fn warpgroup_words(rows: u32) -> u32 {
    rows * LINE_WORDS
}

/// Adds the products of one stage to `acc`, for the warpgroup whose rows start at word
/// `warpgroup_offset`. `overlap(slot)` runs between the instructions.
pub(in crate::gemm) fn multiply<'k>(
    tiles: [OperandTile; 2],
    stage: [Shared<'k, u32>; 2],
    warpgroup_offset: Value<'k, u32>,
    acc: &[Vec<AccFragment<'k>>],
    overlap: &mut dyn FnMut(u32),
) {
    start(tiles, stage, warpgroup_offset, acc, ScaleD::One, overlap);
    warpgroup_offset.kernel().wgmma_wait_group(1);
}

/// [`multiply`] without the wait. `scale_d` determines whether the first step adds to `acc`.
pub(in crate::gemm) fn start<'k>(
    tiles: [OperandTile; 2],
    stage: [Shared<'k, u32>; 2],
    warpgroup_offset: Value<'k, u32>,
    acc: &[Vec<AccFragment<'k>>],
    scale_d: ScaleD<'k>,
    overlap: &mut dyn FnMut(u32),
) {
    let k = warpgroup_offset.kernel();
    let a = descriptor(tiles[0], stage[0].at(warpgroup_offset));
    let b = descriptor(tiles[1], stage[1]);
    k.wgmma_fence();
    for step in 0..TILE_K / STEPS {
        let b = b.offset(step_bytes(tiles[1], step));
        for (i, row) in (0..).zip(acc) {
            let a = a.offset(i * ROWS * LINE_WORDS * 4 + step_bytes(tiles[0], step));
            let scale_d = if step == 0 { scale_d } else { ScaleD::One };
            k.wgmma_mma_async(HalfType::Bf16, MatrixA::Shared(a), b, &acc_registers(row), scale_d);
        }
        overlap(step);
    }
    k.wgmma_commit_group();
}

pub(super) fn descriptor<'k>(tile: OperandTile, smem: Shared<'k, u32>) -> MatrixDescriptor<'k> {
    assert_eq!(tile.tile_k, TILE_K, "a line of a K-major tile spans the stage");
    tile.smem.descriptor(smem, tile.major)
}

pub(super) fn step_bytes(tile: OperandTile, step: u32) -> u32 {
    tile.smem.step_bytes(tile.major, step)
}
