//! Measures the host cost of a step, compared with the same graph built and launched by plain
//! driver calls.
//!
//! ```text
//! step_cost RAW.so [PRESET] [BATCHxSEQ] [STEPS]
//! ```
//!
//! `RAW.so` is built from `raw_step.c`, which is part of a record in docs/hardware. Steps of two
//! kinds alternate, in changing order, with a wait after each. One line of JSON has minimum,
//! quartiles and medians of blocks for both kinds, since other programs often use the machine.
//!
//! - For the host: `Program::step`, and a copy of 64 bytes with `cuGraphLaunch` of the program's
//!   own exec. Launching another exec would compare the contents of the processor's caches. The
//!   plain launch also has the node that fetches controls, which finds no new controls and keeps
//!   the previous ones: the host pays for that node and for the copy, as in a step written by hand.
//! - For the device, between two events: `Program::step`, and the graph that `raw_step.c` builds
//!   from the program's nodes and edges, in each of several orders, on the same functions and
//!   memory.

#![expect(clippy::print_stdout, reason = "a program that prints its result")]

use std::error::Error;
use std::ffi::{c_int, c_void};
use std::time::Instant;

use libloading::{Library, Symbol};
use retrograph_driver_sys::{CUcontext, CUgraph, CUgraphExec, CUstream};
use retrograph_finetune::{
    Device, DeviceChoice, LoraConfig, Mode, OptimizerConfig, Plan, Precision, Preset, Source,
    TextData, TrainerOptions, TrainingConfig,
};
use retrograph_runtime::{
    Controls, DeviceBuffer, Event, ModuleCache, PinnedBuffer, Policy, Program, Stream,
};

type Outcome<T> = Result<T, Box<dyn Error>>;
type Build =
    unsafe extern "C" fn(CUgraph, c_int, CUcontext, *mut CUgraph, *mut CUgraphExec) -> c_int;
type Step = unsafe extern "C" fn(
    CUgraphExec,
    CUstream,
    CUcontext,
    u64,
    *mut c_void,
    usize,
    c_int,
    *mut f64,
) -> c_int;

/// Bytes of the copy before the plain launch.
const PLAIN_BYTES: usize = 64;
/// The bookkeeping of `raw_step.c`: none.
const NO_PARTS: c_int = 0;
/// Orders in which `raw_step.c` adds the nodes; 0 is the order of the program.
const ORDERS: [c_int; 3] = [0, 1, 2];
/// Unmeasured steps of each kind.
const WARM_UP: usize = 10;
/// Number of blocks of consecutive steps whose medians are reported.
const BLOCKS: usize = 5;

/// The graph for launches by plain driver calls.
struct Raw<'a> {
    step: Symbol<'a, Step>,
    exec: CUgraphExec,
    target: DeviceBuffer<u8>,
    source: PinnedBuffer<u8>,
}

impl<'a> Raw<'a> {
    fn new(library: &'a Library, stream: &Stream, graph: CUgraph, order: c_int) -> Outcome<Self> {
        let context = stream.context();
        let (mut copy, mut exec) = (CUgraph::NULL, CUgraphExec::NULL);
        // SAFETY: the library is the one that is made from `raw_step.c`, whose signatures these
        // are; the graph lives, and the out pointers are valid.
        let (step, code) = unsafe {
            let build: Symbol<'_, Build> = library.get(b"raw_build")?;
            let code = build(graph, order, context.raw(), &mut copy, &mut exec);
            (library.get(b"raw_step")?, code)
        };
        require(code, "raw_build")?;
        let target = DeviceBuffer::zeroed(context, PLAIN_BYTES)?;
        let source = PinnedBuffer::zeroed(context, PLAIN_BYTES)?;
        Ok(Self { step, exec, target, source })
    }

    fn step(&mut self, stream: &Stream) -> Outcome<f64> {
        let mut host_us = 0.0;
        let (target, source) = (self.target.address(), self.source.as_mut_ptr().cast());
        let (exec, context, bytes) = (self.exec, stream.context().raw(), PLAIN_BYTES);
        // SAFETY: the memory lives and has these bytes, nothing else refers to it meanwhile, and
        // no step of the program is in flight.
        let code = unsafe {
            let stream = stream.raw();
            (self.step)(exec, stream, context, target, source, bytes, NO_PARTS, &mut host_us)
        };
        require(code, "raw_step")?;
        Ok(host_us)
    }
}

fn require(code: c_int, call: &str) -> Outcome<()> {
    if code == 0 { Ok(()) } else { Err(format!("{call} returned {code}").into()) }
}

/// Microseconds of each step.
#[derive(Default)]
struct Times {
    host: Vec<f64>,
    device: Vec<f64>,
}

impl Times {
    /// Times the work that `enqueue` enqueues; it returns the host's time.
    fn add(&mut self, stream: &Stream, enqueue: impl FnOnce() -> Outcome<f64>) -> Outcome<()> {
        let (begin, end) = (Event::new(stream.context())?, Event::new(stream.context())?);
        begin.record(stream)?;
        let host = enqueue()?;
        end.record(stream)?;
        stream.synchronize()?;
        self.host.push(host);
        self.device.push(f64::from(end.elapsed_ms(&begin)?) * 1e3);
        Ok(())
    }

    /// The measured times, for the host and for the device.
    fn spreads(&self) -> [Spread; 2] {
        [&self.host, &self.device].map(|times| Spread::of(&times[WARM_UP..]))
    }
}

/// How times are spread.
#[derive(Clone, Debug, serde::Serialize)]
struct Spread {
    least: f64,
    lower_quartile: f64,
    median: f64,
    upper_quartile: f64,
    medians_of_blocks: Vec<f64>,
}

impl Spread {
    fn of(times: &[f64]) -> Self {
        let sorted = |times: &[f64]| {
            let mut times = times.to_vec();
            times.sort_by(f64::total_cmp);
            times
        };
        let all = sorted(times);
        let blocks = times.chunks(times.len().div_ceil(BLOCKS));
        Self {
            least: all[0],
            lower_quartile: all[all.len() / 4],
            median: all[all.len() / 2],
            upper_quartile: all[all.len() * 3 / 4],
            medians_of_blocks: blocks.map(|block| sorted(block)[block.len() / 2]).collect(),
        }
    }

    /// Ratios to another spread: of the medians, and the median ratio of the blocks.
    fn ratios(&self, other: &Self) -> [f64; 2] {
        let pairs = self.medians_of_blocks.iter().zip(&other.medians_of_blocks);
        let mut of_blocks: Vec<f64> = pairs.map(|(own, other)| own / other).collect();
        of_blocks.sort_by(f64::total_cmp);
        [self.median / other.median, of_blocks[of_blocks.len() / 2]]
    }
}

/// The options of the command line.
struct Options {
    raw: String,
    config: TrainingConfig,
    steps: usize,
}

impl Options {
    fn parse() -> Outcome<Self> {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let usage = "usage: step_cost RAW.so [PRESET] [BATCHxSEQ] [STEPS]";
        let given = |at: usize, default| arguments.get(at).map_or(default, String::as_str);
        let preset: Preset = given(1, "tiny").parse()?;
        let (batch, seq) = given(2, "1x32").split_once('x').ok_or(usage)?;
        let rank = preset.default_rank();
        let config = TrainingConfig {
            model: preset.model(),
            mode: Mode::Lora(LoraConfig {
                norms: true,
                ..LoraConfig::new(rank, 2.0 * rank as f32)
            }),
            precision: Precision::F32,
            batch: batch.parse()?,
            seq: seq.parse()?,
            optimizer: OptimizerConfig::new(1e-7, 1000),
            seed: 0,
        };
        let raw = arguments.first().ok_or(usage)?.clone();
        Ok(Self { raw, config, steps: given(3, "200").parse::<usize>()?.max(1) })
    }
}

fn main() -> Outcome<()> {
    let Options { raw, config, steps } = Options::parse()?;
    let device = Device::open(DeviceChoice::Auto)?;
    let modules = ModuleCache::new(&device.context);
    let mut options = TrainerOptions::default();
    options.build.policy = Policy::Manual;
    let plan = Plan::new(&config, options)?;
    let mut trainer = plan.start(&modules, Source::Seed, &mut |_| ())?;
    let text = TextData::from_bytes((0..4096_u32).map(|at| (at * 7 % 251) as u8).collect());
    // Values that change, as they do in training.
    let batch = text.batch([config.batch, config.seq], 1, 0)?;
    let controls = [trainer.controls(0, &batch)?.clone(), trainer.controls(1, &batch)?.clone()];
    let (program, stream) = trainer.program_mut();
    // SAFETY: steps of the program and launches of the graph alternate, each waited for.
    let graph = unsafe { program.graph(stream) }?;
    // SAFETY: the user names a library that is made from `raw_step.c`, which does nothing when it
    // is loaded.
    let library = unsafe { Library::new(raw) }?;
    let raws = ORDERS.map(|order| Raw::new(&library, stream, graph.raw(), order));
    let mut built = raws.into_iter().collect::<Outcome<Vec<_>>>()?;
    let mut same = Raw::new(&library, stream, graph.raw(), 0)?;
    same.exec = program.raw_exec().ok_or("the program has no graph")?;
    let mut bench = Bench { program, stream, controls, steps };
    let [host, raw_host] = bench.against(&mut same)?.map(|[host, _]| host);
    let [host_ratio, host_ratio_of_blocks] = host.ratios(&raw_host);
    let times = built.iter_mut().map(|raw| Ok(bench.against(raw)?.map(|[_, device]| device)));
    let times = times.collect::<Outcome<Vec<[Spread; 2]>>>()?;
    let by_order = times.iter().map(|[own, raw]| own.median / raw.median);
    let report = bench.program.report();
    let [time, raw_time] = &times[0];
    let line = serde_json::json!({
        "simulated": device.simulated, "device": device.info.name,
        "batch": config.batch, "seq": config.seq,
        "nodes": report.nodes, "edges": report.edges, "steps": steps,
        // The step, the tokens and their targets.
        "control_bytes": (1 + 2 * config.rows()) * 4,
        "host_us": host, "raw_host_us": raw_host,
        "host_ratio": host_ratio, "host_ratio_of_blocks": host_ratio_of_blocks,
        "device_us": time, "raw_device_us": raw_time,
        "device_ratio": time.median / raw_time.median,
        "orders": ORDERS,
        "device_ratio_by_order": by_order.collect::<Vec<_>>(),
    });
    println!("{line}");
    Ok(())
}

/// A program whose steps are measured.
struct Bench<'a> {
    program: &'a mut Program,
    stream: &'a Stream,
    controls: [Controls; 2],
    steps: usize,
}

impl Bench<'_> {
    /// Steps of the program and of `raw` in turn: host and device time of each.
    fn against(&mut self, raw: &mut Raw<'_>) -> Outcome<[[Spread; 2]; 2]> {
        let mut times = [Times::default(), Times::default()];
        for step in 0..self.steps + WARM_UP {
            for turn in 0..2 {
                let kind = (step + turn) % 2;
                times[kind].add(self.stream, || match kind {
                    0 => self.step(step % 2),
                    _ => raw.step(self.stream),
                })?;
            }
        }
        Ok(times.map(|times| times.spreads()))
    }

    /// A step of the program, with the host's microseconds.
    fn step(&mut self, controls: usize) -> Outcome<f64> {
        let started = Instant::now();
        self.program.step(self.stream, &self.controls[controls])?;
        Ok(started.elapsed().as_secs_f64() * 1e6)
    }
}
