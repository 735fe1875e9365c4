//! f16 and bf16.

use super::{Bench, Launch, SEEDS, near, numbers, value};

/// The value of an f16.
fn f16(bits: u16) -> f64 {
    let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f64::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => mantissa * 2f64.powi(-24),
        _ => (1.0 + mantissa / 1024.0) * 2f64.powi(exponent - 15),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

/// The f16 nearest to a value; ties go to even.
fn to_f16(value: f64) -> u16 {
    // The candidates are in order of magnitude; of two equally near ones, the even one is the
    // result.
    let sign = if value < 0.0 { 0x8000 } else { 0 };
    let (mut low, mut high) = (0u16, 0x7bffu16);
    while low + 1 < high {
        let middle = u16::midpoint(low, high);
        if f16(middle) <= value.abs() { low = middle } else { high = middle }
    }
    let (below, above) = (value.abs() - f16(low), f16(high) - value.abs());
    let up = above < below || above == below && low & 1 == 1;
    sign | if up { high } else { low }
}

#[test]
fn half_axpy() {
    let pairs = 40;
    let random = |range: f32| -> Vec<u16> {
        numbers(2 * pairs, range).into_iter().map(|x| to_f16(f64::from(x))).collect()
    };
    let (x, y) = (random(2.0), random(3.0));
    let scale = 1.25f32;
    for seed in SEEDS {
        let bench = Bench::new(include_str!("../../nvcc/half_axpy.ptx"), seed);
        let (dx, dy) = (bench.upload(&x), bench.upload(&y));
        let most = bench.upload(&vec![0f32; pairs]);
        let mut parameters = vec![value(pairs as i32), value(scale)];
        parameters.extend([dx, dy, most].map(value));
        let (grid, block) = ([2, 1, 1], [32, 1, 1]);
        bench.launch(Launch { kernel: c"half_axpy", grid, block, shared: 0, parameters });
        let (found, most) =
            (bench.download::<u16>(dy, 2 * pairs), bench.download::<f32>(most, pairs));
        for i in 0..pairs {
            let sum = [0, 1].map(|j| {
                let exact = f64::from(scale) * f16(x[2 * i + j]) + f16(y[2 * i + j]);
                f16(to_f16(exact)).max(0.0)
            });
            assert_eq!(f64::from(most[i]), sum[0].max(sum[1]), "pair {i}");
            let less = sum[0] < f16(x[2 * i]);
            for j in 0..2 {
                let x = f16(x[2 * i + j]);
                let product = f16(to_f16(sum[j] - x)) * sum[j];
                let wanted = if less { -sum[j] } else { f16(to_f16(product)) };
                assert_eq!(f16(found[2 * i + j]), wanted, "pair {i}");
            }
        }
    }
}

#[test]
fn bf16_gelu() {
    let bf16 = |bits: u16| f64::from(f32::from_bits(u32::from(bits) << 16));
    let x: Vec<u16> = numbers(128, 4.0).iter().map(|x| (x.to_bits() >> 16) as u16).collect();
    for seed in SEEDS {
        let bench = Bench::new(include_str!("../../nvcc/bf16_gelu.ptx"), seed);
        let (dx, dy) = (bench.upload(&x), bench.upload(&[0u16; 128]));
        let parameters = vec![value(dx), value(dy), value(64i32)];
        let (grid, block) = ([2, 1, 1], [32, 1, 1]);
        bench.launch(Launch { kernel: c"bf16_gelu", grid, block, shared: 0, parameters });
        for (&x, y) in x.iter().zip(bench.download::<u16>(dy, 128)) {
            let v = bf16(x);
            let inner = 0.797_884_560_8 * (v + 0.044_715 * v * v * v);
            let wanted = 0.5 * v * (1.0 + inner.tanh());
            near(bf16(y) as f32, wanted, 1.0 / 256.0);
        }
    }
}
