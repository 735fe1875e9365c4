//! Queries, keys and values in one launch, with RoPE.

use retrograph_kernel_abi::gemm::QKV_ROPE;
use retrograph_kernels::ops::{
    AttentionRope, AttentionShape, DType, Fprop, FpropSum, GemmShape, Output, QkvRopeFprop,
    QkvRopeProjection, Rope, RopeTensor, TensorView, TokenPositions, rope_tables,
};
use retrograph_kernels::{KernelError, Launch, SmTarget, View};

use crate::bf16_matrix::{GUARD, Matrix, bits, tiles, unwritten, upload};
use crate::gemm_case::{Tile, geometry};
use crate::harness::Device;
use crate::support::numbers::Data;

/// batch, seq, heads, kv_heads, head_dim, inputs: one, primes, sizes around tiles, results that end
/// within a tile, several stages and one more.
const SIZES: [[usize; 6]; 8] = [
    [1, 1, 1, 1, 64, 8],
    [0, 4, 2, 1, 64, 8],
    [2, 37, 4, 2, 64, 72],
    [1, 136, 14, 2, 64, 40],
    [3, 50, 3, 1, 64, 200],
    [1, 200, 2, 1, 128, 328],
    [2, 131, 6, 2, 128, 64],
    [5, 13, 5, 5, 128, 8],
];

/// The lengths of the second products of queries, keys and values.
const RANKS: [[usize; 3]; 4] = [[8, 0, 16], [0, 0, 0], [8, 72, 8], [0, 16, 0]];

/// The kind of rotation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rotation {
    None,
    Counted,
    /// By given positions, some of them past the end of the tables.
    Given,
}

struct Case {
    shape: AttentionShape,
    inputs: usize,
    x: Matrix,
    /// Weights, second products and biases of queries, keys and values.
    w: [Matrix; 3],
    second: [Option<([Matrix; 2], usize)>; 3],
    bias: Option<[View<u64, f32>; 3]>,
    rope: Option<AttentionRope<u64>>,
}

impl Case {
    fn new(
        device: &Device,
        data: &mut Data,
        [batch, seq, heads, kv_heads, head_dim, inputs]: [usize; 6],
        ranks: [usize; 3],
        has_bias: bool,
        rotation: Rotation,
    ) -> Self {
        let shape = AttentionShape { batch, seq, heads, kv_heads, head_dim };
        let mut matrix = |len| upload(device, &data.uniform(len, 3.0));
        let (rows, outputs) = (batch * seq, [heads, kv_heads, kv_heads].map(|it| it * head_dim));
        let (x, w) = (matrix(rows * inputs), outputs.map(|outputs| matrix(outputs * inputs)));
        let second = std::array::from_fn(|at| {
            let rank = ranks[at];
            (rank > 0).then(|| ([matrix(rows * rank), matrix(outputs[at] * rank)], rank))
        });
        let bias =
            has_bias.then(|| outputs.map(|outputs| device.upload(&data.uniform(outputs, 9.0))));
        let given = rotation == Rotation::Given;
        let positions = if given { seq.div_ceil(2) + 1 } else { seq + 3 };
        let rope = (rotation != Rotation::None).then(|| {
            let (cos, sin) = rope_tables(positions, head_dim, 10_000.0);
            let tokens = (0..rows).map(|token| (token * 7 % (seq + 2)) as u32);
            let token_positions = given.then(|| device.upload(&tokens.collect::<Vec<_>>()));
            let [cos, sin] = [cos, sin].map(|table| device.upload(&table));
            AttentionRope { cos, sin, positions, token_positions }
        });
        Self { shape, inputs, x, w, second, bias, rope }
    }

    fn rows(&self) -> usize {
        self.shape.batch * self.shape.seq
    }

    /// Columns of queries, keys and values.
    fn outputs(&self) -> [usize; 3] {
        let AttentionShape { heads, kv_heads, head_dim, .. } = self.shape;
        [heads, kv_heads, kv_heads].map(|heads| heads * head_dim)
    }

    fn unwritten(&self, device: &Device) -> [Matrix; 3] {
        self.outputs().map(|outputs| unwritten(device, self.rows() * outputs))
    }

    fn launch(&self, results: [Matrix; 3]) -> Result<Launch<u64>, KernelError> {
        let Self { shape, inputs, x, rope, .. } = *self;
        let projections = std::array::from_fn(|at| QkvRopeProjection {
            w: self.w[at],
            second: self.second[at],
            bias: self.bias.map(|bias| bias[at]),
            y: results[at].slice(0..results[at].len() - GUARD),
        });
        QkvRopeFprop { x, projections, rope, shape, inputs }.launch()
    }

    /// Queries, keys and values of one launch.
    fn run(&self, device: &Device, tile: Tile) -> Vec<Vec<u16>> {
        let results = self.unwritten(device);
        let launch = self.launch(results).unwrap();
        device.run_as(&launch, geometry(&launch, device.target(), tile));
        bits(device, &results)
    }

    /// The product of one projection.
    fn product(&self, device: &Device, at: usize, y: TensorView<u64>) {
        let (rows, outputs, bias) =
            (self.rows(), self.outputs()[at], self.bias.map(|bias| bias[at]));
        let (x, w, inputs) = (self.x, self.w[at], self.inputs);
        let launch = match self.second[at] {
            None => {
                let shape = GemmShape { rows, inputs, outputs };
                Fprop { x, w, bias, y, shape, alpha: 1.0, accumulate: false }.launch_in(DType::Bf16)
            }
            Some(([x1, w1], k)) => {
                let (x, w, inputs) = ([x, x1], [w, w1], [inputs, k]);
                FpropSum { x, w, bias, y, rows, inputs, outputs }.launch()
            }
        };
        device.run(&launch.unwrap());
    }

    /// The expected results, by three GEMMs and the RoPE kernel.
    fn expected(&self, device: &Device) -> Vec<Vec<u16>> {
        let results = self.unwritten(device);
        let AttentionShape { batch, seq, head_dim, .. } = self.shape;
        for (at, (result, outputs)) in results.into_iter().zip(self.outputs()).enumerate() {
            let len = self.rows() * outputs;
            let y = result.slice(0..len);
            let Some(rope) = self.rope.filter(|_| at < 2) else {
                self.product(device, at, y.into());
                continue;
            };
            let x = device.upload(&vec![f32::NAN; len]);
            self.product(device, at, x.into());
            let tensors = &[RopeTensor { x, out: Output::Bf16(y), heads: outputs / head_dim }];
            let AttentionRope { cos, sin, positions, token_positions } = rope;
            let token_positions =
                token_positions.map_or(TokenPositions::FromZero, TokenPositions::Each);
            let inverse = false;
            let rope = Rope {
                tensors,
                cos,
                sin,
                token_positions,
                positions,
                batch,
                seq,
                head_dim,
                inverse,
            };
            device.run(&rope.launch().unwrap());
        }
        bits(device, &results)
    }
}

#[test]
fn results_have_the_bits_of_products_and_rope() {
    let (mut data, device) = (Data::new("queries, keys and values"), Device::new());
    let rotations = [Rotation::Counted, Rotation::Given, Rotation::None].into_iter().cycle();
    let options = RANKS.into_iter().cycle().zip([true, false].into_iter().cycle());
    for ((sizes, rotation), (ranks, bias)) in SIZES.into_iter().zip(rotations).zip(options) {
        let case = Case::new(&device, &mut data, sizes, ranks, bias, rotation);
        let expected = case.expected(&device);
        for tile in tiles(&device, QKV_ROPE) {
            let what = format!("{sizes:?} {ranks:?} {bias} {rotation:?} {tile:?}");
            assert!(case.run(&device, tile) == expected, "{what}");
            assert!(case.run(&device, tile) == expected, "{what}: again");
        }
    }
}

/// Other targets use other tiles, and no tensor cores before sm_80.
#[test]
fn images_of_other_targets_have_the_same_bits() {
    let mut data = Data::new("targets of queries, keys and values");
    for target in [75, 80, 86].map(SmTarget::portable) {
        let device = Device::with_images_for(target);
        for sizes in [[2, 37, 3, 1, 64, 40], [1, 136, 4, 2, 128, 72]] {
            let case = Case::new(&device, &mut data, sizes, [8, 0, 16], true, Rotation::Given);
            let expected = case.expected(&device);
            for tile in tiles(&device, QKV_ROPE) {
                assert!(case.run(&device, tile) == expected, "{target} {sizes:?} {tile:?}");
            }
        }
    }
}

/// Sums, bias and rotation in f64.
#[test]
fn results_match_the_reference() {
    let (mut data, device) = (Data::new("reference of queries, keys and values"), Device::new());
    let (sizes, ranks) = ([2, 21, 4, 2, 64, 72], [8, 16, 0]);
    let case = Case::new(&device, &mut data, sizes, ranks, true, Rotation::Counted);
    let results = case.unwritten(&device);
    device.run(&case.launch(results).unwrap());
    let doubles = |matrix: Matrix| -> Vec<f64> {
        device.download(matrix).into_iter().map(f64::from).collect()
    };
    let (x, bias) = (doubles(case.x), case.bias.unwrap());
    let ([_, seq, _, _, head_dim, inputs], half) = (sizes, sizes[4] / 2);
    for (at, outputs) in case.outputs().into_iter().enumerate() {
        let (w, bias, actual) =
            (doubles(case.w[at]), device.download(bias[at]), doubles(results[at]));
        let second = case.second[at].map(|(operands, k)| (operands.map(doubles), k));
        let dot = |[x, w]: [&[f64]; 2], [row, column]: [usize; 2], k: usize| -> f64 {
            (0..k).map(|i| x[row * k + i] * w[column * k + i]).sum()
        };
        let projected = |row: usize, column: usize| {
            let update = second.as_ref().map_or(0.0, |([x, w], k)| dot([x, w], [row, column], *k));
            dot([&x, &w], [row, column], inputs) + update + f64::from(bias[column])
        };
        for row in 0..case.rows() {
            for column in 0..outputs {
                let (pair, in_second) = (column % half, column % head_dim >= half);
                let angle =
                    (row % seq) as f64 / 10_000f64.powf(2.0 * pair as f64 / head_dim as f64);
                let partner = if in_second { column - half } else { column + half };
                let [own, other] = [column, partner].map(|column| projected(row, column));
                let expected = match (at, in_second) {
                    (2, _) => own,
                    (_, false) => own * angle.cos() - other * angle.sin(),
                    (_, true) => own * angle.cos() + other * angle.sin(),
                };
                let actual = actual[row * outputs + column];
                let bound = expected.abs() / 256.0 + (own.abs() + other.abs()) * 1e-5 + 1e-3;
                assert!((actual - expected).abs() <= bound, "{actual} is not {expected}");
            }
        }
    }
}

#[test]
fn special_values_match_products_followed_by_rope() {
    let (mut data, device) =
        (Data::new("special values of queries, keys and values"), Device::new());
    let sizes = [1, 24, 2, 1, 128, 64];
    let mut case = Case::new(&device, &mut data, sizes, [8, 8, 8], true, Rotation::Counted);
    let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -1e30, 1e-30, 0.0, -0.0];
    let mut x = data.uniform(24 * 64, 3.0);
    for (row, value) in special.into_iter().enumerate() {
        x[row * 64..][..64].fill(value);
    }
    case.x = upload(&device, &x);
    let expected = case.expected(&device);
    for tile in tiles(&device, QKV_ROPE) {
        assert!(case.run(&device, tile) == expected, "{tile:?}");
    }
}

/// The operand with the rejected length.
fn operand(launch: Result<Launch<u64>, KernelError>) -> &'static str {
    match launch {
        Err(KernelError::Length { operand, .. }) => operand,
        other => panic!("{:?} is not a length error", other.map(|_| ())),
    }
}

#[test]
fn wrong_operands_are_refused() {
    let (mut data, device) = (Data::new("refused queries, keys and values"), Device::new());
    let mut case = |sizes| Case::new(&device, &mut data, sizes, [8, 8, 8], true, Rotation::Given);
    let text = |case: &Case| case.launch(case.unwritten(&device)).unwrap_err().to_string();
    assert!(text(&case([1, 4, 2, 1, 96, 8])).contains("head_dim must be 64 or 128 (found 96)"));
    assert!(text(&case([1, 4, 3, 2, 64, 8])).contains("multiple of kv_heads"));
    assert!(text(&case([1, 4, 2, 1, 64, 0])).contains("contraction must not be empty"));
    assert!(text(&case([1, 4, 2, 1, 64, 12])).contains("multiple of 8"));
    let good = case([1, 4, 2, 1, 64, 8]);
    assert!(good.launch(good.unwritten(&device)).is_ok());
    for at in 0..3 {
        let mut few = case([1, 4, 2, 1, 64, 8]);
        few.w[at] = few.w[at].slice(0..8);
        assert_eq!(operand(few.launch(few.unwritten(&device))), "w", "{at}");
        let mut few = case([1, 4, 2, 1, 64, 8]);
        few.bias.as_mut().unwrap()[at] = good.bias.unwrap()[at].slice(0..8);
        assert_eq!(operand(few.launch(few.unwritten(&device))), "bias", "{at}");
        let mut few = case([1, 4, 2, 1, 64, 8]);
        let (operands, k) = few.second[at].unwrap();
        few.second[at] = Some((operands, k + 8));
        assert_eq!(operand(few.launch(few.unwritten(&device))), "x₁", "{at}");
        let mut results = good.unwritten(&device);
        results[at] = unwritten(&device, 8);
        assert_eq!(operand(good.launch(results)), "y", "{at}");
    }
    let rope = good.rope.unwrap();
    for wrong in [
        AttentionRope { cos: rope.cos.slice(0..8), ..rope },
        AttentionRope { positions: 1, token_positions: None, ..rope },
        AttentionRope { token_positions: rope.token_positions.map(|it| it.slice(0..3)), ..rope },
    ] {
        let mut wrong_case = case([1, 4, 2, 1, 64, 8]);
        wrong_case.rope = Some(wrong);
        assert!(wrong_case.launch(wrong_case.unwritten(&device)).is_err(), "{wrong:?}");
    }
}

#[test]
fn small_and_large_results_have_a_tile_on_every_target() {
    let (mut data, device) = (Data::new("tiles of queries, keys and values"), Device::new());
    for sizes in [[1, 1, 1, 1, 64, 8], [1, 300, 16, 4, 128, 8]] {
        let case = Case::new(&device, &mut data, sizes, [0; 3], false, Rotation::Counted);
        let launch = case.launch(case.unwritten(&device)).unwrap();
        for &target in SmTarget::GENERATED {
            assert!(!launch.dispatch(target).is_empty(), "{sizes:?} {target}");
        }
    }
}
