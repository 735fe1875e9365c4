//! Driver calls that fail, which only a simulated driver can do on demand: nothing leaks, the
//! stream stays usable, and a step happens once or reports that it did not.

use std::sync::{Arc, Barrier};

use retrograph_driver_sim::{Config, Simulator};
use retrograph_driver_sys::{CUresult, DriverTable};
use retrograph_runtime::{
    AdmitError, BuildError, CallError, CaptureMode, Driver, Error, GraphFailure, ModuleCache,
    Origin, Policy, Program, Reason, Report, StepError, Strategy, Stream, WarmModules,
};

use retrograph_runtime::program::RETRY_AFTER;

use crate::device::{Device, device_of};
use crate::mlp::{Mlp, MlpBuffers};

pub(crate) const UNKNOWN: CUresult = CUresult(999);
pub(crate) const LOST: CUresult = CUresult(700);

/// A simulated device with everything that a program of [`Mlp`] is built from.
pub(crate) struct Bench {
    pub(crate) simulator: Arc<Simulator>,
    pub(crate) device: Device,
    modules: WarmModules,
    pub(crate) mlp: Mlp,
}

impl Bench {
    pub(crate) fn new(seed: u64) -> Self {
        Self::with_table(seed, |_| ())
    }

    /// A bench whose driver has some functions replaced by `change`.
    pub(crate) fn with_table(seed: u64, change: impl FnOnce(&mut DriverTable)) -> Self {
        let mut config = Config::default();
        config.seed = seed;
        let simulator = Arc::new(Simulator::new(config).unwrap());
        let (mut table, keep) = (*simulator.table(), Some(Arc::clone(&simulator) as _));
        change(&mut table);
        // SAFETY: the simulator implements the driver's functions and is kept as long as needed.
        let driver = unsafe { Driver::from_table(table, Origin::Simulated, keep) }.unwrap();
        let (device, mlp) = (device_of(&driver), Mlp::new());
        let cache = ModuleCache::new(&device.context);
        let modules = cache.prewarm(&mlp.pass.requirements(), |_| ()).unwrap();
        Self { simulator, device, modules, mlp }
    }

    pub(crate) fn build(
        &self,
        buffers: &MlpBuffers,
        policy: Policy,
    ) -> Result<Program, BuildError> {
        let (bindings, stream) = (self.mlp.bindings(buffers), &self.device.stream);
        Program::build(stream, &self.modules, &self.mlp.pass, &bindings, policy)
    }

    /// The state after `steps` eager steps.
    pub(crate) fn expected(&self, steps: u32) -> Vec<u32> {
        let buffers = self.mlp.buffers(&self.device.stream);
        let mut program = self.build(&buffers, Policy::Eager).unwrap();
        self.mlp.train(&mut program, &self.device.stream, &buffers, 0..steps);
        buffers.state(&self.device.stream)
    }
}

/// A failed call and its code.
pub(crate) fn code_of(error: Option<&CallError>) -> Option<(&'static str, CUresult)> {
    error.map(|error| (error.call, error.code))
}

/// The failure that made a program eager, and the steps before the graph is retried.
pub(crate) fn fallback(report: &Report) -> (&GraphFailure, Option<u64>) {
    assert_eq!((report.strategy, report.nodes), (Strategy::Eager, 0), "{report}");
    match &report.reason {
        Reason::GraphFailed { failure, retry_after } => (failure, *retry_after),
        reason => panic!("{reason}"),
    }
}

/// Calls of a build that can fail, with the policy that makes them.
const GRAPH_CALLS: [(&str, u64, Policy); 9] = [
    ("cuGraphCreate", 1, Policy::Manual),
    ("cuGraphAddKernelNode_v2", 1, Policy::Manual),
    ("cuGraphAddKernelNode_v2", 7, Policy::Manual),
    ("cuGraphInstantiateWithFlags", 1, Policy::Manual),
    ("cuGraphUpload", 1, Policy::Manual),
    ("cuGraphGetNodes", 1, Policy::Manual),
    ("cuStreamBeginCapture_v2", 1, Policy::Capture),
    ("cuLaunchKernel", 4, Policy::Capture),
    ("cuGraphInstantiateWithFlags", 1, Policy::Capture),
];

#[test]
fn a_failed_build_leaks_nothing_and_leaves_the_stream_usable() {
    let bench = Bench::new(0);
    let expected = bench.expected(1);
    let memory_calls = ["cuMemAlloc_v2", "cuMemHostAlloc", "cuMemGetInfo_v2"];
    let memory_calls = memory_calls.map(|call| (call, 1, Policy::Manual));
    for (call, nth, policy) in GRAPH_CALLS.into_iter().chain(memory_calls) {
        let buffers = bench.mlp.buffers(&bench.device.stream);
        let before = bench.simulator.live();
        bench.simulator.fail(call, nth, UNKNOWN).unwrap();
        let error = bench.build(&buffers, policy).unwrap_err();
        assert_eq!(code_of(error.call()), Some((call, UNKNOWN)), "{error}");
        let text = error.to_string();
        assert!(text.contains(call) && text.contains("999"), "{call}: {text}");
        assert_eq!(bench.simulator.live(), before, "{call} leaks");
        let mut program = bench.build(&buffers, policy).unwrap();
        program.step(&bench.device.stream, &bench.mlp.controls(0)).unwrap();
        assert!(buffers.state(&bench.device.stream) == expected, "after {call}");
    }
}

#[test]
fn a_graph_that_cannot_be_built_is_replaced_by_eager_steps() {
    let bench = Bench::new(0);
    let expected = bench.expected(3);
    let manual = GRAPH_CALLS.into_iter().filter(|(_, _, policy)| *policy == Policy::Manual);
    for (call, nth, _) in manual {
        let buffers = bench.mlp.buffers(&bench.device.stream);
        bench.simulator.fail(call, nth, UNKNOWN).unwrap();
        let mut program = bench.build(&buffers, Policy::Auto).unwrap();
        let (failure, retry_after) = fallback(program.report());
        assert!(matches!(failure, GraphFailure::Build { .. }), "{failure}");
        assert_eq!(code_of(failure.call()), Some((call, UNKNOWN)));
        assert_eq!(retry_after, Some(RETRY_AFTER[0]));
        bench.mlp.train(&mut program, &bench.device.stream, &buffers, 0..3);
        assert!(buffers.state(&bench.device.stream) == expected, "each step runs once");
    }
}

#[test]
fn a_failed_capture_leaves_a_usable_stream() {
    let bench = Bench::new(0);
    let buffers = bench.mlp.buffers(&bench.device.stream);
    for nth in 1..=bench.mlp.pass.operations().len() as u64 {
        let before = bench.simulator.live();
        bench.simulator.fail("cuLaunchKernel", nth, UNKNOWN).unwrap();
        let error = bench.build(&buffers, Policy::Capture).unwrap_err();
        let operation = bench.mlp.pass.operations()[nth as usize - 1].name();
        let BuildError::Capture(lost) = error else { panic!("{error}") };
        assert_eq!(lost.first.unwrap().place, operation);
        assert_eq!(bench.simulator.live(), before);
        bench.device.stream.synchronize().unwrap();
    }
    bench.build(&buffers, Policy::Capture).unwrap();
}

#[test]
fn a_graph_that_does_not_launch_is_replaced_within_the_step() {
    let bench = Bench::new(0);
    let buffers = bench.mlp.buffers(&bench.device.stream);
    let mut program = bench.build(&buffers, Policy::Auto).unwrap();
    assert_eq!(program.report().strategy, Strategy::Manual);
    bench.simulator.fail("cuGraphLaunch", 2, UNKNOWN).unwrap();
    bench.mlp.train(&mut program, &bench.device.stream, &buffers, 0..3);
    assert_eq!(program.steps(), 3);
    let (failure, _) = fallback(program.report());
    assert!(matches!(failure, GraphFailure::Launch { .. }), "{failure}");
    assert_eq!(code_of(failure.call()), Some(("cuGraphLaunch", UNKNOWN)));
    assert!(buffers.state(&bench.device.stream) == bench.expected(3));
}

#[test]
fn a_step_that_did_not_start_can_be_tried_again() {
    let bench = Bench::new(0);
    // There are sixteen slots for controls, and the stream is waited for when all are in flight.
    let calls = [("cuGraphLaunch", 1), ("cuCtxSetCurrent", 1), ("cuStreamSynchronize", 16)];
    for (call, before) in calls {
        let buffers = bench.mlp.buffers(&bench.device.stream);
        let mut program = bench.build(&buffers, Policy::Manual).unwrap();
        for step in 0..before {
            program.step(&bench.device.stream, &bench.mlp.controls(step)).unwrap();
        }
        bench.simulator.fail(call, 1, UNKNOWN).unwrap();
        let error = program.step(&bench.device.stream, &bench.mlp.controls(before)).unwrap_err();
        assert!(matches!(error, StepError::NotStarted { .. }), "{error}");
        assert_eq!(code_of(error.call()), Some((call, UNKNOWN)), "{error}");
        program.step(&bench.device.stream, &bench.mlp.controls(before)).unwrap();
        let expected = bench.expected(before + 1);
        assert!(buffers.state(&bench.device.stream) == expected, "after {call}");
    }
}

#[test]
fn a_step_that_stops_in_the_middle_ends_the_program() {
    let bench = Bench::new(0);
    let buffers = bench.mlp.buffers(&bench.device.stream);
    let mut program = bench.build(&buffers, Policy::Eager).unwrap();
    bench.simulator.fail("cuLaunchKernel", 5, UNKNOWN).unwrap();
    let error = program.step(&bench.device.stream, &bench.mlp.controls(0)).unwrap_err();
    let StepError::Incomplete { enqueued: 4, operation, .. } = &error else { panic!("{error}") };
    assert_eq!(operation, bench.mlp.pass.operations()[4].name());
    let later = program.step(&bench.device.stream, &bench.mlp.controls(0)).unwrap_err();
    assert!(matches!(later, StepError::GivenUp { .. }));
    assert_eq!(later.first_cause().to_string(), error.to_string());
}

#[test]
fn a_lost_context_ends_the_program_with_the_original_cause() {
    for (policy, call) in [(Policy::Manual, "cuGraphLaunch"), (Policy::Eager, "cuLaunchKernel")] {
        let bench = Bench::new(0);
        let buffers = bench.mlp.buffers(&bench.device.stream);
        let mut program = bench.build(&buffers, policy).unwrap();
        bench.simulator.fail(call, 1, LOST).unwrap();
        let first = program.step(&bench.device.stream, &bench.mlp.controls(0)).unwrap_err();
        assert_eq!(code_of(first.call()), Some((call, LOST)), "{first}");
        for _ in 0..2 {
            let later = program.step(&bench.device.stream, &bench.mlp.controls(0)).unwrap_err();
            assert_eq!(later.first_cause().to_string(), first.to_string());
            assert_eq!(later.call(), first.call());
        }
        let error = bench.build(&buffers, Policy::Auto).unwrap_err();
        assert_eq!(code_of(error.call()), Some((call, LOST)), "later builds: {error}");
    }
}

/// Whatever part of an admission was enqueued before it failed, later steps see their own controls.
#[test]
fn an_admission_that_fails_leaves_every_step_its_controls() {
    let bench = Bench::new(0);
    let expected = bench.expected(3);
    // Two launches that only fetch controls, then an eager step.
    for nth in 1..=6 {
        let buffers = bench.mlp.buffers(&bench.device.stream);
        let mut program = bench.build(&buffers, Policy::Manual).unwrap();
        bench.mlp.train(&mut program, &bench.device.stream, &buffers, 0..1);
        bench.simulator.fail("cuLaunchKernel", nth, UNKNOWN).unwrap();
        let error = program.admit(&bench.device.stream, &bench.mlp.controls(7)).unwrap_err();
        assert!(error.to_string().contains("cuLaunchKernel"), "{error}");
        bench.mlp.train(&mut program, &bench.device.stream, &buffers, 1..3);
        assert!(buffers.state(&bench.device.stream) == expected, "after launch {nth}");
    }
}

#[test]
fn an_admission_that_fails_twice_reports_the_first_cause() {
    let bench = Bench::new(0);
    let buffers = bench.mlp.buffers(&bench.device.stream);
    let mut program = bench.build(&buffers, Policy::Manual).unwrap();
    bench.simulator.fail("cuGraphLaunch", 1, UNKNOWN).unwrap();
    // Restoring the state fails as well.
    bench.simulator.fail("cuMemcpyHtoDAsync_v2", 1, UNKNOWN).unwrap();
    let error = program.admit(&bench.device.stream, &bench.mlp.controls(0)).unwrap_err();
    let AdmitError::Step(error) = &error else { panic!("{error}") };
    assert_eq!(code_of(error.call()), Some(("cuGraphLaunch", UNKNOWN)), "{error}");
}

#[test]
fn controls_travel_on_the_stream_of_the_step() {
    for seed in 0..12 {
        let bench = Bench::new(seed);
        let buffers = bench.mlp.buffers(&bench.device.stream);
        let mut program = bench.build(&buffers, Policy::Manual).unwrap();
        for step in 0..6 {
            program.step(&bench.device.stream, &bench.mlp.controls(step)).unwrap();
        }
        assert!(buffers.state(&bench.device.stream) == bench.expected(6), "seed {seed}");
        let calls = bench.simulator.calls();
        let mut copies =
            calls.keys().filter(|call| call.starts_with("cuMem") && call.contains("to"));
        assert!(copies.all(|call| call.ends_with("Async_v2")), "{calls:?}");
    }
}

#[test]
fn dropping_a_program_in_flight_waits_for_it() {
    let bench = Bench::new(3);
    let before = bench.simulator.live();
    let buffers = bench.mlp.buffers(&bench.device.stream);
    for policy in [Policy::Manual, Policy::Capture, Policy::Eager] {
        let mut program = bench.build(&buffers, policy).unwrap();
        program.step(&bench.device.stream, &bench.mlp.controls(0)).unwrap();
        drop(program);
    }
    assert!(buffers.state(&bench.device.stream).iter().any(|&bits| bits != 0));
    drop(buffers);
    assert_eq!(bench.simulator.live(), before);
    assert!(bench.simulator.diagnostics().is_empty(), "{:?}", bench.simulator.diagnostics());
}

#[test]
fn dropping_a_program_waits_although_another_thread_captures_meanwhile() {
    for (seed, policy) in [(0, Policy::Manual), (1, Policy::Eager), (2, Policy::Eager)] {
        let bench = Bench::new(seed);
        let buffers = bench.mlp.buffers(&bench.device.stream);
        let other = Stream::new(&bench.device.context).unwrap();
        let mut program = bench.build(&buffers, policy).unwrap();
        let (begun, ended) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let captured = other.capture(CaptureMode::ThreadLocal, |_| {
                    begun.wait();
                    ended.wait();
                    Ok::<_, Error>(())
                });
                captured.unwrap();
            });
            begun.wait();
            program.step(&bench.device.stream, &bench.mlp.controls(0)).unwrap();
            // Nothing is freed while that thread captures, so that no call that frees waits.
            drop(program);
            let idle = bench.device.stream.query();
            ended.wait();
            assert_eq!(idle, Ok(true));
        });
    }
}
