//! How fast the simulator executes: a register-blocked matrix product, and kernels that stream.
//!
//! ```text
//! cargo run --release -p retrograph-driver-sim --example throughput
//! ```
//!
//! All rates are SIMULATED: they say how long tests take, and nothing about a GPU.
#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

use retrograph_driver_sim::exec::{Launch, LaunchStats, Program, launch};
use retrograph_driver_sim::memory::Memory;
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, ModuleBuilder};

type Error = Box<dyn std::error::Error>;

/// Rows, columns and depth of the matrix product.
const SIZE: u32 = 64;
/// Rows and columns that one thread computes.
const TILE: u32 = 4;
/// Depth that is in shared memory at a time.
const DEPTH: u32 = 16;
/// Elements that the streaming kernels touch.
const ELEMENTS: u32 = 1 << 18;

/// c = a · b, with a transposed, by one block of 16 × 16 threads for each tile of 64 × 64.
fn gemm() -> Entry {
    Kernel::build("gemm", |k| {
        let (a, b) = (k.pointer::<f32>("a"), k.pointer::<f32>("b"));
        let c = k.pointer::<f32>("c");
        let left = k.shared::<f32>("left", (DEPTH * SIZE) as usize);
        let right = k.shared::<f32>("right", (DEPTH * SIZE) as usize);
        let (x, y) = (k.tid_x(), k.tid_y());
        let thread = y * 16 + x;
        let sums: Vec<_> = (0..TILE * TILE).map(|_| k.var(0.0f32)).collect();
        k.range(0, SIZE / DEPTH, 1, |stage| {
            let from = stage * (DEPTH * SIZE) + thread * 4;
            left.store_vec4(thread * 4, a.load_vec4(from));
            right.store_vec4(thread * 4, b.load_vec4(from));
            k.barrier();
            for depth in 0..DEPTH {
                let rows = left.load_vec4(y * 4 + depth * SIZE);
                let columns = right.load_vec4(x * 4 + depth * SIZE);
                for (index, sum) in sums.iter().enumerate() {
                    sum.update(|old| rows[index / 4].fma(columns[index % 4], old));
                }
            }
            k.barrier();
        });
        for (row, sums) in sums.chunks(4).enumerate() {
            let at = (y * 4 + row as u32) * SIZE + x * 4;
            c.store_vec4(at, [sums[0].get(), sums[1].get(), sums[2].get(), sums[3].get()]);
        }
    })
}

/// y = a · x + y.
fn saxpy() -> Entry {
    Kernel::build("saxpy", |k| {
        let (x, y) = (k.pointer::<f32>("x"), k.pointer::<f32>("y"));
        let i = k.ctaid_x() * k.ntid_x() + k.tid_x();
        k.when(i.lt(k.constant(ELEMENTS)), || y.store(i, x.load(i).fma(1.5f32, y.load(i))));
    })
}

/// y = x / (1 + exp(−x)).
fn silu() -> Entry {
    Kernel::build("silu", |k| {
        let (x, y) = (k.pointer::<f32>("x"), k.pointer::<f32>("y"));
        let i = k.ctaid_x() * k.ntid_x() + k.tid_x();
        k.when(i.lt(k.constant(ELEMENTS)), || {
            let v = x.load(i);
            y.store(i, v / (k.constant(1.0f32) + (-v).exp()));
        });
    })
}

/// Sums rows of 256 elements, by one block each.
fn row_sum() -> Entry {
    Kernel::build("row_sum", |k| {
        let (x, y) = (k.pointer::<f32>("x"), k.pointer::<f32>("y"));
        k.max_threads(256);
        let sum = k.block_sum(x.load(k.ctaid_x() * 256 + k.tid_x()));
        k.when(k.tid_x().eq(0), || y.store(k.ctaid_x(), sum));
    })
}

/// A kernel and what it is launched with.
struct Case {
    program: Program,
    grid: u32,
    block: [u32; 3],
    /// Floating-point operations of the whole grid, where they are what matters.
    flops: Option<f64>,
}

impl Case {
    fn new(entry: Entry, grid: u32, block: [u32; 3]) -> Result<Self, Error> {
        let name = entry.name.clone();
        let module = ModuleBuilder::new(SmTarget::portable(80)).entry(entry).build();
        let program = Program::decode(&module, &name, &|_| None)?;
        Ok(Self { program, grid, block, flops: None })
    }

    /// Launches again and again for a while, and returns the shortest time.
    fn measure(&self, memory: &Memory, threads: usize) -> Result<(Duration, LaunchStats), Error> {
        let mut parameters = Vec::new();
        for _ in 0..3 {
            let base = memory.alloc(u64::from(ELEMENTS) * 4)?;
            memory.fill(base, &0.5f32.to_le_bytes(), u64::from(ELEMENTS))?;
            parameters.extend(base.to_le_bytes());
        }
        let (grid, block) = ([self.grid, 1, 1], self.block);
        let request = Launch { grid, block, parameters: &parameters, threads, ..Launch::default() };
        let (start, mut best) = (Instant::now(), Duration::MAX);
        let mut stats = LaunchStats::default();
        while start.elapsed() < Duration::from_millis(300) {
            let begin = Instant::now();
            stats = launch(&self.program, &request, memory)?;
            best = best.min(begin.elapsed());
        }
        Ok((best, stats))
    }
}

fn main() -> Result<(), Error> {
    let memory = Memory::new(1 << 30);
    let blocks = 64;
    let flops = 2.0 * f64::from(SIZE).powi(3);
    let product = Case { flops: Some(flops), ..Case::new(gemm(), 1, [16, 16, 1])? };
    let products =
        Case { flops: Some(flops * f64::from(blocks)), ..Case::new(gemm(), blocks, [16, 16, 1])? };
    let cases = [
        product,
        products,
        Case::new(saxpy(), ELEMENTS / 256, [256, 1, 1])?,
        Case::new(silu(), ELEMENTS / 256, [256, 1, 1])?,
        Case::new(row_sum(), ELEMENTS / 256, [256, 1, 1])?,
    ];
    let cores = std::thread::available_parallelism()?.get();
    println!("SIMULATED kernel  blocks  threads        time   G lane-instr/s   GFLOP/s");
    for case in &cases {
        for threads in [1, cores] {
            let (time, stats) = case.measure(&memory, threads)?;
            let seconds = time.as_secs_f64();
            let lanes = 32e-9 * stats.warp_instructions as f64 / seconds;
            let flops = case.flops.map_or("-".to_owned(), |f| format!("{:.2}", f * 1e-9 / seconds));
            println!(
                "SIMULATED {:8}{:6}{threads:9}{:9.1} µs{lanes:16.2}{flops:>10}",
                case.program.name(),
                case.grid,
                seconds * 1e6,
            );
        }
    }
    Ok(())
}
