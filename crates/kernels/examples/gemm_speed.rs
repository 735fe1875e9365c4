//! Benchmarks every GEMM tile on a GPU, and marks the tile that the heuristic selects.
//!
//! ```text
//! gemm_speed [--bf16 [--bf16-activations [--bf16-results]] | --swiglu | --geglu] \
//!     [--weights DTYPE] [--rows N,…] [--layers INPUTSxOUTPUTS,…] [--ops NAME,…] \
//!     [--tile NAME | --chosen] [--samples N] [--sustained SECONDS] [--multiprocessors N] \
//!     [--simulate] OUT.jsonl
//! ```
//!
//! - `--bf16` computes in bf16.
//! - `--weights` is the format of the second operand: f32, bf16, nf4, split or split-1. `split`
//!   stores both operands in two f16 terms, and `split-1` the second operand in one term. Both also
//!   time the split kernels.
//! - `--bf16-activations` stores the first operand as bf16; the second must be bf16 or NF4.
//! - `--bf16-results` writes results in bf16.
//! - `--swiglu` and `--geglu` time the gate and up products of a gated linear unit, and the
//!   gradients of both through a layer from OUTPUTS to INPUTS, all in bf16.
//! - `--ops` times only these products: fprop, dgrad, wgrad, split, glu or glu_backward.
//! - `--tile` times this tile and the selected one, `--chosen` only the selected one.
//! - `--sustained` first runs the same launches for half of SECONDS, so that clocks settle at the
//!   power limit.
//! - `--multiprocessors` uses only about N SMs of the GPU, in a green context.
//! - `--simulate` runs small shapes on the simulated driver: a functional test without meaningful
//!   times.
//!
//! Launches cycle through a ring of operand copies larger than the L2 cache, so operands come from
//! device memory. The time is the median over samples; a sample is a graph of several launches
//! between two events.

#![expect(clippy::print_stdout, reason = "the program prints a table")]

#[path = "gemm_speed/device.rs"]
mod device;

use std::fs::File;
use std::io::Write;

use device::{Device, Work};
use retrograph_kernels::gemm::dispatch_entry;
use retrograph_kernels::ops::{
    DType, Dgrad, Fprop, GatedActivation, GemmShape, GluDgrad, GluFprop, NF4_BLOCK, Nf4, Nf4Scales,
    Split, SplitMatrix, TensorView, Wgrad,
};
use retrograph_kernels::{Launch, View, images};

/// Bytes of the ring of operands.
const RING: usize = 160 << 20;
/// Inputs and outputs of the layers of a 1.5B model, of its LoRA matrices, and of its LM head.
const LAYERS: [[usize; 2]; 7] = [
    [1536, 1536],
    [1536, 256],
    [1536, 8960],
    [8960, 1536],
    [1536, 16],
    [16, 1536],
    [1536, 151_936],
];

/// The format of the second operand.
#[derive(Clone, Copy)]
enum Weights {
    F32,
    Bf16,
    Nf4,
    /// Split into this many f16 terms.
    Split(usize),
}

impl Weights {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "f32" => Self::F32,
            "bf16" => Self::Bf16,
            "nf4" => Self::Nf4,
            "split" => Self::Split(2),
            "split-1" => Self::Split(1),
            _ => return None,
        })
    }

    /// Returns the bytes of the elements and of their scales.
    fn bytes(self, [rows, columns]: [usize; 2]) -> [usize; 2] {
        let len = rows * columns;
        match self {
            Self::Split(count) => [len * 2 * count, rows * 4],
            Self::F32 => [len * 4, 0],
            Self::Bf16 => [len * 2, 0],
            Self::Nf4 => [len.div_ceil(2), len.div_ceil(64) * 4],
        }
    }

    /// The matrix at these addresses.
    fn at(self, [elements, scales]: [u64; 2], [rows, columns]: [usize; 2]) -> TensorView<u64> {
        let len = rows * columns;
        match self {
            Self::Split(count) => TensorView::Split(SplitMatrix {
                terms: View::new(elements, count * len),
                term_count: count,
                scales: View::new(scales, rows),
            }),
            Self::F32 => TensorView::F32(View::new(elements, len)),
            Self::Bf16 => TensorView::Bf16(View::new(elements, len)),
            Self::Nf4 => TensorView::Nf4(Nf4 {
                codes: View::new(elements, len.div_ceil(2)),
                scales: Nf4Scales::Plain(View::new(scales, len.div_ceil(64))),
                len,
            }),
        }
    }
}

/// The options of the command line.
struct Options {
    compute: DType,
    weights: Weights,
    bf16_activations: bool,
    bf16_results: bool,
    glu: Option<GatedActivation>,
    rows: Vec<usize>,
    layers: Vec<[usize; 2]>,
    /// Names of products; all if empty.
    ops: Vec<String>,
    tile: Option<String>,
    chosen: bool,
    samples: usize,
    simulate: bool,
    multiprocessors: Option<u32>,
    sustained: Option<f64>,
    out: File,
}

impl Options {
    fn parse() -> Result<Self, String> {
        let (mut tile, mut samples, mut simulate, mut path) = (None, 15, false, None);
        let (mut compute, mut weights, mut bf16_activations) = (DType::F32, Weights::F32, false);
        let (mut rows, mut layers) = (vec![32, 128, 512], LAYERS.to_vec());
        let (mut bf16_results, mut chosen, mut sustained) = (false, false, None);
        let (mut glu, mut ops, mut multiprocessors) = (None, Vec::new(), None);
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--tile" => tile = Some(value()?),
                "--samples" => {
                    samples = value()?.parse().map_err(|_| "--samples must be a number")?;
                }
                "--chosen" => chosen = true,
                "--ops" => ops = value()?.split(',').map(str::to_owned).collect(),
                "--sustained" => {
                    let seconds =
                        value()?.parse().map_err(|_| "--sustained must be a number of seconds")?;
                    sustained = Some(seconds);
                }
                "--multiprocessors" => {
                    let count =
                        value()?.parse().map_err(|_| "--multiprocessors must be a number")?;
                    multiprocessors = Some(count);
                }
                "--simulate" => simulate = true,
                "--bf16" => compute = DType::Bf16,
                "--bf16-activations" => bf16_activations = true,
                "--bf16-results" => bf16_results = true,
                "--swiglu" | "--geglu" => {
                    glu = Some(match argument.as_str() {
                        "--swiglu" => GatedActivation::Silu,
                        _ => GatedActivation::GeluTanh,
                    });
                    (bf16_activations, bf16_results) = (true, true);
                    (compute, weights) = (DType::Bf16, Weights::Bf16);
                }
                "--layers" => {
                    let layer = |text: &str| {
                        let (inputs, outputs) = text.split_once('x')?;
                        Some([inputs.parse().ok()?, outputs.parse().ok()?])
                    };
                    let list: Option<_> = value()?.split(',').map(layer).collect();
                    layers = list.ok_or("--layers must be a list INPUTSxOUTPUTS,…")?;
                }
                "--rows" => {
                    let list: Result<_, _> = value()?.split(',').map(str::parse).collect();
                    rows = list.map_err(|_| "--rows must be a list of numbers")?;
                }
                "--weights" => {
                    weights = Weights::parse(&value()?)
                        .ok_or("--weights must be f32, bf16, nf4, split or split-1")?;
                }
                flag if flag.starts_with("--") => return Err(format!("unknown option {flag}")),
                _ => path = Some(argument),
            }
        }
        let path = path.ok_or("usage: gemm_speed [OPTIONS] OUT")?;
        let out = File::create(&path).map_err(|error| format!("{path}: {error}"))?;
        Ok(Self {
            compute,
            weights,
            bf16_activations,
            bf16_results,
            glu,
            rows,
            layers,
            ops,
            tile,
            chosen,
            samples,
            simulate,
            multiprocessors,
            sustained,
            out,
        })
    }

    /// Whether the second operand can be the input of a weight gradient: f32, or bf16 if the first
    /// is bf16.
    fn has_wgrad(&self) -> bool {
        match self.weights {
            Weights::F32 => true,
            Weights::Bf16 => self.bf16_activations,
            Weights::Nf4 | Weights::Split(_) => false,
        }
    }

    /// A result at an address.
    fn result(&self, address: u64, sizes: [usize; 2]) -> TensorView<u64> {
        if self.bf16_results { Weights::Bf16 } else { Weights::F32 }.at([address, 0], sizes)
    }

    /// The first operand at an address, with its scales.
    fn first(&self, at: [u64; 2], sizes: [usize; 2]) -> TensorView<u64> {
        let format = match self.weights {
            Weights::Split(_) => Weights::Split(2),
            _ if self.bf16_activations => Weights::Bf16,
            _ => Weights::F32,
        };
        format.at(at, sizes)
    }

    /// Rows, inputs and outputs of every GEMM.
    fn shapes(&self) -> Vec<GemmShape> {
        let shape = |rows, [inputs, outputs]: [usize; 2]| GemmShape { rows, inputs, outputs };
        let mut shapes = if self.simulate {
            vec![shape(8, [48, 32]), shape(70, [40, 64]), shape(70, [64, 128])]
        } else {
            let of_rows = |&rows| self.layers.iter().map(move |&layer| shape(rows, layer));
            self.rows.iter().flat_map(of_rows).collect()
        };
        shapes.retain(|shape| self.has(shape));
        shapes
    }

    /// Whether a kernel supports the shape: with bf16 activations, NF4 rows must be whole blocks.
    fn has(&self, shape: &GemmShape) -> bool {
        let blocks = self.bf16_activations && matches!(self.weights, Weights::Nf4);
        !blocks || shape.inputs.is_multiple_of(NF4_BLOCK)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut options = Options::parse()?;
    let device = Device::open(options.simulate, options.multiprocessors)?;
    println!("{device}");
    println!(
        "{:15} {:>4} {:>6} {:>7}  {:28} {:>7} {:>9} {:>8} {:>8}",
        "op", "rows", "inputs", "outputs", "entry", "blocks", "us", "TFLOP/s", "GB/s"
    );
    for shape in options.shapes() {
        let ops: &[&str] = match options.glu {
            Some(_) => &["glu", "glu_backward"],
            None => &["fprop", "dgrad", "wgrad", "split"],
        };
        for &op in ops {
            let splits = matches!(options.weights, Weights::Split(_));
            let wanted = options.ops.is_empty() || options.ops.iter().any(|name| name == op);
            if !wanted || (op == "wgrad" && !options.has_wgrad()) || (op == "split" && !splits) {
                continue;
            }
            // Results of the previous product may have overwritten operands of this one.
            device.fill(options.bf16_activations || splits);
            compare(&device, &mut options, op, shape)?;
        }
    }
    Ok(())
}

/// Times the tiles of one GEMM. A star marks the chosen tile.
fn compare(
    device: &Device,
    options: &mut Options,
    op: &str,
    shape: GemmShape,
) -> Result<(), Box<dyn std::error::Error>> {
    let GemmShape { rows, inputs, outputs } = shape;
    let launches = match options.glu {
        Some(activation) => glu_ring(device, activation, op, shape)?,
        None => ring(device, options, op, shape)?,
    };
    let first = &launches[0];
    let chosen = first.dispatch(device.target).for_multiprocessors(device.multiprocessors);
    let products = match op {
        "glu" => 2.0,
        "split" => 0.0,
        _ => 1.0,
    };
    let flops = 2.0 * products * rows as f64 * inputs as f64 * outputs as f64;
    let [elements, scales] = options.weights.bytes([outputs, inputs]);
    let bytes = match op {
        "split" => (8 * rows * inputs) as f64,
        _ => (4 * rows * (inputs + outputs) + elements + scales) as f64,
    };
    for entry in first.kernel().entries {
        let name =
            entry.strip_prefix(first.kernel().image).map(|name| name.trim_start_matches('_'));
        let wanted = !options.chosen && options.tile.as_ref().is_none_or(|tile| name == Some(tile));
        let exists = images::has_entry(first.kernel().image, entry, device.target);
        if !exists || (!wanted && *entry != chosen.entry) {
            continue;
        }
        // A launch that is not a GEMM has one entry.
        let dispatch = dispatch_entry(first, entry, device.target).unwrap_or(chosen);
        let dispatch = dispatch.for_multiprocessors(device.multiprocessors);
        // Enough launches to run for about a millisecond, so that event resolution is negligible,
        // and to use every copy of the operands.
        let batch = (1e-3 / (flops / 15e12 + bytes / 2e12 + 4e-6)).clamp(2.0, 64.0) as usize;
        let batch = batch.max(launches.len());
        let Options { samples, sustained, .. } = *options;
        let work = Work { launches: &launches, dispatch, batch, samples, sustained };
        let seconds = device.time(&work);
        let (tera, giga) = (flops / seconds / 1e12, bytes / seconds / 1e9);
        let (star, blocks) = (*entry == chosen.entry, dispatch.grid[0]);
        println!(
            "{op:15} {rows:4} {inputs:6} {outputs:7}  {entry:28}{}{blocks:7} {:9.2} \
             {tera:8.2} {giga:8.0}",
            if star { '*' } else { ' ' },
            seconds * 1e6
        );
        writeln!(
            options.out,
            "{{\"op\":\"{op}\",\"rows\":{rows},\"inputs\":{inputs},\"outputs\":{outputs},\
            \"entry\":\"{entry}\",\"blocks\":{blocks},\"chosen\":{star},\"us\":{:.3},\
             \"tflops\":{tera:.3},\
            \"gbs\":{giga:.1}}}",
            seconds * 1e6
        )?;
    }
    Ok(())
}

/// Returns how many copies of operands of `bytes` the ring has.
fn copies(device: &Device, bytes: usize) -> Result<usize, String> {
    let pool = device.pool_bytes;
    match bytes <= pool {
        true => Ok((RING.min(pool) / bytes).clamp(1, 64)),
        false => Err(format!("operands of {bytes} bytes do not fit into the pool of {pool} bytes")),
    }
}

/// The same GEMM, once per copy of the operands.
fn ring(
    device: &Device,
    options: &Options,
    op: &str,
    shape: GemmShape,
) -> Result<Vec<Launch<u64>>, Box<dyn std::error::Error>> {
    let GemmShape { rows, inputs, outputs } = shape;
    let lens = [rows * inputs, inputs * outputs, rows * outputs];
    let [elements, scales] = options.weights.bytes([rows.max(outputs), inputs]);
    // Bytes per element of inputs, results and their gradients.
    let each = if options.bf16_activations && options.bf16_results { 2 } else { 4 };
    let elements = elements.max(if op == "wgrad" { lens[1] * each } else { 0 });
    let slots = [lens[0] * each, elements, scales, lens[0].max(lens[2]) * each]
        .map(|len| len.next_multiple_of(256));
    let bytes: usize = slots.iter().sum();
    let copies = copies(device, bytes)?;
    let launch = |copy: usize| {
        let x = device.pool + (copy * bytes) as u64;
        let w = x + slots[0] as u64;
        let scales = w + slots[1] as u64;
        let y = scales + slots[2] as u64;
        let (grad_weight_at, compute) = (w, options.compute);
        let w = options.weights.at([w, scales], [outputs, inputs]);
        let first = |address, sizes| options.first([address, scales], sizes);
        let (x_sizes, y_sizes) = ([rows, inputs], [rows, outputs]);
        let (alpha, accumulate) = (1.0, false);
        match op {
            "split" => {
                let (terms, scales) = (View::new(x, 2 * lens[0]), View::new(scales, rows));
                let (out, x) =
                    (SplitMatrix { terms, term_count: 2, scales }, View::new(y, lens[0]));
                Split { x, column_scales: None, out, rows, columns: inputs }.launch()
            }
            "fprop" => {
                let (x, bias) = (first(x, x_sizes), None);
                let y = options.result(y, y_sizes);
                Fprop { x, w, bias, y, shape, alpha, accumulate }.launch_in(compute)
            }
            "wgrad" => {
                let grad_out = first(y, y_sizes);
                let grad_weight = options.result(grad_weight_at, [outputs, inputs]);
                let x = first(x, x_sizes);
                Wgrad { grad_out, x, grad_weight, shape, alpha, accumulate }.launch_in(compute)
            }
            _ => {
                let (grad_out, grad_input) = (first(y, y_sizes), options.result(x, x_sizes));
                Dgrad { grad_out, w, grad_input, shape, alpha, accumulate }.launch_in(compute)
            }
        }
    };
    Ok((0..copies).map(launch).collect::<Result<_, _>>()?)
}

/// The same launch of a gated linear unit, once per copy of the operands.
fn glu_ring(
    device: &Device,
    activation: GatedActivation,
    op: &str,
    shape: GemmShape,
) -> Result<Vec<Launch<u64>>, Box<dyn std::error::Error>> {
    let GemmShape { rows, inputs, outputs } = shape;
    let [x_len, w_len, len] = [rows * inputs, inputs * outputs, rows * outputs];
    let lens = [x_len, w_len, w_len, len, len, len, len];
    let slots = lens.map(|len| (2 * len).next_multiple_of(256));
    let bytes: usize = slots.iter().sum();
    let copies = copies(device, bytes)?;
    let launch = |copy: usize| {
        let mut address = device.pool + (copy * bytes) as u64;
        let mut next = 0;
        let mut take = || {
            let view = View::new(address, lens[next]);
            address += slots[next] as u64;
            next += 1;
            view
        };
        let [x, w_gate, w_up, gate, up, first, second] = [(); 7].map(|()| take());
        if op == "glu" {
            let products = Some([gate, up]);
            return GluFprop { activation, x, w: [w_gate, w_up], products, out: first, shape }
                .launch();
        }
        let shape = GemmShape { rows, inputs: outputs, outputs: inputs };
        let (grad_out, w, added) = (x, w_gate, None);
        let [grad_gate, grad_up] = [first, second];
        GluDgrad { activation, grad_out, w, second: added, gate, up, grad_gate, grad_up, shape }
            .launch()
    };
    Ok((0..copies).map(launch).collect::<Result<_, _>>()?)
}
