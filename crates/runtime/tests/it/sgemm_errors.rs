//! Compares f32 products and cuBLAS's SGEMM with f64. Needs a GPU with cuBLAS.
//!
//! Split f16 keeps fewer bits of elements below 2⁻¹⁶ of the largest of their row.

use half::f16;
use retrograph_kernels::ops::{Fprop, GemmShape, Split, SplitMatrix};
use retrograph_kernels::{KernelError, Launch};
use retrograph_runtime::{
    Bindings, BufferId, CUBLAS_WORKSPACE_BYTES, Cublas, DeviceBuffer, LibraryGemm, MatrixShape,
    Pass, Policy, Slice,
};

use crate::cublas::cublas;
use crate::device::{Device, device};
use crate::programs::build;
use crate::support::numbers::{Data, doubles};
use crate::support::reference::{matmul, transposed};

const ROWS: usize = 256;
const OUTPUTS: usize = 128;
/// The unit of errors.
const UNIT: f64 = 1.0 / 16_777_216.0;
/// Terms of each element of a split matrix.
const TERMS: usize = 2;

/// `y = x·wᵀ` by SGEMM, in `tf32x3` and in split f16.
struct Products {
    pass: Pass,
    x: Slice<f32>,
    w: Slice<f32>,
    results: [Slice<f32>; 3],
}

impl Products {
    fn new(inner: usize) -> Self {
        let mut pass = Pass::new("f32 products");
        let x = pass.external("x", ROWS * inner);
        let w = pass.external("w", OUTPUTS * inner);
        let results @ [sgemm, tf32x3, split_f16] =
            ["sgemm", "tf32x3", "split f16"].map(|name| pass.external(name, ROWS * OUTPUTS));
        let workspace = pass.transient("workspace", CUBLAS_WORKSPACE_BYTES / 4);
        let shape = MatrixShape { m: ROWS, n: OUTPUTS, k: inner };
        let mut product = LibraryGemm::new(shape, x, w, sgemm, workspace);
        product.transpose_b = true;
        pass.library_gemm(&product).unwrap();
        let shape = GemmShape { rows: ROWS, inputs: inner, outputs: OUTPUTS };
        let (bias, alpha, accumulate) = (None, 1.0, false);
        launch(&mut pass, Fprop { x, w, bias, y: tf32x3, shape, alpha, accumulate }.launch());
        let [x_terms, w_terms] = [(x, ROWS), (w, OUTPUTS)].map(|(matrix, rows)| {
            let out = SplitMatrix {
                terms: pass.transient::<f16>("terms", TERMS * matrix.len()),
                term_count: TERMS,
                scales: pass.transient::<f32>("scales", rows),
            };
            let split = Split { x: matrix, column_scales: None, out, rows, columns: inner };
            launch(&mut pass, split.launch());
            out
        });
        let y = split_f16;
        let product = Fprop { x: x_terms, w: w_terms, bias, y, shape, alpha, accumulate };
        launch(&mut pass, product.launch());
        Self { pass, x, w, results }
    }

    fn run(&self, device: &Device, cublas: &Cublas, x: &[f32], w: &[f32]) -> [Vec<f32>; 3] {
        let [x, w] = [x, w].map(|it| DeviceBuffer::from_slice(&device.stream, it).unwrap());
        let nan = vec![f32::NAN; ROWS * OUTPUTS];
        let results = self.results.map(|_| DeviceBuffer::from_slice(&device.stream, &nan).unwrap());
        let mut bindings = Bindings::new();
        bindings.bind(self.x, &x).bind(self.w, &w).cublas(cublas);
        for (slice, buffer) in self.results.into_iter().zip(&results) {
            bindings.bind(slice, buffer);
        }
        let mut program = build(device, &self.pass, &bindings, Policy::Eager).unwrap();
        program.step(&device.stream, &self.pass.controls()).unwrap();
        results.map(|buffer| buffer.download(&device.stream).unwrap())
    }
}

fn launch(pass: &mut Pass, launch: Result<Launch<BufferId>, KernelError>) {
    pass.launch(launch.unwrap()).unwrap();
}

/// The largest and the quadratic mean of `|y − exact| ÷ Σ|x·w|`, in units of 2⁻²⁴.
fn errors(found: &[f32], exact: &[f64], sums: &[f64]) -> [f64; 2] {
    let pairs = found.iter().zip(exact).zip(sums);
    let errors: Vec<f64> =
        pairs.map(|((y, exact), sum)| (f64::from(*y) - exact).abs() / sum).collect();
    let largest = errors.iter().fold(0.0, |largest: f64, error| match error.is_nan() {
        true => f64::INFINITY,
        false => largest.max(*error),
    });
    let square = errors.iter().map(|error| error * error).sum::<f64>() / errors.len() as f64;
    [largest, square.sqrt()].map(|error| error / UNIT)
}

/// The largest error of each element of the product because split elements have an error of up to
/// 2⁻³⁹ of the largest of their row.
fn lost_in_split([x, w]: [&[f64]; 2], inner: usize) -> Vec<f64> {
    let rows = |matrix: &[f64]| -> Vec<[f64; 2]> {
        let of = |row: &[f64]| [row.iter().copied().fold(0.0, f64::max), row.iter().sum()];
        matrix.chunks_exact(inner).map(of).collect()
    };
    let (x, w) = (rows(x), rows(w));
    let of = |[x_max, x_sum]: [f64; 2], [w_max, w_sum]: [f64; 2]| x_max * w_sum + w_max * x_sum;
    let pairs = x.iter().flat_map(|x| w.iter().map(|w| of(*x, *w)));
    pairs.map(|lost| lost * 2f64.powi(-39)).collect()
}

/// Prints one JSON line for each pair of operands; `--nocapture` shows them. The factor of outliers
/// is 1 if there are none.
#[test]
#[expect(clippy::print_stdout, reason = "records take the lines")]
fn errors_of_f32_products_are_near_those_of_sgemm() {
    let device = device();
    let Some(cublas) = cublas(&device) else { return };
    let mut data = Data::new("errors beside SGEMM");
    for inner in [1536, 8960] {
        let products = Products::new(inner);
        for [x_scale, w_scale] in [[1.0, 1.0], [1e-30, 1e30], [1e30, 1e-30], [1e-15, 1e-15]] {
            for (every, factor) in [(1, 1.0), (193, 1e3), (12_289, 1e6)] {
                let mut x = data.uniform(ROWS * inner, x_scale);
                let mut w = data.uniform(OUTPUTS * inner, w_scale);
                x.iter_mut().skip(7).step_by(every).for_each(|value| *value *= factor);
                w.iter_mut().skip(5).step_by(every).for_each(|value| *value *= factor);
                let found = products.run(&device, &cublas, &x, &w);
                let exact = |[x, w]: [&[f64]; 2]| {
                    matmul(x, &transposed(w, OUTPUTS, inner), [ROWS, inner, OUTPUTS])
                };
                let [x, w] = [doubles(&x), doubles(&w)];
                let sizes = [&x, &w].map(|it| it.iter().map(|it| it.abs()).collect::<Vec<_>>());
                let (exact, sums) = (exact([&x, &w]), exact([&sizes[0], &sizes[1]]));
                let [sgemm, tf32x3, split] = found.each_ref().map(|y| errors(y, &exact, &sums));
                println!(
                    "{{\"inner\":{inner},\"scales\":[{x_scale:e},{w_scale:e}],\
                     \"outliers\":{factor:e},\"sgemm\":{sgemm:.3?},\"tf32x3\":{tf32x3:.3?},\
                     \"split_f16\":{split:.3?}}}"
                );
                assert!(tf32x3[0] <= 4.0 * sgemm[0], "{tf32x3:?} and SGEMM {sgemm:?}");
                let lost = lost_in_split([&sizes[0], &sizes[1]], inner);
                for (i, (y, exact)) in found[2].iter().zip(&exact).enumerate() {
                    let bound = 2.0 * sgemm[0] * UNIT * sums[i] + lost[i];
                    let error = (f64::from(*y) - exact).abs();
                    assert!(error <= bound, "element {i}: {error:e} of {bound:e}");
                }
            }
        }
    }
}
