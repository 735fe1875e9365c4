//! Several layers with one input in a launch, with fused norm and gating, against references.

use retrograph_kernels::elementwise::reference::silu::{silu, silu_derivative};
use retrograph_kernels::norm::reference::rms_norm::rms_norm;
use retrograph_kernels::ops::{GatedGemv, GemmShape, GemvLayer, GroupedGemv, NormPrologue};
use retrograph_kernels::{Access, Argument, KernelError, Launch, View};

use crate::bounds::{UNIT, chain, within};
use crate::gemm_case::Format;
use crate::harness::Device;
use crate::products::fprop;
use crate::support::numbers::{Data, doubles, same_bits};

/// The storage formats of weights.
const FORMATS: [Format; 4] = [Format::F32, Format::Bf16, Format::Nf4, Format::Nested];

/// A vector and the matrices that it is multiplied by.
#[derive(Clone)]
struct Case {
    format: Format,
    x: Vec<f32>,
    /// Weight and epsilon.
    norm: Option<(Vec<f32>, f32)>,
    /// Matrices as stored, with biases.
    layers: Vec<(Vec<f32>, Option<Vec<f32>>)>,
    lora_a: Vec<Vec<f32>>,
    /// Elements by which everything starts later than an aligned address.
    shift: usize,
    /// The tensor to prefetch.
    prefetch: Option<Vec<f32>>,
}

impl Case {
    /// `outputs` of the layers and of the additional f32 matrices; every second layer has a bias.
    fn new(data: &mut Data, format: Format, inputs: usize, outputs: [&[usize]; 2]) -> Self {
        let x = data.uniform(inputs, 2.0);
        let norm = Some((data.uniform(inputs, 1.5), 1e-6));
        let part = |(at, &outputs): (usize, &usize)| {
            let w = data.uniform(inputs * outputs, 2.0);
            (w, (at % 2 == 1).then(|| data.uniform(outputs, 2.0)))
        };
        let layers = outputs[0].iter().enumerate().map(part).collect();
        let lora_a = outputs[1].iter().map(|outputs| data.uniform(inputs * outputs, 2.0)).collect();
        Self { format, x, norm, layers, lora_a, shift: 0, prefetch: None }
    }

    /// Runs the entry with index `split` of its form, or the one that the heuristic chooses, and
    /// returns all results.
    fn run(&self, split: Option<usize>, gated: bool) -> Vec<Vec<f32>> {
        let device = Device::new();
        let place = |data: &[f32]| {
            let padded = [&vec![f32::NAN; self.shift], data].concat();
            device.upload(&padded).slice(self.shift..padded.len())
        };
        let (x, outputs) = (place(&self.x), |w: &[f32]| w.len() / self.x.len());
        let gamma = self.norm.as_ref().map(|(gamma, eps)| (place(gamma), *eps));
        let norm = gamma.map(|(gamma, eps)| NormPrologue { gamma, eps });
        let stored = |w: &[f32]| self.format.upload(&device, w, self.shift);
        let layers = self.layers.iter().map(|(w, bias)| GemvLayer {
            w: stored(w),
            bias: bias.as_ref().map(|bias| device.upload(bias)),
            y: device.unwritten(outputs(w)),
        });
        let layers: Vec<_> = layers.collect();
        let lora_a = self.lora_a.iter().map(|a| [place(a), device.unwritten(outputs(a))]);
        let lora_a: Vec<_> = lora_a.collect();
        // The prefetch changes no result.
        let prefetch = self.prefetch.as_ref().map(|prefetch| stored(prefetch));
        let launch: Launch<u64> = if gated {
            let [gate, up] = [layers[0], layers[1]];
            let (w, biases) = ([gate.w, up.w], [gate.bias, up.bias]);
            let norm = norm.unwrap();
            GatedGemv { x, norm, w, biases, y: gate.y, prefetch }.launch().unwrap()
        } else {
            GroupedGemv { x, norm, layers: &layers, lora_a: &lora_a, prefetch }.launch().unwrap()
        };
        let mut dispatch = launch.dispatch(device.target());
        if let Some(index) = split {
            let format = if gated { 2 } else { usize::from(norm.is_some()) };
            let tiles = |len: usize| len.div_ceil(if gated { 2 } else { 4 });
            let used = layers.iter().take(if gated { 1 } else { 3 }).map(|part| part.y.len());
            let all: usize = used.chain(lora_a.iter().map(|[_, y]| y.len())).map(tiles).sum();
            dispatch.entry = launch.kernel().entries[format * 4 + index];
            // Without a split, each warp loops over up to three tiles.
            let tiles_of_block = if index == 0 { 3 * 8 } else { 8 >> index };
            dispatch.grid[0] = all.div_ceil(tiles_of_block) as u32;
        }
        device.run_as(&launch, dispatch);
        let ys = layers.iter().map(|part| part.y).chain(lora_a.iter().map(|[_, y]| *y));
        ys.map(|y| device.download(y)).collect()
    }

    /// Results and their error bounds, for each of the matrices.
    fn expected(&self) -> Vec<(Vec<f64>, Vec<f64>)> {
        let x = doubles(&self.x);
        let x = match &self.norm {
            Some((gamma, eps)) => rms_norm(&x, &doubles(gamma), f64::from(*eps)).y,
            None => x,
        };
        let product = |w: Vec<f32>, bias: Option<&Vec<f32>>| {
            let (inputs, outputs) = (x.len(), w.len() / x.len());
            let shape = GemmShape { rows: 1, inputs, outputs };
            let (w, zeros) = (doubles(&w), vec![0.0; outputs]);
            let abs = |values: &[f64]| values.iter().map(|v| v.abs()).collect::<Vec<_>>();
            let (y, sizes) = (fprop(&x, &w, shape), fprop(&abs(&x), &abs(&w), shape));
            let bias = bias.map_or(zeros, |bias| doubles(bias));
            let y: Vec<_> = y.iter().zip(&bias).map(|(y, bias)| y + bias).collect();
            // The sum of squares has as many roundings as the sum of products.
            let bound = |(size, bias): (&f64, &f64)| chain(2 * inputs + 8, size + bias.abs());
            (y, sizes.iter().zip(&bias).map(bound).collect())
        };
        let layers =
            self.layers.iter().map(|(w, bias)| product(self.format.stored(w), bias.as_ref()));
        layers.chain(self.lora_a.iter().map(|a| product(a.clone(), None))).collect()
    }

    fn check(&self, results: &[Vec<f32>], what: &str) {
        for (at, (found, (expected, bounds))) in results.iter().zip(self.expected()).enumerate() {
            let (format, inputs) = (self.format, self.x.len());
            within(found, &expected, &bounds, &format!("{format:?} of {inputs}, {at}: {what}"));
        }
    }

    fn check_gated(&self, found: &[f32], what: &str) {
        let [(gate, off_gate), (up, off_up)] = self.expected().try_into().unwrap();
        let expected: Vec<_> = gate.iter().zip(&up).map(|(&gate, up)| silu(gate) * up).collect();
        let bound = |i: usize| {
            // The derivative of SiLU is at most 1.1.
            let slope = (silu_derivative(gate[i]).abs() + off_gate[i]).min(1.1);
            let off = slope * off_gate[i] * (up[i].abs() + off_up[i]);
            off + silu(gate[i]).abs() * off_up[i] + 16.0 * UNIT * expected[i].abs() + 1e-37
        };
        let bounds: Vec<_> = (0..gate.len()).map(bound).collect();
        within(found, &expected, &bounds, &format!("{:?} gated: {what}", self.format));
    }
}

/// Whether codes come in whole words.
fn fits(format: Format, inputs: usize) -> bool {
    !matches!(format, Format::Nf4 | Format::Nested) || inputs.is_multiple_of(8)
}

#[test]
fn layers_after_a_norm_match_the_reference_and_repeat_their_bits() {
    let mut data = Data::new("gemv layers");
    let outputs: [[&[usize]; 2]; 5] = [
        [&[5], &[]],
        [&[1, 7, 4], &[3, 2]],
        [&[33, 9], &[]],
        [&[8, 1, 1], &[16, 4, 1]],
        [&[2], &[6]],
    ];
    for (format, inputs) in
        FORMATS.iter().flat_map(|format| [1, 7, 128, 264, 1032].map(|i| (*format, i)))
    {
        if !fits(format, inputs) {
            continue;
        }
        let codes = matches!(format, Format::Nf4 | Format::Nested);
        for mut outputs in outputs {
            if codes {
                outputs[1] = &[];
            }
            let mut case = Case::new(&mut data, format, inputs, outputs);
            for split in [Some(0), Some(1), Some(2), Some(3), None] {
                let found = case.run(split, false);
                case.check(&found, &format!("{outputs:?} split {split:?}"));
                let again = case.run(split, false).concat();
                same_bits(&found.concat(), &again, "two runs");
            }
            let with = case.run(None, false).concat();
            if !codes {
                let shifted = Case { shift: 1, ..case.clone() }.run(None, false).concat();
                same_bits(&with, &shifted, "another alignment");
            }
            case.norm = None;
            case.check(&case.run(None, false), "without a norm");
        }
    }
}

#[test]
fn gated_layers_match_the_reference_and_repeat_their_bits() {
    let mut data = Data::new("gated gemv");
    for (format, inputs) in FORMATS.iter().flat_map(|format| [1, 9, 128, 520].map(|i| (*format, i)))
    {
        if !fits(format, inputs) {
            continue;
        }
        for outputs in [1, 2, 7, 65] {
            let case = Case::new(&mut data, format, inputs, [&[outputs, outputs], &[]]);
            for split in [Some(0), Some(1), Some(2), Some(3), None] {
                let found = case.run(split, true);
                case.check_gated(&found[0], &format!("{outputs} split {split:?}"));
                same_bits(&found[0], &case.run(split, true)[0], "two runs");
            }
        }
    }
}

#[test]
fn a_norm_stays_accurate_if_squares_overflow_or_underflow() {
    let mut data = Data::new("gemv norms far from one");
    for (scale, gated) in
        [1e-30, 1e-22, 1e20, 1e30].into_iter().flat_map(|s| [(s, false), (s, true)])
    {
        let mut case = Case::new(&mut data, Format::Bf16, 136, [&[9, 9], &[]]);
        case.x = data.uniform(136, scale);
        case.norm = Some((data.uniform(136, 1.0), 0.0));
        let found = case.run(None, gated);
        match gated {
            true => case.check_gated(&found[0], &format!("{scale:e}")),
            false => case.check(&found, &format!("{scale:e}")),
        }
    }
}

#[test]
fn special_values_of_weights_reach_one_output_and_of_x_every_output() {
    let mut data = Data::new("special gemv layers");
    let mut case = Case::new(&mut data, Format::F32, 64, [&[6, 5], &[3]]);
    case.layers[1].0[64 * 2 + 5] = f32::NAN;
    case.lora_a[0][64 + 63] = f32::INFINITY;
    case.x[63] = 1.0;
    case.check(&case.run(None, false), "special weights");
    for value in [f32::NAN, f32::INFINITY] {
        case.x[7] = value;
        assert!(case.run(None, false).concat().iter().all(|y| y.is_nan()), "{value}");
        let mut plain = Case::new(&mut data, Format::F32, 64, [&[6, 6], &[]]);
        plain.x[7] = value;
        assert!(plain.run(None, true)[0].iter().all(|y| y.is_nan()), "{value} gated");
    }
}

#[test]
fn a_prefetched_tensor_changes_no_bit_and_is_not_accessed() {
    let mut data = Data::new("gemv prefetch");
    for format in FORMATS {
        for inputs in [264, 2056] {
            let mut case = Case::new(&mut data, format, inputs, [&[70, 70], &[]]);
            let splits = [Some(0), Some(1), Some(2), Some(3), None];
            let alone = splits.map(|split| case.run(split, false).concat());
            let gated = case.run(None, true).concat();
            // Less than a cache line, and more than all blocks prefetch together.
            for bytes in [64, 1 << 20] {
                case.prefetch = Some(data.uniform(bytes / 4, 1.0));
                let found = splits.map(|split| case.run(split, false).concat());
                alone
                    .iter()
                    .zip(&found)
                    .for_each(|(a, b)| same_bits(a, b, "something is prefetch"));
                same_bits(&gated, &case.run(None, true).concat(), "gated");
            }
        }
    }
    let device = Device::new();
    let (x, w, y) = (device.unwritten(8), device.unwritten(40), device.unwritten(4));
    let layers = [GemvLayer { w: w.slice(0..32).into(), bias: None, y }];
    let bytes = |prefetch: View<u64, f32>| {
        let prefetch = Some(prefetch.into());
        let launch =
            GroupedGemv { x, norm: None, layers: &layers, lora_a: &[], prefetch }.launch().unwrap();
        let accessed: Vec<_> = launch.arguments().iter().flat_map(Argument::buffers).collect();
        assert_eq!(accessed.iter().map(|it| it.bytes.len()).sum::<usize>(), 4 * (8 + 32 + 4));
        launch.arguments().last().cloned()
    };
    assert_eq!(bytes(w.slice(4..40)), Some(Argument::U32(4 * 36)));
    assert_eq!(bytes(w.slice(1..40)), Some(Argument::U32(0)), "not aligned");
}

#[test]
fn only_weights_are_declared_as_read_before_the_wait() {
    let device = Device::new();
    let (x, w, y) = (device.unwritten(8), device.unwritten(32), device.unwritten(4));
    let norm = Some(NormPrologue { gamma: x, eps: 1e-6 });
    let layers = [GemvLayer { w: w.into(), bias: Some(y), y }];
    let prefetch = Some(w.into());
    let launch =
        GroupedGemv { x, norm, layers: &layers, lora_a: &[[w, y]], prefetch }.launch().unwrap();
    let named = launch.kernel().parameters.iter().zip(launch.arguments());
    let ahead = named.filter(|(_, argument)| {
        matches!(argument, Argument::Buffer(buffer) if buffer.access == Access::ReadBeforeWait)
    });
    let names: Vec<_> = ahead.map(|(parameter, _)| parameter.name).collect();
    assert_eq!(names, ["w0", "a0"]);
}

#[test]
fn incompatible_layers_are_refused() {
    let device = Device::new();
    let (x, w, y) = (device.unwritten(8), device.unwritten(32), device.unwritten(4));
    let part = GemvLayer { w: w.into(), bias: None, y };
    let refused = |norm, layers: &[GemvLayer<u64>]| {
        let error =
            GroupedGemv { x, norm, layers, lora_a: &[], prefetch: None }.launch().unwrap_err();
        assert!(
            matches!(
                error,
                KernelError::Shape { .. }
                    | KernelError::Length { .. }
                    | KernelError::Constant { .. }
            ),
            "{error}"
        );
    };
    refused(None, &[]);
    refused(None, &[part; 4]);
    refused(None, &[part, GemvLayer { w: Format::Bf16.upload(&device, &[1.0; 32], 0), ..part }]);
    refused(Some(NormPrologue { gamma: y, eps: 0.0 }), &[part]);
    refused(Some(NormPrologue { gamma: x, eps: f32::NAN }), &[part]);
    refused(Some(NormPrologue { gamma: x, eps: f32::INFINITY }), &[part]);
    refused(None, &[GemvLayer { y: x, ..part }]);
    let codes = [GemvLayer { w: Format::Nf4.upload(&device, &[1.0; 32], 0), ..part }];
    let launch =
        GroupedGemv { x, norm: None, layers: &codes, lora_a: &[[w, y]], prefetch: None }.launch();
    let error = launch.unwrap_err();
    assert!(error.to_string().contains("NF4"), "{error}");
}
