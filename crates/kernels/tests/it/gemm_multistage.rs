//! GEMMs with multistage tiles: f32 split for tensor cores, and bf16.

use half::bf16;
use retrograph_kernel_abi::gemm::Mainloop;
use retrograph_kernels::ops::{DType, DgradSplitK, FpropSplitK};
use retrograph_kernels::{KernelError, Launch, View};

use crate::gemm_case::{
    BF16_TILES, Case, Format, OPS, Op, TF32X3_TILES, TILES, Tile, geometry, multistage_tiles,
    shape, tile_of,
};
use crate::harness::Device;
use crate::support::numbers::{Data, same_bits};

/// The error bound of a term of an f32 product, in roundings of a sum: both operands are truncated
/// to 22 bits, and tensor cores truncate.
const SPLIT: f64 = 4.0;

/// Rows, inputs, outputs: zero, one copy, edges of tiles, and several stages and one more. Sizes
/// that are contiguous in one of the products are multiples of a copied vector.
const SHAPES: [[usize; 3]; 10] = [
    [0, 8, 8],
    [8, 0, 8],
    [8, 8, 8],
    [16, 24, 40],
    [72, 32, 136],
    [136, 200, 64],
    [40, 328, 72],
    [264, 104, 8],
    [8, 264, 264],
    // More rows of tiles than a band.
    [1160, 72, 136],
];

/// The products in f32 and in bf16.
fn kinds<'a>(device: &Device, case: Case<'a>) -> [(Case<'a>, &'static [Tile], f64); 2] {
    let in_bf16 = Case { compute: DType::Bf16, left: Format::Bf16, format: Format::Bf16, ..case };
    [(case, TF32X3_TILES, SPLIT), (in_bf16, multistage_tiles(device.target()), 4.0)]
}

#[test]
fn every_tile_matches_the_reference_and_the_others_bit_for_bit() {
    let (mut data, device) = (Data::new("multistage tiles"), Device::new());
    for (op, sizes) in OPS.iter().flat_map(|op| SHAPES.map(|sizes| (*op, sizes))) {
        let shape = shape(sizes);
        let ([a, b, _], _) = op.lens(shape);
        let (a, b) = (data.uniform(a, 2.0), data.uniform(b, 2.0));
        for (case, tiles, slack) in kinds(&device, Case::new(op, shape, &a, &b)) {
            let found = case.run_tiles(&device, tiles);
            case.check_within(slack, &found, &format!("{:?}", tiles[0]));
        }
    }
}

#[test]
fn splits_in_bf16_have_the_same_bits_in_every_tile() {
    let (mut data, device) = (Data::new("multistage splits"), Device::new());
    for splits in [2, 3] {
        let shape = shape([72, 48 * splits, 40 * splits]);
        let [rows, inputs, outputs] = [shape.rows, shape.inputs, shape.outputs];
        let mut upload = |len| Format::Bf16.upload(&device, &data.uniform(len, 2.0), 0);
        let (x, w, grad_out) =
            (upload(rows * inputs), upload(outputs * inputs), upload(rows * outputs));
        let compare = |launch: &dyn Fn(View<u64, f32>) -> Launch<u64>, len: usize| {
            let run = |tile| {
                let partials = device.unwritten(splits * len);
                let launch = launch(partials);
                device.run_as(&launch, geometry(&launch, device.target(), tile));
                device.download(partials)
            };
            let [others @ .., last] = multistage_tiles(device.target()) else { unreachable!() };
            let expected: Vec<f32> = run(*last);
            assert!(expected.iter().all(|value| value.is_finite()));
            others.iter().for_each(|&tile| same_bits(&expected, &run(tile), "splits"));
        };
        let fprop = |partials| FpropSplitK { x, w, partials, shape, splits };
        compare(&|partials| fprop(partials).launch_in(DType::Bf16).unwrap(), rows * outputs);
        let dgrad = |partials| DgradSplitK { grad_out, w, partials, shape, splits };
        compare(&|partials| dgrad(partials).launch_in(DType::Bf16).unwrap(), rows * inputs);
    }
}

#[test]
fn bf16_operands_give_the_bits_of_f32_operands_rounded_by_the_kernel() {
    let (mut data, device) = (Data::new("multistage or rounded"), Device::new());
    for op in OPS {
        let shape = shape([72, 136, 40]);
        let ([a, b, _], _) = op.lens(shape);
        let (a, b) = (data.uniform(a, 2.0), data.uniform(b, 2.0));
        let plain = Case { compute: DType::Bf16, ..Case::new(op, shape, &a, &b) };
        let stored = Case { left: Format::Bf16, format: Format::Bf16, ..plain };
        let rounded = plain.run_tile(&device, BF16_TILES[0]);
        for &tile in multistage_tiles(device.target()) {
            same_bits(&rounded, &stored.run_tile(&device, tile), &format!("{tile:?}"));
        }
    }
}

/// Rows whose results are whole groups of four, and rows that are not.
#[test]
fn a_result_in_bf16_is_the_one_in_f32_rounded() {
    let (mut data, device) = (Data::new("multistage results"), Device::new());
    let shapes = [[72, 136, 40], [40, 64, 37], [264, 72, 264], [8, 0, 24]];
    for (op, sizes) in OPS.into_iter().flat_map(|op| shapes.map(|s| (op, s))) {
        // The contraction of a gradient is along the outputs.
        let [rows, inputs, outputs] = sizes;
        let shape = shape(if op == Op::Dgrad { [rows, outputs, inputs] } else { sizes });
        if op != Op::Fprop && outputs % 8 != 0 {
            continue;
        }
        let ([a, b, len], _) = op.lens(shape);
        let (a, b) = (data.uniform(a, 2.0), data.uniform(b, 2.0));
        let bias = data.uniform(shape.outputs, 2.0);
        let bias = (op == Op::Fprop).then_some(bias.as_slice());
        let (compute, format) = (DType::Bf16, Format::Bf16);
        let base = Case { alpha: 0.75, bias, ..Case::new(op, shape, &a, &b) };
        let case = Case { compute, left: format, format, ..base };
        for &tile in multistage_tiles(device.target()) {
            let exact = case.run_tile(&device, tile);
            let whole = device.upload(&vec![bf16::MAX; len + 8]);
            let launch = case.launch_rounded(&device, whole.slice(0..len)).unwrap();
            device.run_as(&launch, geometry(&launch, device.target(), tile));
            let found: Vec<bf16> = device.download(whole);
            let expected = exact.iter().map(|&value| bf16::from_f32(value));
            let expected: Vec<_> = expected.chain([bf16::MAX; 8]).collect();
            assert_eq!(found, expected, "{op:?} {shape:?} {tile:?}");
        }
        let refused = Case { left: Format::F32, ..case };
        let result = device.upload(&vec![bf16::MAX; len]);
        let error = refused.launch_rounded(&device, result).unwrap_err();
        assert!(
            matches!(error, KernelError::UnsupportedDType { dtype: DType::Bf16, .. }),
            "{error}"
        );
    }
}

#[test]
fn bias_alpha_and_accumulation_match_the_reference() {
    let (mut data, device) = (Data::new("multistage epilogue"), Device::new());
    for op in OPS {
        let shape = shape([24, 40, 72]);
        let ([a, b, c], _) = op.lens(shape);
        let (a, b, before) = (data.uniform(a, 2.0), data.uniform(b, 2.0), data.uniform(c, 2.0));
        let bias = data.uniform(shape.outputs, 2.0);
        let bias = (op == Op::Fprop).then_some(bias.as_slice());
        for before in [None, Some(before.as_slice())] {
            let case = Case { bias, before, alpha: -0.75, ..Case::new(op, shape, &a, &b) };
            for (case, tiles, slack) in kinds(&device, case) {
                for &tile in tiles {
                    case.check_within(slack, &case.run_tile(&device, tile), &format!("{tile:?}"));
                }
            }
        }
    }
}

#[test]
fn extreme_scales_stay_within_their_bound() {
    let (mut data, device) = (Data::new("multistage scales"), Device::new());
    for (op, (left, right)) in OPS.iter().flat_map(|op| {
        [(1e-30, 1.0), (1e30, 1.0), (1e-30, 1e30), (1e-20, 1e-12), (1e18, 1e18)].map(|s| (*op, s))
    }) {
        let shape = shape([24, 72, 40]);
        let ([a, b, _], _) = op.lens(shape);
        let (a, b) = (data.uniform(a, left), data.uniform(b, right));
        for (case, tiles, slack) in kinds(&device, Case::new(op, shape, &a, &b)) {
            case.check_within(slack, &case.run_tile(&device, tiles[1]), "extreme scales");
        }
    }
}

/// Tensor cores flush the part of a split operand below 2⁻¹²⁶; the absolute error is smaller than
/// that.
#[test]
fn splitting_loses_only_subnormal_parts() {
    let (mut data, device) = (Data::new("multistage underflow"), Device::new());
    let shape = shape([16, 32, 16]);
    let (a, b) = (data.uniform(512, 1e-37), data.uniform(512, 1.0));
    let case = Case::new(Op::Fprop, shape, &a, &b);
    let actual = case.run_tile(&device, TF32X3_TILES[1]);
    let exact = case.run_tile(&device, TILES[1]);
    for (actual, exact) in actual.iter().zip(&exact) {
        assert!((actual - exact).abs() <= 32.0 * f32::MIN_POSITIVE, "{actual:e} for {exact:e}");
    }
}

#[test]
fn nan_and_infinity_reach_exactly_what_depends_on_them() {
    let (mut data, device) = (Data::new("multistage specials"), Device::new());
    let specials = [f32::NAN, f32::from_bits(0x7fff_ffff), f32::INFINITY, f32::NEG_INFINITY];
    for (op, value) in OPS.iter().flat_map(|op| specials.map(|value| (*op, value))) {
        let shape = shape([16, 40, 24]);
        let ([a, b, _], _) = op.lens(shape);
        let (mut a, mut b) = (data.uniform(a, 2.0), data.uniform(b, 2.0));
        let (last_a, middle_b) = (a.len() - 1, b.len() / 2);
        (a[last_a], b[middle_b]) = (value, value);
        let [(single, ..), (in_bf16, ..)] = kinds(&device, Case::new(op, shape, &a, &b));
        for &tile in multistage_tiles(device.target()) {
            in_bf16.check(&in_bf16.run_tile(&device, tile), "with a special value");
        }
        let exact = single.run_tile(&device, TILES[1]);
        for &tile in TF32X3_TILES {
            // With tf32x3, an infinity becomes NaN.
            let actual = single.run_tile(&device, tile);
            for (i, (actual, exact)) in actual.iter().zip(&exact).enumerate() {
                assert_eq!(actual.is_finite(), exact.is_finite(), "{op:?}: {i} is {actual}");
            }
        }
    }
}

#[test]
fn multistage_tiles_are_chosen_only_if_rows_allow_them() {
    let (mut data, device) = (Data::new("multistage dispatch"), Device::new());
    let is_multistage = |launch: &Launch<u64>| {
        let tile = tile_of(launch, launch.dispatch(device.target()).entry);
        matches!(tile.mainloop, Mainloop::Multistage { .. })
    };
    for (sizes, multistage) in [([128, 64, 256], true), ([128, 63, 256], false)] {
        let shape = shape(sizes);
        let ([a, b, _], _) = Op::Fprop.lens(shape);
        let (a, b) = (data.uniform(a, 2.0), data.uniform(b, 2.0));
        let case = Case::new(Op::Fprop, shape, &a, &b);
        let (launch, _) = case.launch(&device);
        assert_eq!(is_multistage(&launch), multistage, "{sizes:?}");
        case.check_within(SPLIT, &case.run(&device), "chosen by sizes");
        let (shifted, _) = Case { shift: 1, ..case }.launch(&device);
        assert!(!is_multistage(&shifted), "shifted {sizes:?}");
    }
}

#[test]
fn bf16_operands_that_cannot_be_copied_in_vectors_are_refused() {
    let device = Device::new();
    let (a, b) = ([1.0; 64], [1.0; 64]);
    let case = |sizes| Case {
        compute: DType::Bf16,
        left: Format::Bf16,
        format: Format::Bf16,
        ..Case::new(Op::Fprop, shape(sizes), &a, &b)
    };
    let refused = case([4, 12, 4]);
    let refused = Case { a: &a[..48], b: &b[..48], ..refused };
    assert!(matches!(refused.describe(&device), Err(KernelError::Shape { .. })));
    let shifted = Case { shift: 1, ..case([8, 8, 8]) };
    assert!(matches!(shifted.describe(&device), Err(KernelError::Shape { .. })));
    let mixed = Case { format: Format::F32, ..case([8, 8, 8]) };
    assert!(matches!(
        mixed.describe(&device),
        Err(KernelError::UnsupportedDType { dtype: DType::Bf16, .. })
    ));
    let single = Case { compute: DType::F32, ..case([8, 8, 8]) };
    assert!(matches!(single.describe(&device), Err(KernelError::UnsupportedDType { .. })));
}
