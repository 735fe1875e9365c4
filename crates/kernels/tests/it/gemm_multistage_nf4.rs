//! Large GEMMs of bf16 activations and NF4 weights, which are decoded into the stages.

use half::bf16;
use retrograph_kernels::ops::{
    DType, Dgrad, DgradSplitK, Fprop, FpropSplitK, Nf4, Nf4Scales, SplitKSum, TensorView,
};
use retrograph_kernels::{KernelError, SmTarget};

use crate::gemm_case::{
    BF16_TILES, Case, Format, Op, geometry, multistage_nf4_tiles, rounded, shape,
};
use crate::harness::Device;
use crate::support::numbers::{Data, same_bits};

const OPS: [Op; 2] = [Op::Fprop, Op::Dgrad];
const FORMATS: [Format; 2] = [Format::Nf4, Format::Nested];

/// Rows, inputs, outputs: zero, one stage, edges of tiles, and several stages, the last of which
/// are full, half full or hold one copy. Inputs are whole blocks.
const SHAPES: [[usize; 3]; 9] = [
    [0, 64, 8],
    [8, 0, 8],
    [8, 64, 0],
    [8, 64, 8],
    [16, 192, 40],
    [72, 64, 136],
    [136, 320, 64],
    [264, 64, 24],
    [40, 192, 264],
];

/// The product of bf16 activations with weights in `format`.
fn with_bf16_activations<'a>(plain: Case<'a>, format: Format) -> Case<'a> {
    Case { compute: DType::Bf16, left: Format::Bf16, format, ..plain }
}

#[test]
fn every_tile_matches_the_reference_and_the_others_bit_for_bit() {
    let (mut data, device) = (Data::new("multistage nf4 tiles"), Device::new());
    for (op, sizes) in OPS.iter().flat_map(|op| SHAPES.map(|sizes| (*op, sizes))) {
        let shape = shape(sizes);
        let ([a, b, _], _) = op.lens(shape);
        let (a, b) = (data.uniform(a, 2.0), data.uniform(b, 2.0));
        for format in FORMATS {
            let case = with_bf16_activations(Case::new(op, shape, &a, &b), format);
            let found = case.run_tiles(&device, multistage_nf4_tiles(device.target()));
            case.check(&found, &format!("{format:?}"));
        }
    }
}

#[test]
fn nf4_weights_give_the_bits_of_the_kernel_that_rounds_its_operands() {
    let (mut data, device) = (Data::new("multistage or rounded nf4"), Device::new());
    for (op, format) in OPS.iter().flat_map(|op| FORMATS.map(|format| (*op, format))) {
        let shape = shape([72, 192, 40]);
        let ([a, b, _], _) = op.lens(shape);
        let (a, b) = (data.uniform(a, 2.0), data.spread(b));
        let plain = Case { compute: DType::Bf16, format, ..Case::new(op, shape, &a, &b) };
        let expected = plain.run_tile(&device, BF16_TILES[0]);
        for &tile in multistage_nf4_tiles(device.target()) {
            same_bits(
                &expected,
                &with_bf16_activations(plain, format).run_tile(&device, tile),
                &format!("{tile:?}"),
            );
        }
    }
}

/// Other targets have other stage lengths and layouts, and no `cp.async` before sm_80.
#[test]
fn images_of_other_targets_match_the_reference() {
    let mut data = Data::new("multistage nf4 targets");
    let (sizes, targets) = (shape([72, 192, 136]), [75, 80, 86].map(SmTarget::portable));
    for (op, target) in OPS.iter().flat_map(|op| targets.map(|target| (*op, target))) {
        let device = Device::with_images_for(target);
        let ([a, b, _], _) = op.lens(sizes);
        let (a, b) = (data.uniform(a, 2.0), data.uniform(b, 2.0));
        let case = with_bf16_activations(Case::new(op, sizes, &a, &b), Format::Nested);
        let found = case.run_tiles(&device, multistage_nf4_tiles(target));
        case.check(&found, &format!("{target}"));
    }
}

#[test]
fn every_decoded_weight_matches_the_host() {
    let (mut data, device) = (Data::new("multistage nf4 weights"), Device::new());
    let (inputs, outputs) = (192, 72);
    let w = data.uniform(outputs * inputs, 3.0);
    let one = |row: usize, column: usize| f32::from(u8::from(row == column));
    // Rows of the identity select single weights.
    let identity = |n: usize| (0..n * n).map(|i| one(i / n, i % n)).collect::<Vec<_>>();
    for format in FORMATS {
        let stored = rounded(&format.stored(&w));
        let place = |op, i: usize| match op {
            Op::Fprop => i % outputs * inputs + i / outputs,
            _ => i,
        };
        for (op, rows) in [(Op::Fprop, inputs), (Op::Dgrad, outputs)] {
            let a = identity(rows);
            let case = with_bf16_activations(
                Case::new(op, shape([rows, inputs, outputs]), &a, &w),
                format,
            );
            let expected: Vec<_> = (0..w.len()).map(|i| stored[place(op, i)] + 0.0).collect();
            for &tile in multistage_nf4_tiles(device.target()) {
                same_bits(&case.run_tile(&device, tile), &expected, &format!("{tile:?}"));
            }
        }
    }
}

#[test]
fn bias_alpha_and_accumulation_match_the_reference() {
    let (mut data, device) = (Data::new("multistage nf4 epilogue"), Device::new());
    for op in OPS {
        let shape = shape([24, 64, 72]);
        let ([a, b, c], _) = op.lens(shape);
        let (a, b, before) = (data.uniform(a, 2.0), data.uniform(b, 2.0), data.uniform(c, 2.0));
        let bias = data.uniform(shape.outputs, 2.0);
        let bias = (op == Op::Fprop).then_some(bias.as_slice());
        for before in [None, Some(before.as_slice())] {
            let case = Case { bias, before, alpha: -0.75, ..Case::new(op, shape, &a, &b) };
            let case = with_bf16_activations(case, Format::Nf4);
            for &tile in multistage_nf4_tiles(device.target()) {
                case.check(&case.run_tile(&device, tile), &format!("{tile:?}"));
            }
        }
    }
}

#[test]
fn extreme_scales_stay_within_their_bound() {
    let (mut data, device) = (Data::new("multistage nf4 scales"), Device::new());
    let scales = [(1e-30, 1.0), (1e30, 1.0), (1e-30, 1e30), (1e-20, 1e-12), (1e18, 1e18)];
    for (op, (left, right)) in OPS.iter().flat_map(|op| scales.map(|scales| (*op, scales))) {
        let shape = shape([24, 64, 40]);
        let ([a, b, _], _) = op.lens(shape);
        let (a, b) = (data.uniform(a, left), data.uniform(b, right));
        for format in FORMATS {
            let case = with_bf16_activations(Case::new(op, shape, &a, &b), format);
            let tile = multistage_nf4_tiles(device.target())[1];
            case.check(&case.run_tile(&device, tile), "extreme scales");
        }
    }
}

#[test]
fn nan_and_infinity_of_the_first_operand_reach_exactly_what_depends_on_them() {
    let (mut data, device) = (Data::new("multistage nf4 specials"), Device::new());
    let specials = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX];
    for (op, value) in OPS.iter().flat_map(|op| specials.map(|value| (*op, value))) {
        let shape = shape([16, 64, 24]);
        let ([a, b, _], _) = op.lens(shape);
        let (mut a, b) = (data.uniform(a, 2.0), data.uniform(b, 2.0));
        let last = a.len() - 1;
        a[last] = value;
        let case = with_bf16_activations(Case::new(op, shape, &a, &b), Format::Nf4);
        for &tile in multistage_nf4_tiles(device.target()) {
            case.check(&case.run_tile(&device, tile), "with a special value");
        }
    }
}

/// All codes with scales that `nf4::quantize` rarely or never returns: results equal the tiles that
/// decode in registers.
#[test]
fn zero_huge_tiny_and_nonfinite_scales_are_multiplied_unchanged() {
    let (mut data, device) = (Data::new("multistage nf4 odd scales"), Device::new());
    let odd = [0.0, -0.0, f32::MAX, -f32::MAX, f32::MIN_POSITIVE, 1e-41, 3.39e38, 1.0];
    let specials = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    // Partial stages: elements past the end do not contribute.
    let shape = shape([16, 128, 40]);
    let len = shape.inputs * shape.outputs;
    let codes: Vec<u8> = data.tokens(len / 2, 256).iter().map(|&code| code as u8).collect();
    let scales = |finite: bool| -> Vec<f32> {
        let specials = if finite { [].as_slice() } else { &specials };
        odd.iter().chain(specials).copied().cycle().take(len / 64).collect()
    };
    for (op, finite) in OPS.iter().flat_map(|op| [(*op, true), (*op, false)]) {
        let ([a, ..], _) = op.lens(shape);
        let a: Vec<_> = data.uniform(a, 1.0).into_iter().map(bf16::from_f32).collect();
        let wide: Vec<f32> = a.iter().map(|value| value.to_f32()).collect();
        let scales = Nf4Scales::Plain(device.upload(&scales(finite)));
        let w = TensorView::from(Nf4 { codes: device.upload(&codes), scales, len });
        let run = |a: TensorView<u64>, tile| {
            let ([.., len], _) = op.lens(shape);
            let (c, alpha, accumulate) = (device.unwritten(len), 1.0, false);
            let launch = match op {
                Op::Fprop => Fprop { x: a, w, bias: None, y: c, shape, alpha, accumulate }
                    .launch_in(DType::Bf16),
                _ => Dgrad { grad_out: a, w, grad_input: c, shape, alpha, accumulate }
                    .launch_in(DType::Bf16),
            };
            let launch = launch.unwrap();
            device.run_as(&launch, geometry(&launch, device.target(), tile));
            let result = device.download(c);
            result.into_iter().map(|v| if v.is_nan() { f32::NAN } else { v }).collect::<Vec<_>>()
        };
        let expected = run(device.upload(&wide).into(), BF16_TILES[0]);
        for &tile in multistage_nf4_tiles(device.target()) {
            same_bits(&expected, &run(device.upload(&a).into(), tile), &format!("{tile:?}"));
        }
    }
}

#[test]
fn split_k_products_and_chosen_tiles_match_their_reference() {
    let (mut data, device) = (Data::new("multistage nf4 splits"), Device::new());
    let (shape, splits, compute) = (shape([130, 256, 128]), 2, DType::Bf16);
    for (op, format) in OPS.iter().flat_map(|op| FORMATS.map(|format| (*op, format))) {
        let ([a, b, len], _) = op.lens(shape);
        let (a, b) = (data.uniform(a, 2.0), data.uniform(b, 2.0));
        let case = with_bf16_activations(Case::new(op, shape, &a, &b), format);
        case.check(&case.run(&device), "the tile that the sizes choose");
        let (x, w) = (Format::Bf16.upload(&device, &a, 0), format.upload(&device, &b, 0));
        assert!(shape.prefers_bf16_activations(w.dtype()));
        let (partials, out) = (device.unwritten(splits * len), device.unwritten(len));
        let launch = match op {
            Op::Fprop => FpropSplitK { x, w, partials, shape, splits }.launch_in(compute),
            _ => DgradSplitK { grad_out: x, w, partials, shape, splits }.launch_in(compute),
        };
        device.run(&launch.unwrap());
        device.run(&SplitKSum { partials, out, splits }.launch().unwrap());
        case.check(&device.download(out), "in splits");
    }
}

#[test]
fn rows_that_are_not_whole_blocks_are_refused_and_not_preferred() {
    let device = Device::new();
    for (sizes, whole) in [([128, 64, 8], true), ([128, 96, 8], false), ([8, 64, 8], true)] {
        let shape = shape(sizes);
        let ([a, b, _], _) = Op::Fprop.lens(shape);
        let (a, b) = (vec![1.0; a], vec![1.0; b]);
        let case = with_bf16_activations(Case::new(Op::Fprop, shape, &a, &b), Format::Nf4);
        match case.describe(&device) {
            Ok((launch, _)) => {
                assert!(whole && launch.kernel().name == "gemm_fprop_multistage_nf4")
            }
            Err(error) => assert!(!whole && matches!(error, KernelError::Shape { .. }), "{error}"),
        }
        let streams = shape.prefers_bf16_activations(DType::Nf4);
        assert_eq!(streams, whole && shape.rows >= 9);
    }
    let w = Format::F32.upload(&device, &[1.0; 64], 0);
    assert!(!shape([128, 8, 8]).prefers_bf16_activations(w.dtype()));
}
