//! GEMMs with split-K.

use retrograph_kernels::KernelError;
use retrograph_kernels::ops::{
    DType, DgradSplitK, FpropSplitK, GemmConfig, GemmShape, SplitKSum, WgradSplitK,
};

use crate::elementwise::rounds;
use crate::gemm_case::{Case, OPS, Op, shape};
use crate::harness::Device;
use crate::support::numbers::{Data, Tolerance, same_bits};

/// Computes a product by split-K with `splits` splits.
fn split_k(op: Op, shape: GemmShape, a: &[f32], b: &[f32], splits: usize) -> Vec<f32> {
    let device = Device::new();
    let ([.., len], _) = op.lens(shape);
    let (a, b) = (device.upload(a), device.upload(b));
    let (partials, out) = (device.unwritten(splits * len), device.unwritten(len));
    let launch = match op {
        Op::Fprop => FpropSplitK { x: a, w: b, partials, shape, splits }.launch(),
        Op::Dgrad => DgradSplitK { grad_out: a, w: b, partials, shape, splits }.launch(),
        Op::Wgrad => WgradSplitK { grad_out: a, x: b, partials, shape, splits }.launch(),
    };
    device.run(&launch.unwrap());
    device.run(&SplitKSum { partials, out, splits }.launch().unwrap());
    device.download(out)
}

#[test]
fn split_k_products_match_their_reference() {
    let mut data = Data::new("splits");
    for (sizes, splits) in [
        ([1, 6, 6], 1),
        ([3, 12, 20], 2),
        ([7, 35, 70], 5),
        ([33, 1024, 512], 2),
        ([5, 1120, 2240], 14),
        ([1024, 33, 20], 4),
        ([32, 2048, 33], 1),
    ] {
        for op in OPS {
            let shape = shape(sizes);
            let ([a, b, _], k) = op.lens(shape);
            if !k.is_multiple_of(splits) {
                continue;
            }
            let scale = data.scale();
            let (a, b) = (data.uniform(a, scale), data.uniform(b, 1.0));
            let actual = split_k(op, shape, &a, &b, splits);
            Case::new(op, shape, &a, &b).check(&actual, "in splits");
            same_bits(&actual, &split_k(op, shape, &a, &b, splits), "two runs");
        }
    }
}

#[test]
fn split_k_sums_match_the_reference_at_any_alignment() {
    let mut data = Data::new("split_k_sum");
    for n in [0, 1, 3, 4, 5, 1023, 1024, 1025] {
        for splits in [1, 2, 7] {
            let x = data.uniform(splits * n, 1.0);
            let run = |shift: usize| {
                let device = Device::new();
                let padded = [&vec![f32::NAN; shift], x.as_slice()].concat();
                let partials = device.upload(&padded).slice(shift..padded.len());
                let out = device.unwritten(n);
                device.run(&SplitKSum { partials, out, splits }.launch().unwrap());
                device.download(out)
            };
            let sum = |i| (0..splits).map(|part| f64::from(x[part * n + i])).sum();
            let expected: Vec<f64> = (0..n).map(sum).collect();
            let actual = run(0);
            Tolerance::relative(0.0).absolute(1e-6).check(&actual, &expected, "splits");
            same_bits(&actual, &run(1), "aligned and unaligned operands");
        }
    }
}

#[test]
fn few_tiles_with_a_long_contraction_are_split() {
    let (activations, weights) = (DType::F32, DType::F32);
    let single = GemmConfig { compute: DType::F32, activations, weights, concurrent: 0 };
    let both =
        |sizes, config| (shape(sizes).fprop_splits(config), shape(sizes).dgrad_splits(config));
    let splits = |sizes| both(sizes, single);
    // rows, inputs, outputs of the down, gate and up projections of a 1.5B model.
    for rows in [32, 128, 512] {
        assert!(splits([rows, 8960, 1536]).0 > 1, "{rows} rows: {:?}", splits([rows, 8960, 1536]));
        assert!(splits([rows, 1536, 8960]).1 > 1, "{rows} rows: {:?}", splits([rows, 1536, 8960]));
    }
    // Enough tiles, or too short a contraction.
    assert_eq!(splits([4096, 8960, 8960]), (1, 1));
    assert_eq!(splits([256, 64, 256]), (1, 1));
    assert_eq!(splits([1, 0, 0]), (1, 1));
    assert_eq!(splits([usize::MAX, 8960, 8960]), (1, 1));
    // NF4 splits consist of whole blocks. This contraction has a prime number of blocks.
    let (compute, activations, weights) = (DType::Bf16, DType::Bf16, DType::Bf16);
    let in_bf16 = GemmConfig { compute, activations, weights, concurrent: 0 };
    assert!(both([32, 256, 14_336], in_bf16).1 > 1);
    // Split-K in a cluster needs no second launch.
    assert_eq!(both([32, 8960, 1536], in_bf16).0, 1);
    assert_eq!(both([32, 1536, 151_936], in_bf16).1, 1);
    let codes = GemmConfig { weights: DType::Nf4, ..in_bf16 };
    assert_eq!(both([32, 1536, 1187 * 64], codes).1, 1);
    // Splits of split operands consist of whole stages of 64 elements.
    let in_parts = GemmConfig { weights: DType::F16, ..single };
    assert_eq!(both([512, 8960, 1536], in_parts).0, 2);
    assert_eq!(both([512, 1536, 151_936], in_parts).1, 2);
    assert_eq!(both([512, 1536, 64 * 1187], in_parts).1, 1);
    assert_eq!(both([2048, 8960, 1536], in_parts), (1, 1));
    // Eight concurrent products need fewer splits to fill a device.
    let concurrent = GemmConfig { concurrent: 7, ..in_bf16 };
    let [alone, shared] = [in_bf16, concurrent].map(|config| both([32, 256, 14_336], config).1);
    assert!(shared < alone, "{shared} splits with concurrent products, {alone} alone");
}

#[test]
fn splits_must_divide_the_contraction() {
    let device = Device::new();
    let view = |len| device.upload(&vec![0.0; len]);
    let shape = shape([2, 10, 3]);
    let launch = |splits| {
        let partials = view(splits * 6);
        FpropSplitK { x: view(20), w: view(30), partials, shape, splits }.launch()
    };
    assert!(launch(5).is_ok());
    for splits in [0, 3] {
        assert!(matches!(launch(splits), Err(KernelError::Shape { .. })), "{splits}");
    }
    let sum = SplitKSum { partials: view(7), out: view(3), splits: 2 };
    assert!(matches!(sum.launch(), Err(KernelError::Length { .. })));
}

#[test]
fn bf16_sums_are_rounded_f32_sums() {
    let (mut data, device) = (Data::new("rounded splits"), Device::new());
    for (len, splits) in [(1, 1), (7, 3), (64, 2), (1030, 6)] {
        let partials = device.upload(&data.uniform(splits * len, 3.0));
        rounds(&device, len, &|out| SplitKSum { partials, out, splits }.launch());
    }
}
