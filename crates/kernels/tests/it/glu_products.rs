//! Gated linear units: GEMMs with a SwiGLU or GeGLU epilogue.

use retrograph_kernel_abi::gemm::{GLU, GLU_BACKWARD};
use retrograph_kernels::elementwise::reference::gelu::geglu;
use retrograph_kernels::elementwise::reference::silu::swiglu;
use retrograph_kernels::ops::{
    DType, Dgrad, DgradOperands, DgradSum, Fprop, GatedActivation, GemmShape, Glu, GluBackward,
    GluDgrad, GluFprop,
};
use retrograph_kernels::{KernelError, Launch, SmTarget, View};

use crate::bf16_matrix::{Matrix, bits, tiles, unwritten, upload};
use crate::gemm_case::{Tile, geometry, shape};
use crate::harness::Device;
use crate::support::numbers::Data;

/// Rows, inputs and outputs: empty, one copy, edges of tiles, several stages and one more.
const SIZES: [[usize; 3]; 9] = [
    [0, 8, 8],
    [8, 8, 0],
    [1, 8, 8],
    [17, 24, 40],
    [136, 72, 264],
    [72, 200, 136],
    [40, 328, 72],
    [264, 264, 8],
    [700, 64, 520],
];

const ACTIVATIONS: [GatedActivation; 2] = [GatedActivation::Silu, GatedActivation::GeluTanh];

struct Forward {
    activation: GatedActivation,
    shape: GemmShape,
    x: Matrix,
    w: [Matrix; 2],
}

impl Forward {
    fn new(
        device: &Device,
        data: &mut Data,
        activation: GatedActivation,
        sizes: [usize; 3],
    ) -> Self {
        let [rows, inputs, outputs] = sizes;
        let mut matrix = |len| upload(device, &data.uniform(len, 3.0));
        let (x, w) = (matrix(rows * inputs), [(); 2].map(|()| matrix(outputs * inputs)));
        Self { activation, shape: shape(sizes), x, w }
    }

    fn len(&self) -> usize {
        self.shape.rows * self.shape.outputs
    }

    fn launch(&self, results: [Matrix; 3]) -> Result<Launch<u64>, KernelError> {
        let [gate, up, out] = results.map(|result| result.slice(0..self.len()));
        self.with_results(Some([gate, up]), out)
    }

    fn with_results(
        &self,
        products: Option<[Matrix; 2]>,
        out: Matrix,
    ) -> Result<Launch<u64>, KernelError> {
        let Self { activation, shape, x, w } = *self;
        GluFprop { activation, x, w, products, out, shape }.launch()
    }

    /// Out of one launch that keeps neither gate nor up.
    fn run_without_products(&self, device: &Device, tile: Tile) -> Vec<u16> {
        let out = unwritten(device, self.len());
        let launch = self.with_results(None, out.slice(0..self.len())).unwrap();
        device.run_as(&launch, geometry(&launch, device.target(), tile));
        bits(device, &[out]).remove(0)
    }

    /// Gate, up and out of one launch.
    fn run(&self, device: &Device, tile: Tile) -> Vec<Vec<u16>> {
        let results = [(); 3].map(|()| unwritten(device, self.len()));
        let launch = self.launch(results).unwrap();
        device.run_as(&launch, geometry(&launch, device.target(), tile));
        bits(device, &results)
    }

    /// The expected results, by two GEMMs and the elementwise kernel.
    fn expected(&self, device: &Device) -> Vec<Vec<u16>> {
        let results = [(); 3].map(|()| unwritten(device, self.len()));
        let [gate, up, out] = results.map(|result| result.slice(0..self.len()));
        for (w, y) in self.w.into_iter().zip([gate, up]) {
            let (x, shape, bias) = (self.x, self.shape, None::<View<u64, f32>>);
            let product = Fprop { x, w, bias, y, shape, alpha: 1.0, accumulate: false };
            device.run(&product.launch_in(DType::Bf16).unwrap());
        }
        device.run(&Glu { activation: self.activation, gate, up, out }.launch().unwrap());
        bits(device, &results)
    }
}

struct Backward {
    activation: GatedActivation,
    shape: GemmShape,
    grad_out: Matrix,
    w: Matrix,
    second: Option<([Matrix; 2], usize)>,
    inputs: [Matrix; 2],
}

impl Backward {
    fn new(
        device: &Device,
        data: &mut Data,
        activation: GatedActivation,
        sizes: [usize; 3],
        rank: usize,
    ) -> Self {
        let [rows, inputs, outputs] = sizes;
        let mut matrix = |len| upload(device, &data.uniform(len, 3.0));
        let (grad_out, w) = (matrix(rows * outputs), matrix(outputs * inputs));
        let second = (rank > 0).then(|| ([matrix(rows * rank), matrix(rank * inputs)], rank));
        let inputs = [(); 2].map(|()| matrix(rows * inputs));
        Self { activation, shape: shape(sizes), grad_out, w, second, inputs }
    }

    fn len(&self) -> usize {
        self.shape.rows * self.shape.inputs
    }

    fn launch(&self, results: [Matrix; 2]) -> Result<Launch<u64>, KernelError> {
        let Self { activation, shape, grad_out, w, second, inputs: [gate, up] } = *self;
        let [grad_gate, grad_up] = results.map(|result| result.slice(0..self.len()));
        GluDgrad { activation, grad_out, w, second, gate, up, grad_gate, grad_up, shape }.launch()
    }

    /// The gradients of gate and up by one launch.
    fn run(&self, device: &Device, tile: Tile) -> Vec<Vec<u16>> {
        let results = [(); 2].map(|()| unwritten(device, self.len()));
        let launch = self.launch(results).unwrap();
        device.run_as(&launch, geometry(&launch, device.target(), tile));
        bits(device, &results)
    }

    /// The expected results, by a GEMM and the elementwise kernel.
    fn expected(&self, device: &Device) -> Vec<Vec<u16>> {
        let Self { shape, grad_out, w, inputs: [gate, up], .. } = *self;
        let grad = unwritten(device, self.len()).slice(0..self.len());
        let product = match self.second {
            None => Dgrad { grad_out, w, grad_input: grad, shape, alpha: 1.0, accumulate: false }
                .launch_in(DType::Bf16),
            Some(([dy, second], k)) => {
                let GemmShape { rows, inputs, outputs } = shape;
                let first = DgradOperands { grad_out, w, outputs };
                let added = [DgradOperands { grad_out: dy, w: second, outputs: k }];
                DgradSum { products: (first, &added), grad_input: grad, rows, inputs }.launch()
            }
        };
        device.run(&product.unwrap());
        let results = [(); 2].map(|()| unwritten(device, self.len()));
        let [grad_gate, grad_up] = results.map(|result| result.slice(0..self.len()));
        let (activation, grad_out) = (self.activation, grad);
        let glu = GluBackward { activation, gate, up, grad_out, grad_gate, grad_up };
        device.run(&glu.launch().unwrap());
        bits(device, &results)
    }
}

fn cases() -> impl Iterator<Item = (GatedActivation, [usize; 3])> {
    ACTIVATIONS.into_iter().flat_map(|activation| SIZES.map(|sizes| (activation, sizes)))
}

#[test]
fn forward_has_the_bits_of_products_and_activation() {
    let (mut data, device) = (Data::new("glu products"), Device::new());
    for (activation, sizes) in cases() {
        let forward = Forward::new(&device, &mut data, activation, sizes);
        let expected = forward.expected(&device);
        for tile in tiles(&device, GLU) {
            let case = format!("{activation:?} {sizes:?} {tile:?}");
            assert!(forward.run(&device, tile) == expected, "{case}");
            assert!(forward.run(&device, tile) == expected, "{case}: again");
            let out = forward.run_without_products(&device, tile);
            assert!(out == expected[2], "{case}: without gate and up");
        }
    }
}

#[test]
fn backward_has_the_bits_of_product_and_activation() {
    let (mut data, device) = (Data::new("gradients of glu products"), Device::new());
    for ((activation, [rows, outputs, inputs]), rank) in cases().zip([0, 8].into_iter().cycle()) {
        let sizes = [rows, inputs, outputs];
        let backward = Backward::new(&device, &mut data, activation, sizes, rank);
        let expected = backward.expected(&device);
        for tile in tiles(&device, GLU_BACKWARD) {
            let case = format!("{activation:?} {sizes:?} {rank} {tile:?}");
            assert!(backward.run(&device, tile) == expected, "{case}");
            assert!(backward.run(&device, tile) == expected, "{case}: again");
        }
    }
}

/// Other targets use other tiles, and no tensor cores before sm_80.
#[test]
fn images_of_other_targets_have_the_same_bits() {
    let mut data = Data::new("targets of glu products");
    for (target, activation) in
        [75, 80, 86].into_iter().flat_map(|sm| ACTIVATIONS.map(|it| (SmTarget::portable(sm), it)))
    {
        let device = Device::with_images_for(target);
        let forward = Forward::new(&device, &mut data, activation, [136, 72, 40]);
        let expected = forward.expected(&device);
        for tile in tiles(&device, GLU) {
            let case = format!("{target} {activation:?} {tile:?}");
            assert!(forward.run(&device, tile) == expected, "{case}");
            let out = forward.run_without_products(&device, tile);
            assert!(out == expected[2], "{case}: without gate and up");
        }
        let backward = Backward::new(&device, &mut data, activation, [136, 40, 72], 8);
        let expected = backward.expected(&device);
        for tile in tiles(&device, GLU_BACKWARD) {
            assert!(backward.run(&device, tile) == expected, "{target} {activation:?} {tile:?}");
        }
    }
}

/// Sums in f64, rounding of each product, and the formula.
#[test]
fn results_match_the_reference() {
    let (mut data, device) = (Data::new("reference of glu products"), Device::new());
    for activation in ACTIVATIONS {
        results_of_match_the_reference(activation, &device, &mut data);
    }
}

fn results_of_match_the_reference(activation: GatedActivation, device: &Device, data: &mut Data) {
    let [rows, inputs, outputs] = [40, 72, 136];
    let forward = Forward::new(device, data, activation, [rows, inputs, outputs]);
    let results = [(); 3].map(|()| unwritten(device, forward.len()));
    device.run(&forward.launch(results).unwrap());
    let doubles = |matrix: Matrix| -> Vec<f64> {
        device.download(matrix).into_iter().map(f64::from).collect()
    };
    let [x, w_gate, w_up] = [forward.x, forward.w[0], forward.w[1]].map(doubles);
    let [gate, up, out] = results.map(doubles);
    let glu = match activation {
        GatedActivation::Silu => swiglu(&gate, &up),
        GatedActivation::GeluTanh => geglu(&gate, &up),
    };
    for row in 0..rows {
        for column in 0..outputs {
            let dot = |w: &[f64]| -> f64 {
                (0..inputs).map(|i| x[row * inputs + i] * w[column * inputs + i]).sum()
            };
            let at = row * outputs + column;
            for (product, w) in [(gate[at], &w_gate), (up[at], &w_up)] {
                let expected = dot(w);
                let bound = expected.abs() / 256.0 + 1e-3;
                assert!((product - expected).abs() <= bound, "{product} is not {expected}");
            }
            let expected = glu[at];
            // σ is 0 below 2⁻¹²⁶.
            let vanishing = (gate[at] * up[at]).abs() * f64::from(f32::MIN_POSITIVE);
            let bound = expected.abs() / 256.0 + vanishing + 1e-38;
            assert!((out[at] - expected).abs() <= bound, "{} is not {expected}", out[at]);
        }
    }
}

#[test]
fn special_values_match_products_followed_by_the_activation() {
    let (mut data, device) = (Data::new("special values of glu products"), Device::new());
    let sizes = [24, 64, 72];
    let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -1e30, 1e-30, 0.0, -0.0];
    for activation in ACTIVATIONS {
        let mut forward = Forward::new(&device, &mut data, activation, sizes);
        let mut x = data.uniform(24 * 64, 3.0);
        for (row, value) in special.into_iter().enumerate() {
            x[row * 64..][..64].fill(value);
        }
        forward.x = upload(&device, &x);
        let expected = forward.expected(&device);
        for tile in tiles(&device, GLU) {
            assert!(forward.run(&device, tile) == expected, "{activation:?} {tile:?}");
        }
        let mut backward = Backward::new(&device, &mut data, activation, sizes, 8);
        for input in &mut backward.inputs {
            let mut values = data.uniform(input.len(), 3.0);
            values.iter_mut().zip(special.into_iter().cycle()).step_by(5).for_each(|(v, s)| *v = s);
            *input = upload(&device, &values);
        }
        let expected = backward.expected(&device);
        for tile in tiles(&device, GLU_BACKWARD) {
            assert!(backward.run(&device, tile) == expected, "{activation:?} {tile:?}");
        }
    }
}

#[test]
fn wrong_operands_are_refused() {
    let (mut data, device) = (Data::new("refused glu products"), Device::new());
    let results = [(); 3].map(|()| unwritten(&device, 24 * 72));
    for sizes in [[24, 0, 72], [24, 12, 72], [24, 16, 12]] {
        let forward = Forward::new(&device, &mut data, GatedActivation::Silu, sizes);
        let error = forward.launch(results).map(|_| ());
        assert!(matches!(error, Err(KernelError::Shape { .. })), "{sizes:?}: {error:?}");
    }
    let mut forward = Forward::new(&device, &mut data, GatedActivation::Silu, [24, 16, 72]);
    forward.w[1] = forward.w[1].slice(0..8);
    assert!(matches!(forward.launch(results), Err(KernelError::Length { .. })));
    let mut backward = Backward::new(&device, &mut data, GatedActivation::Silu, [24, 72, 16], 8);
    backward.inputs[0] = backward.inputs[0].slice(0..8);
    assert!(matches!(backward.launch([results[0], results[1]]), Err(KernelError::Length { .. })));
}

#[test]
fn small_and_large_results_have_a_tile_on_every_target() {
    let (mut data, device) = (Data::new("tiles of glu products"), Device::new());
    for sizes in [[1, 8, 8], [300, 8, 520]] {
        let forward = Forward::new(&device, &mut data, GatedActivation::Silu, sizes);
        let launch = forward.launch([(); 3].map(|()| unwritten(&device, forward.len()))).unwrap();
        for &target in SmTarget::GENERATED {
            assert!(!launch.dispatch(target).is_empty(), "{sizes:?} {target}");
        }
    }
}
