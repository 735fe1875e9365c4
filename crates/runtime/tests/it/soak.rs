//! Long runs: nothing leaks, nothing drifts, and every bit equals eager steps.
//!
//! The tests are short by default. `RETROGRAPH_REPLAYS=10000` and `RETROGRAPH_SOAK_SECONDS=60` make
//! them long, for a GPU without other users; only then do the tests check its free memory and the
//! memory of this process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use retrograph_driver_sim::{Config, Simulator};
use retrograph_driver_sys::CUresult;
use retrograph_runtime::{
    CaptureMode, Context, DeviceBuffer, ModuleCache, Policy, Program, StepError, Strategy,
    WarmModules,
};

use crate::device::{Device, alone, asked_for, device_of, driver_of};
use crate::mlp::{Mlp, MlpBuffers};
use crate::tally::{Tally, TallyBuffers};

/// Bytes by which memory may grow between the first quarter and the end: the driver and the
/// allocator of the process take memory in chunks.
const SLACK: usize = 8 << 20;

/// Free bytes of the device and bytes of this process.
#[derive(Clone, Copy, Debug)]
struct Footprint {
    device_free: usize,
    resident: usize,
}

impl Footprint {
    fn now(context: &Context) -> Self {
        let (device_free, _) = context.mem_get_info().unwrap();
        // Pages of 4 KiB; where the system does not tell, nothing is compared.
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
        Self { device_free, resident: pages.unwrap_or(0) << 12 }
    }

    fn assert_flat(self, context: &Context) {
        let end = Self::now(context);
        assert!(end.device_free + SLACK >= self.device_free, "of the device: {self:?}, {end:?}");
        assert!(end.resident <= self.resident + SLACK, "of the process: {self:?}, {end:?}");
    }
}

fn mlp_program(device: &Device, mlp: &Mlp, policy: Policy) -> (Program, MlpBuffers) {
    let modules = ModuleCache::new(&device.context).prewarm(&mlp.pass.requirements(), |_| ());
    let buffers = mlp.buffers(&device.stream);
    let (modules, bindings) = (modules.unwrap(), mlp.bindings(&buffers));
    let built = Program::build(&device.stream, &modules, &mlp.pass, &bindings, policy);
    (built.unwrap(), buffers)
}

#[test]
fn thousands_of_replays_leave_the_bits_of_eager_steps() {
    alone("soak::thousands_of_replays_leave_the_bits_of_eager_steps", |device| {
        let asked = asked_for("RETROGRAPH_REPLAYS");
        let (steps, mlp) = (asked.unwrap_or(100) as u32, Mlp::new());
        let (mut replayed, buffers) = mlp_program(&device, &mlp, Policy::Manual);
        let (mut eager, expected) = mlp_program(&device, &mlp, Policy::Eager);
        let mut early = None;
        for step in 0..steps {
            let controls = mlp.controls(step);
            let done = replayed.step(&device.stream, &controls).unwrap();
            assert_eq!((done.strategy, done.index), (Strategy::Manual, u64::from(step)));
            eager.step(&device.stream, &controls).unwrap();
            // Now and then, so that most steps follow without a wait.
            if step % 97 == 0 || step + 1 == steps {
                let [replayed, eager] =
                    [&buffers, &expected].map(|held| held.state(&device.stream));
                assert!(replayed == eager, "step {step} differs");
            }
            if step == steps / 4 {
                early = Some(Footprint::now(&device.context));
            }
        }
        if let (Some(_), Some(early)) = (asked, early) {
            early.assert_flat(&device.context);
        }
    });
}

/// One shape of the pass: the program under test, and eager steps for comparison.
struct Shape {
    tally: Tally,
    modules: WarmModules,
    buffers: TallyBuffers,
    program: Program,
    eager: Program,
    expected: TallyBuffers,
    step: u32,
}

impl Shape {
    fn new(device: &Device, cache: &ModuleCache, length: usize) -> Self {
        let tally = Tally::with_length(length);
        let modules = cache.prewarm(&tally.pass.requirements(), |_| ()).unwrap();
        let build = |policy| {
            let buffers = tally.buffers(&device.context).unwrap();
            let bindings = tally.bindings(&buffers);
            let built = Program::build(&device.stream, &modules, &tally.pass, &bindings, policy);
            (built.unwrap(), buffers)
        };
        let (program, buffers) = build(Policy::Auto);
        let (eager, expected) = build(Policy::Eager);
        Self { tally, modules, buffers, program, eager, expected, step: 0 }
    }

    /// A few steps, and a comparison. A step that did not start is tried again.
    fn steps(&mut self, device: &Device, count: u32) {
        for step in self.step..self.step + count {
            let controls = self.tally.controls(step);
            for program in [&mut self.program, &mut self.eager] {
                let done = match program.step(&device.stream, &controls) {
                    Err(StepError::NotStarted { .. }) => program.step(&device.stream, &controls),
                    outcome => outcome,
                };
                done.unwrap();
            }
        }
        self.step += count;
        let held = [&self.buffers, &self.expected].map(|held| held.state(&device.stream).unwrap());
        assert!(held[0] == held[1], "step {} differs", self.step);
    }

    /// Another program in place of the one that is there, which may have steps in flight.
    fn rebuild(&mut self, device: &Device, policy: Policy) {
        let (pass, bindings) = (&self.tally.pass, self.tally.bindings(&self.buffers));
        let build = || Program::build(&device.stream, &self.modules, pass, &bindings, policy);
        self.program = build().or_else(|_| build()).unwrap();
    }

    /// Continues in other memory.
    fn rebind(&mut self, device: &Device) {
        let state = self.buffers.state(&device.stream).unwrap();
        self.buffers = self.tally.holding(&device.stream, &state).unwrap();
        let bindings = self.tally.bindings(&self.buffers);
        if self.program.rebind(&device.stream, &bindings).is_err() {
            self.program.rebind(&device.stream, &bindings).unwrap();
        }
    }
}

/// Allocates inside a capture, like a library that does not support graphs.
fn break_a_capture(device: &Device) {
    let error = device.stream.capture(CaptureMode::ThreadLocal, |capturing| {
        // SAFETY: the out pointer is valid; the call fails, so that nothing is leaked.
        unsafe {
            capturing.library_call("library", |table, _| {
                let mut address = 0;
                (table.cuMemAlloc_v2)(&mut address, 1 << 16)
            })
        }
    });
    let error = error.unwrap_err();
    assert!(error.recovered && error.first.unwrap().error.code.0 == 900);
}

/// Calls that may fail once without costing an automatic program a step.
const HARMLESS: [&str; 6] = [
    "cuGraphAddKernelNode_v2",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuEventRecord",
    "cuMemFree_v2",
    "cuGraphExecDestroy",
];

/// Runs one round of all actions, in an order that depends on `round`.
fn go_round(device: &Device, simulator: Option<&Simulator>, shapes: &mut [Shape], round: usize) {
    let at = round % shapes.len();
    let shape = &mut shapes[at];
    match round / 3 % 5 {
        0 => shape.rebuild(device, Policy::Manual),
        1 => shape.rebuild(device, Policy::Capture),
        2 => shape.rebind(device),
        3 => break_a_capture(device),
        _ => {
            if let Some(simulator) = simulator {
                let (call, nth) = (HARMLESS[round % HARMLESS.len()], 1 + round as u64 % 3);
                simulator.fail(call, nth, CUresult::CUDA_ERROR_UNKNOWN).unwrap();
            }
            shape.rebuild(device, Policy::Auto);
        }
    }
    shape.steps(device, 1 + (round % 7) as u32);
}

fn soak(device: &Device, simulator: Option<&Simulator>) {
    let asked = asked_for("RETROGRAPH_SOAK_SECONDS");
    let cache = ModuleCache::new(&device.context);
    let mut shapes = [32, 96, 256].map(|length| Shape::new(device, &cache, length));
    let (started, most) = (Instant::now(), asked.map(Duration::from_secs));
    let (mut rounds, mut early) = (0, None);
    while most.map_or(rounds < 60, |most| started.elapsed() < most) {
        go_round(device, simulator, &mut shapes, rounds);
        rounds += 1;
        if early.is_none() && most.is_some_and(|most| started.elapsed() > most / 4) {
            early = Some(Footprint::now(&device.context));
        }
    }
    if let Some(early) = early {
        early.assert_flat(&device.context);
    }
    assert!(rounds >= 60 && cache.jit_after_warm() == 0);
}

#[test]
fn shapes_faults_and_rebinds_lose_no_step_and_no_memory() {
    let name = "soak::shapes_faults_and_rebinds_lose_no_step_and_no_memory";
    alone(name, |device| soak(&device, None));
}

#[test]
fn failures_of_the_driver_in_between_lose_no_step_and_no_memory() {
    let simulator = Arc::new(Simulator::new(Config::default()).unwrap());
    let device = device_of(&driver_of(&simulator).unwrap());
    let before = simulator.live();
    soak(&device, Some(&simulator));
    // Failed releases are tried again after this.
    drop(DeviceBuffer::<u32>::zeroed(&device.context, 1).unwrap());
    assert_eq!(simulator.live(), before, "nothing is left");
    drop(device);
    assert!(simulator.live().is_empty(), "{}", simulator.live());
}
