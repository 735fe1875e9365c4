//! The cost of a steady step on the host: an exact number of driver calls, and no allocation. This
//! is a separate binary, whose allocator counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use retrograph_driver_sim::Simulator;
use retrograph_driver_sys::{CUcontext, CUgraphExec, CUresult, CUstream, DriverTable};
use retrograph_runtime::{
    Bindings, Context, Controls, DeviceBuffer, DeviceIndex, Driver, ModuleCache, Origin, Pass,
    Policy, Program, StepError, Stream,
};

/// Allocations of this thread while it counts.
struct Counting;

thread_local! {
    static COUNTS: Cell<bool> = const { Cell::new(false) };
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTS.get() {
            ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        }
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    /// Whether the next launch does nothing and succeeds.
    static LOSES: Cell<bool> = const { Cell::new(false) };
    /// The functions of this test's simulator, whose allocations are not ours.
    static SIMULATED: Cell<Option<&'static DriverTable>> = const { Cell::new(None) };
}

/// Calls the simulator without counting.
macro_rules! uncounted {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        $(
            #[allow(non_snake_case, reason = "the driver's names")]
            unsafe extern "C" fn $name($($argument: $type),*) -> CUresult {
                let counts = COUNTS.replace(false);
                let table = SIMULATED.get().expect("the test has a simulator");
                // SAFETY: passed on.
                let code = unsafe { (table.$name)($($argument),*) };
                COUNTS.set(counts);
                code
            }
        )*

        /// Launches without counting; with [`LOSES`] it only reports success.
        #[allow(non_snake_case, reason = "the driver's name")]
        unsafe extern "C" fn cuGraphLaunch(exec: CUgraphExec, on: CUstream) -> CUresult {
            if LOSES.replace(false) {
                return CUresult::CUDA_SUCCESS;
            }
            let counts = COUNTS.replace(false);
            let table = SIMULATED.get().expect("the test has a simulator");
            // SAFETY: passed on.
            let code = unsafe { (table.cuGraphLaunch)(exec, on) };
            COUNTS.set(counts);
            code
        }

        /// The simulator's table with these functions in place of its own.
        fn table(simulator: &Simulator) -> DriverTable {
            let held: &'static DriverTable = Box::leak(Box::new(*simulator.table()));
            SIMULATED.set(Some(held));
            DriverTable { $($name,)* cuGraphLaunch, ..*held }
        }
    };
}

uncounted! {
    cuCtxSetCurrent(context: CUcontext);
    cuStreamSynchronize(stream: CUstream);
}

/// A program that copies its control, and the controls.
struct Bench {
    simulator: Arc<Simulator>,
    stream: Stream,
    out: DeviceBuffer<u32>,
    program: Program,
    controls: [Controls; 2],
}

impl Bench {
    fn new(policy: Policy) -> Self {
        let simulator = Arc::new(Simulator::new(Default::default()).unwrap());
        let keep = Some(Arc::clone(&simulator) as _);
        // SAFETY: the functions belong to the simulator, which is kept.
        let driver = unsafe { Driver::from_table(table(&simulator), Origin::Simulated, keep) };
        let context = Context::new(&driver.unwrap(), DeviceIndex(0)).unwrap();
        let stream = Stream::new(&context).unwrap();
        let mut pass = Pass::new("copies");
        let value = pass.control_array::<u32>("value", 64);
        let (between, target) = (pass.transient("between", 64), pass.external("out", 64));
        pass.copy(value, between).unwrap();
        pass.copy(between, target).unwrap();
        let out = DeviceBuffer::zeroed(&context, 64).unwrap();
        let mut bindings = Bindings::new();
        bindings.bind(target, &out);
        let modules = ModuleCache::new(&context).prewarm(&pass.requirements(), |_| ()).unwrap();
        let program = Program::build(&stream, &modules, &pass, &bindings, policy).unwrap();
        let controls = [7, 8].map(|number| {
            let mut controls = pass.controls();
            controls.set_array(value, &[number; 64]).unwrap();
            controls
        });
        Self { simulator, stream, out, program, controls }
    }

    /// Launches the graph of a step without the program, and waits.
    fn launch_plainly(&self) {
        let exec = self.program.raw_exec().expect("the program has a graph");
        self.stream.context().bind().unwrap();
        // SAFETY: exec and stream live, and no step is in flight after the wait.
        let code = unsafe { (self.simulator.table().cuGraphLaunch)(exec, self.stream.raw()) };
        assert_eq!(code, CUresult::CUDA_SUCCESS);
        self.stream.synchronize().unwrap();
    }

    /// The calls of the driver by `steps` steps with the controls that `which` chooses, and the
    /// allocations.
    fn steps(
        &mut self,
        steps: usize,
        which: fn(usize) -> usize,
    ) -> (BTreeMap<&'static str, u64>, usize) {
        let before = self.simulator.calls();
        ALLOCATIONS.set(0);
        COUNTS.set(true);
        let outcome = (0..steps).try_for_each(|step| {
            self.program.step(&self.stream, &self.controls[which(step)]).map(drop)
        });
        COUNTS.set(false);
        outcome.unwrap();
        let calls = self
            .simulator
            .calls()
            .into_iter()
            .map(|(call, count)| (call, count - before.get(call).copied().unwrap_or(0)));
        (calls.filter(|(_, count)| *count > 0).collect(), ALLOCATIONS.get())
    }
}

#[test]
fn a_steady_step_is_a_launch_and_allocates_nothing() {
    for policy in [Policy::Manual, Policy::Capture, Policy::Auto] {
        let mut bench = Bench::new(policy);
        // The first step records the stream.
        bench.steps(1, |_| 0);
        bench.stream.synchronize().unwrap();
        for (steps, which) in [(16, (|step| step % 2) as fn(usize) -> usize), (16, |_| 1)] {
            let (calls, allocations) = bench.steps(steps, which);
            let expected = [("cuCtxSetCurrent", 16), ("cuGraphLaunch", 16)];
            assert_eq!(calls, BTreeMap::from(expected), "{policy:?}");
            assert_eq!(allocations, 0, "{policy:?}");
            assert_eq!(bench.out.download(&bench.stream).unwrap(), [8; 64]);
        }
    }
}

#[test]
fn a_host_that_is_sixteen_steps_ahead_waits_for_the_device() {
    let mut bench = Bench::new(Policy::Manual);
    bench.steps(1, |_| 0);
    bench.stream.synchronize().unwrap();
    // The simulator runs work as late as possible, so the count never advances by itself.
    let (calls, allocations) = bench.steps(64, |step| step % 2);
    let expected = [("cuCtxSetCurrent", 64 + 3), ("cuGraphLaunch", 64), ("cuStreamSynchronize", 3)];
    assert_eq!((calls, allocations), (BTreeMap::from(expected), 0));
    assert_eq!(bench.out.download(&bench.stream).unwrap(), [8; 64]);
}

#[test]
fn values_whose_launch_failed_are_not_taken_by_another() {
    let mut bench = Bench::new(Policy::Manual);
    for which in [0, 1] {
        bench.steps(1, |_| 0);
        let launch = "cuGraphLaunch";
        bench.simulator.fail(launch, 1, CUresult(999)).unwrap();
        let refused = bench.program.step(&bench.stream, &bench.controls[1]).unwrap_err();
        assert!(refused.to_string().contains(launch), "{refused}");
        // A launch by other means sees the controls of the last step.
        bench.launch_plainly();
        assert_eq!(bench.out.download(&bench.stream).unwrap(), [7; 64]);
        bench.program.step(&bench.stream, &bench.controls[which]).unwrap();
        let held = bench.out.download(&bench.stream).unwrap();
        assert_eq!(held, [7 + which as u32; 64]);
    }
}

#[test]
fn launches_by_other_means_take_nothing() {
    let mut bench = Bench::new(Policy::Manual);
    bench.launch_plainly();
    for round in 0..40 {
        let which = round % 2;
        bench.program.step(&bench.stream, &bench.controls[which]).unwrap();
        for _ in 0..round % 3 {
            bench.launch_plainly();
        }
        assert_eq!(bench.out.download(&bench.stream).unwrap(), [7 + which as u32; 64]);
    }
    bench.program.admit(&bench.stream, &bench.controls[0]).unwrap();
    bench.program.step(&bench.stream, &bench.controls[1]).unwrap();
    assert_eq!(bench.out.download(&bench.stream).unwrap(), [8; 64]);
}

#[test]
fn waiting_for_a_slot_in_a_lost_context_fails() {
    let mut bench = Bench::new(Policy::Manual);
    bench.steps(16, |step| step % 2);
    bench.simulator.fail("cuStreamSynchronize", 1, CUresult(700)).unwrap();
    for later in [false, true] {
        let error = bench.program.step(&bench.stream, &bench.controls[0]).unwrap_err();
        assert!(error.to_string().contains("cuStreamSynchronize"), "{error}");
        assert_eq!(matches!(error, StepError::GivenUp { .. }), later);
    }
}

#[test]
fn a_launch_that_the_driver_has_lost_is_found_when_slots_run_out() {
    let mut bench = Bench::new(Policy::Manual);
    LOSES.set(true);
    bench.steps(16, |step| step % 2);
    for later in [false, true] {
        let error = bench.program.step(&bench.stream, &bench.controls[0]).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("fetched the parameters of 15 steps, but was given those of 16"),
            "{text}"
        );
        assert_eq!(matches!(error, StepError::GivenUp { .. }), later);
    }
}

#[test]
fn the_allocator_counts() {
    COUNTS.set(true);
    let held = std::hint::black_box(vec![1_u8; 100]);
    COUNTS.set(false);
    assert_eq!((held.len(), ALLOCATIONS.get()), (100, 1));
}
