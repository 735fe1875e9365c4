//! Throughput of the simulator: a register-blocked matrix product, and streaming kernels.
//!
//! ```text
//! cargo run --release -p retrograph-ptx-exec --example throughput [KERNEL]
//! ```
//!
//! All rates are SIMULATED: they predict the time of tests, not of a GPU.
#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::{Kernel, ModuleBuilder};
use retrograph_ptx::{SmTarget, parse};
use retrograph_ptx_exec::memory::Memory;
use retrograph_ptx_exec::{Launch, LaunchStats, Program, launch};

type Error = Box<dyn std::error::Error>;

/// Rows, columns and depth of the matrix product.
const SIZE: u32 = 64;
/// Rows and columns that one thread computes.
const TILE: u32 = 4;
/// Depth of a tile in shared memory.
const DEPTH: u32 = 16;
/// Elements that the streaming kernels access.
const ELEMENTS: u32 = 1 << 18;

/// c = a · b, with a transposed, by one block of 16 × 16 threads per tile of 64 × 64.
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

/// Softmax over rows of 1024 elements, by one block each.
fn softmax() -> Entry {
    Kernel::build("softmax", |k| {
        let (x, y) = (k.pointer::<f32>("x"), k.pointer::<f32>("y"));
        k.max_threads(256);
        let at: Vec<_> = (0..4).map(|n| k.ctaid_x() * 1024 + n * 256 + k.tid_x()).collect();
        let values: Vec<_> = at.iter().map(|&i| x.load(i)).collect();
        let max = values.iter().copied().reduce(|a, b| a.max(b)).expect("four values");
        let max = k.block_max(max);
        let powers: Vec<_> = values.iter().map(|&value| (value - max).exp()).collect();
        let sum = powers.iter().copied().reduce(|a, b| a + b).expect("four values");
        let scale = k.block_sum(sum).rcp();
        for (&i, &power) in at.iter().zip(&powers) {
            y.store(i, power * scale);
        }
    })
}

/// `mma.sync` of 16 × 8 × 16 f16, 64 times in each of 8 warps.
const MMA: &str = ".version 7.0
.target sm_80
.address_size 64
.visible .entry mma(.param .u64 a, .param .u64 b, .param .u64 c)
{
    .reg .pred %p<2>; .reg .b32 %r<8>; .reg .f32 %f<5>;
    mov.b32 %r1, 0x3c003c00;
    mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;
    mov.u32 %r2, 0;
LOOP:
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4},
        {%r1, %r1, %r1, %r1}, {%r1, %r1}, {%f1, %f2, %f3, %f4};
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, 64;
    @%p1 bra LOOP;
    ret;
}";

/// A kernel and its launch.
struct Case {
    program: Program,
    grid: u32,
    block: [u32; 3],
    /// Floating-point operations of the whole grid, if they are the bottleneck.
    flops: Option<f64>,
}

impl Case {
    fn new(entry: Entry, grid: u32, block: [u32; 3]) -> Result<Self, Error> {
        let name = entry.name.clone();
        let module = ModuleBuilder::new(SmTarget::portable(80)).entry(entry).build();
        Self::of(&module, &name, grid, block)
    }

    fn of(module: &Module, name: &str, grid: u32, block: [u32; 3]) -> Result<Self, Error> {
        let program = Program::decode(module, name, &|_| None)?;
        Ok(Self { program, grid, block, flops: None })
    }

    /// Launches repeatedly for a while. The time of a launch is the average CPU time with one
    /// thread, and the minimum wall time with several.
    fn measure(&self, memory: &Memory, threads: usize) -> Result<(Duration, LaunchStats), Error> {
        let mut parameters = Vec::new();
        for _ in 0..3 {
            let base = memory.alloc(u64::from(ELEMENTS) * 4)?;
            memory.fill(base, &0.5f32.to_le_bytes(), u64::from(ELEMENTS))?;
            parameters.extend(base.to_le_bytes());
        }
        let (grid, block) = ([self.grid, 1, 1], self.block);
        let request = Launch { grid, block, parameters: &parameters, threads, ..Launch::default() };
        let mut stats = launch(&self.program, &request, memory)?;
        let (start, used) = (Instant::now(), processor_time());
        let (mut best, mut count) = (Duration::MAX, 0);
        while start.elapsed() < Duration::from_secs(1) {
            let begin = Instant::now();
            stats = launch(&self.program, &request, memory)?;
            best = best.min(begin.elapsed());
            count += 1;
        }
        let used = processor_time().zip(used).map(|(now, before)| (now - before) / count);
        Ok((used.filter(|_| threads == 1).unwrap_or(best), stats))
    }
}

/// The CPU time of this thread, if the system reports it: it excludes other programs.
fn processor_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(text.split(' ').next()?.parse().ok()?))
}

fn main() -> Result<(), Error> {
    let memory = Memory::new(1 << 30);
    let blocks = 64;
    let flops = 2.0 * f64::from(SIZE).powi(3);
    let mma_flops = f64::from(8 * 64 * 2 * 16 * 8 * 16);
    let product = Case { flops: Some(flops), ..Case::new(gemm(), 1, [16, 16, 1])? };
    let products =
        Case { flops: Some(flops * f64::from(blocks)), ..Case::new(gemm(), blocks, [16, 16, 1])? };
    let cases = [
        product,
        products,
        Case::new(saxpy(), ELEMENTS / 256, [256, 1, 1])?,
        Case::new(silu(), ELEMENTS / 256, [256, 1, 1])?,
        Case::new(row_sum(), ELEMENTS / 256, [256, 1, 1])?,
        Case::new(softmax(), ELEMENTS / 1024, [256, 1, 1])?,
        Case { flops: Some(mma_flops), ..Case::of(&parse(MMA)?, "mma", 1, [256, 1, 1])? },
    ];
    let only = std::env::args().nth(1);
    let chosen = |case: &&Case| only.as_deref().is_none_or(|name| name == case.program.name());
    let cores = std::thread::available_parallelism()?.get();
    println!("SIMULATED kernel  blocks  threads        time   G lane-instr/s   GFLOP/s");
    for case in cases.iter().filter(chosen) {
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
