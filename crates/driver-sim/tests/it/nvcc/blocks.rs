//! Kernels with shared memory.

use super::{Bench, Launch, SEEDS, integers, near, numbers, value};

#[test]
fn matmul() {
    let (m, n, k) = (37, 21, 50);
    let (a, b) = (numbers(m * k, 1.0), numbers(k * n, 1.0));
    for seed in SEEDS {
        let bench = Bench::new(include_str!("../../nvcc/matmul.ptx"), seed);
        let (da, db, dc) = (bench.upload(&a), bench.upload(&b), bench.upload(&vec![0f32; m * n]));
        let mut parameters = vec![value(da), value(db), value(dc)];
        parameters.extend([m, n, k].map(|size| value(size as i32)));
        let (grid, block) = ([2, 3, 1], [16, 16, 1]);
        bench.launch(Launch { kernel: c"matmul", grid, block, shared: 0, parameters });
        for (index, found) in bench.download::<f32>(dc, m * n).into_iter().enumerate() {
            let (row, column) = (index / n, index % n);
            let terms = (0..k).map(|i| f64::from(a[row * k + i]) * f64::from(b[i * n + column]));
            near(found, terms.sum(), 1e-5);
        }
    }
}

#[test]
fn softmax() {
    let (rows, width) = (5, 77);
    let x = numbers(rows * width, 8.0);
    for seed in SEEDS {
        let bench = Bench::new(include_str!("../../nvcc/softmax.ptx"), seed);
        let (dx, dy) = (bench.upload(&x), bench.upload(&vec![0f32; rows * width]));
        let parameters = vec![value(dx), value(dy), value(width as i32)];
        let (grid, block) = ([rows as u32, 1, 1], [64, 1, 1]);
        bench.launch(Launch { kernel: c"softmax", grid, block, shared: 256, parameters });
        let found = bench.download::<f32>(dy, rows * width);
        for (x, found) in x.chunks_exact(width).zip(found.chunks_exact(width)) {
            let sum: f64 = x.iter().map(|&x| f64::from(x).exp()).sum();
            x.iter().zip(found).for_each(|(&x, &y)| near(y, f64::from(x).exp() / sum, 1e-6));
        }
    }
}

#[test]
fn transpose() {
    let (width, height) = (45, 70);
    let x = integers(width * height);
    for seed in SEEDS {
        let bench = Bench::new(include_str!("../../nvcc/transpose.ptx"), seed);
        let (from, to) = (bench.upload(&x), bench.upload(&vec![0u32; x.len()]));
        let parameters = vec![value(from), value(to), value(width as i32), value(height as i32)];
        let (grid, block) = ([2, 3, 1], [32, 8, 1]);
        bench.launch(Launch { kernel: c"transpose", grid, block, shared: 0, parameters });
        let found = bench.download::<u32>(to, x.len());
        let wanted = (0..x.len()).map(|i| x[i % height * width + i / height]);
        assert!(found.into_iter().eq(wanted));
    }
}

#[test]
fn histogram() {
    let data: Vec<u8> = integers(5000).iter().map(|x| (x >> 13) as u8 & 0x9f).collect();
    for seed in SEEDS {
        let bench = Bench::new(include_str!("../../nvcc/histogram.ptx"), seed);
        let (from, counts) = (bench.upload(&data), bench.upload(&[0u32; 256]));
        let parameters = vec![value(from), value(counts), value(data.len() as i32)];
        let (grid, block) = ([4, 1, 1], [96, 1, 1]);
        bench.launch(Launch { kernel: c"histogram", grid, block, shared: 0, parameters });
        let mut wanted = [0u32; 256];
        data.iter().for_each(|&byte| wanted[usize::from(byte)] += 1);
        assert_eq!(bench.download::<u32>(counts, 256), wanted);
    }
}

#[test]
fn scan() {
    let x: Vec<i64> = integers(300).iter().map(|&x| i64::from(x as i32) * 0x1_0000_0003).collect();
    for seed in SEEDS {
        let bench = Bench::new(include_str!("../../nvcc/scan.ptx"), seed);
        let (from, to) = (bench.upload(&x), bench.upload(&[0i64; 300]));
        let parameters = vec![value(from), value(to), value(300i32)];
        let (grid, block) = ([1, 1, 1], [320, 1, 1]);
        bench.launch(Launch { kernel: c"scan", grid, block, shared: 0, parameters });
        let mut sum = 0i64;
        let wanted = x.iter().map(|&x| {
            sum = sum.wrapping_add(x);
            sum
        });
        assert!(bench.download::<i64>(to, 300).into_iter().eq(wanted));
    }
}

#[test]
fn grid_sync() {
    let x: Vec<u32> = (1..=500).collect();
    for seed in SEEDS {
        for is_cooperative in [true, false] {
            let bench = Bench::new(include_str!("../../nvcc/grid_sync.ptx"), seed);
            let (dx, partial) = (bench.upload(&x), bench.upload(&[7u32; 8]));
            let parameters = vec![value(dx), value(partial), value(x.len() as i32)];
            let (kernel, grid, block) = (c"normalize", [8, 1, 1], [64, 1, 1]);
            let launch = Launch { kernel, grid, block, shared: 0, parameters };
            bench.launch_as(launch, is_cooperative);
            let found = bench.download::<u32>(dx, x.len());
            let sum: u32 = x.iter().sum();
            let wanted = x.iter().map(|x| if is_cooperative { sum / x } else { u32::MAX });
            assert!(found.into_iter().eq(wanted), "seed {seed}, cooperative {is_cooperative}");
        }
    }
}
