//! The products of low-rank adapters against references of whole products.

use retrograph_kernels::ops::{
    ColumnSum, GemmShape, LoraExpand, LoraExpandAdapter, LoraGrad, LoraGradAdapter, LoraMatrix,
    LoraShape, LoraShrink, LoraShrinkAdapter,
};
use retrograph_kernels::{Access, Argument, KernelError, View};

use crate::bounds::{chain, within};
use crate::harness::Device;
use crate::products::{dgrad, fprop, wgrad};
use crate::support::numbers::{Data, doubles, same_bits};

const SIDES: [LoraMatrix; 2] = [LoraMatrix::A, LoraMatrix::B];

/// Odd sizes, whole tiles and one element more or less, and zero.
const SHAPES: [(usize, usize, usize); 13] = [
    (1, 1, 1),
    (2, 3, 5),
    (31, 64, 8),
    (33, 67, 16),
    (64, 128, 16),
    (65, 260, 17),
    (70, 132, 4),
    (5, 516, 33),
    (129, 1, 7),
    (0, 8, 4),
    (3, 0, 4),
    (3, 8, 0),
    (130, 258, 2),
];

fn shape(rows: usize, width: usize, rank: usize) -> LoraShape {
    LoraShape { rows, width, rank }
}

/// The operands of some adapters.
#[derive(Clone)]
struct Case {
    matrix: LoraMatrix,
    shape: LoraShape,
    /// `rows × width`: x, dy, or the previous y.
    wide: Vec<f32>,
    /// t, `rows × rank`.
    t: Vec<Vec<f32>>,
    w: Vec<Vec<f32>>,
    alpha: f32,
    accumulate: bool,
    /// Elements by which everything starts later than an aligned address.
    shift: usize,
}

impl Case {
    fn new(data: &mut Data, matrix: LoraMatrix, shape: LoraShape, adapters: usize) -> Self {
        let LoraShape { rows, width, rank } = shape;
        let (scale, small) = (data.scale().clamp(1e-10, 1e10), data.scale().clamp(1e-10, 1e10));
        let wide = data.uniform(rows * width, scale);
        let t = (0..adapters).map(|_| data.uniform(rows * rank, scale / small)).collect();
        let w = (0..adapters).map(|_| data.uniform(rank * width, small)).collect();
        Self { matrix, shape, wide, t, w, alpha: 0.75, accumulate: false, shift: 0 }
    }

    fn place(&self, device: &Device, data: &[f32]) -> View<u64, f32> {
        let padded = [&vec![f32::NAN; self.shift], data].concat();
        device.upload(&padded).slice(self.shift..padded.len())
    }

    /// The sums over `splits` planes, which the host adds in order.
    fn planes(planes: &[f32], splits: usize) -> Vec<f32> {
        let len = planes.len() / splits;
        let added = |at: usize| {
            let splits = (0..splits).map(|part| planes[part * len + at]);
            splits.reduce(|sum, next| sum + next).expect("there is a split")
        };
        (0..len).map(added).collect()
    }

    fn shrink(&self, splits: usize) -> Vec<Vec<f32>> {
        let (device, LoraShape { rows, rank, .. }) = (Device::new(), self.shape);
        let x = self.place(&device, &self.wide);
        let taken = |w: &Vec<f32>| LoraShrinkAdapter {
            w: self.place(&device, w),
            out: device.unwritten(splits * rows * rank),
        };
        let adapters: Vec<_> = self.w.iter().map(taken).collect();
        let (matrix, shape, alpha) = (self.matrix, self.shape, self.alpha);
        let launch = LoraShrink { x, adapters: &adapters, matrix, shape, splits, alpha };
        device.run(&launch.launch().unwrap());
        adapters.iter().map(|it| Self::planes(&device.download(it.out), splits)).collect()
    }

    /// y, and the totals of t.
    fn expand(&self, splits: usize) -> (Vec<f32>, Vec<Vec<f32>>) {
        let device = Device::new();
        let added = |(t, w): (&Vec<f32>, &Vec<f32>)| {
            // Splits that add up to t: t itself, and pairs that cancel.
            let plane = |part: usize| match part {
                0 => t.clone(),
                odd if odd % 2 == 1 && odd + 1 < splits => vec![1.0; t.len()],
                even if even % 2 == 0 => vec![-1.0; t.len()],
                _ => vec![0.0; t.len()],
            };
            let planes: Vec<f32> = (0..splits).flat_map(plane).collect();
            LoraExpandAdapter {
                t: self.place(&device, &planes),
                splits,
                w: self.place(&device, w),
                total: (splits > 1).then(|| device.unwritten(t.len())),
            }
        };
        let adapters: Vec<_> = self.t.iter().zip(&self.w).map(added).collect();
        let y = if self.accumulate {
            self.place(&device, &self.wide)
        } else {
            self.place(&device, &vec![f32::NAN; self.wide.len()])
        };
        let Self { matrix, shape, alpha, accumulate, .. } = *self;
        let launch = LoraExpand { adapters: &adapters, matrix, y, shape, alpha, accumulate };
        device.run(&launch.launch().unwrap());
        let totals = adapters.iter().filter_map(|it| it.total);
        (device.download(y), totals.map(|total| device.download(total)).collect())
    }

    fn grad(&self, splits: usize) -> Vec<Vec<f32>> {
        let device = Device::new();
        let x = self.place(&device, &self.wide);
        let graded = |(t, w): (&Vec<f32>, &Vec<f32>)| LoraGradAdapter {
            t: self.place(&device, t),
            out: if self.accumulate {
                device.upload(w)
            } else {
                device.unwritten(splits * w.len())
            },
        };
        let adapters: Vec<_> = self.t.iter().zip(&self.w).map(graded).collect();
        let Self { matrix, shape, alpha, accumulate, .. } = *self;
        let launch = LoraGrad { x, adapters: &adapters, matrix, shape, splits, alpha, accumulate };
        device.run(&launch.launch().unwrap());
        adapters
            .iter()
            .map(|it| {
                let (columns, out) =
                    (it.out.len() / splits, device.unwritten(it.out.len() / splits));
                let sum = ColumnSum { x: it.out, out, rows: splits, columns, accumulate: false };
                device.run(&sum.launch().unwrap());
                device.download(if splits == 1 { it.out } else { out })
            })
            .collect()
    }

    /// Compares with whole products. `of` computes a product of signed or absolute values; `before`
    /// is the previous content.
    fn check(
        &self,
        actual: &[f32],
        terms: usize,
        of: impl Fn(&dyn Fn(&[f32]) -> Vec<f64>) -> Vec<f64>,
        before: &[f32],
        what: &str,
    ) {
        let sizes = of(&|values| doubles(values).into_iter().map(f64::abs).collect());
        let signed = of(&doubles);
        let alpha = f64::from(self.alpha);
        let zeros = vec![0.0; actual.len()];
        let before = if self.accumulate { before } else { &zeros };
        let expected: Vec<_> =
            signed.iter().zip(before).map(|(y, b)| alpha * y + f64::from(*b)).collect();
        let bound = |(size, b): (&f64, &f32)| chain(terms, alpha * size + f64::from(b.abs()));
        let bounds: Vec<_> = sizes.iter().zip(before).map(bound).collect();
        within(actual, &expected, &bounds, &format!("{what} {:?} {:?}", self.matrix, self.shape));
    }

    fn check_shrink(&self, splits: usize) -> Vec<Vec<f32>> {
        let (found, LoraShape { rows, width, rank }) = (self.shrink(splits), self.shape);
        for (t, w) in found.iter().zip(&self.w) {
            let of = |as_f64: &dyn Fn(&[f32]) -> Vec<f64>| {
                let (x, w) = (as_f64(&self.wide), as_f64(w));
                match self.matrix {
                    LoraMatrix::A => fprop(&x, &w, gemm(rows, width, rank)),
                    LoraMatrix::B => dgrad(&x, &w, gemm(rows, rank, width)),
                }
            };
            let case = Self { accumulate: false, ..self.clone() };
            case.check(t, width + splits, of, &[], "down");
        }
        found
    }

    fn check_expand(&self, splits: usize) -> Vec<f32> {
        let ((found, totals), LoraShape { rows, width, rank }) = (self.expand(splits), self.shape);
        let of = |as_f64: &dyn Fn(&[f32]) -> Vec<f64>| {
            let product = |(t, w): (&Vec<f32>, &Vec<f32>)| {
                let (t, w) = (as_f64(t), as_f64(w));
                match self.matrix {
                    LoraMatrix::A => dgrad(&t, &w, gemm(rows, width, rank)),
                    LoraMatrix::B => fprop(&t, &w, gemm(rows, rank, width)),
                }
            };
            let products = self.t.iter().zip(&self.w).map(product);
            let add = |a: Vec<f64>, b: Vec<f64>| a.iter().zip(b).map(|(a, b)| a + b).collect();
            products.reduce(add).expect("there is an update")
        };
        self.check(&found, (rank + 1) * self.w.len(), of, &self.wide, "add");
        for (total, t) in totals.iter().zip(&self.t).filter(|_| width > 0) {
            same_bits(total, &Self::planes(&[t.clone()].concat(), 1), "the total of the splits");
        }
        found
    }

    fn check_grad(&self, splits: usize) -> Vec<Vec<f32>> {
        let (found, LoraShape { rows, width, rank }) = (self.grad(splits), self.shape);
        for ((grad, t), w) in found.iter().zip(&self.t).zip(&self.w) {
            let of = |as_f64: &dyn Fn(&[f32]) -> Vec<f64>| {
                let (x, t) = (as_f64(&self.wide), as_f64(t));
                match self.matrix {
                    LoraMatrix::A => wgrad(&t, &x, gemm(rows, width, rank)),
                    LoraMatrix::B => wgrad(&x, &t, gemm(rows, rank, width)),
                }
            };
            self.check(grad, rows + splits, of, w, "grad");
        }
        found
    }
}

fn gemm(rows: usize, inputs: usize, outputs: usize) -> GemmShape {
    GemmShape { rows, inputs, outputs }
}

/// Runs `work` for cases of all shapes, matrices and numbers of adapters.
fn each_case(name: &str, work: impl Fn(Case, usize)) {
    let mut data = Data::new(name);
    for (at, (rows, width, rank)) in SHAPES.into_iter().enumerate() {
        for matrix in SIDES {
            let adapters = 1 + at % 3;
            work(Case::new(&mut data, matrix, shape(rows, width, rank), adapters), adapters);
        }
    }
}

#[test]
fn shrink_matches_the_reference() {
    each_case("lora_shrink", |case, adapters| {
        for splits in [case.shape.shrink_splits(adapters), 3] {
            let found = case.check_shrink(splits);
            for (once, again) in found.iter().zip(case.shrink(splits)) {
                same_bits(once, &again, "two splits");
            }
            let shifted = Case { shift: 1, ..case.clone() };
            for (once, again) in found.iter().zip(shifted.shrink(splits)) {
                same_bits(once, &again, "aligned and unaligned operands");
            }
        }
    });
}

#[test]
fn expand_matches_the_reference() {
    each_case("lora_expand", |case, _| {
        for (accumulate, splits) in [(true, 1), (false, 1), (true, 2)] {
            let case = Case { accumulate, ..case.clone() };
            let found = case.check_expand(splits);
            same_bits(&found, &case.expand(splits).0, "two splits");
            let shifted = Case { shift: 3, ..case.clone() };
            same_bits(&found, &shifted.expand(splits).0, "aligned and unaligned operands");
        }
    });
}

#[test]
fn grad_matches_the_reference() {
    each_case("lora_grad", |case, adapters| {
        for (accumulate, splits) in
            [(false, case.shape.grad_splits(adapters)), (true, 1), (false, 5)]
        {
            let case = Case { accumulate, ..case.clone() };
            let found = case.check_grad(splits);
            let shifted = Case { shift: 2, ..case.clone() };
            for (once, again) in found.iter().zip(shifted.grad(splits)) {
                same_bits(once, &again, "aligned and unaligned operands");
            }
        }
    });
}

#[test]
fn splits_of_t_are_added_in_order() {
    let mut data = Data::new("lora_expand splits");
    let (matrix, sizes) = (LoraMatrix::B, shape(33, 40, 6));
    let (splits, len) = (11, 33 * 6);
    let planes = data.uniform(splits * len, 1.0);
    let device = Device::new();
    let w = device.upload(&vec![0.0; 40 * 6]);
    let total = device.unwritten(len);
    let adapters = [LoraExpandAdapter { t: device.upload(&planes), splits, w, total: Some(total) }];
    let y = device.unwritten(33 * 40);
    let (alpha, accumulate) = (2.0, false);
    let launch = LoraExpand { adapters: &adapters, matrix, y, shape: sizes, alpha, accumulate };
    device.run(&launch.launch().unwrap());
    same_bits(&device.download(total), &Case::planes(&planes, splits), "the total");
    same_bits(&device.download(y), &vec![0.0; 33 * 40], "a product with zeros");
}

#[test]
fn nan_stays_in_its_row_or_column() {
    let mut data = Data::new("low_rank not a number");
    let sizes = shape(70, 130, 9);
    for matrix in SIDES {
        let mut case = Case::new(&mut data, matrix, sizes, 2);
        case.accumulate = true;
        // A row of the wide operand and of t, and a rank of the second matrix.
        case.wide[67 * 130 + 129] = f32::NAN;
        case.t[1][66 * 9 + 8] = f32::INFINITY;
        let place = if matrix == LoraMatrix::A { 8 * 130 + 128 } else { 128 * 9 + 8 };
        case.w[0][place] = f32::NAN;
        let case = Case { accumulate: false, ..case };
        let down = case.shrink(2);
        for (i, t) in down[0].iter().enumerate() {
            assert_eq!(t.is_nan(), i / 9 == 67 || i % 9 == 8, "down {matrix:?} {i}");
        }
        let (y, _) = Case { accumulate: true, ..case.clone() }.expand(1);
        for (i, y) in y.iter().enumerate() {
            let (row, column) = (i / 130, i % 130);
            assert_eq!(y.is_nan(), column == 128 || (row, column) == (67, 129), "{matrix:?} {i}");
            assert!(y.is_finite() || y.is_nan() || row == 66, "{matrix:?} {i}");
        }
        let grads = case.grad(3);
        let rank_and_column = |i: usize| match matrix {
            LoraMatrix::A => (i / 130, i % 130),
            LoraMatrix::B => (i % 9, i / 9),
        };
        for (i, grad) in grads[1].iter().enumerate() {
            let (rank, column) = rank_and_column(i);
            assert_eq!(grad.is_nan(), column == 129, "grad {matrix:?} {i}");
            assert!(grad.is_finite() || column == 129 || rank == 8, "grad {matrix:?} {i}");
        }
    }
}

#[test]
fn operands_must_fit_and_accesses_are_declared() {
    let view = |name, len| View::<&'static str, f32>::new(name, len);
    let (matrix, shape) = (LoraMatrix::A, shape(3, 8, 2));
    let taken = LoraShrinkAdapter { w: view("w", 16), out: view("out", 12) };
    let down = |x, adapters: &[LoraShrinkAdapter<&'static str>], splits| {
        LoraShrink { x: view("x", x), adapters, matrix, shape, splits, alpha: 1.0 }.launch()
    };
    let accesses = |launch: retrograph_kernels::Launch<&'static str>| {
        let buffers = launch.arguments().iter().flat_map(Argument::buffers);
        buffers.map(|it| (it.buffer, it.access)).collect::<Vec<_>>()
    };
    let (read, write, update) = (Access::Read, Access::Write, Access::ReadWrite);
    let fits = down(24, &[taken], 2).unwrap();
    assert_eq!(accesses(fits), [("x", read), ("w", read), ("out", write)]);
    assert!(matches!(down(23, &[taken], 2), Err(KernelError::Length { operand: "x", .. })));
    assert!(matches!(down(24, &[taken], 1), Err(KernelError::Length { operand: "out", .. })));
    for wrong in [down(24, &[taken], 0), down(24, &[], 2), down(24, &[taken; 4], 2)] {
        assert!(matches!(wrong, Err(KernelError::Shape { .. })));
    }
    let total = Some(view("total", 6));
    let added = LoraExpandAdapter { t: view("t", 12), splits: 2, w: view("w", 16), total };
    let one = [added];
    let add = |accumulate| LoraExpand {
        adapters: &one,
        matrix,
        y: view("y", 24),
        shape,
        alpha: 1.0,
        accumulate,
    };
    let expected = |y| [("t", read), ("w", read), ("total", write), ("y", y)];
    assert_eq!(accesses(add(true).launch().unwrap()), expected(update));
    assert_eq!(accesses(add(false).launch().unwrap()), expected(write));
    let short = [LoraExpandAdapter { total: Some(view("total", 5)), ..added }];
    let launch = LoraExpand { adapters: &short, ..add(true) }.launch();
    assert!(matches!(launch, Err(KernelError::Length { operand: "total", .. })));
    let graded = LoraGradAdapter { t: view("t", 6), out: view("out", 16) };
    let grad = |accumulate, splits| {
        let (x, adapters, alpha) = (view("x", 24), &[graded], 1.0);
        LoraGrad { x, adapters, matrix, shape, splits, alpha, accumulate }.launch()
    };
    let expected = |out| [("x", read), ("t", read), ("out", out)];
    assert_eq!(accesses(grad(true, 1).unwrap()), expected(update));
    assert_eq!(accesses(grad(false, 1).unwrap()), expected(write));
    assert!(matches!(grad(false, 2), Err(KernelError::Length { operand: "out", .. })));
    assert!(matches!(grad(false, 0), Err(KernelError::Shape { .. })));
}
