//! Operands and results of products in bf16.

use half::bf16;
use retrograph_kernels::View;

use crate::gemm_case::Tile;
use crate::harness::Device;

pub(crate) type Matrix = View<u64, bf16>;

/// Elements after each result, which must not change.
pub(crate) const GUARD: usize = 8;

/// Rounds `values` and uploads them.
pub(crate) fn upload(device: &Device, values: &[f32]) -> Matrix {
    device.upload(&values.iter().map(|&value| bf16::from_f32(value)).collect::<Vec<_>>())
}

/// An unwritten result with its guard.
pub(crate) fn unwritten(device: &Device, len: usize) -> Matrix {
    device.upload(&vec![bf16::MAX; len + GUARD])
}

/// The tiles of `table` that the device has.
pub(crate) fn tiles(device: &Device, table: &'static [Tile]) -> Vec<Tile> {
    let wgmma = device.target().features().wgmma;
    let suits = |tile: &&Tile| if wgmma { !tile.excludes_wgmma() } else { !tile.needs_wgmma() };
    table.iter().filter(suits).copied().collect()
}

/// The bits of results with their guards. All NaN map to one, because hardware chooses the payload.
pub(crate) fn bits(device: &Device, results: &[Matrix]) -> Vec<Vec<u16>> {
    let bits = |value: bf16| if value.is_nan() { 0x7fff } else { value.to_bits() };
    let bits = |&matrix| device.download(matrix).into_iter().map(bits).collect();
    results.iter().map(bits).collect()
}
