//! Products of linear layers against their references, in every tile and by every way to read.

use retrograph_kernels::ops::{Dgrad, Fprop, GemmShape, Wgrad};
use retrograph_kernels::reference::gemm;
use retrograph_kernels::{Dispatch, Kernel, Launch, View};

use crate::bounds::{chain, within};
use crate::harness::Device;
use crate::support::{Data, differences, doubles, same_bits};

/// Tiles by the last part of their entry: rows, columns, threads.
const TILES: [(&str, u32, u32, u32); 6] = [
    ("128x128", 128, 128, 256),
    ("64x64", 64, 64, 128),
    ("32x32", 32, 32, 64),
    ("32x32_split4", 32, 32, 256),
    ("32x16_split8", 32, 16, 256),
    ("16x16_split16", 16, 16, 256),
];

/// Nothing, one, primes, multiples of 4 and of tiles and one past them, short and long contractions.
const SHAPES: [[usize; 3]; 12] = [
    [0, 3, 5],
    [3, 0, 5],
    [3, 5, 0],
    [1, 1, 1],
    [2, 3, 5],
    [4, 8, 4],
    [31, 37, 29],
    [32, 16, 64],
    [33, 65, 36],
    [5, 300, 9],
    [129, 7, 65],
    [12, 132, 136],
];

fn shape([rows, inputs, outputs]: [usize; 3]) -> GemmShape {
    GemmShape { rows, inputs, outputs }
}

/// One of the three products.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Fprop,
    Dgrad,
    Wgrad,
}

const OPS: [Op; 3] = [Op::Fprop, Op::Dgrad, Op::Wgrad];

impl Op {
    /// Lengths of the two operands and of the result, and of the contraction.
    fn lens(self, s: GemmShape) -> ([usize; 3], usize) {
        let (x, w, y) = (s.rows * s.inputs, s.outputs * s.inputs, s.rows * s.outputs);
        match self {
            Self::Fprop => ([x, w, y], s.inputs),
            Self::Dgrad => ([y, w, x], s.outputs),
            Self::Wgrad => ([y, x, w], s.rows),
        }
    }

    fn reference(self, a: &[f64], b: &[f64], s: GemmShape) -> Vec<f64> {
        match self {
            Self::Fprop => gemm::fprop(a, b, s),
            Self::Dgrad => gemm::dgrad(a, b, s),
            Self::Wgrad => gemm::wgrad(a, b, s),
        }
    }
}

/// What a run is given.
struct Case<'a> {
    op: Op,
    shape: GemmShape,
    a: &'a [f32],
    b: &'a [f32],
    bias: Option<&'a [f32]>,
    alpha: f32,
    /// What c holds before, where it is added to.
    before: Option<&'a [f32]>,
    /// Elements by which operands start later than an aligned address.
    shift: usize,
}

impl<'a> Case<'a> {
    fn new(op: Op, shape: GemmShape, (a, b): (&'a [f32], &'a [f32])) -> Self {
        Self { op, shape, a, b, bias: None, alpha: 1.0, before: None, shift: 0 }
    }

    /// The launch, and the buffer that holds c.
    fn launch(&self, device: &Device) -> (Launch<u64>, View<u64, f32>) {
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
    fn run(&self, device: &Device) -> Vec<f32> {
        let (launch, c) = self.launch(device);
        device.run(&launch);
        device.download(c)
    }

    /// Runs a given tile.
    fn run_tile(&self, device: &Device, tile: (&str, u32, u32, u32)) -> Vec<f32> {
        let (launch, c) = self.launch(device);
        device.run_as(&launch, geometry(&launch, tile));
        device.download(c)
    }

    /// Compares with the reference, by the error bound of a chain of fused multiply-adds.
    #[track_caller]
    fn check(&self, actual: &[f32], what: &str) {
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
fn geometry(
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

#[test]
fn every_tile_matches_the_reference_and_tiles_without_a_split_agree_bit_for_bit() {
    let (mut data, device) = (Data::new("gemm tiles"), Device::new());
    for (op, sizes) in OPS.iter().flat_map(|op| SHAPES.map(|sizes| (*op, sizes))) {
        let shape = shape(sizes);
        let ([a, b, _], _) = op.lens(shape);
        let (a, b) = (data.uniform(a, 2.0), data.uniform(b, 2.0));
        let case = Case::new(op, shape, (&a, &b));
        let results = TILES.map(|tile| {
            let result = case.run_tile(&device, tile);
            case.check(&result, tile.0);
            result
        });
        same_bits(&results[0], &results[1], "the tiles 128x128 and 64x64");
        same_bits(&results[0], &results[2], "the tiles 128x128 and 32x32");
    }
}

#[test]
fn bias_factor_accumulation_and_alignment_do_what_they_say() {
    let (mut data, device) = (Data::new("gemm epilogue"), Device::new());
    for (op, sizes) in OPS.iter().flat_map(|op| [[5, 12, 8], [9, 7, 33]].map(|s| (*op, s))) {
        let shape = shape(sizes);
        let ([a, b, c], _) = op.lens(shape);
        let (a, b, before) = (data.uniform(a, 2.0), data.uniform(b, 2.0), data.uniform(c, 2.0));
        let bias = data.uniform(shape.outputs, 2.0);
        let bias = (op == Op::Fprop).then_some(bias.as_slice());
        for before in [None, Some(before.as_slice())] {
            let plain = Case::new(op, shape, (&a, &b));
            let case = Case { bias, before, alpha: -0.75, ..plain };
            let aligned = case.run(&device);
            case.check(&aligned, "with everything");
            let shifted = Case { shift: 1, ..case };
            same_bits(&aligned, &shifted.run(&device), "aligned and unaligned operands");
            for tile in TILES {
                shifted.check(&shifted.run_tile(&device, tile), tile.0);
            }
        }
    }
}

#[test]
fn the_tile_that_the_sizes_choose_is_right_and_repeats_its_bits() {
    let (mut data, device) = (Data::new("gemm dispatch"), Device::new());
    // Large, medium, small, split among four, eight and sixteen.
    let shapes = [
        [1540, 9, 1160],
        [330, 20, 1000],
        [40, 20, 70],
        [33, 380, 1540],
        [7, 300, 399],
        [7, 300, 24],
    ];
    let chosen = shapes.map(|sizes| {
        let shape = shape(sizes);
        let ([a, b, _], _) = Op::Fprop.lens(shape);
        let (a, b) = (data.uniform(a, 2.0), data.uniform(b, 2.0));
        let case = Case::new(Op::Fprop, shape, (&a, &b));
        let first = case.run(&device);
        case.check(&first, "chosen by sizes");
        same_bits(&first, &case.run(&device), "two runs");
        let (launch, _) = case.launch(&device);
        launch.dispatch(device.target()).entry
    });
    assert_eq!(chosen, TILES.map(|(name, ..)| format!("gemm_nt_{name}")));
}

#[test]
fn extreme_scales_stay_within_their_bound() {
    let (mut data, device) = (Data::new("gemm scales"), Device::new());
    for (op, (left, right)) in OPS.iter().flat_map(|op| {
        [(1e-30, 1.0), (1e30, 1.0), (1e-30, 1e30), (1e-30, 1e-12), (1e18, 1e18)].map(|s| (*op, s))
    }) {
        let shape = shape([17, 70, 23]);
        let ([a, b, _], _) = op.lens(shape);
        let (a, b) = (data.uniform(a, left), data.uniform(b, right));
        let case = Case::new(op, shape, (&a, &b));
        for tile in TILES {
            case.check(&case.run_tile(&device, tile), "extreme scales");
        }
    }
}

#[test]
fn nan_and_infinity_reach_exactly_what_depends_on_them() {
    let (mut data, device) = (Data::new("gemm specials"), Device::new());
    for (op, value) in OPS
        .iter()
        .flat_map(|op| [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].map(|value| (*op, value)))
    {
        for sizes in [[6, 37, 9], [8, 36, 12]] {
            let shape = shape(sizes);
            let ([a, b, _], _) = op.lens(shape);
            let (mut a, b) = (data.uniform(a, 2.0), data.uniform(b, 2.0));
            let last = a.len() - 1;
            for place in [0, last / 2, last] {
                a[place] = value;
                let case = Case::new(op, shape, (&a, &b));
                for tile in TILES {
                    case.check(&case.run_tile(&device, tile), "with a special value");
                }
                a[place] = 1.0;
            }
        }
    }
}

#[test]
fn gradients_match_finite_differences_of_the_forward_product() {
    let (mut data, device) = (Data::new("gemm differences"), Device::new());
    let shape = shape([3, 5, 7]);
    let (x, w) = (data.uniform(15, 2.0), data.uniform(35, 2.0));
    let grad = data.uniform(21, 2.0);
    let dot = |y: Vec<f64>| y.iter().zip(doubles(&grad)).map(|(y, g)| y * g).sum();
    let by_x = differences(&doubles(&x), 1e-3, |x| dot(gemm::fprop(x, &doubles(&w), shape)));
    let by_w = differences(&doubles(&w), 1e-3, |w| dot(gemm::fprop(&doubles(&x), w, shape)));
    let dgrad = Case::new(Op::Dgrad, shape, (&grad, &w)).run(&device);
    let wgrad = Case::new(Op::Wgrad, shape, (&grad, &x)).run(&device);
    // The product is linear, so that differences are exact up to rounding.
    within(&dgrad, &by_x, &[1e-5; 15], "dgrad and differences");
    within(&wgrad, &by_w, &[1e-5; 35], "wgrad and differences");
}
