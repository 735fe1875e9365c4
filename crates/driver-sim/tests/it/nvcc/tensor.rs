//! Tensor cores: results are exact, because all sums are.

use super::{Bench, Launch, SEEDS, integers, value};

/// Small integers as f16 and as f32.
fn small(count: usize, salt: u32) -> (Vec<u16>, Vec<f32>) {
    let numbers: Vec<f32> =
        integers(count).iter().map(|&x| ((x ^ salt) >> 11 & 7) as f32 - 3.0).collect();
    // The bits of 0 to 4, with the sign of the number.
    let bits = |x: &f32| {
        let magnitude = [0u16, 0x3c00, 0x4000, 0x4200, 0x4400][x.abs() as usize];
        magnitude | if *x < 0.0 { 0x8000 } else { 0 }
    };
    (numbers.iter().map(bits).collect(), numbers)
}

fn product(a: &[f32], b: &[f32], rows: usize, columns: usize, depth: usize) -> Vec<f32> {
    let dot = |row: usize, column: usize| -> f32 {
        (0..depth).map(|i| a[row * depth + i] * b[column * depth + i]).sum()
    };
    (0..rows * columns).map(|index| dot(index / columns, index % columns)).collect()
}

#[test]
fn wmma() {
    let depth = 48;
    let ((a, left), (b, right)) = (small(16 * depth, 0), small(16 * depth, 0x5555));
    for seed in SEEDS {
        let bench = Bench::new(include_str!("../../nvcc/wmma.ptx"), seed);
        let (da, db, dc) = (bench.upload(&a), bench.upload(&b), bench.upload(&[0f32; 256]));
        let parameters = vec![value(da), value(db), value(dc), value(depth as i32)];
        let (grid, block) = ([1, 1, 1], [32, 1, 1]);
        bench.launch(Launch { kernel: c"wmma_tile", grid, block, shared: 0, parameters });
        assert_eq!(bench.download::<f32>(dc, 256), product(&left, &right, 16, 16, depth));
    }
}

#[test]
fn mma() {
    let depth = 48;
    let ((a, left), (b, right)) = (small(16 * depth, 0), small(8 * depth, 0x3333));
    for seed in SEEDS {
        let bench = Bench::new(include_str!("../../nvcc/mma.ptx"), seed);
        let (da, db, dc) = (bench.upload(&a), bench.upload(&b), bench.upload(&[0f32; 128]));
        let parameters = vec![value(da), value(db), value(dc), value(depth as i32)];
        let (grid, block) = ([1, 1, 1], [32, 1, 1]);
        bench.launch(Launch { kernel: c"mma_tile", grid, block, shared: 0, parameters });
        assert_eq!(bench.download::<f32>(dc, 128), product(&left, &right, 16, 8, depth));
    }
}
