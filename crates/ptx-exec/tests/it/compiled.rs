//! Tensor cores and asynchronous copies as `nvcc` emits them.

use half::f16;
use retrograph_ptx::parse;
use retrograph_ptx_exec::{Launch, Program};

use super::{Bench, words};

fn program(name: &str) -> Program {
    let module = parse(include_str!("compiled/matrix.ptx")).unwrap_or_else(|e| panic!("{e}"));
    Program::decode(&module, name, &|_| None).unwrap_or_else(|error| panic!("{error}"))
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    words(bytes).into_iter().map(f32::from_bits).collect()
}

fn half(value: f64) -> [u8; 2] {
    f16::from_f64(value).to_bits().to_le_bytes()
}

#[test]
fn a_product_by_wmma() {
    let (m, n, k) = (64, 48, 80);
    let a = |row: usize, depth: usize| ((row * 3 + depth * 5) % 13) as f64 - 6.0;
    let b = |depth: usize, column: usize| ((depth * 7 + column) % 11) as f64 - 5.0;
    let left: Vec<u8> = (0..m * k).flat_map(|i| half(a(i / k, i % k))).collect();
    // Column by column.
    let right: Vec<u8> = (0..n * k).flat_map(|i| half(b(i % k, i / k))).collect();
    for (threads, seed, races) in [(1, 0, false), (2, 3, false), (8, 4, true)] {
        let bench = Bench::new(&[&left[..], &right[..]].concat(), 4 * m * n);
        let source = u64::from_le_bytes(bench.params[8..].try_into().unwrap());
        let mut parameters = Vec::new();
        for address in [source, source + left.len() as u64, bench.out] {
            parameters.extend(address.to_le_bytes());
        }
        parameters.extend([n as u32, k as u32].map(u32::to_le_bytes).concat());
        let (grid, block) = ([2, 3, 1], [64, 1, 1]);
        let launch = Launch {
            grid,
            block,
            parameters: &parameters,
            threads,
            seed,
            races,
            ..Launch::default()
        };
        crate::launch(&program("wmma_gemm"), &launch, &bench.memory)
            .unwrap_or_else(|fault| panic!("{fault}"));
        let found = floats(&bench.output());
        for (index, found) in found.into_iter().enumerate() {
            let (row, column) = (index / n, index % n);
            let sum: f64 = (0..k).map(|depth| a(row, depth) * b(depth, column)).sum();
            assert_eq!(f64::from(found), 2.0 * sum, "({row}, {column})");
        }
    }
}

#[test]
fn a_pipeline_of_asynchronous_copies() {
    let rows = 7;
    let input: Vec<f32> = (0..128 * rows).map(|i| i as f32).collect();
    let bytes: Vec<u8> = input.iter().flat_map(|value| value.to_le_bytes()).collect();
    let run = |text: &str, races| {
        let module = parse(text).unwrap();
        let program = Program::decode(&module, "staged", &|_| None).unwrap();
        let bench = Bench::new(&bytes, bytes.len());
        let source = &bench.params[8..];
        let parameters = [source, &bench.out.to_le_bytes(), &7u32.to_le_bytes()].concat();
        let launch =
            Launch { block: [128, 1, 1], parameters: &parameters, races, ..Launch::default() };
        crate::launch(&program, &launch, &bench.memory).map(|_| floats(&bench.output()))
    };
    let text = include_str!("compiled/matrix.ptx");
    let want: Vec<f32> = (0..128 * rows).map(|i| (i / 128 * 128 + 127 - i % 128) as f32).collect();
    for races in [false, true] {
        assert_eq!(run(text, races).as_ref(), Ok(&want));
    }
    // With one more group in flight, the data has not landed.
    let weak = text.replace("cp.async.wait_group 1;", "cp.async.wait_group 2;");
    assert!(run(&weak, false).unwrap()[0].is_nan());
    // Without barriers the threads race in any order of execution.
    let loose = text.replace("barrier.sync \t0;", "").replace("bar.sync \t0;", "");
    assert_ne!(loose, text);
    assert!(run(&loose, true).unwrap_err().to_string().contains("a race"));
}

#[test]
fn a_product_of_a_loaded_matrix() {
    // Ones in a; b is a part of it.
    let one = u32::from_le_bytes([half(1.0), half(1.0)].concat().try_into().unwrap());
    let bench = Bench::new(&[one.to_le_bytes(); 64].concat(), 512);
    let parameters = [&bench.params[8..], &bench.out.to_le_bytes()].concat();
    let launch = Launch { block: [32, 1, 1], parameters: &parameters, ..Launch::default() };
    crate::launch(&program("mma_ptx"), &launch, &bench.memory).unwrap();
    assert_eq!(floats(&bench.output()), [16.0; 128]);
}
