//! Measures the cost of each update strategy: rebinds programs of 10, 100 and 1000 nodes repeatedly
//! with every update strategy, and compares results with freshly built programs.
//!
//! ```text
//! rebind_costs                 # on the GPU: JSON lines with medians in microseconds
//! rebind_costs --simulated     # checks only: no times, since they would mean nothing
//! ```
//!
//! Each line has the update strategy (`update`), the nodes of the graph, the nodes that name a
//! moved buffer, the host time of the rebind, and the time of each of the next two steps, from the
//! call to the end of its work on the device. For comparison, lines with the update strategy
//! `build` are newly built programs.

use std::error::Error;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use retrograph_driver_sim::Simulator;
use retrograph_kernels::{Access, Argument, BufferArgument};
use retrograph_runtime::{
    Bindings, Context, CustomImage, CustomLaunch, DeviceBuffer, DeviceIndex, Driver,
    LaunchGeometry, ModuleCache, Origin, Pass, Policy, Program, Slice, Stream, UpdateStrategy,
    WarmModules,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// `x[i] = x[i] · a + 1`, so that the order of launches and their number show in the result.
const AFFINE: &str = "
.version 6.3
.target sm_75
.address_size 64

.visible .entry affine(
    .param .u64 x,
    .param .f32 a
)
{
    .reg .f32 %f<3>;
    .reg .b32 %r<1>;
    .reg .b64 %rd<3>;

    ld.param.u64        %rd0, [x];
    cvta.to.global.u64  %rd1, %rd0;
    ld.param.f32        %f0, [a];
    mov.u32             %r0, %tid.x;
    mad.wide.u32        %rd2, %r0, 4, %rd1;
    ld.global.f32       %f1, [%rd2];
    fma.rn.f32          %f2, %f1, %f0, 0f3F800000;
    st.global.f32       [%rd2], %f2;
    ret;
}
";

const LEN: usize = 128;
/// Every n-th node names the first buffer, all others the second one.
const SHARE: usize = 10;
const UPDATES: [UpdateStrategy; 3] =
    [UpdateStrategy::KeepGraph, UpdateStrategy::SetNodeParams, UpdateStrategy::Rebuild];

/// A pass of launches on two buffers.
struct Described {
    pass: Pass,
    slices: [Slice<f32>; 2],
}

impl Described {
    fn new(nodes: usize) -> Outcome<Self> {
        let mut pass = Pass::new("affine");
        let slices = ["rarely named", "mostly named"].map(|name| pass.external(name, LEN));
        let image = CustomImage::ptx("affine", AFFINE);
        for at in 0..nodes {
            let slice = slices[usize::from(!at.is_multiple_of(SHARE))];
            let x = Argument::Buffer(BufferArgument::new(slice, Access::ReadWrite));
            let a = Argument::f32(0.5 + (at % 7) as f32 / 16.0);
            let geometry = LaunchGeometry::linear(1, LEN as u32);
            let launch = CustomLaunch::new(image.clone(), "affine", geometry, vec![x, a]);
            // SAFETY: the entry takes an address and a float, and touches as many floats as there
            // are threads, which the buffer has.
            unsafe { pass.custom(launch) }?;
        }
        Ok(Self { pass, slices })
    }

    fn bindings(&self, buffers: &[DeviceBuffer<f32>; 2]) -> Bindings {
        let mut bindings = Bindings::new();
        bindings.bind(self.slices[0], &buffers[0]).bind(self.slices[1], &buffers[1]);
        bindings
    }
}

/// The parts that programs are built from.
struct Bench {
    stream: Stream,
    modules: WarmModules,
    described: Described,
    simulated: bool,
}

impl Bench {
    fn new(context: &Context, nodes: usize) -> Outcome<Self> {
        let described = Described::new(nodes)?;
        let modules = ModuleCache::new(context).prewarm(&described.pass.requirements(), |_| ())?;
        let stream = Stream::new(context)?;
        let simulated = context.driver().is_simulated();
        Ok(Self { stream, modules, described, simulated })
    }

    fn buffers(&self) -> Outcome<[DeviceBuffer<f32>; 2]> {
        let values: Vec<f32> = (0..LEN).map(|at| at as f32 / LEN as f32).collect();
        let buffer = || DeviceBuffer::from_slice(&self.stream, &values);
        Ok([buffer()?, buffer()?])
    }

    fn build(&self, bindings: &Bindings) -> Outcome<Program> {
        let (pass, policy) = (&self.described.pass, Policy::Manual);
        Ok(Program::build(&self.stream, &self.modules, pass, bindings, policy)?)
    }

    /// The time from the start of a step to the end of its work.
    fn step(&self, program: &mut Program) -> Outcome<Duration> {
        let started = Instant::now();
        program.step(&self.stream, &self.described.pass.controls())?;
        self.stream.synchronize()?;
        Ok(started.elapsed())
    }

    fn bits(&self, buffers: &[DeviceBuffer<f32>; 2]) -> Outcome<Vec<u32>> {
        let mut bits = Vec::new();
        for buffer in buffers {
            bits.extend(buffer.download(&self.stream)?.iter().map(|value| value.to_bits()));
        }
        Ok(bits)
    }

    /// Binds a program `times` times to fresh memory for the buffers that `moves` names, and does
    /// two steps after each.
    fn measure(&self, least: UpdateStrategy, moves: [bool; 2], times: usize) -> Outcome<Line> {
        let mut held = self.buffers()?;
        let mut program = self.build(&self.described.bindings(&held))?;
        let expected = self.two_steps()?;
        self.step(&mut program)?;
        let mut line = Line { nodes: program.report().nodes, ..Line::default() };
        for _ in 0..times {
            let fresh = self.buffers()?;
            for (at, buffer) in fresh.into_iter().enumerate() {
                match moves[at] {
                    true => held[at] = buffer,
                    false => held[at].upload(&self.stream, &buffer.download(&self.stream)?)?,
                }
            }
            let bindings = self.described.bindings(&held);
            self.stream.synchronize()?;
            let rebound = program.rebind_from(least, &self.stream, &bindings)?;
            if !rebound.failed.is_empty() {
                return Err(format!("{} failed: {:?}", rebound.update, rebound.failed).into());
            }
            (line.update, line.set) = (rebound.update.to_string(), rebound.nodes);
            line.rebind.push(rebound.time);
            line.first_step.push(self.step(&mut program)?);
            line.later_step.push(self.step(&mut program)?);
            if self.bits(&held)? != expected {
                return Err(format!("after {} a step computes something else", line.update).into());
            }
        }
        Ok(line)
    }

    /// Builds a program `times` times, with all that building takes, for comparison.
    fn measure_build(&self, times: usize) -> Outcome<Line> {
        let buffers = self.buffers()?;
        let bindings = self.described.bindings(&buffers);
        let mut line = Line { update: "build".to_owned(), ..Line::default() };
        for _ in 0..times {
            let started = Instant::now();
            let mut program = self.build(&bindings)?;
            line.rebind.push(started.elapsed());
            line.nodes = program.report().nodes;
            line.first_step.push(self.step(&mut program)?);
            line.later_step.push(self.step(&mut program)?);
        }
        Ok(line)
    }

    /// The state after two steps of a fresh program.
    fn two_steps(&self) -> Outcome<Vec<u32>> {
        let buffers = self.buffers()?;
        let mut program = self.build(&self.described.bindings(&buffers))?;
        self.step(&mut program)?;
        self.step(&mut program)?;
        self.bits(&buffers)
    }
}

/// Measurements of one update strategy.
#[derive(Default)]
struct Line {
    update: String,
    nodes: usize,
    set: usize,
    rebind: Vec<Duration>,
    first_step: Vec<Duration>,
    later_step: Vec<Duration>,
}

impl Line {
    fn write(&self, simulated: bool, moved: usize, to: &mut impl Write) -> Outcome<()> {
        let Self { update, nodes, set, .. } = self;
        write!(to, r#"{{"k":"rebind","update":"{update}","nodes":{nodes},"moved":{moved},"#)?;
        write!(to, r#""set":{set},"checked":{}"#, self.rebind.len())?;
        if simulated {
            writeln!(to, r#","times":"SIMULATED"}}"#)?;
            return Ok(());
        }
        let us = |times: &[Duration]| {
            let mut times = times.to_vec();
            times.sort_unstable();
            times[times.len() / 2].as_secs_f64() * 1e6
        };
        let [rebind, first, later] =
            [&self.rebind, &self.first_step, &self.later_step].map(|t| us(t));
        write!(to, r#","rebind_us":{rebind:.2},"per_node_us":{:.4},"#, rebind / *nodes as f64)?;
        writeln!(to, r#""first_step_us":{first:.2},"later_step_us":{later:.2}}}"#)?;
        Ok(())
    }
}

fn main() -> Outcome<()> {
    let driver = match std::env::args().nth(1).as_deref() {
        None => Driver::load()?,
        Some("--simulated") => {
            let simulator = Simulator::new(Default::default())?;
            let (table, keep) = (*simulator.table(), Some(Arc::new(simulator) as _));
            // SAFETY: the simulator implements the driver's functions, and is kept.
            unsafe { Driver::from_table(table, Origin::Simulated, keep) }?
        }
        Some(other) => return Err(format!("`{other}`: there is only --simulated").into()),
    };
    let context = Context::new(&driver, DeviceIndex(0))?;
    let mut to = std::io::stdout().lock();
    let (name, version) = (context.info()?.name, driver.version());
    writeln!(to, r#"{{"k":"env","device":"{name}","cuda":"{version}"}}"#)?;
    for nodes in [10, 100, 1000] {
        let bench = Bench::new(&context, nodes)?;
        let times = if bench.simulated { 2 } else { 101 };
        bench.measure_build(times)?.write(bench.simulated, 0, &mut to)?;
        for (moves, moved) in [([false, false], 0), ([true, false], 1), ([true, true], 2)] {
            // Without a move every other strategy would do the same work as with one.
            for least in UPDATES.into_iter().skip(usize::from(moved > 0)) {
                if moved > 0 || least == UpdateStrategy::KeepGraph {
                    bench.measure(least, moves, times)?.write(bench.simulated, moved, &mut to)?;
                }
            }
        }
    }
    Ok(())
}
