//! Rotary position embedding against its reference, its inverse and finite differences.

use retrograph_kernels::ops::{Rope, rope_tables};
use retrograph_kernels::reference::rope::rope;

use crate::bounds::{chain, within};
use crate::harness::Device;
use crate::support::{Data, differences, doubles, same_bits};

/// batch, seq, heads, head_dim.
const SHAPES: [[usize; 4]; 6] =
    [[0, 3, 2, 4], [1, 1, 1, 2], [2, 3, 5, 6], [1, 37, 2, 16], [3, 7, 1, 10], [2, 2, 2, 128]];

fn run(x: &[f32], [batch, seq, heads, head_dim]: [usize; 4], inverse: bool) -> Vec<f32> {
    let tables = rope_tables(seq, head_dim, 1e4);
    let once = || {
        let device = Device::new();
        let (cos, sin) = (device.upload(&tables.0), device.upload(&tables.1));
        let (x, out) = (device.upload(x), device.unwritten(x.len()));
        let (start, positions) = (None, seq);
        let launch =
            Rope { x, cos, sin, out, start, positions, batch, seq, heads, head_dim, inverse };
        device.run(&launch.launch().unwrap());
        device.download(out)
    };
    let result = once();
    same_bits(&result, &once(), "two runs");
    result
}

/// The reference with the tables that the kernel is given.
fn expected(x: &[f64], [_, seq, heads, head_dim]: [usize; 4], inverse: bool) -> Vec<f64> {
    let (cos, sin) = rope_tables(seq, head_dim, 1e4);
    rope(x, (&doubles(&cos), &doubles(&sin)), [seq, heads, head_dim], inverse)
}

#[test]
fn both_ways_match_the_reference() {
    let mut data = Data::new("rope");
    for (shape, inverse) in SHAPES.iter().flat_map(|shape| [false, true].map(|i| (*shape, i))) {
        for scale in [1.0, 1e-30, 1e30] {
            let x = data.uniform(shape.iter().product(), scale);
            let bounds = vec![chain(3, 2.0 * f64::from(scale)); x.len()];
            let expected = expected(&doubles(&x), shape, inverse);
            within(&run(&x, shape, inverse), &expected, &bounds, &format!("rope {shape:?}"));
        }
    }
}

#[test]
fn the_inverse_undoes_the_rotation_and_is_its_gradient() {
    let mut data = Data::new("rope inverse");
    let shape = [2, 5, 3, 6];
    let (x, grad) = (data.uniform(180, 2.0), data.uniform(180, 2.0));
    let back = run(&run(&x, shape, false), shape, true);
    within(&back, &doubles(&x), &[1e-6; 180], "there and back");
    let loss = |x: &[f64]| {
        let y = expected(x, shape, false);
        y.iter().zip(&grad).map(|(y, g)| y * f64::from(*g)).sum()
    };
    let differences = differences(&doubles(&x), 1e-3, loss);
    within(&run(&grad, shape, true), &differences, &[1e-5; 180], "differences");
}

#[test]
fn special_values_reach_their_pair_only() {
    for value in [f32::NAN, f32::INFINITY] {
        let shape = [1, 4, 2, 6];
        let mut x = vec![1.0; 48];
        x[20] = value;
        let expected = expected(&doubles(&x), shape, false);
        within(&run(&x, shape, false), &expected, &[1e-6; 48], "special values");
    }
}

#[test]
fn tables_hold_cosines_and_sines_of_the_angles() {
    let (cos, sin) = rope_tables(3, 4, 100.0);
    let angles = [0.0, 0.0, 1.0, 0.1, 2.0, 0.2_f64];
    assert_eq!(cos, angles.map(|angle| angle.cos() as f32));
    assert_eq!(sin, angles.map(|angle| angle.sin() as f32));
}
