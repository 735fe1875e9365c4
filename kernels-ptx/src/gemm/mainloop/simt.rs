//! Multiplication of a stage in f32 by fused multiply-adds.

use retrograph_ptx::build::{Shared, Value};

use crate::gemm::config::simt::{SimtConfig, ThreadAccumulators, ThreadTile};
use crate::gemm::operand_tile::OperandTile;

/// Adds the products of this thread's slice of a stage to `acc`.
pub(in crate::gemm) fn multiply<'k>(
    config: &SimtConfig,
    tiles: [OperandTile; 2],
    stage: Shared<'k, f32>,
    thread: &ThreadTile<'k>,
    acc: &ThreadAccumulators<'k>,
) {
    let ([rows, columns], [thread_rows, thread_columns]) = (config.tile.shape, config.thread_tile);
    let [a_pitch, b_pitch] = tiles.map(|tile| tile.smem.pitch());
    let first_k = thread.slice * config.slice_k;
    let a_tile = stage.at(first_k * a_pitch + thread.row * 4);
    let b_tile = stage.offset(i64::from(tiles[0].smem.words()));
    let b_tile = b_tile.at(first_k * b_pitch + thread.column * 4);
    for step in 0..config.slice_k {
        let a_step = a_tile.offset(i64::from(step * a_pitch));
        let x = load_strided(a_step, rows, thread_rows);
        let b_step = b_tile.offset(i64::from(step * b_pitch));
        let y = load_strided(b_step, columns, thread_columns);
        for (row, x) in acc.iter().zip(&x) {
            for (sum, y) in row.iter().zip(&y) {
                sum.update(|sum| x.fma(*y, sum));
            }
        }
    }
}

/// Loads this thread's `count` elements of one step of K: vec4s spread evenly over `extent`, so
/// that adjacent threads read adjacent vec4s.
fn load_strided<'k>(step: Shared<'k, f32>, extent: u32, count: u32) -> Vec<Value<'k, f32>> {
    let stride = extent / (count / 4);
    (0..count / 4).flat_map(|vec4| step.offset(i64::from(vec4 * stride)).load_vec4(0)).collect()
}
