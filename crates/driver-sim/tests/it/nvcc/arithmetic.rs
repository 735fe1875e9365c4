//! One thread for each element.

use super::{Bench, Launch, SEEDS, integers, near, numbers, value};

#[test]
fn saxpy() {
    let (x, y) = (numbers(1000, 3.0), numbers(1000, 5.0));
    for seed in SEEDS {
        let bench = Bench::new(include_str!("../../nvcc/saxpy.ptx"), seed);
        let (dx, dy) = (bench.upload(&x), bench.upload(&y));
        let parameters = vec![value(1000i32), value(2.5f32), value(dx), value(dy)];
        let (grid, block) = ([3, 1, 1], [64, 1, 1]);
        bench.launch(Launch { kernel: c"saxpy", grid, block, shared: 0, parameters });
        let found = bench.download::<f32>(dy, 1000);
        let wanted: Vec<f32> = x.iter().zip(&y).map(|(x, y)| 2.5f32.mul_add(*x, *y)).collect();
        assert_eq!(found, wanted);
    }
}

/// The position and velocity of a particle, and its number of bounces.
fn step([px, py, pz, vx, vy, vz]: [f32; 6], index: usize) -> ([f32; 6], i32) {
    let (dt, drag) = (0.125f32, 0.5f32);
    let speed = |v: f32, gravity: f32| (-drag).mul_add(v, gravity).mul_add(dt, v);
    let (vx, vy, vz) = (speed(vx, 0.25), speed(vy, -9.75), speed(vz, 0.0));
    let place = |p: f32, v: f32| v.mul_add(dt, p);
    let (px, py, pz) = (place(px, vx), place(py, vy), place(pz, vz));
    if py < 0.0 {
        return ([px, -py, pz, vx, -vy, vz], [1, 10, -100][index % 3]);
    }
    ([px, py, pz, vx, vy, vz], 0)
}

#[test]
fn particles() {
    let start = numbers(6 * 50, 4.0);
    let mut memory = Vec::new();
    for particle in start.chunks_exact(6) {
        memory.extend(particle.iter().map(|x| x.to_bits()));
        memory.push(1000);
    }
    // struct World: gravity, drag, step, bounces, walls, and padding.
    let mut world = Vec::new();
    [0.25f32, -9.75, 0.0, 0.5].into_iter().for_each(|x| world.extend(x.to_le_bytes()));
    world.extend(0.125f64.to_le_bytes());
    [1i16, 10, -100].into_iter().for_each(|x| world.extend(x.to_le_bytes()));
    world.extend([2, 0]);
    for seed in SEEDS {
        let bench = Bench::new(include_str!("../../nvcc/particles.ptx"), seed);
        let all = bench.upload(&memory);
        let parameters = vec![world.clone(), value(all), value(50i32)];
        let (grid, block) = ([2, 1, 1], [32, 1, 1]);
        bench.launch(Launch { kernel: c"particles", grid, block, shared: 0, parameters });
        let found = bench.download::<u32>(all, 7 * 50);
        for (index, (found, start)) in found.chunks_exact(7).zip(start.chunks_exact(6)).enumerate()
        {
            let (wanted, bounced) = step(start.try_into().unwrap(), index);
            let wanted = wanted.map(f32::to_bits);
            assert_eq!((&found[..6], found[6] as i32), (&wanted[..], 1000 + bounced), "{index}");
        }
    }
}

#[test]
fn math_library_functions() {
    let x = numbers(64, 6.0);
    let bench = Bench::new(include_str!("../../nvcc/elementwise.ptx"), 0);
    let dx = bench.upload(&x);
    let (dy, dz) = (bench.upload(&[0f32; 6 * 64]), bench.upload(&[0f64; 3 * 64]));
    let parameters = vec![value(dx), value(dy), value(dz), value(64i32)];
    let (grid, block) = ([2, 1, 1], [32, 1, 1]);
    bench.launch(Launch { kernel: c"elementwise", grid, block, shared: 0, parameters });
    let (y, z) = (bench.download::<f32>(dy, 6 * 64), bench.download::<f64>(dz, 3 * 64));
    for (i, &x) in x.iter().enumerate() {
        let v = f64::from(x);
        near(y[6 * i], v.sin() * v.cos(), 1e-6);
        near(y[6 * i + 1], v.abs().powf(f64::from(1.3f32)), 3e-6);
        near(y[6 * i + 2], (1.0 + v * v).ln() + v.abs().ln_1p(), 3e-6);
        near(y[6 * i + 3], erf(v) + v.cbrt(), 1e-6);
        near(y[6 * i + 4], f64::from(x % 0.7f32) + v.trunc() + v.round_ties_even(), 3e-6);
        near(y[6 * i + 5], v.abs().sqrt() / (1.0 + v.abs()) + v.atan2(2.0), 1e-6);
        let wanted = [
            (-v * v).exp() + v.sin(),
            v.abs().sqrt() / (2.0 + v * v) + (1.0 + v * v).ln(),
            (v.abs() + 0.1).powf(2.5) + v.floor() + v.atan(),
        ];
        for (found, wanted) in z[3 * i..].iter().zip(wanted) {
            assert!((found - wanted).abs() <= 1e-14 * wanted.abs().max(1.0), "{found} {wanted}");
        }
    }
}

/// The error function by its Taylor series. Above 4 the terms are too large, and the result is
/// nearly 1.
fn erf(x: f64) -> f64 {
    if x.abs() > 4.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        let n = f64::from(n);
        term *= -x * x / n;
        sum += term / (2.0 * n + 1.0);
    }
    2.0 / std::f64::consts::PI.sqrt() * sum
}

/// The result of `bits.cu` for one pair.
fn hash(a: u32, b: u32) -> u64 {
    let wide = u64::from(a) << 32 | u64::from(b);
    let first_set = if a == 0 { 0 } else { a.trailing_zeros() + 1 };
    let mut hash = u64::from(a.count_ones())
        .wrapping_add(37 * u64::from(b.leading_zeros()))
        .wrapping_add(1369 * u64::from(first_set));
    hash ^= u64::from(a.reverse_bits()) << 7;
    let (x, y) = (a.to_le_bytes(), b.to_le_bytes());
    hash = hash.wrapping_add(u64::from(u32::from_le_bytes([x[0], y[0], x[1], y[1]])));
    hash ^= u64::from(((u64::from(b) << 32 | u64::from(a)) << (a & 31) >> 32) as u32);
    let golden = 0x9e37_79b9_7f4a_7c15u64;
    hash = hash.wrapping_add(((u128::from(wide) * u128::from(golden)) >> 64) as u64);
    hash ^= wide
        .reverse_bits()
        .wrapping_add(u64::from(wide.count_ones()).wrapping_add(u64::from(wide.leading_zeros())));
    let sums: [u8; 4] = std::array::from_fn(|i| x[i].wrapping_add(y[i]));
    hash = hash.wrapping_add(u64::from(u32::from_le_bytes(sums)));
    let products = (0..4).map(|i| u32::from(x[i]) * u32::from(y[i])).sum::<u32>();
    hash ^= u64::from(5u32.wrapping_add(products)) << 20;
    let low24 = |v: u32| (v as i32) << 8 >> 8;
    let part = 3u32
        .wrapping_add(a.abs_diff(b))
        .wrapping_add(((u64::from(a) * u64::from(b)) >> 32) as u32)
        .wrapping_add(low24(a).wrapping_mul(low24(b)) as u32)
        .wrapping_add(((u64::from(a) + u64::from(b)) / 2) as u32);
    hash = hash.wrapping_add(u64::from(part));
    let product = i64::from(a as i32) * i64::from(b as i32);
    hash ^= (product as u64).wrapping_add(wide % 1_000_003);
    let part = ((a as i32 >> (b & 31)) as u32)
        .wrapping_add(a / (b | 1))
        .wrapping_add((a as i32).wrapping_rem((b | 1) as i32) as u32);
    hash = hash.wrapping_add(u64::from(part));
    let product =
        u128::from(wide).wrapping_mul(u128::from(wide ^ hash)).wrapping_add(u128::from(hash));
    (product >> 64) as u64 ^ product as u64
}

#[test]
fn bits() {
    let x = integers(100);
    for seed in SEEDS {
        let bench = Bench::new(include_str!("../../nvcc/bits.ptx"), seed);
        let (dx, dy) = (bench.upload(&x), bench.upload(&[0u64; 100]));
        let parameters = vec![value(dx), value(dy), value(100i32)];
        let (grid, block) = ([4, 1, 1], [32, 1, 1]);
        bench.launch(Launch { kernel: c"bits", grid, block, shared: 0, parameters });
        let found = bench.download::<u64>(dy, 100);
        let wanted: Vec<u64> = (0..100).map(|i| hash(x[i], x[(i + 1) % 100])).collect();
        assert_eq!(found, wanted);
    }
}
