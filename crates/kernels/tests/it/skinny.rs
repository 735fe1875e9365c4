//! Products of few rows, in every form, on tensor cores and by fused multiply-adds.

use half::bf16;
use retrograph_kernels::elementwise::reference::silu::{silu, silu_derivative};
use retrograph_kernels::ops::{GemmShape, SkinnyForm, SkinnyFprop, SkinnyLayer, SkinnySwiGlu};
use retrograph_kernels::{Access, Argument, KernelError, Launch, SmTarget};

use crate::bounds::{UNIT, chain, within};
use crate::gemm_case::rounded;
use crate::harness::Device;
use crate::products::fprop;
use crate::support::numbers::{Data, doubles, same_bits};

/// Rows and inputs: zero, one, primes, and one past tiles and chunks.
const SIZES: [[usize; 2]; 8] =
    [[1, 0], [1, 8], [2, 16], [3, 40], [5, 136], [7, 200], [8, 1032], [4, 4104]];

/// Tensor cores round less than once per step, but truncate.
const SLACK: f64 = 4.0;

#[derive(Clone)]
struct Case {
    form: SkinnyForm,
    rows: usize,
    inputs: usize,
    x: Vec<f32>,
    /// Weights, which are exact in bf16, with biases and previous results.
    layers: Vec<Matrix>,
    /// Elements to prefetch.
    prefetch: Option<usize>,
}

/// Blocks, and warps of a block, where they are not the choice of the launch.
#[derive(Clone, Copy, Debug)]
struct Grid {
    blocks: Option<u32>,
    warps: Option<u32>,
}

const DEFAULT: Grid = Grid { blocks: None, warps: None };

#[derive(Clone)]
struct Matrix {
    w: Vec<f32>,
    outputs: usize,
    bias: Option<Vec<f32>>,
    before: Option<Vec<f32>>,
}

impl Case {
    /// Every second layer has a bias.
    fn new(
        data: &mut Data,
        form: SkinnyForm,
        [rows, inputs]: [usize; 2],
        outputs: &[usize],
    ) -> Self {
        let x = data.uniform(rows * inputs, 2.0);
        let layers = outputs.iter().enumerate().map(|(at, &outputs)| Matrix {
            w: rounded(&data.uniform(inputs * outputs, 2.0)),
            outputs,
            bias: (at % 2 == 1).then(|| data.uniform(outputs, 2.0)),
            before: None,
        });
        let layers = layers.collect();
        Self { form, rows, inputs, x, layers, prefetch: None }
    }

    /// Runs the launch.
    fn run(&self, device: &Device, grid: Grid) -> Vec<Vec<f32>> {
        let Self { form, rows, .. } = *self;
        let in_bf16 = |values: &[f32]| {
            device.upload(&values.iter().map(|&w| bf16::from_f32(w)).collect::<Vec<_>>())
        };
        let prefetch = self.prefetch.map(|len| device.unwritten(len).into());
        let w: Vec<_> = self.layers.iter().map(|layer| in_bf16(&layer.w)).collect();
        let uploaded = |values: &Option<Vec<f32>>| values.as_ref().map(|it| device.upload(it));
        let biases: Vec<_> = self.layers.iter().map(|layer| uploaded(&layer.bias)).collect();
        if form == SkinnyForm::SwiGlu {
            let y = device.upload(&vec![bf16::NAN; rows * self.layers[0].outputs]);
            let (x, w, biases) = (in_bf16(&self.x), [w[0], w[1]], [biases[0], biases[1]]);
            let launch = SkinnySwiGlu { x, w, biases, y, prefetch, rows }.launch().unwrap();
            run_launch(device, &launch, grid);
            return vec![device.download(y).into_iter().map(bf16::to_f32).collect()];
        }
        let accumulate = self.layers[0].before.is_some();
        let layers = self.layers.iter().zip(w.iter().zip(biases)).map(|(layer, (&w, bias))| {
            let y = uploaded(&layer.before);
            SkinnyLayer { w, bias, y: y.unwrap_or_else(|| device.unwritten(rows * layer.outputs)) }
        });
        let layers: Vec<_> = layers.collect();
        let x = match form {
            SkinnyForm::F32 => device.upload(&self.x).into(),
            _ => in_bf16(&self.x).into(),
        };
        let product = SkinnyFprop { x, layers: &layers, accumulate, prefetch, rows };
        run_launch(device, &product.launch().unwrap(), grid);
        layers.iter().map(|layer| device.download(layer.y)).collect()
    }

    /// Results of the layers, without SwiGLU, and their error bounds.
    fn expected(&self) -> Vec<(Vec<f64>, Vec<f64>)> {
        let Self { rows, inputs, .. } = *self;
        let abs = |values: &[f64]| values.iter().map(|v| v.abs()).collect::<Vec<_>>();
        let x = doubles(&rounded(&self.x));
        let layer = |Matrix { w, outputs, bias, before }: &Matrix| {
            let (shape, w) = (GemmShape { rows, inputs, outputs: *outputs }, doubles(w));
            let mut expected = fprop(&x, &w, shape);
            let mut bounds = fprop(&abs(&x), &abs(&w), shape);
            for at in 0..rows * outputs {
                let bias = bias.as_ref().map_or(0.0, |bias| f64::from(bias[at % outputs]));
                let before = before.as_ref().map_or(0.0, |before| f64::from(before[at]));
                expected[at] += bias + before;
                let magnitude = bounds[at] + bias.abs() + before.abs();
                bounds[at] = SLACK * chain(inputs, magnitude);
            }
            (expected, bounds)
        };
        self.layers.iter().map(layer).collect()
    }

    fn check(&self, results: &[Vec<f32>], what: &str) {
        let what = format!("{:?} {}×{} {what}", self.form, self.rows, self.inputs);
        if self.form != SkinnyForm::SwiGlu {
            for (found, (expected, bounds)) in results.iter().zip(self.expected()) {
                within(found, &expected, &bounds, &what);
            }
            return;
        }
        let [(gate, off_gate), (up, off_up)] = self.expected().try_into().unwrap();
        let expected: Vec<_> = gate.iter().zip(&up).map(|(&gate, up)| silu(gate) * up).collect();
        let bound = |i: usize| {
            // The derivative of SiLU is at most 1.1.
            let slope = (silu_derivative(gate[i]).abs() + off_gate[i]).min(1.1);
            let off = slope * off_gate[i] * (up[i].abs() + off_up[i]);
            let rounding = (16.0 * UNIT + 2.0f64.powi(-8)) * (expected[i].abs() + off);
            off + silu(gate[i]).abs() * off_up[i] + rounding + 1e-37
        };
        let bounds: Vec<_> = (0..gate.len()).map(bound).collect();
        within(&results[0], &expected, &bounds, &what);
    }
}

fn run_launch(device: &Device, launch: &Launch<u64>, Grid { blocks, warps }: Grid) {
    let mut dispatch = launch.dispatch(device.target());
    dispatch.grid[0] = blocks.unwrap_or(dispatch.grid[0]);
    dispatch.block[0] = warps.map_or(dispatch.block[0], |warps| warps * 32);
    device.run_as(launch, dispatch);
}

fn devices() -> [Device; 2] {
    [Device::new(), Device::with_images_for(SmTarget::portable(75))]
}

/// The outputs of the layers of a form.
fn outputs(form: SkinnyForm, at: usize) -> &'static [usize] {
    let pairs: [&[usize]; 3] = [&[1, 1], &[17, 17], &[64, 64]];
    let layers: [&[usize]; 5] = [&[1], &[16, 16, 3], &[0, 5], &[31, 129], &[37]];
    match form {
        SkinnyForm::SwiGlu => pairs[at % pairs.len()],
        _ => layers[at % layers.len()],
    }
}

#[test]
fn every_form_matches_the_reference_and_repeats_its_bits() {
    let mut data = Data::new("skinny forms");
    for device in devices() {
        for &form in SkinnyForm::ALL {
            for (at, sizes) in SIZES.into_iter().enumerate() {
                let case = Case::new(&mut data, form, sizes, outputs(form, at));
                for warps in [8, 16] {
                    let grid = Grid { blocks: None, warps: Some(warps) };
                    let result = case.run(&device, grid);
                    case.check(&result, &format!("by {warps} warps"));
                    // Again, and with blocks that loop over several tiles.
                    for blocks in [None, Some(1), Some(2), Some(3)] {
                        let other = case.run(&device, Grid { blocks, ..grid });
                        same_bits(&result.concat(), &other.concat(), &format!("{blocks:?} blocks"));
                    }
                }
            }
        }
    }
}

#[test]
fn results_are_added_to_previous_ones() {
    let (mut data, device) = (Data::new("skinny accumulation"), Device::new());
    for form in [SkinnyForm::F32, SkinnyForm::Bf16] {
        let mut case = Case::new(&mut data, form, [6, 264], &[19, 40]);
        case.layers.iter_mut().for_each(|layer| {
            layer.before = Some(data.uniform(6 * layer.outputs, 8.0));
        });
        for (blocks, warps) in [(None, Some(8)), (Some(1), Some(16)), (Some(1), Some(8))] {
            let grid = Grid { blocks, warps };
            case.check(&case.run(&device, grid), &format!("{grid:?}"));
        }
    }
}

/// A sequence of a batch must not depend on the other sequences.
#[test]
fn a_row_has_the_same_bits_alone_and_among_others() {
    let (mut data, device) = (Data::new("skinny rows"), Device::new());
    let (inputs, outputs) = (264, 45);
    for &form in SkinnyForm::ALL {
        let case = Case::new(&mut data, form, [8, inputs], &[outputs, outputs]);
        let run = |case: &Case| case.run(&device, DEFAULT).concat();
        let all = run(&case);
        let results = all.len() / (8 * outputs);
        let of_row = |all: &[f32], rows: usize, row: usize| -> Vec<f32> {
            let layers = (0..results).map(|layer| layer * rows * outputs + row * outputs);
            layers.flat_map(|start| all[start..][..outputs].to_vec()).collect()
        };
        for row in 0..8 {
            let x = case.x[row * inputs..][..inputs].to_vec();
            let alone = run(&Case { rows: 1, x, ..case.clone() });
            same_bits(&alone, &of_row(&all, 8, row), "a row alone");
        }
        let mut poisoned = case.clone();
        poisoned.x[3 * inputs..][..inputs].fill(f32::NAN);
        let others = run(&poisoned);
        for row in [0, 1, 2, 4, 5, 6, 7] {
            same_bits(&of_row(&others, 8, row), &of_row(&all, 8, row), "beside a row of NaN");
        }
        assert!(of_row(&others, 8, 3).iter().all(|y| y.is_nan()));
    }
}

#[test]
fn special_values_reach_only_their_outputs_and_precision_holds_at_every_scale() {
    let mut data = Data::new("skinny special");
    for device in devices() {
        for form in [SkinnyForm::F32, SkinnyForm::Bf16] {
            let mut case = Case::new(&mut data, form, [3, 72], &[20]);
            (case.layers[0].w[72 + 3], case.layers[0].w[17 * 72 + 71]) = (f32::NAN, f32::INFINITY);
            (case.x[71], case.x[72 + 71], case.x[2 * 72 + 71]) = (1.0, -1.0, 0.5);
            case.check(&case.run(&device, DEFAULT), "special values");
            for scale in [1e-30, 1e30] {
                let mut case = Case::new(&mut data, form, [3, 72], &[20]);
                case.layers[0].w = rounded(&data.uniform(72 * 20, scale));
                case.check(&case.run(&device, DEFAULT), "far from one");
            }
        }
    }
}

#[test]
fn a_prefetched_tensor_changes_no_bit() {
    let (mut data, device) = (Data::new("skinny prefetch"), Device::new());
    for &form in SkinnyForm::ALL {
        let mut case = Case::new(&mut data, form, [2, 520], &[70, 70]);
        let alone = case.run(&device, DEFAULT).concat();
        // Less than a cache line, and more than all blocks prefetch together.
        for elements in [16, 1 << 18] {
            case.prefetch = Some(elements);
            same_bits(&alone, &case.run(&device, DEFAULT).concat(), "with a prefetch");
        }
    }
}

#[test]
fn only_weights_are_read_before_the_wait() {
    let device = Device::new();
    let (x, w) = (device.upload(&[0.0f32; 16]), device.upload(&[bf16::ZERO; 32]));
    let (bias, y) = (Some(device.upload(&[0.0f32; 4])), device.unwritten(8));
    let layers = [SkinnyLayer { w, bias, y }; 2];
    let (x, prefetch) = (x.into(), Some(w.into()));
    let product = SkinnyFprop { x, layers: &layers, accumulate: false, prefetch, rows: 2 };
    let launch = product.launch().unwrap();
    let named = launch.kernel().parameters.iter().zip(launch.arguments());
    let ahead = named.filter(|(_, argument)| {
        matches!(argument, Argument::Buffer(buffer) if buffer.access == Access::ReadBeforeWait)
    });
    assert_eq!(ahead.map(|(parameter, _)| parameter.name).collect::<Vec<_>>(), ["w0", "w1"]);
    let accessed = launch.arguments().iter().flat_map(Argument::buffers);
    let bytes: usize = accessed.map(|it| it.bytes.len()).sum();
    assert_eq!(bytes, 64 + 2 * (64 + 16 + 32), "a prefetch accesses nothing");
}

#[test]
fn unsupported_operands_are_refused() {
    let device = Device::new();
    let refused = |[rows, inputs, outputs]: [usize; 3], start: usize| -> KernelError {
        let x = device.upload(&vec![0.0f32; rows * inputs + start]);
        let w = device.upload(&vec![bf16::ZERO; inputs * outputs]);
        let (x, y) = (x.slice(start..start + rows * inputs), device.unwritten(rows * outputs));
        let (layers, prefetch) = ([SkinnyLayer { w, bias: None, y }], None);
        SkinnyFprop { x: x.into(), layers: &layers, accumulate: false, prefetch, rows }
            .launch()
            .unwrap_err()
    };
    for sizes in [[9, 8, 4], [0, 8, 4]] {
        let error = refused(sizes, 0).to_string();
        assert!(error.contains("rows must be 1 to 8"), "{error}");
    }
    let error = refused([2, 12, 4], 0).to_string();
    assert!(error.contains("inputs must be a multiple of 8"), "{error}");
    let error = refused([2, 8, 4], 1).to_string();
    assert!(error.contains("multiples of 16 bytes"), "{error}");
    let x = device.upload(&[0.0f32; 16]);
    let (w, y) = (device.upload(&[bf16::ZERO; 32]), device.unwritten(8));
    let layer = SkinnyLayer { w, bias: None, y };
    let launch = |layers: &[SkinnyLayer<u64>]| {
        let (accumulate, prefetch, rows) = (false, None, 2);
        let product = SkinnyFprop { x: x.into(), layers, accumulate, prefetch, rows };
        product.launch().map(|_| ()).unwrap_err().to_string()
    };
    let short = SkinnyLayer { w: w.slice(0..31), ..layer };
    assert!(launch(&[short]).contains('w'));
    assert!(launch(&[]).contains("one to three layers"));
    assert!(launch(&[layer; 4]).contains("one to three layers"));
}
