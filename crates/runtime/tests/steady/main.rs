//! What a step costs the host when nothing has changed since the one before: so many calls of the
//! driver and not one more, and no memory. In a binary of its own, whose allocator counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use retrograph_driver_sim::Simulator;
use retrograph_driver_sys::{
    CUcontext, CUdeviceptr, CUevent, CUgraphExec, CUresult, CUstream, DriverTable, c_void,
};
use retrograph_runtime::{
    Bindings, Context, Controls, DeviceBuffer, DeviceIndex, Driver, ModuleCache, Origin, Pass,
    Policy, Program, Stream,
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

        /// The simulator's table with these functions in place of its own.
        fn table(simulator: &Simulator) -> DriverTable {
            let held: &'static DriverTable = Box::leak(Box::new(*simulator.table()));
            SIMULATED.set(Some(held));
            DriverTable { $($name,)* ..*held }
        }
    };
}

uncounted! {
    cuCtxSetCurrent(context: CUcontext);
    cuMemcpyHtoDAsync_v2(target: CUdeviceptr, source: *const c_void, bytes: usize, on: CUstream);
    cuGraphLaunch(exec: CUgraphExec, on: CUstream);
    cuEventRecord(event: CUevent, on: CUstream);
    cuEventSynchronize(event: CUevent);
}

/// A program that copies what it is told, and its controls.
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
        // SAFETY: the functions are those of the simulator, which is kept.
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
fn a_steady_step_is_a_copy_and_a_launch_and_allocates_nothing() {
    for policy in [Policy::Manual, Policy::Capture, Policy::Auto] {
        let mut bench = Bench::new(policy);
        // The first steps note the stream, and fill the ring of slots once.
        bench.steps(16, |step| step % 2);
        let (calls, allocations) = bench.steps(64, |step| step % 2);
        let expected = [
            ("cuCtxSetCurrent", 64 + 2 * 8),
            ("cuEventRecord", 8),
            ("cuEventSynchronize", 8),
            ("cuGraphLaunch", 64),
            ("cuMemcpyHtoDAsync_v2", 64),
        ];
        assert_eq!(calls, BTreeMap::from(expected), "{policy:?}");
        assert_eq!(allocations, 0, "{policy:?}");
        assert_eq!(bench.out.download(&bench.stream).unwrap(), [8; 64]);
    }
}

#[test]
fn a_step_with_the_values_of_the_one_before_is_a_launch() {
    let mut bench = Bench::new(Policy::Manual);
    bench.steps(16, |step| step % 2);
    let (calls, allocations) = bench.steps(64, |_| 1);
    let expected = [("cuCtxSetCurrent", 64), ("cuGraphLaunch", 64)];
    assert_eq!((calls, allocations), (BTreeMap::from(expected), 0));
    // What was copied between is copied again, whoever copied it.
    for (which, expected) in [(0, 7), (0, 7), (1, 8), (0, 7)] {
        bench.program.step(&bench.stream, &bench.controls[which]).unwrap();
        assert_eq!(bench.out.download(&bench.stream).unwrap(), [expected; 64]);
    }
    bench.program.admit(&bench.stream, &bench.controls[1]).unwrap();
    bench.program.step(&bench.stream, &bench.controls[1]).unwrap();
    assert_eq!(bench.out.download(&bench.stream).unwrap(), [8; 64]);
}

#[test]
fn values_whose_copy_failed_are_copied_again() {
    let mut bench = Bench::new(Policy::Manual);
    for which in [0, 1] {
        bench.steps(1, |_| 0);
        let copy = "cuMemcpyHtoDAsync_v2";
        bench.simulator.fail(copy, 1, CUresult(999)).unwrap();
        let refused = bench.program.step(&bench.stream, &bench.controls[1]).unwrap_err();
        assert!(refused.to_string().contains(copy), "{refused}");
        bench.program.step(&bench.stream, &bench.controls[which]).unwrap();
        let held = bench.out.download(&bench.stream).unwrap();
        assert_eq!(held, [7 + which as u32; 64]);
    }
}

#[test]
fn the_allocator_counts() {
    COUNTS.set(true);
    let held = std::hint::black_box(vec![1_u8; 100]);
    COUNTS.set(false);
    assert_eq!((held.len(), ALLOCATIONS.get()), (100, 1));
}
