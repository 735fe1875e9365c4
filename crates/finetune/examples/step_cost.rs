//! What a step costs beside the same graph built and launched by plain driver calls.
//!
//! ```text
//! step_cost RAW.so [PRESET] [BATCHxSEQ] [STEPS]
//! ```
//!
//! `RAW.so` is made from `raw_step.c`, which lies with the record in docs/hardware. Steps of two
//! kinds alternate, each waited for; medians are printed as one line of JSON.
//!
//! - For the host: `Program::step`, and one copy of 64 bytes with `cuGraphLaunch` of the program's
//!   own exec. Launching another would compare what lies in the processor's caches. Then the same
//!   with a copy as large as the program's, and with what else a step has to do, part by part.
//! - For the device: `Program::step`, and the same with the graph that `raw_step.c` has built from
//!   the program's nodes and edges, in each of several orders, on the same functions and memory;
//!   between two events.

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
    BuildOptions, Controls, DeviceBuffer, Event, ModuleCache, PinnedBuffer, Policy, Program, Stream,
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

/// Bytes of the copy in front of the plain launch.
const PLAIN_BYTES: usize = 64;
/// The most bytes of a copy.
const MOST_BYTES: usize = 64 << 10;
/// Slots from which `raw_step.c` copies in turn, where it is told to.
const SLOTS: usize = 16;
/// What `raw_step.c` does beside the copy and the launch: nothing, make the context current, and
/// write the values into a slot as well.
const PARTS: [c_int; 3] = [0, 1, 3];
/// Orders in which `raw_step.c` adds the nodes; 0 is that of the program.
const ORDERS: [c_int; 3] = [0, 1, 2];
/// Steps of each before those that count.
const WARM_UP: u32 = 10;

/// The graph as plain driver calls launch it.
struct Raw<'a> {
    step: Symbol<'a, Step>,
    exec: CUgraphExec,
    target: DeviceBuffer<u8>,
    source: PinnedBuffer<u8>,
    bytes: usize,
    parts: c_int,
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
        let target = DeviceBuffer::zeroed(context, MOST_BYTES)?;
        let source = PinnedBuffer::zeroed(context, MOST_BYTES * SLOTS)?;
        Ok(Self { step, exec, target, source, bytes: PLAIN_BYTES, parts: 0 })
    }

    fn step(&mut self, stream: &Stream) -> Outcome<f64> {
        let mut host_us = 0.0;
        let (target, source) = (self.target.address(), self.source.as_mut_ptr().cast());
        let (exec, context, bytes) = (self.exec, stream.context().raw(), self.bytes);
        // SAFETY: the memory lives and has so many bytes in each slot, nothing else refers to it
        // meanwhile, and no step of the program is in flight.
        let code = unsafe {
            let (stream, parts) = (stream.raw(), self.parts);
            (self.step)(exec, stream, context, target, source, bytes, parts, &mut host_us)
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
            precision: Precision::F32,
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
    // A step whose values are those of the one before would copy nothing.
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
    // The step, the tokens and their targets.
    same.bytes = (1 + 2 * config.rows()) * 4;
    let mut by_parts = Vec::new();
    for parts in PARTS {
        same.parts = parts;
        by_parts.push(bench.against(&mut same)?.map(|[host, _]| host));
    }
    let times = built.iter_mut().map(|raw| Ok(bench.against(raw)?.map(|[_, device]| device)));
    let times = times.collect::<Outcome<Vec<[f64; 2]>>>()?;
    let report = bench.program.report();
    let [time, raw_time] = times[0];
    let line = serde_json::json!({
        "simulated": device.simulated, "device": device.info.name,
        "batch": config.batch, "seq": config.seq,
        "nodes": report.nodes, "edges": report.edges, "steps": steps,
        "host_us": host, "raw_host_us": raw_host, "host_ratio": host / raw_host,
        "control_bytes": same.bytes, "parts": PARTS, "host_and_raw_host_us_by_parts": by_parts,
        "device_us": time, "raw_device_us": raw_time, "device_ratio": time / raw_time,
        "orders": ORDERS, "device_and_raw_device_us_by_order": times,
    });
    println!("{line}");
    Ok(())
}

/// A program whose steps are measured.
struct Bench<'a> {
    program: &'a mut Program,
    stream: &'a Stream,
    controls: [Controls; 2],
    steps: u32,
}

impl Bench<'_> {
    /// Medians of the program's steps and of `raw`, alternately: for host and device each.
    fn against(&mut self, raw: &mut Raw<'_>) -> Outcome<[[f64; 2]; 2]> {
        let (mut own, mut plain) = (Times::default(), Times::default());
        for step in 0..self.steps + WARM_UP {
            let controls = &self.controls[step as usize % 2];
            own.add(self.stream, || {
                let started = Instant::now();
                self.program.step(self.stream, controls)?;
                Ok(started.elapsed().as_secs_f64() * 1e6)
            })?;
            plain.add(self.stream, || raw.step(self.stream))?;
        }
        Ok([own.medians(), plain.medians()])
    }
}
