//! Softmax and its gradient against their references.

use retrograph_kernels::attention::reference::softmax::{softmax, softmax_backward};
use retrograph_kernels::ops::{Softmax, SoftmaxBackward, SoftmaxInPlace, SoftmaxMask};
use retrograph_kernels::problem::RowsProblem;
use retrograph_kernels::{Dispatch, Launch, Problem, View};

use crate::harness::Device;
use crate::support::numbers::{Data, Tolerance, differences, doubles, same_bits};

/// Rows and widths: one, primes, a warp and one past it, several rows per block, both entries.
const SIZES: [(usize, usize); 10] = [
    (1, 1),
    (3, 7),
    (5, 32),
    (5, 33),
    (33, 33),
    (14, 7),
    (9, 128),
    (2, 1024),
    (3, 1025),
    (2, 2053),
];

/// The relative error of exp(x − max) is 2⁻²⁴·|x − max| from rounding the difference, with |x −
/// max| ≤ 104 before underflow, plus a few ulp. The sum averages that; chains of at most 65
/// additions for 2053 terms add 65 · 2⁻²⁴. Results may be denormal.
const TOLERANCE: f64 = 1.5e-5;

/// The launch by warps (0) or by blocks (1).
fn geometry(launch: &Launch<u64>, by_blocks: usize) -> Dispatch {
    let Problem::Rows(RowsProblem { rows, .. }) = *launch.problem() else {
        panic!("{:?} is no softmax", launch.kernel())
    };
    let (blocks, threads) = [(rows.div_ceil(4), 128), (rows, 256)][by_blocks];
    let (grid, block) = ([blocks, 1, 1], [threads, 1, 1]);
    let entry = launch.kernel().entries[by_blocks];
    Dispatch { entry, grid, block, shared_bytes: 0, persistent: None }
}

fn mask(causal: bool) -> SoftmaxMask<u64> {
    if causal { SoftmaxMask::Causal } else { SoftmaxMask::None }
}

fn forward(input: &[f32], width: usize, causal: bool, by_blocks: usize) -> Vec<f32> {
    let (device, mask) = (Device::new(), mask(causal));
    let (x, y) = (device.upload(input), device.unwritten(input.len()));
    let rows = input.len() / width;
    let launch = Softmax { input: x, output: y, rows, width, mask }.launch().unwrap();
    device.run_as(&launch, geometry(&launch, by_blocks));
    let output = device.download(y);

    let (in_place, chosen) = (device.upload(input), device.unwritten(input.len()));
    let launch = SoftmaxInPlace { values: in_place, rows, width, mask }.launch().unwrap();
    device.run_as(&launch, geometry(&launch, by_blocks));
    same_bits(&output, &device.download(in_place), "a new tensor and in place");
    device.run(&Softmax { input: x, output: chosen, rows, width, mask }.launch().unwrap());
    if by_blocks == usize::from(width > 1024) {
        same_bits(&output, &device.download(chosen), "the chosen entry");
    }
    output
}

fn backward(probs: &[f32], grad: &[f32], width: usize, causal: bool, by_blocks: usize) -> Vec<f32> {
    let run = || {
        let device = Device::new();
        let (probs_, grad_out) = (device.upload(probs), device.upload(grad));
        let grad_input = device.unwritten(probs.len());
        let rows = probs.len() / width;
        let mask = mask(causal);
        let launch = SoftmaxBackward { probs: probs_, grad_out, grad_input, rows, width, mask };
        let launch = launch.launch().unwrap();
        device.run_as(&launch, geometry(&launch, by_blocks));
        device.download(grad_input)
    };
    let result = run();
    same_bits(&result, &run(), "two runs");
    result
}

/// Sizes, masks and entries.
fn cases() -> impl Iterator<Item = (usize, usize, bool, usize)> {
    let with_mask = |(rows, width)| [false, true].map(|causal| (rows, width, causal));
    let cases = SIZES.into_iter().flat_map(with_mask);
    cases.flat_map(|(rows, width, causal)| [0, 1].map(|entry| (rows, width, causal, entry)))
}

#[test]
fn softmax_matches_its_reference() {
    let mut data = Data::new("softmax");
    for (rows, width, causal, entry) in cases() {
        for scale in [1.0, 60.0, 1e-30, 1e30] {
            let x = data.uniform(rows * width, scale);
            let expected = softmax(&doubles(&x), width, causal);
            let actual = forward(&x, width, causal, entry);
            let what = format!("softmax {rows}×{width} causal {causal} entry {entry} ±{scale}");
            Tolerance::relative(TOLERANCE).absolute(1e-37).check(&actual, &expected, &what);
        }
    }
}

#[test]
fn softmax_of_special_values_is_as_documented() {
    let (inf, nan, width) = (f32::INFINITY, f32::NAN, 40);
    for (entry, causal) in [(0, false), (0, true), (1, false), (1, true)] {
        for specials in
            [vec![nan], vec![inf], vec![-inf], vec![inf, -inf], vec![nan; 40], vec![-inf; 40]]
        {
            for start in [0, 17, 39] {
                let mut x: Vec<f32> = (0..3 * width).map(|i| (i % 7) as f32).collect();
                for (x, special) in x[width..2 * width].iter_mut().skip(start).zip(&specials) {
                    *x = *special;
                }
                let expected = softmax(&doubles(&x), width, causal);
                let what = format!("softmax with {specials:?} from column {start}");
                let actual = forward(&x, width, causal, entry);
                Tolerance::relative(TOLERANCE).check(&actual, &expected, &what);
            }
        }
    }
}

#[test]
fn softmax_backward_matches_its_reference() {
    let mut data = Data::new("softmax_backward");
    for (rows, width, causal, entry) in cases() {
        for scale in [1.0, 1e-30, 1e30] {
            let probs = softmax(&doubles(&data.uniform(rows * width, 4.0)), width, causal);
            let probs: Vec<f32> = probs.into_iter().map(|p| p as f32).collect();
            let grad = data.uniform(rows * width, scale);
            let expected = softmax_backward(&doubles(&probs), &doubles(&grad), width, causal);
            let actual = backward(&probs, &grad, width, causal, entry);
            // The dot product of a row is at most `scale` with an error of a few 2⁻²⁴ of that, and
            // is multiplied by a probability of at most 1.
            let tolerance = Tolerance::relative(1e-6).absolute(2e-6 * f64::from(scale) + 1e-44);
            tolerance.check(&actual, &expected, "softmax_backward");
        }
    }
}

#[test]
fn softmax_backward_matches_finite_differences() {
    let mut data = Data::new("softmax differences");
    for (width, causal) in [(5, false), (5, true), (37, true)] {
        let rows = 2 * width;
        let (x, grad) = (data.uniform(rows * width, 2.0), data.uniform(rows * width, 2.0));
        let probs = softmax(&doubles(&x), width, causal);
        let probs: Vec<f32> = probs.into_iter().map(|p| p as f32).collect();
        let actual = backward(&probs, &grad, width, causal, 0);
        let grad = doubles(&grad);
        // Rows do not depend on each other, so finite differences need only the sum over one row.
        for row in 0..rows {
            let own = row * width..(row + 1) * width;
            let expected = differences(&doubles(&x[own.clone()]), 1e-4, |values| {
                let kept = if causal { row % width + 1 } else { width };
                let y = softmax(&values[..kept], kept, false);
                y.iter().zip(&grad[own.clone()]).map(|(y, g)| y * g).sum()
            });
            let tolerance = Tolerance::relative(1e-5).absolute(1e-5);
            tolerance.check(&actual[own], &expected, "differences");
        }
    }
}

#[test]
fn masked_elements_are_not_read() {
    let width = 40;
    let hidden = |row: usize, column: usize| column > row % width;
    let mut data = Data::new("softmax mask");
    let mut x = data.uniform(width * width, 2.0);
    let clean = forward(&x, width, true, 0);
    for (i, x) in x.iter_mut().enumerate() {
        if hidden(i / width, i % width) {
            *x = f32::NAN;
        }
    }
    for entry in [0, 1] {
        let expected: Vec<f64> = doubles(&clean);
        Tolerance::relative(1e-6).check(&forward(&x, width, true, entry), &expected, "masked NaN");
        let zeros = backward(&x, &x, width, true, entry);
        let hidden = (0..x.len()).filter(|i| hidden(i / width, i % width));
        hidden.for_each(|i| assert_eq!(zeros[i].to_bits(), 0, "element {i}"));
    }
}

#[test]
fn rows_keep_the_columns_from_the_first_key_of_their_query_on() {
    let mut data = Data::new("softmax first keys");
    let (batch, heads, seq) = (2, 3, 37_usize);
    let first_keys: Vec<u32> = (0..batch * seq)
        .map(|token| [token % seq / 10 * 10, (token % seq).saturating_sub(4)][token / seq] as u32)
        .collect();
    let rows = batch * heads * seq;
    let kept = |row: usize| first_keys[row / seq / heads * seq + row % seq] as usize..=row % seq;
    let (mut x, grad) = (data.uniform(rows * seq, 4.0), data.uniform(rows * seq, 1.0));
    for (row, values) in x.chunks_mut(seq).enumerate() {
        let masked = (0..seq).filter(|column| !kept(row).contains(column));
        masked.for_each(|column| values[column] = f32::NAN);
    }
    for by_blocks in [0, 1] {
        let device = Device::new();
        let mask = SoftmaxMask::From(device.upload(&first_keys));
        let (input, output) = (device.upload(&x), device.unwritten(x.len()));
        let launch = Softmax { input, output, rows, width: seq, mask }.launch().unwrap();
        device.run_as(&launch, geometry(&launch, by_blocks));
        let probs = device.download(output);
        // Masked gradients are not read.
        let grads: Vec<f32> = grad.iter().zip(&x).map(|(grad, x)| grad + x * 0.0).collect();
        let (grad_out, grad_input) = (device.upload(&grads), device.unwritten(x.len()));
        let backward =
            SoftmaxBackward { probs: output, grad_out, grad_input, rows, width: seq, mask };
        let launch = backward.launch().unwrap();
        device.run_as(&launch, geometry(&launch, by_blocks));
        let grad_input = device.download(grad_input);
        for row in 0..rows {
            let kept = row * seq + kept(row).start()..row * seq + kept(row).end() + 1;
            let expected = softmax(&doubles(&x[kept.clone()]), kept.len(), false);
            let tolerance = Tolerance::relative(TOLERANCE).absolute(1e-6);
            tolerance.check(&probs[kept.clone()], &expected, "probabilities");
            let gradient = doubles(&grads[kept.clone()]);
            let expected = softmax_backward(&expected, &gradient, kept.len(), false);
            tolerance.check(&grad_input[kept.clone()], &expected, "gradients");
            let masked = (row * seq..(row + 1) * seq).filter(|at| !kept.contains(at));
            masked.for_each(|at| assert_eq!((probs[at], grad_input[at]), (0.0, 0.0)));
        }
    }
}

#[test]
fn first_keys_that_do_not_fit_are_refused() {
    let view = View::<u64, f32>::new(4096, 6 * 5);
    let launch = |first_keys| {
        let mask = SoftmaxMask::From(View::<u64, u32>::new(8192, first_keys));
        SoftmaxInPlace { values: view, rows: 6, width: 5, mask }.launch()
    };
    for first_keys in [0, 4, 5, 7, 10] {
        let error = launch(first_keys).unwrap_err().to_string();
        assert!(error.contains("first_keys"), "{error}");
    }
}
