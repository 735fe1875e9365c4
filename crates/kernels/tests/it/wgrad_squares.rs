//! Weight gradients with partial sums of their squares.

use half::bf16;
use retrograph_kernels::ops::{GemmShape, Wgrad, WgradSquares};
use retrograph_kernels::{DType, KernelError, Launch, SmTarget, TensorView};

use crate::bf16_matrix::{Matrix, upload};
use crate::gemm_case::{Tile, geometry, multistage_tiles, shape};
use crate::harness::Device;
use crate::support::numbers::{Data, same_bits};

/// Rows, inputs, outputs: zero, one block, edges of blocks and of tiles, tiles that do not consist
/// of whole blocks, and more tiles than a band.
const SHAPES: [[usize; 3]; 8] = [
    [0, 8, 8],
    [8, 8, 8],
    [72, 64, 64],
    [16, 72, 136],
    [40, 200, 328],
    [8, 456, 264],
    [72, 232, 8],
    [8, 72, 1160],
];

/// The operands of a gradient: dy and x in bf16.
struct Operands {
    grad_out: Matrix,
    x: Matrix,
    shape: GemmShape,
}

impl Operands {
    fn new(device: &Device, shape: GemmShape, [grad_out, x]: [&[f32]; 2]) -> Self {
        Self { grad_out: upload(device, grad_out), x: upload(device, x), shape }
    }

    fn uniform(device: &Device, data: &mut Data, shape: GemmShape, bound: f32) -> Self {
        let GemmShape { rows, inputs, outputs } = shape;
        let [grad_out, x] = [outputs, inputs].map(|width| data.uniform(rows * width, bound));
        Self::new(device, shape, [&grad_out, &x])
    }

    /// The gradient of the same tile without partial sums.
    fn plain(&self, device: &Device, tile: Tile) -> Vec<f32> {
        let Self { grad_out, x, shape } = *self;
        let grad_weight = device.unwritten(shape.outputs * shape.inputs);
        let wgrad = Wgrad { grad_out, x, grad_weight, shape, alpha: 1.0, accumulate: false };
        let launch = wgrad.launch_in(DType::Bf16).unwrap();
        device.run_as(&launch, geometry(&launch, device.target(), tile));
        device.download(grad_weight)
    }

    /// The gradient and its partial sums, initialized to NaN.
    fn run(&self, device: &Device, tile: Tile) -> (Vec<f32>, Vec<f64>) {
        let Self { grad_out, x, shape } = *self;
        let grad_weight = device.unwritten(shape.outputs * shape.inputs);
        let squares = device.upload(&vec![f64::NAN; WgradSquares::partials(shape)]);
        let launch = WgradSquares { grad_out, x, grad_weight, squares, shape }.launch().unwrap();
        device.run_as(&launch, geometry(&launch, device.target(), tile));
        (device.download(grad_weight), device.download(squares))
    }
}

fn tiles(device: &Device) -> impl Iterator<Item = Tile> {
    multistage_tiles(device.target()).iter().copied()
}

fn bits(sums: &[f64]) -> Vec<u64> {
    sums.iter().map(|sum| sum.to_bits()).collect()
}

fn sum_of_squares(values: &[f32]) -> f64 {
    values.iter().map(|value| f64::from(*value).powi(2)).sum()
}

#[test]
fn the_partial_sums_of_every_tile_add_up_to_the_square_of_the_norm() {
    let (mut data, device) = (Data::new("squares"), Device::new());
    for sizes in SHAPES {
        let operands = Operands::uniform(&device, &mut data, shape(sizes), 2.0);
        for tile in tiles(&device) {
            let what = format!("{sizes:?} {tile:?}");
            let (found, squares) = operands.run(&device, tile);
            same_bits(&found, &operands.plain(&device, tile), &what);
            let (expected, sum) = (sum_of_squares(&found), squares.iter().sum::<f64>());
            // A chain of 64 additions in each lane, and trees.
            let bound = expected * 80.0 / f64::from(1 << 24);
            assert!((sum - expected).abs() <= bound, "{what}: {sum} is not {expected}");
            let again = operands.run(&device, tile).1;
            assert_eq!(bits(&squares), bits(&again), "{what}: repetition");
        }
    }
}

#[test]
fn images_of_other_targets_add_the_same_squares() {
    let mut data = Data::new("targets of squares");
    for target in [75, 80, 86].map(SmTarget::portable) {
        let device = Device::with_images_for(target);
        for sizes in [[16, 72, 136], [40, 200, 328]] {
            let operands = Operands::uniform(&device, &mut data, shape(sizes), 2.0);
            for tile in tiles(&device) {
                let (found, squares) = operands.run(&device, tile);
                same_bits(&found, &operands.plain(&device, tile), &format!("{target} {tile:?}"));
                let (expected, sum) = (sum_of_squares(&found), squares.iter().sum::<f64>());
                assert!((sum - expected).abs() <= expected * 1e-5, "{target} {tile:?}: {sum}");
            }
        }
    }
}

/// The squares of 1e-30 and 1e30 are out of the range of f32.
#[test]
fn sums_hold_the_squares_of_all_floats() {
    let (mut data, device) = (Data::new("squares of all floats"), Device::new());
    let shape = shape([8, 136, 200]);
    let GemmShape { rows, inputs, outputs } = shape;
    let mut factor = |width: usize, scale: f32| {
        data.uniform(rows * width, 1.0).into_iter().map(|value| value * scale).collect::<Vec<_>>()
    };
    for scale in [1e-38_f32, 1e-30, 1e-19, 1e-14, 1.0, 1e19, 1e30, 1e37] {
        // A result of magnitude `scale` needs operands of magnitude √scale.
        let [grad_out, mut x] = [outputs, inputs].map(|width| factor(width, scale.sqrt()));
        // A column of zeros, and a column that is far larger than the others.
        x.chunks_mut(inputs).for_each(|row| (row[0], row[1]) = (0.0, row[1] * 8.0));
        let operands = Operands::new(&device, shape, [&grad_out, &x]);
        for tile in tiles(&device) {
            let (found, squares) = operands.run(&device, tile);
            let (expected, sum) = (sum_of_squares(&found), squares.iter().sum::<f64>());
            assert!(expected > 0.0, "{scale}: the gradient is not zero");
            // Elements below 2^-126 may have been added before they are flushed.
            let bound = expected * 1e-5 + f64::from(f32::MIN_POSITIVE).powi(2) * 2e4;
            assert!((sum - expected).abs() <= bound, "{scale} {tile:?}: {sum}, not {expected}");
        }
    }
}

#[test]
fn sums_of_zeros_are_zero_and_sums_of_nan_and_infinity_are_not_finite() {
    let (mut data, device) = (Data::new("squares of NaN"), Device::new());
    let shape = shape([16, 136, 72]);
    let GemmShape { rows, inputs, outputs } = shape;
    let zeros = vec![0.0; rows * outputs];
    let x = data.uniform(rows * inputs, 1.0);
    for tile in tiles(&device) {
        let (_, squares) = Operands::new(&device, shape, [&zeros, &x]).run(&device, tile);
        assert!(squares.iter().all(|sum| *sum == 0.0), "{tile:?}: {squares:?}");
        for wrong in [f32::NAN, f32::INFINITY] {
            let mut grad_out = zeros.clone();
            grad_out[5 * outputs + 70] = wrong;
            let (_, squares) = Operands::new(&device, shape, [&grad_out, &x]).run(&device, tile);
            let sum: f64 = squares.iter().sum();
            assert!(!sum.is_finite(), "{wrong} {tile:?}: {sum}");
        }
    }
}

#[test]
fn a_bf16_gradient_is_squared_before_rounding() {
    let (mut data, device) = (Data::new("squares of bf16"), Device::new());
    let shape = shape([24, 72, 264]);
    let operands = Operands::uniform(&device, &mut data, shape, 1.0);
    for tile in tiles(&device) {
        let (in_f32, expected) = operands.run(&device, tile);
        let Operands { grad_out, x, shape } = operands;
        let grad_weight = device.upload(&vec![bf16::NAN; in_f32.len()]);
        let squares = device.upload(&vec![f64::NAN; WgradSquares::partials(shape)]);
        let launch = WgradSquares { grad_out, x, grad_weight, squares, shape }.launch().unwrap();
        device.run_as(&launch, geometry(&launch, device.target(), tile));
        let rounded: Vec<bf16> = device.download(grad_weight);
        let of_f32 = in_f32.iter().map(|value| bf16::from_f32(*value));
        assert!(rounded.iter().copied().eq(of_f32), "{tile:?}");
        let squares: Vec<f64> = device.download(squares);
        assert_eq!(bits(&squares), bits(&expected), "{tile:?}");
    }
}

#[test]
fn errors_name_the_wrong_operand() {
    let device = Device::new();
    let shape = shape([16, 72, 136]);
    let bf16s = |len| device.upload(&vec![bf16::ZERO; len]);
    let (grad_out, x) = (bf16s(16 * 136), bf16s(16 * 72));
    let (grad_weight, squares) = (device.unwritten(72 * 136), device.upload(&[0.0_f64; 6]));
    let good = WgradSquares { grad_out, x, grad_weight, squares, shape };
    assert!(good.launch().is_ok());
    let refused = |launch: Result<Launch<u64>, KernelError>, text: &str| {
        let error = launch.unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    refused(WgradSquares { squares: squares.slice(0..5), ..good }.launch(), "squares");
    refused(WgradSquares { x: x.slice(0..64), ..good }.launch(), "x");
    let short = TensorView::F32(grad_weight.slice(0..64));
    let wrong = WgradSquares { grad_out, x, grad_weight: short, squares, shape };
    refused(wrong.launch(), "grad_weight");
    // Rows that are not whole vectors.
    let shape = GemmShape { inputs: 36, ..shape };
    let (x, grad_weight) = (x.slice(0..16 * 36), grad_weight.slice(0..36 * 136));
    let wrong = WgradSquares { grad_out, x, grad_weight, squares: squares.slice(0..3), shape };
    refused(wrong.launch(), "multiple of 8");
}
