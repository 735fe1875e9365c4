//! Kernels with warp-level operations.

use super::{Bench, Launch, SEEDS, integers, near, numbers, value};

#[test]
fn reduce() {
    let x = numbers(2000, 1.0);
    for seed in SEEDS {
        let bench = Bench::new(include_str!("../../nvcc/reduce.ptx"), seed);
        let (dx, sums) = (bench.upload(&x), bench.upload(&[0f32; 3]));
        let parameters = vec![value(dx), value(sums), value(2000i32)];
        let (grid, block) = ([3, 1, 1], [128, 1, 1]);
        bench.launch(Launch { kernel: c"reduce", grid, block, shared: 0, parameters });
        for (index, found) in bench.download::<f32>(sums, 3).into_iter().enumerate() {
            let mine = (0..2000).filter(|i| i / 128 % 3 == index);
            near(found, mine.map(|i| f64::from(x[i])).sum(), 1e-5);
        }
    }
}

#[test]
fn layernorm() {
    let (rows, width) = (4, 200);
    let (x, gain, bias) = (numbers(rows * width, 3.0), numbers(width, 1.0), numbers(width, 2.0));
    for seed in SEEDS {
        let bench = Bench::new(include_str!("../../nvcc/layernorm.ptx"), seed);
        let [dx, dg, db] = [&x, &gain, &bias].map(|list| bench.upload(list));
        let dy = bench.upload(&vec![0f32; rows * width]);
        let mut parameters: Vec<Vec<u8>> = [dx, dg, db, dy].map(value).to_vec();
        parameters.extend([value(width as i32 / 4), value(1e-5f32)]);
        let (grid, block) = ([rows as u32, 1, 1], [32, 1, 1]);
        bench.launch(Launch { kernel: c"layernorm", grid, block, shared: 0, parameters });
        let found = bench.download::<f32>(dy, rows * width);
        for (x, found) in x.chunks_exact(width).zip(found.chunks_exact(width)) {
            let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / width as f64;
            let square = x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / width as f64;
            let scale = 1.0 / (square - mean * mean + 1e-5).sqrt();
            for (i, &y) in found.iter().enumerate() {
                let wanted = (f64::from(x[i]) - mean) * scale * f64::from(gain[i]);
                near(y, wanted + f64::from(bias[i]), 1e-5);
            }
        }
    }
}

#[test]
fn dot_of_doubles() {
    let x: Vec<f64> = numbers(777, 1.0).into_iter().map(f64::from).collect();
    let y: Vec<f64> = x.iter().rev().map(|x| x * 1.7).collect();
    for seed in SEEDS {
        let bench = Bench::new(include_str!("../../nvcc/dot_double.ptx"), seed);
        let (dx, dy, sum) = (bench.upload(&x), bench.upload(&y), bench.upload(&[0f64]));
        let parameters = vec![value(dx), value(dy), value(sum), value(777i32)];
        let (grid, block) = ([2, 1, 1], [96, 1, 1]);
        bench.launch(Launch { kernel: c"dot_double", grid, block, shared: 0, parameters });
        let wanted: f64 = x.iter().zip(&y).map(|(x, y)| x * y).sum();
        let found = bench.download::<f64>(sum, 1)[0];
        assert!((found - wanted).abs() < 1e-12, "{found} {wanted}");
    }
}

#[test]
fn compaction() {
    let x: Vec<i32> = integers(200).iter().map(|&x| x as i32 >> 24).collect();
    for seed in SEEDS {
        let bench = Bench::new(include_str!("../../nvcc/compact.ptx"), seed);
        let from = bench.upload(&x);
        let [kept, groups] = [0; 2].map(|zero| bench.upload(&[zero; 200i32 as usize]));
        let count = bench.upload(&[0i32]);
        let mut parameters: Vec<Vec<u8>> = [from, kept, count, groups].map(value).to_vec();
        parameters.push(value(200i32));
        let (grid, block) = ([4, 1, 1], [64, 1, 1]);
        bench.launch(Launch { kernel: c"compact", grid, block, shared: 0, parameters });
        let mut wanted: Vec<i32> = x.iter().copied().filter(|&x| x > 0).collect();
        assert_eq!(bench.download::<i32>(count, 1), [wanted.len() as i32]);
        let mut found = bench.download::<i32>(kept, wanted.len());
        wanted.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, wanted);
        let class = |i: usize| x.get(i).map_or(-1, |x| x & 3);
        for (i, found) in bench.download::<i32>(groups, 200).into_iter().enumerate() {
            let warp = i / 32 * 32..i / 32 * 32 + 32;
            let same = |of: i32| warp.clone().filter(move |&j| class(j) == of);
            let first = same(class(i)).next().unwrap() - warp.start + 1;
            let most = warp.clone().map(|j| same(class(j)).count()).max().unwrap();
            assert_eq!(found, first as i32 * 100 + most as i32, "thread {i}");
        }
    }
}
