//! GEMMs in bf16, and GEMMs with bf16 and NF4 weights, in every tile.

use retrograph_kernels::KernelError;
use retrograph_kernels::ops::{DType, DgradSplitK, FpropSplitK, SplitKSum};

use crate::gemm_case::{BF16_TILES, Case, Format, OPS, Op, rounded, shape};
use crate::harness::Device;
use crate::support::numbers::{Data, same_bits};

/// The supported pairs of operand types.
const FORMATS: [(DType, Format); 6] = [
    (DType::Bf16, Format::F32),
    (DType::Bf16, Format::Bf16),
    (DType::Bf16, Format::Nf4),
    (DType::Bf16, Format::Nested),
    (DType::F32, Format::Nf4),
    (DType::F32, Format::Nested),
];

/// Rows, inputs, outputs: zero, one, primes, multiples of 8 and of tiles, and one more.
const SHAPES: [[usize; 3]; 10] = [
    [0, 8, 5],
    [3, 8, 0],
    [1, 1, 1],
    [2, 3, 5],
    [5, 12, 20],
    [31, 37, 29],
    [32, 16, 64],
    [33, 200, 65],
    [130, 72, 33],
    [17, 264, 130],
];

/// Every product, format and shape.
fn cases() -> Vec<(Op, DType, Format, [usize; 3])> {
    let all = OPS.iter().flat_map(|op| FORMATS.map(|(compute, format)| (*op, compute, format)));
    let all = all.filter(|(op, _, format)| *op != Op::Wgrad || *format == Format::F32);
    all.flat_map(|(op, compute, format)| SHAPES.map(|sizes| (op, compute, format, sizes)))
        .filter(|(_, _, format, sizes)| {
            !matches!(format, Format::Nf4 | Format::Nested) || sizes[1].is_multiple_of(8)
        })
        .collect()
}

#[test]
fn every_tile_matches_the_reference_of_the_converted_operands() {
    let (mut data, device) = (Data::new("mixed tiles"), Device::new());
    for (op, compute, format, sizes) in cases() {
        let shape = shape(sizes);
        let ([a, b, _], _) = op.lens(shape);
        let (a, b) = (data.uniform(a, 2.0), data.uniform(b, 2.0));
        let case = Case { compute, format, ..Case::new(op, shape, &a, &b) };
        let results: Vec<_> = (case.tiles(device.target()).iter())
            .map(|&tile| {
                let result = case.run_tile(&device, tile);
                case.check(&result, &format!("{compute:?} {format:?} {tile:?}"));
                result
            })
            .collect();
        same_bits(&results[0], &results[1], "the tiles 128x128 and 64x64");
        same_bits(&results[0], &results[2], "the tiles 128x128 and 32x32");
    }
}

#[test]
fn bias_alpha_accumulation_and_alignment_match_the_reference() {
    let (mut data, device) = (Data::new("mixed epilogue"), Device::new());
    for (op, format, sizes) in OPS.iter().flat_map(|op| {
        [(Format::F32, [5, 12, 8]), (Format::Bf16, [9, 7, 33]), (Format::Bf16, [9, 24, 40])]
            .map(|(format, sizes)| (*op, format, sizes))
    }) {
        if op == Op::Wgrad && format != Format::F32 {
            continue;
        }
        let shape = shape(sizes);
        let ([a, b, c], _) = op.lens(shape);
        let (a, b, before) = (data.uniform(a, 2.0), data.uniform(b, 2.0), data.uniform(c, 2.0));
        let bias = data.uniform(shape.outputs, 2.0);
        let bias = (op == Op::Fprop).then_some(bias.as_slice());
        for before in [None, Some(before.as_slice())] {
            let plain = Case::new(op, shape, &a, &b);
            let case = Case { bias, before, alpha: -0.75, compute: DType::Bf16, format, ..plain };
            for &tile in BF16_TILES {
                let aligned = case.run_tile(&device, tile);
                case.check(&aligned, &format!("{tile:?}"));
                let shifted = Case { shift: 1, ..case };
                same_bits(&aligned, &shifted.run_tile(&device, tile), "unaligned operands");
            }
        }
    }
}

#[test]
fn the_chosen_tile_matches_the_reference_and_repeats_its_bits() {
    let (mut data, device) = (Data::new("mixed dispatch"), Device::new());
    for (compute, format) in FORMATS {
        for sizes in [[40, 24, 72], [7, 264, 400], [150, 256, 136]] {
            let shape = shape(sizes);
            let ([a, b, _], _) = Op::Fprop.lens(shape);
            let (a, b) = (data.uniform(a, 2.0), data.uniform(b, 2.0));
            for op in [Op::Fprop, Op::Dgrad] {
                let a = if op == Op::Fprop { &a } else { &data.uniform(sizes[0] * sizes[2], 2.0) };
                let case = Case { compute, format, ..Case::new(op, shape, a, &b) };
                let first = case.run(&device);
                case.check(&first, "chosen by sizes");
                same_bits(&first, &case.run(&device), "two runs");
            }
        }
    }
}

#[test]
fn extreme_scales_stay_within_their_bound() {
    let (mut data, device) = (Data::new("mixed scales"), Device::new());
    let scales = [(1e-30, 1.0), (1e30, 1.0), (1e-30, 1e30), (1e-30, 1e-12), (1e18, 1e18)];
    for ((compute, format), (left, right)) in
        FORMATS.iter().flat_map(|format| scales.map(|scales| (*format, scales)))
    {
        let shape = shape([17, 72, 23]);
        let ([a, b, _], _) = Op::Fprop.lens(shape);
        let (a, b) = (data.uniform(a, left), data.uniform(b, right));
        let case = Case { compute, format, ..Case::new(Op::Fprop, shape, &a, &b) };
        for &tile in case.tiles(device.target()) {
            case.check(&case.run_tile(&device, tile), "extreme scales");
        }
    }
}

#[test]
fn nan_and_infinity_reach_exactly_what_depends_on_them() {
    let (mut data, device) = (Data::new("mixed specials"), Device::new());
    let specials = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX];
    for ((op, format), value) in OPS
        .iter()
        .flat_map(|op| [Format::F32, Format::Bf16].map(|format| (*op, format)))
        .flat_map(|case| specials.map(|value| (case, value)))
    {
        if op == Op::Wgrad && format != Format::F32 {
            continue;
        }
        for sizes in [[6, 37, 9], [8, 40, 16]] {
            let shape = shape(sizes);
            let ([a, b, _], _) = op.lens(shape);
            let (mut a, mut b) = (data.uniform(a, 2.0), data.uniform(b, 2.0));
            let (last_a, last_b) = (a.len() - 1, b.len() / 2);
            (a[last_a], b[last_b]) = (value, value);
            let case = Case { compute: DType::Bf16, format, ..Case::new(op, shape, &a, &b) };
            for &tile in BF16_TILES {
                case.check(&case.run_tile(&device, tile), "with a special value");
            }
        }
    }
}

#[test]
fn operands_are_rounded_to_nearest_even() {
    let device = Device::new();
    // Multiplies by 1: the result is the rounded operand itself.
    let mut values: Vec<f32> = (0..=32).map(|i| f32::from_bits(0x3f80_0000 + i * 0x1000)).collect();
    values.extend([1e-40, 3.4e38, -1.003_906_2, 1.011_718_8, f32::MIN_POSITIVE, 0.0]);
    let shape = shape([values.len(), 1, 1]);
    let case = Case { compute: DType::Bf16, ..Case::new(Op::Fprop, shape, &values, &[1.0]) };
    for &tile in BF16_TILES {
        same_bits(&case.run_tile(&device, tile), &rounded(&values), &format!("{tile:?}"));
    }
}

#[test]
fn weights_in_nf4_have_the_values_of_the_host() {
    let (mut data, device) = (Data::new("nf4 on the device"), Device::new());
    for (compute, format) in FORMATS.into_iter().filter(|(_, format)| *format != Format::F32) {
        let (inputs, outputs) = (40, 7);
        let w = data.uniform(outputs * inputs, 3.0);
        // Rows of the identity select single weights.
        let one = |row: usize, column: usize| f32::from(u8::from(row == column));
        let x: Vec<f32> = (0..inputs * inputs).map(|i| one(i / inputs, i % inputs)).collect();
        let case = Case {
            compute,
            format,
            ..Case::new(Op::Fprop, shape([inputs, inputs, outputs]), &x, &w)
        };
        let stored = format.stored(&w);
        let stored = if compute == DType::Bf16 { rounded(&stored) } else { stored };
        let expected: Vec<f32> = (0..inputs * outputs)
            .map(|i| stored[i % outputs * inputs + i / outputs] + 0.0)
            .collect();
        for &tile in case.tiles(device.target()) {
            same_bits(&case.run_tile(&device, tile), &expected, &format!("{tile:?}"));
        }
    }
}

#[test]
fn split_k_products_match_their_reference() {
    let (mut data, device) = (Data::new("mixed splits"), Device::new());
    for (compute, format) in FORMATS {
        let (shape, splits) = (shape([5, 64, 96]), 4);
        for op in [Op::Fprop, Op::Dgrad] {
            let ([a, b, len], _) = op.lens(shape);
            let (a, b) = (data.uniform(a, 2.0), data.uniform(b, 2.0));
            let (x, w) = (device.upload(&a), format.upload(&device, &b, 0));
            let (partials, out) = (device.unwritten(splits * len), device.unwritten(len));
            let launch = match op {
                Op::Fprop => FpropSplitK { x, w, partials, shape, splits }.launch_in(compute),
                _ => DgradSplitK { grad_out: x, w, partials, shape, splits }.launch_in(compute),
            };
            device.run(&launch.unwrap());
            device.run(&SplitKSum { partials, out, splits }.launch().unwrap());
            let case = Case { compute, format, ..Case::new(op, shape, &a, &b) };
            case.check(&device.download(out), "in splits");
        }
    }
}

#[test]
fn unsupported_operands_are_refused() {
    let device = Device::new();
    let error = |compute, format, sizes: [usize; 3]| {
        let shape = shape(sizes);
        let ([a, b, _], _) = Op::Fprop.lens(shape);
        let (a, b) = (vec![0.0; a], vec![0.0; b]);
        let case = Case { compute, format, ..Case::new(Op::Fprop, shape, &a, &b) };
        case.describe(&device).unwrap_err()
    };
    let in_f32 = error(DType::F32, Format::Bf16, [1, 8, 1]);
    assert!(matches!(in_f32, KernelError::UnsupportedDType { dtype: DType::Bf16, .. }), "{in_f32}");
    let ragged = error(DType::Bf16, Format::Nf4, [1, 12, 2]);
    assert!(ragged.to_string().contains("multiple of 8"), "{ragged}");
}
