//! Times every tile of a matrix product on a GPU, and the one that the sizes choose.
//!
//! ```text
//! gemm_speed [--tile NAME] [--samples N] [--simulate] OUT.jsonl
//! ```
//!
//! `--tile` times that tile alone beside the chosen one. `--simulate` runs small shapes on the
//! simulated driver, which shows that the program works and nothing about speed. A launch takes its
//! operands from a ring of copies larger than the L2 cache, so that memory is not hidden. The time
//! is the median over samples, each of several launches in a row between two events.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

#[path = "gemm_speed/device.rs"]
mod device;

use std::fs::File;
use std::io::Write;

use device::{Device, Work};
use retrograph_kernels::ops::{Dgrad, Fprop, GemmShape};
use retrograph_kernels::{Dispatch, Launch, View, images};

/// Bytes that the operands of consecutive launches spread over.
const RING: usize = 160 << 20;
/// Inputs and outputs of the layers of a model of 1.5 · 10⁹ weights, and of LoRA's factors.
const LAYERS: [[usize; 2]; 6] =
    [[1536, 1536], [1536, 256], [1536, 8960], [8960, 1536], [1536, 16], [16, 1536]];

/// What the command line asks for.
struct Options {
    tile: Option<String>,
    samples: usize,
    simulate: bool,
    out: File,
}

impl Options {
    fn parse() -> Result<Self, String> {
        let (mut tile, mut samples, mut simulate, mut path) = (None, 15, false, None);
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--tile" => tile = Some(value()?),
                "--samples" => samples = value()?.parse().map_err(|_| "--samples: a number")?,
                "--simulate" => simulate = true,
                _ => path = Some(argument),
            }
        }
        let path = path.ok_or("usage: gemm_speed [--tile NAME] [--samples N] [--simulate] OUT")?;
        let out = File::create(&path).map_err(|error| format!("{path}: {error}"))?;
        Ok(Self { tile, samples, simulate, out })
    }

    /// Rows, inputs and outputs of every product.
    fn shapes(&self) -> Vec<GemmShape> {
        let shape = |rows, [inputs, outputs]: [usize; 2]| GemmShape { rows, inputs, outputs };
        if self.simulate {
            return vec![shape(8, [48, 32]), shape(70, [36, 65])];
        }
        let rows = [32, 128, 512];
        let layers = rows.iter().flat_map(|rows| LAYERS.map(|layer| shape(*rows, layer)));
        layers.chain([shape(512, [1536, 151_936])]).collect()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut options = Options::parse()?;
    let device = Device::open(options.simulate)?;
    println!("{} images for {}", device.name, device.target);
    println!(
        "{:6} {:>4} {:>6} {:>7}  {:28} {:>7} {:>9} {:>8} {:>8}",
        "op", "rows", "inputs", "outputs", "entry", "blocks", "us", "TFLOP/s", "GB/s"
    );
    for shape in options.shapes() {
        for op in ["fprop", "dgrad"] {
            compare(&device, &mut options, (op, shape))?;
        }
    }
    Ok(())
}

/// Times the tiles of one product, the chosen one marked with a star.
fn compare(
    device: &Device,
    options: &mut Options,
    (op, shape): (&str, GemmShape),
) -> Result<(), Box<dyn std::error::Error>> {
    let GemmShape { rows, inputs, outputs } = shape;
    let launches = ring(device, op, shape)?;
    let first = &launches[0];
    let chosen = first.dispatch(device.target);
    let flops = 2.0 * rows as f64 * inputs as f64 * outputs as f64;
    let bytes = 4.0 * (rows * inputs + rows * outputs + inputs * outputs) as f64;
    for entry in first.kernel.entries {
        let wanted = options.tile.as_ref().is_none_or(|tile| entry.get(8..) == Some(tile));
        if !wanted && *entry != chosen.entry {
            continue;
        }
        let dispatch = geometry(first, entry, device);
        // As many launches as take about a millisecond, so that events are exact.
        let batch = (1e-3 / (flops / 15e12 + bytes / 2e12 + 4e-6)).clamp(2.0, 64.0) as usize;
        let work = Work { launches: &launches, dispatch, batch, samples: options.samples };
        let seconds = device.time(&work);
        let (tera, giga) = (flops / seconds / 1e12, bytes / seconds / 1e9);
        let (star, blocks) = (*entry == chosen.entry, dispatch.grid[0]);
        println!(
            "{op:6} {rows:4} {inputs:6} {outputs:7}  {entry:28}{}{blocks:7} {:9.2} \
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

/// The same product over and over, each time on operands of its own.
fn ring(
    device: &Device,
    op: &str,
    shape: GemmShape,
) -> Result<Vec<Launch<u64>>, Box<dyn std::error::Error>> {
    let GemmShape { rows, inputs, outputs } = shape;
    let lens = [rows * inputs, inputs * outputs, rows * outputs];
    let slots = lens.map(|len| (len * 4).next_multiple_of(256));
    let bytes: usize = slots.iter().sum();
    let copies = (RING.min(device.pool_bytes) / bytes).clamp(1, 64);
    let launch = |copy: usize| {
        let x = device.pool + (copy * bytes) as u64;
        let (w, y) = (x + slots[0] as u64, x + (slots[0] + slots[1]) as u64);
        let [x, w, y] =
            [(x, lens[0]), (w, lens[1]), (y, lens[2])].map(|(at, len)| View::new(at, len));
        let (alpha, accumulate) = (1.0, false);
        match op {
            "fprop" => Fprop { x, w, bias: None, y, shape, alpha, accumulate }.launch(),
            _ => Dgrad { grad_out: y, w, grad_input: x, shape, alpha, accumulate }.launch(),
        }
    };
    Ok((0..copies).map(launch).collect::<Result<_, _>>()?)
}

/// Grid and block of a tile, from its name and from the limit in its image.
fn geometry(launch: &Launch<u64>, entry: &'static str, device: &Device) -> Dispatch {
    let tile = entry.split('_').nth(2).and_then(|tile| tile.split_once('x'));
    let (rows, columns) = tile.expect("entries are named for their tile");
    let size = |text: &str| text.parse::<u32>().expect("a number");
    let ptx = images::ptx(launch.kernel.image, device.target).expect("an image");
    let (_, body) = ptx.split_once(&format!("{entry}(")).expect("the entry is in its image");
    let (_, limit) = body.split_once(".maxntid ").expect("every tile has a limit");
    let threads = limit.split(',').next().map(size).expect("three numbers");
    let [m, n, ..] = launch.problem.sizes;
    let tiles = m.div_ceil(size(rows)) * n.div_ceil(size(columns));
    Dispatch { entry, grid: [tiles, 1, 1], block: [threads, 1, 1], shared_bytes: 0 }
}
