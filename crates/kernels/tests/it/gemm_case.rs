//! One product of a linear layer: how it is launched and what it must be.

use retrograph_kernels::ops::{Dgrad, Fprop, GemmShape, Wgrad};
use retrograph_kernels::reference::gemm;
use retrograph_kernels::{Dispatch, Kernel, Launch, View};

use crate::bounds::{chain, within};
use crate::harness::Device;
use crate::support::doubles;

/// Tiles by the last part of their entry: rows, columns, threads.
pub(crate) const TILES: [(&str, u32, u32, u32); 9] = [
    ("128x128", 128, 128, 256),
    ("64x64", 64, 64, 128),
    ("32x32", 32, 32, 64),
    ("128x128_split2", 128, 128, 256),
    ("64x64_split4", 64, 64, 128),
    ("64x32_split4", 64, 32, 128),
    ("32x32_split8", 32, 32, 256),
    ("32x16_split16", 32, 16, 256),
    ("16x16_split16", 16, 16, 256),
];

pub(crate) fn shape([rows, inputs, outputs]: [usize; 3]) -> GemmShape {
    GemmShape { rows, inputs, outputs }
}

/// One of the three products.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Op {
    Fprop,
    Dgrad,
    Wgrad,
}

pub(crate) const OPS: [Op; 3] = [Op::Fprop, Op::Dgrad, Op::Wgrad];

impl Op {
    /// Lengths of the two operands and of the result, and of the contraction.
    pub(crate) fn lens(self, s: GemmShape) -> ([usize; 3], usize) {
        let (x, w, y) = (s.rows * s.inputs, s.outputs * s.inputs, s.rows * s.outputs);
        match self {
            Self::Fprop => ([x, w, y], s.inputs),
            Self::Dgrad => ([y, w, x], s.outputs),
            Self::Wgrad => ([y, x, w], s.rows),
        }
    }

    pub(crate) fn reference(self, a: &[f64], b: &[f64], s: GemmShape) -> Vec<f64> {
        match self {
            Self::Fprop => gemm::fprop(a, b, s),
            Self::Dgrad => gemm::dgrad(a, b, s),
            Self::Wgrad => gemm::wgrad(a, b, s),
        }
    }
}

/// What a run is given.
pub(crate) struct Case<'a> {
    pub(crate) op: Op,
    pub(crate) shape: GemmShape,
    pub(crate) a: &'a [f32],
    pub(crate) b: &'a [f32],
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) alpha: f32,
    /// What c holds before, where it is added to.
    pub(crate) before: Option<&'a [f32]>,
    /// Elements by which operands start later than an aligned address.
    pub(crate) shift: usize,
}

impl<'a> Case<'a> {
    pub(crate) fn new(op: Op, shape: GemmShape, (a, b): (&'a [f32], &'a [f32])) -> Self {
        Self { op, shape, a, b, bias: None, alpha: 1.0, before: None, shift: 0 }
    }

    /// The launch, and the buffer that holds c.
    pub(crate) fn launch(&self, device: &Device) -> (Launch<u64>, View<u64, f32>) {
        let place = |data: &[f32]| {
            let padded = [&vec![f32::NAN; self.shift], data].concat();
            device.upload(&padded).slice(self.shift..padded.len())
        };
        let (a, b, bias) = (place(self.a), place(self.b), self.bias.map(place));
        let ([.., len], _) = self.op.lens(self.shape);
        let c = match self.before {
            Some(before) => place(before),
            None => device.unwritten(self.shift + len).slice(self.shift..self.shift + len),
        };
        let (shape, alpha, accumulate) = (self.shape, self.alpha, self.before.is_some());
        let launch = match self.op {
            Op::Fprop => Fprop { x: a, w: b, bias, y: c, shape, alpha, accumulate }.launch(),
            Op::Dgrad => {
                Dgrad { grad_out: a, w: b, grad_input: c, shape, alpha, accumulate }.launch()
            }
            Op::Wgrad => {
                Wgrad { grad_out: a, x: b, grad_weight: c, shape, alpha, accumulate }.launch()
            }
        };
        (launch.unwrap(), c)
    }

    /// Runs the tile that the sizes choose.
    pub(crate) fn run(&self, device: &Device) -> Vec<f32> {
        let (launch, c) = self.launch(device);
        device.run(&launch);
        device.download(c)
    }

    /// Runs a given tile.
    pub(crate) fn run_tile(&self, device: &Device, tile: (&str, u32, u32, u32)) -> Vec<f32> {
        let (launch, c) = self.launch(device);
        device.run_as(&launch, geometry(&launch, tile));
        device.download(c)
    }

    /// Compares with the reference, by the error bound of a chain of fused multiply-adds.
    #[track_caller]
    pub(crate) fn check(&self, actual: &[f32], what: &str) {
        let ([.., len], terms) = self.op.lens(self.shape);
        let alpha = f64::from(self.alpha);
        let (a, b) = (doubles(self.a), doubles(self.b));
        let abs = |values: &[f64]| values.iter().map(|v| v.abs()).collect::<Vec<_>>();
        let mut expected = self.op.reference(&a, &b, self.shape);
        let mut magnitudes = self.op.reference(&abs(&a), &abs(&b), self.shape);
        for i in 0..len {
            let bias = self.bias.map_or(0.0, |bias| bias[i % bias.len()].into());
            let before = self.before.map_or(0.0, |before| before[i].into());
            expected[i] = expected[i] * alpha + bias + before;
            magnitudes[i] = magnitudes[i] * alpha.abs() + f64::abs(bias) + f64::abs(before);
        }
        let bounds: Vec<_> = magnitudes.iter().map(|&m| chain(terms, m)).collect();
        within(actual, &expected, &bounds, &format!("{:?} {:?} {what}", self.op, self.shape));
    }
}

/// The geometry of a tile for a launch.
pub(crate) fn geometry(
    launch: &Launch<u64>,
    (name, rows, columns, threads): (&str, u32, u32, u32),
) -> Dispatch {
    let kernel: &Kernel = launch.kernel;
    let wanted = format!("{}_{name}", kernel.image);
    let entry = kernel.entries.iter().find(|entry| **entry == wanted).expect("the entry exists");
    let [m, n, _, planes, ..] = launch.problem.sizes;
    let tiles = m.div_ceil(rows) * n.div_ceil(columns);
    Dispatch { entry, grid: [tiles, 1, planes], block: [threads, 1, 1], shared_bytes: 0 }
}
