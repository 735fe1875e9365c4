//! Sums of GEMMs in one launch.

use half::bf16;
use retrograph_kernels::ops::{DType, DgradOperands, DgradSum, FpropSum, GemmShape, TensorView};
use retrograph_kernels::{KernelError, Launch, View};

use crate::gemm_case::{
    Case, Format, Op, Tile, cluster_split_k_tiles, geometry, multistage_tiles, shape,
};
use crate::harness::Device;
use crate::support::numbers::{Data, same_bits};

/// Rows, inputs, outputs and rank: empty, one copy, edges of tiles, several stages and one more.
const SIZES: [[usize; 4]; 9] = [
    [0, 8, 8, 8],
    [1, 8, 8, 8],
    [17, 24, 40, 16],
    [72, 32, 136, 24],
    [136, 200, 64, 64],
    [40, 328, 72, 72],
    [264, 104, 8, 136],
    [8, 264, 264, 16],
    [1160, 72, 136, 8],
];

/// A product with its LoRA update.
struct Update {
    op: Op,
    shape: GemmShape,
    rank: usize,
    /// x and w, or dy and w.
    factors: [Vec<f32>; 2],
    /// t and b, or dt and a.
    update: [Vec<f32>; 2],
    bias: Option<Vec<f32>>,
}

impl Update {
    fn new(data: &mut Data, op: Op, [rows, inputs, outputs, rank]: [usize; 4]) -> Self {
        let shape = shape([rows, inputs, outputs]);
        let ([a, b, _], _) = op.lens(shape);
        let width = if op == Op::Fprop { outputs } else { inputs };
        let factors = [data.uniform(a, 2.0), data.uniform(b, 2.0)];
        let update = [data.uniform(rows * rank, 2.0), data.uniform(rank * width, 2.0)];
        let bias = (op == Op::Fprop).then(|| data.uniform(outputs, 2.0));
        Self { op, shape, rank, factors, update, bias }
    }

    /// The operands of the equivalent plain product: operands and update concatenated along K.
    fn joined(&self) -> (GemmShape, [Vec<f32>; 2]) {
        let GemmShape { rows, inputs, outputs } = self.shape;
        let ([x, w], [t, b]) = (&self.factors, &self.update);
        let beside = |left: &[f32], right: &[f32], widths: [usize; 2], rows: usize| {
            let row = |i: usize| {
                let left = &left[i * widths[0]..][..widths[0]];
                [left, &right[i * widths[1]..][..widths[1]]].concat()
            };
            (0..rows).flat_map(row).collect::<Vec<_>>()
        };
        let rank = self.rank;
        if self.op == Op::Fprop {
            let factors =
                [beside(x, t, [inputs, rank], rows), beside(w, b, [inputs, rank], outputs)];
            return (shape([rows, inputs + rank, outputs]), factors);
        }
        let factors = [beside(x, t, [outputs, rank], rows), [w.as_slice(), b].concat()];
        (shape([rows, inputs, outputs + rank]), factors)
    }

    fn len(&self) -> usize {
        self.op.lens(self.shape).0[2]
    }

    fn launch<Y: Into<TensorView<u64>>>(
        &self,
        device: &Device,
        c: Y,
    ) -> Result<Launch<u64>, KernelError> {
        let upload = |values: &[f32]| -> View<u64, bf16> {
            let rounded: Vec<_> = values.iter().map(|&value| bf16::from_f32(value)).collect();
            device.upload(&rounded)
        };
        let ([a, w], [t, b]) = ([0, 1].map(|i| upload(&self.factors[i])), &self.update);
        let (t, b, rank) = (upload(t), upload(b), self.rank);
        let GemmShape { rows, inputs, outputs } = self.shape;
        let bias = self.bias.as_ref().map(|bias| device.upload(bias));
        match self.op {
            Op::Fprop => {
                let inputs = [inputs, rank];
                FpropSum { x: [a, t], w: [w, b], bias, y: c, rows, inputs, outputs }.launch()
            }
            _ => {
                let first = DgradOperands { grad_out: a, w, outputs };
                let added = [DgradOperands { grad_out: t, w: b, outputs: rank }];
                DgradSum { products: (first, &added), grad_input: c, rows, inputs }.launch()
            }
        }
    }

    fn run(&self, device: &Device, tile: Tile) -> Vec<f32> {
        let c = device.unwritten(self.len());
        let launch = self.launch(device, c).unwrap();
        device.run_as(&launch, geometry(&launch, device.target(), tile));
        device.download(c)
    }
}

fn in_bf16<'a>(update: &'a Update, shape: GemmShape, operands: &'a [Vec<f32>; 2]) -> Case<'a> {
    let case = Case::new(update.op, shape, &operands[0], &operands[1]);
    let bias = update.bias.as_deref();
    Case { compute: DType::Bf16, left: Format::Bf16, format: Format::Bf16, bias, ..case }
}

#[test]
fn every_tile_matches_the_reference_and_the_others_bit_for_bit() {
    let (mut data, device) = (Data::new("sums of products"), Device::new());
    let tiles = multistage_tiles(device.target());
    for (op, sizes) in [Op::Fprop, Op::Dgrad].into_iter().flat_map(|op| SIZES.map(|it| (op, it))) {
        let update = Update::new(&mut data, op, sizes);
        let (joined, operands) = update.joined();
        let first = update.run(&device, tiles[0]);
        in_bf16(&update, joined, &operands).check_within(4.0, &first, &format!("{sizes:?}"));
        same_bits(&first, &update.run(&device, tiles[0]), "two runs");
        for &tile in &tiles[1..] {
            same_bits(&first, &update.run(&device, tile), &format!("{op:?} {sizes:?} {tile:?}"));
        }
        for &tile in cluster_split_k_tiles(device.target()) {
            let found = update.run(&device, tile);
            let what = format!("{sizes:?} {tile:?}");
            in_bf16(&update, joined, &operands).check_within(4.0, &found, &what);
            same_bits(&found, &update.run(&device, tile), "two runs");
        }
    }
}

/// With whole stages of K, the chain of sums equals the chain over the concatenated operands.
#[test]
fn the_update_continues_the_chain_of_sums() {
    let (mut data, device) = (Data::new("chains of sums"), Device::new());
    for (op, sizes) in [(Op::Fprop, [40, 128, 72, 16]), (Op::Dgrad, [40, 72, 192, 24])] {
        let update = Update::new(&mut data, op, sizes);
        let (joined, operands) = update.joined();
        let split_k = cluster_split_k_tiles(device.target());
        for &tile in multistage_tiles(device.target()).iter().chain(split_k) {
            let expected = in_bf16(&update, joined, &operands).run_tile(&device, tile);
            same_bits(&expected, &update.run(&device, tile), &format!("{op:?} {tile:?}"));
        }
    }
}

#[test]
fn bf16_results_are_rounded_f32_results() {
    let (mut data, device) = (Data::new("rounded sums of products"), Device::new());
    for (op, sizes) in [(Op::Fprop, [72, 96, 136, 16]), (Op::Dgrad, [72, 136, 96, 40])] {
        let update = Update::new(&mut data, op, sizes);
        let split_k = cluster_split_k_tiles(device.target());
        for &tile in multistage_tiles(device.target()).iter().chain(split_k) {
            let exact = update.run(&device, tile);
            let whole = device.upload(&vec![bf16::MAX; update.len() + 8]);
            let launch = update.launch(&device, whole.slice(0..update.len())).unwrap();
            device.run_as(&launch, geometry(&launch, device.target(), tile));
            let expected = exact.iter().map(|&value| bf16::from_f32(value));
            let expected: Vec<_> = expected.chain([bf16::MAX; 8]).collect();
            assert_eq!(device.download(whole), expected, "{op:?} {tile:?}");
        }
    }
}

#[test]
fn nan_in_the_update_reaches_only_its_row_or_column() {
    let (mut data, device) = (Data::new("NaN in sums of products"), Device::new());
    for op in [Op::Fprop, Op::Dgrad] {
        let mut update = Update::new(&mut data, op, [24, 64, 64, 16]);
        update.update[0][3 * 16] = f32::NAN;
        for &tile in multistage_tiles(device.target()) {
            let actual = update.run(&device, tile);
            for (i, value) in actual.iter().enumerate() {
                assert_eq!(value.is_nan(), i / 64 == 3, "{op:?} {tile:?}: element {i} is {value}");
            }
        }
    }
}

#[test]
fn a_rank_of_zero_is_the_plain_product() {
    let (mut data, device) = (Data::new("rank 0"), Device::new());
    let update = Update::new(&mut data, Op::Fprop, [24, 64, 40, 0]);
    let (joined, operands) = update.joined();
    for &tile in multistage_tiles(device.target()) {
        let expected = in_bf16(&update, joined, &operands).run_tile(&device, tile);
        same_bits(&expected, &update.run(&device, tile), "rank 0");
    }
}

#[test]
fn matrices_that_do_not_match_are_refused() {
    let (mut data, device) = (Data::new("refused updates"), Device::new());
    let c = device.unwritten(24 * 40);
    let odd = Update::new(&mut data, Op::Fprop, [24, 64, 40, 12]);
    assert!(matches!(odd.launch(&device, c), Err(KernelError::Shape { .. })));
    for i in [0, 1] {
        let mut short = Update::new(&mut data, Op::Fprop, [24, 64, 40, 16]);
        short.update[i].truncate(8);
        assert!(matches!(short.launch(&device, c), Err(KernelError::Length { .. })));
    }
}

/// Gradients through several layers equal the chain over the concatenated operands, for any number
/// of layers.
#[test]
fn every_added_product_continues_the_chain() {
    let (mut data, device) = (Data::new("several products"), Device::new());
    let most = DgradSum::MAX_ADDED;
    let (rows, inputs, lens) = (72, 136, [64, 128, 64, 192, 64, 64]);
    let upload = |values: &[f32]| -> View<u64, bf16> {
        let rounded: Vec<_> = values.iter().map(|&value| bf16::from_f32(value)).collect();
        device.upload(&rounded)
    };
    for count in 0..=most {
        let lens = &lens[..=count];
        let total: usize = lens.iter().sum();
        let (dy, w) = (data.uniform(rows * total, 2.0), data.uniform(total * inputs, 2.0));
        let mut first = 0;
        let mut factors = Vec::new();
        for &outputs in lens {
            let part = (0..rows).flat_map(|row| &dy[row * total + first..][..outputs]);
            let part: Vec<f32> = part.copied().collect();
            let rows_of_w = &w[first * inputs..][..outputs * inputs];
            factors.push(DgradOperands { grad_out: upload(&part), w: upload(rows_of_w), outputs });
            first += outputs;
        }
        let case = Case::new(Op::Dgrad, shape([rows, inputs, total]), &dy, &w);
        let case = Case { compute: DType::Bf16, left: Format::Bf16, format: Format::Bf16, ..case };
        for &tile in multistage_tiles(device.target()) {
            let c = device.unwritten(rows * inputs);
            let products = (factors[0], &factors[1..]);
            let launch = DgradSum { products, grad_input: c, rows, inputs }.launch().unwrap();
            device.run_as(&launch, geometry(&launch, device.target(), tile));
            let expected = case.run_tile(&device, tile);
            same_bits(&expected, &device.download(c), &format!("{count} added {tile:?}"));
        }
        let c = device.unwritten(rows * inputs);
        let many = [&factors[1..], &vec![factors[0]; most + 1 - count]].concat();
        let launch = DgradSum { products: (factors[0], &many), grad_input: c, rows, inputs };
        assert!(matches!(launch.launch(), Err(KernelError::Shape { .. })));
    }
}
