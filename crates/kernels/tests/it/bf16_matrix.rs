//! Operands and results of products in bf16.

use half::bf16;
use retrograph_kernels::View;

use crate::gemm_case::{Tile, to_bf16};
use crate::harness::Device;
use crate::support::numbers::Data;
use crate::support::reference::{bf16_bits, not_rounded};

pub(crate) type Matrix = View<u64, bf16>;

/// Elements after each result, which must not change.
pub(crate) const GUARD: usize = 8;

/// Rounds `values` and uploads them.
pub(crate) fn upload(device: &Device, values: &[f32]) -> Matrix {
    device.upload(&to_bf16(values))
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

#[test]
fn roundings_of_references_are_those_of_half() {
    let mut values = Data::new("roundings").spread(1000);
    let ties = [0x3f80_8000, 0x3f81_8000, 0x3f80_8001, 0x7f7f_ffff, 0x8000_7fff, 1, 0x8000_8000];
    values.extend(ties.map(f32::from_bits));
    values.extend([0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY]);
    let expected: Vec<u16> = values.iter().map(|&x| bf16::from_f32(x).to_bits()).collect();
    assert_eq!(bf16_bits(&values), expected);
    assert!([f32::NAN, -f32::NAN].map(|x| to_bf16(&[x])[0]).iter().all(|x| x.is_nan()));
    assert_eq!(not_rounded(&values, &expected), None);
    assert_eq!(not_rounded(&[1.0, 2.0], &[0x3f80, 0x4001]), Some(1));
    assert_eq!(not_rounded(&[f32::NAN, f32::NAN, 1.0], &[0x7fc0, 0xff81, 0x7fc0]), Some(2));
    assert_eq!(not_rounded(&[f32::NAN], &[0x7f80]), Some(0));
}
