//! NF4: the tables against their derivation, codes and scales against their definitions, and
//! dequantization on the device against the host.

use half::bf16;
use retrograph_kernels::nf4::{self, BLOCK, BOUNDARIES, NESTED_BLOCK, Nested, VALUES, dynamic_map};
use retrograph_kernels::ops::{Dequantize, TensorView};
use sha2::{Digest, Sha256};

use crate::gemm_case::{Format, rounded};
use crate::harness::Device;
use crate::support::numbers::Data;

/// The distribution function of the standard normal distribution, by the series of its integral.
fn normal(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / (2.0 * f64::from(n));
        sum += term / f64::from(2 * n + 1);
    }
    0.5 + sum / (2.0 * std::f64::consts::PI).sqrt()
}

/// The number below which a normal variable lies with `probability`, by bisection.
fn quantile(probability: f64) -> f64 {
    let (mut low, mut high) = (-4.0, 4.0);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if normal(middle) < probability { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

#[test]
fn values_are_quantiles_of_the_normal_distribution() {
    // The paper's appendix: 0, 8 quantiles above it and 7 below it, evenly spaced in probability,
    // divided by the largest. The outermost probability is the average over 15 and 16 equal parts
    // of one minus half a part.
    let outermost = 0.967_708_3;
    let largest = quantile(outermost);
    let spaced = |parts: usize, i: usize| {
        let probability = outermost + (0.5 - outermost) * i as f64 / parts as f64;
        quantile(probability) / largest
    };
    let below = (0..7).map(|i| -spaced(7, i));
    let above = (0..8).rev().map(|i| spaced(8, i));
    let derived: Vec<f64> = below.chain([0.0]).chain(above).collect();
    for (value, derived) in VALUES.iter().zip(&derived) {
        assert!((f64::from(*value) - derived).abs() < 2e-7, "{value} and {derived}");
    }
    for (boundary, pair) in BOUNDARIES.iter().zip(VALUES.windows(2)) {
        let middle = (f64::from(pair[0]) + f64::from(pair[1])) / 2.0;
        assert!((f64::from(*boundary) - middle).abs() < 4e-7, "{boundary} and {middle}");
    }
}

#[test]
fn the_dynamic_map_has_the_published_bits() {
    let map = dynamic_map();
    assert!(map.windows(2).all(|pair| pair[0] < pair[1]), "values rise");
    assert_eq!([map[0], map[127], map[128], map[255]], [-0.992_968_74, 0.0, 5.500_000_4e-7, 1.0]);
    let bytes: Vec<u8> = map.iter().flat_map(|value| value.to_le_bytes()).collect();
    // The digest of the table that several projects publish, from bitsandbytes on x86-64.
    let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digest, "e732639a65f497b4ad684bb166a4467708255edd5207757de8b8f0c7e1fda89c");
}

#[test]
fn codes_are_the_nearest_and_scales_the_largest() {
    let mut data = Data::new("nf4 codes");
    for len in [0, 1, 2, 63, 64, 65, 1000] {
        let scale = data.scale();
        let values = data.uniform(len, scale);
        let quantized = nf4::quantize(&values).unwrap();
        assert_eq!(quantized.codes.len(), len.div_ceil(2));
        assert_eq!(quantized.absmax.len(), len.div_ceil(BLOCK));
        let back = nf4::dequantize(&quantized.codes, &quantized.absmax, len);
        for ((block, scale), back) in
            values.chunks(BLOCK).zip(&quantized.absmax).zip(back.chunks(BLOCK))
        {
            let largest = block.iter().fold(0f32, |most, value| most.max(value.abs()));
            assert_eq!(*scale, largest);
            for (value, back) in block.iter().zip(back) {
                let distance = |other: f32| (f64::from(other) - f64::from(*value)).abs();
                let best = VALUES.iter().map(|v| distance(v * scale)).fold(f64::MAX, f64::min);
                assert!(distance(*back) <= best + 1e-6 * f64::from(*scale), "{value}: {back}");
            }
        }
    }
}

#[test]
fn values_keep_their_code_and_boundaries_belong_to_the_lower_one() {
    for (code, value) in VALUES.iter().enumerate() {
        assert_eq!(usize::from(nf4::code(*value)), code);
    }
    for (code, boundary) in BOUNDARIES.iter().enumerate() {
        assert_eq!(usize::from(nf4::code(*boundary)), code);
        assert_eq!(usize::from(nf4::code(boundary.next_up())), code + 1);
    }
}

#[test]
fn zeros_stay_zeros_and_non_finite_values_are_refused() {
    let zeros = nf4::quantize(&[0.0; 65]).unwrap();
    let back = nf4::dequantize(&zeros.codes, &zeros.absmax, 65);
    assert!(back.iter().all(|&value| value == 0.0), "{back:?}");
    for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut values = vec![1.0; 200];
        values[131] = wrong;
        assert_eq!(nf4::quantize(&values).unwrap_err().index, 131);
    }
    let whole = nf4::quantize(&[f32::MAX, f32::MIN_POSITIVE, -f32::MAX]).unwrap();
    assert_eq!(whole.codes, [0xf7, 0x00]);
}

#[test]
fn nested_scales_are_the_nearest_of_the_map_around_the_mean() {
    let mut data = Data::new("nf4 nested");
    for blocks in [1, 255, 256, 257, 1000] {
        let absmax: Vec<f32> = data.uniform(blocks, 1.0).iter().map(|x| x.abs() + 0.1).collect();
        let nested = Nested::new(&absmax);
        let sum: f64 = absmax.iter().map(|&scale| f64::from(scale)).sum();
        assert!((f64::from(nested.offset) - sum / blocks as f64).abs() < 1e-7);
        assert_eq!(nested.nested.len(), blocks.div_ceil(NESTED_BLOCK));
        let map = dynamic_map();
        for (index, (scale, back)) in absmax.iter().zip(nested.scales()).enumerate() {
            let unit = nested.nested[index / NESTED_BLOCK];
            let best = map.iter().map(|v| (v * unit + nested.offset - scale).abs());
            let best = best.fold(f32::MAX, f32::min);
            assert!((back - scale).abs() <= best + 1e-6 * unit, "{scale}: {back}");
        }
    }
}

#[test]
fn the_device_has_the_bits_of_the_host() {
    let mut data = Data::new("nf4 dequantize");
    for format in [Format::Nf4, Format::Nested] {
        for len in [0, 8, 56, 64, 72, 1000, 8184, 8192, 8200, 17 * 1024] {
            let scale = data.scale();
            let values = data.uniform(len, scale);
            let device = Device::new();
            let TensorView::Nf4(w) = format.upload(&device, &values, 0) else { unreachable!() };
            let runs = [0; 2].map(|_| {
                let around = device.upload(&vec![bf16::from_f32(9.0); len + 8]);
                let out = around.slice(0..len);
                device.run(&Dequantize { w, out }.launch().unwrap());
                let found: Vec<bf16> = device.download(around);
                assert!(found[len..].iter().all(|x| x.to_f32() == 9.0), "wrote beyond {len}");
                found
            });
            assert_eq!(runs[0], runs[1]);
            let found: Vec<f32> = runs[0][..len].iter().map(|x| x.to_f32()).collect();
            let expected = rounded(&format.stored(&values));
            let wrong = (0..len).find(|&at| found[at].to_bits() != expected[at].to_bits());
            assert_eq!(wrong, None, "{len} elements");
        }
    }
}

#[test]
fn dequantization_checks_lengths_and_alignment() {
    let device = Device::new();
    let of = |len: usize| match Format::Nf4.upload(&device, &vec![1.0; len], 0) {
        TensorView::Nf4(w) => w,
        _ => unreachable!(),
    };
    let out = device.upload(&[bf16::ONE; 80]);
    let refused = |dequantize: Dequantize<u64>| dequantize.launch().unwrap_err().to_string();
    let text = refused(Dequantize { w: of(60), out: out.slice(0..60) });
    assert!(text.contains("multiple of 8 elements"), "{text}");
    let text = refused(Dequantize { w: of(64), out: out.slice(0..63) });
    assert!(text.contains("out"), "{text}");
    let text = refused(Dequantize { w: of(64), out: out.slice(4..68) });
    assert!(text.contains("16 bytes"), "{text}");
}
