//! Products whose contraction is cut into parts.

use retrograph_kernels::KernelError;
use retrograph_kernels::ops::{Compute, DgradParts, FpropParts, GemmShape, Manner, PartsSum};

use crate::elementwise::rounds;
use crate::gemm_case::{Case, Op, shape};
use crate::harness::Device;
use crate::support::{Data, Tolerance, same_bits};

/// The product in `parts` parts, which are added.
fn cut(op: Op, shape: GemmShape, (a, b): (&[f32], &[f32]), parts: usize) -> Vec<f32> {
    let device = Device::new();
    let ([.., len], _) = op.lens(shape);
    let (a, b) = (device.upload(a), device.upload(b));
    let (partials, out) = (device.unwritten(parts * len), device.unwritten(len));
    let launch = match op {
        Op::Fprop => FpropParts { x: a, w: b, partials, shape, parts }.launch(),
        _ => DgradParts { grad_out: a, w: b, partials, shape, parts }.launch(),
    };
    device.run(&launch.unwrap());
    device.run(&PartsSum { partials, out, parts }.launch().unwrap());
    device.download(out)
}

#[test]
fn products_in_parts_match_their_reference() {
    let mut data = Data::new("parts");
    for (sizes, parts) in [
        ([1, 6, 6], 1),
        ([3, 12, 20], 2),
        ([7, 35, 70], 5),
        ([33, 1024, 512], 2),
        ([5, 1120, 2240], 14),
        ([32, 2048, 33], 1),
    ] {
        for op in [Op::Fprop, Op::Dgrad] {
            let shape = shape(sizes);
            let ([a, b, _], k) = op.lens(shape);
            if !k.is_multiple_of(parts) {
                continue;
            }
            let scale = data.scale();
            let (a, b) = (data.uniform(a, scale), data.uniform(b, 1.0));
            let actual = cut(op, shape, (&a, &b), parts);
            Case::new(op, shape, (&a, &b)).check(&actual, "in parts");
            same_bits(&actual, &cut(op, shape, (&a, &b), parts), "two runs");
        }
    }
}

#[test]
fn sums_of_parts_match_their_reference_wherever_they_start() {
    let mut data = Data::new("split_k_sum");
    for n in [0, 1, 3, 4, 5, 1023, 1024, 1025] {
        for parts in [1, 2, 7] {
            let x = data.uniform(parts * n, 1.0);
            let run = |shift: usize| {
                let device = Device::new();
                let padded = [&vec![f32::NAN; shift], x.as_slice()].concat();
                let partials = device.upload(&padded).slice(shift..padded.len());
                let out = device.unwritten(n);
                device.run(&PartsSum { partials, out, parts }.launch().unwrap());
                device.download(out)
            };
            let sum = |i| (0..parts).map(|part| f64::from(x[part * n + i])).sum();
            let expected: Vec<f64> = (0..n).map(sum).collect();
            let actual = run(0);
            Tolerance::relative(0.0).absolute(1e-6).check(&actual, &expected, "parts");
            same_bits(&actual, &run(1), "aligned and unaligned operands");
        }
    }
}

#[test]
fn parts_are_chosen_by_sizes_where_tiles_are_few() {
    let single = Manner { compute: Compute::F32, rounded: false, nf4: false, beside: 0 };
    let both = |sizes, manner| (shape(sizes).fprop_parts(manner), shape(sizes).dgrad_parts(manner));
    let parts = |sizes| both(sizes, single);
    // rows, inputs, outputs of the down projection and of gate and up of a 1.5B model.
    for rows in [32, 128, 512] {
        assert!(parts([rows, 8960, 1536]).0 > 1, "{rows} rows: {:?}", parts([rows, 8960, 1536]));
        assert!(parts([rows, 1536, 8960]).1 > 1, "{rows} rows: {:?}", parts([rows, 1536, 8960]));
    }
    // Enough tiles, or too short a contraction.
    assert_eq!(parts([4096, 8960, 8960]), (1, 1));
    assert_eq!(parts([256, 64, 256]), (1, 1));
    assert_eq!(parts([1, 0, 0]), (1, 1));
    assert_eq!(parts([usize::MAX, 8960, 8960]), (1, 1));
    // Any number of rows streams. Codes are cut at blocks, of which 151936 has a prime number.
    let streamed = Manner { compute: Compute::Bf16, rounded: true, ..single };
    assert!(both([131, 8960, 1536], streamed).0 > 1);
    assert!(both([32, 1536, 151_936], streamed).1 > 8);
    assert_eq!(both([32, 1536, 1187 * 64], Manner { nf4: true, ..streamed }).1, 1);
    // Two at the same time need fewer parts to fill a device.
    let beside = Manner { beside: 1, ..streamed };
    assert!(both([32, 1536, 8960], beside).1 < both([32, 1536, 8960], streamed).1);
}

#[test]
fn parts_must_divide_the_contraction() {
    let device = Device::new();
    let view = |len| device.upload(&vec![0.0; len]);
    let shape = shape([2, 10, 3]);
    let launch = |parts| {
        let partials = view(parts * 6);
        FpropParts { x: view(20), w: view(30), partials, shape, parts }.launch()
    };
    assert!(launch(5).is_ok());
    for parts in [0, 3] {
        assert!(matches!(launch(parts), Err(KernelError::Shape { .. })), "{parts}");
    }
    let sum = PartsSum { partials: view(7), out: view(3), parts: 2 };
    assert!(matches!(sum.launch(), Err(KernelError::Length { .. })));
}

#[test]
fn sums_in_bf16_are_those_in_f32_rounded() {
    let (mut data, device) = (Data::new("rounded parts"), Device::new());
    for (len, parts) in [(1, 1), (7, 3), (64, 2), (1030, 6)] {
        let partials = device.upload(&data.uniform(parts * len, 3.0));
        rounds(&device, len, &|out| PartsSum { partials, out, parts }.launch());
    }
}
