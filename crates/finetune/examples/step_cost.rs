//! What a step costs beside the same graph built and launched by plain driver calls.
//!
//! ```text
//! step_cost RAW.so [PRESET] [BATCHxSEQ] [STEPS]
//! ```
//!
//! `RAW.so` is made from `raw_step.c`, which lies with the record in docs/hardware. It builds the
//! program's graph again from its nodes and edges, so that both launch the same kernels on the same
//! memory. Steps alternate, each waited for; medians are printed as one line of JSON. The host's
//! time is that of `Program::step`, and of one copy of 64 bytes with `cuGraphLaunch`; the device's
//! is between two events around the same.

#![expect(clippy::print_stdout, reason = "a program that prints its result")]

use std::error::Error;
use std::ffi::{c_int, c_void};
use std::time::Instant;

use libloading::{Library, Symbol};
use retrograph_driver_sys::{CUcontext, CUgraph, CUgraphExec, CUstream};
use retrograph_finetune::{
    Device, DeviceChoice, LoraConfig, Mode, OptimizerConfig, Plan, Preset, Source, TextData,
    TrainerOptions, TrainingConfig,
};
use retrograph_runtime::{
    BuildOptions, DeviceBuffer, Event, ModuleCache, PinnedBuffer, Policy, Stream,
};

type Outcome<T> = Result<T, Box<dyn Error>>;
type Build =
    unsafe extern "C" fn(CUgraph, c_int, CUcontext, *mut CUgraph, *mut CUgraphExec) -> c_int;
type Step =
    unsafe extern "C" fn(CUgraphExec, CUstream, u64, *const c_void, usize, *mut f64) -> c_int;

/// Words of the copy in front of the plain launch.
const WORDS: usize = 16;
/// Orders in which `raw_step.c` adds the nodes; 0 is that of the program. The first stands for the
/// exec of the program itself, so that the host's time is that of launching the very same.
const ORDERS: [c_int; 4] = [0, 0, 1, 2];
/// Steps of each before those that count.
const WARM_UP: u32 = 10;

/// The graph as plain driver calls launch it.
struct Raw<'a> {
    step: Symbol<'a, Step>,
    exec: CUgraphExec,
    target: DeviceBuffer<u32>,
    source: PinnedBuffer<u32>,
}

impl<'a> Raw<'a> {
    fn new(library: &'a Library, stream: &Stream, graph: CUgraph, order: c_int) -> Outcome<Self> {
        let context = stream.context();
        let (mut copy, mut exec) = (CUgraph::NULL, CUgraphExec::NULL);
        // SAFETY: the library is the one that is made from `raw_step.c`, whose signatures these
        // are; the graph lives, and the places are valid.
        let (step, code) = unsafe {
            let build: Symbol<'_, Build> = library.get(b"raw_build")?;
            let code = build(graph, order, context.raw(), &mut copy, &mut exec);
            (library.get(b"raw_step")?, code)
        };
        require(code, "raw_build")?;
        let target = DeviceBuffer::zeroed(context, WORDS)?;
        Ok(Self { step, exec, target, source: PinnedBuffer::zeroed(context, WORDS)? })
    }

    fn step(&self, stream: &Stream) -> Outcome<f64> {
        let mut host_us = 0.0;
        let (target, source) = (self.target.address(), self.source.as_ptr().cast());
        let (exec, stream) = (self.exec, stream.raw());
        // SAFETY: the memory lives and has so many bytes, and no step of the program is in flight.
        let code = unsafe { (self.step)(exec, stream, target, source, WORDS * 4, &mut host_us) };
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
    /// Times what `enqueue` puts on the stream; it gives the host's time.
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

    /// The medians of those that count, for the host and for the device.
    fn medians(&self) -> [f64; 2] {
        [&self.host, &self.device].map(|times| {
            let mut times = times[WARM_UP as usize..].to_vec();
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        })
    }
}

/// What the command line asks for.
struct Options {
    raw: String,
    config: TrainingConfig,
    steps: u32,
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
            batch: batch.parse()?,
            seq: seq.parse()?,
            optimizer: OptimizerConfig::new(1e-7, 1000),
            seed: 0,
        };
        let raw = arguments.first().ok_or(usage)?.clone();
        Ok(Self { raw, config, steps: given(3, "200").parse()? })
    }
}

fn main() -> Outcome<()> {
    let Options { raw, config, steps } = Options::parse()?;
    let device = Device::open(DeviceChoice::Auto)?;
    let modules = ModuleCache::new(&device.context);
    let build = BuildOptions { policy: Policy::Manual, ..BuildOptions::default() };
    let plan = Plan::new(&config, TrainerOptions { build, ..TrainerOptions::default() })?;
    let mut trainer = plan.start(&modules, Source::Seed, &mut |_| ())?;
    let text = TextData::from_bytes((0..4096_u32).map(|at| (at * 7 % 251) as u8).collect());
    let controls = trainer.controls(0, &text.batch([config.batch, config.seq], 1, 0)?)?.clone();
    let (program, stream) = trainer.program_mut();
    // SAFETY: steps of the program and launches of the graph alternate, each waited for.
    let graph = unsafe { program.graph(stream) }?;
    // SAFETY: the user names a library that is made from `raw_step.c`, which does nothing when it
    // is loaded.
    let library = unsafe { Library::new(raw) }?;
    let raws = ORDERS.map(|order| Raw::new(&library, stream, graph.raw(), order));
    let mut raws = raws.into_iter().collect::<Outcome<Vec<_>>>()?;
    // The first is what the program launches.
    raws[0].exec = program.raw_exec().ok_or("the program has no graph")?;
    let (mut own, mut plain) = (Times::default(), ORDERS.map(|_| Times::default()));
    for _ in 0..steps + WARM_UP {
        own.add(stream, || {
            let started = Instant::now();
            program.step(stream, &controls)?;
            Ok(started.elapsed().as_secs_f64() * 1e6)
        })?;
        for (raw, times) in raws.iter().zip(&mut plain) {
            times.add(stream, || raw.step(stream))?;
        }
    }
    let ([host, time], plain) = (own.medians(), plain.map(|times| times.medians()));
    let [raw_host, _] = plain[0];
    let [_, raw_time] = plain[1];
    let report = program.report();
    let line = serde_json::json!({
        "simulated": device.simulated, "device": device.info.name,
        "batch": config.batch, "seq": config.seq,
        "nodes": report.nodes, "edges": report.edges, "steps": steps,
        "host_us": host, "raw_host_us": raw_host, "host_ratio": host / raw_host,
        "device_us": time, "raw_device_us": raw_time, "device_ratio": time / raw_time,
        "orders": ORDERS, "raw_device_us_by_order": plain.map(|[_, device]| device),
        "raw_host_us_by_order": plain.map(|[host, _]| host),
    });
    println!("{line}");
    Ok(())
}
