//! Programs whose graph fails: each step happens once, the graph is retried a few times, and the
//! report has the cause and the outcome.

use std::cell::Cell;
use std::ffi::c_void;

use retrograph_driver_sys::{CUcontext, CUfunction, CUgraph, CUresult, CUstream, DriverTable};
use retrograph_runtime::program::RETRY_AFTER;
use retrograph_runtime::{
    AdmitError, BuildError, CaptureInvalidation, Error, GraphFailure, Policy, Reason, Strategy,
};

use crate::device::assert_works;
use crate::failing_programs::{Bench, UNKNOWN, code_of, fallback};

const INSTANTIATE: &str = "cuGraphInstantiateWithFlags";

#[test]
fn a_graph_that_failed_once_comes_back_at_the_first_retry() {
    let (first, second) = (RETRY_AFTER[0], RETRY_AFTER[1]);
    for (call, before) in [(INSTANTIATE, 0), ("cuGraphLaunch", 2)] {
        let bench = Bench::new(0);
        let buffers = bench.mlp.buffers(&bench.device.stream);
        bench.simulator.fail(call, before + 1, UNKNOWN).unwrap();
        let mut program = bench.build(&buffers, Policy::Auto).unwrap();
        // Long enough for a second retry, if one were made for a graph that works.
        let steps = before + first + second + 2;
        for step in 0..steps {
            let controls = bench.mlp.controls(step as u32);
            let outcome = program.step(&bench.device.stream, &controls).unwrap();
            let eager = (before..before + first).contains(&step);
            let strategy = if eager { Strategy::Eager } else { Strategy::Manual };
            assert_eq!((outcome.strategy, outcome.index), (strategy, step), "{call}");
        }
        assert!(buffers.state(&bench.device.stream) == bench.expected(steps as u32), "{call}");
        let report = program.report();
        assert_eq!((report.attempts, report.nodes), (2, bench.mlp.pass.operations().len()));
        let failure = report.last_failure.as_ref().and_then(GraphFailure::call);
        assert_eq!(code_of(failure), Some((call, UNKNOWN)), "{report}");
        assert!(matches!(report.reason, Reason::NoLibraryCalls), "{report}");
    }
}

#[test]
fn a_graph_that_always_fails_is_given_up() {
    let bench = Bench::new(0);
    let buffers = bench.mlp.buffers(&bench.device.stream);
    let before = bench.simulator.live();
    for nth in 1..=8 {
        bench.simulator.fail(INSTANTIATE, nth, UNKNOWN).unwrap();
    }
    let mut program = bench.build(&buffers, Policy::Auto).unwrap();
    assert_eq!(fallback(program.report()).1, Some(16));
    let steps = RETRY_AFTER.iter().sum::<u64>() as u32 + 300;
    let mut tried_before = Vec::new();
    for step in 0..steps {
        let tried = bench.simulator.call_count(INSTANTIATE);
        program.step(&bench.device.stream, &bench.mlp.controls(step)).unwrap();
        if bench.simulator.call_count(INSTANTIATE) > tried {
            tried_before.push(step);
        }
    }
    assert_eq!(tried_before, [16, 16 + 64, 16 + 64 + 256], "and not after that");
    assert_eq!(program.report().attempts, 4);
    let (failure, retry_after) = fallback(program.report());
    assert_eq!((code_of(failure.call()), retry_after), (Some((INSTANTIATE, UNKNOWN)), None));
    assert!(buffers.state(&bench.device.stream) == bench.expected(steps));
    drop(program);
    assert_eq!(bench.simulator.live(), before, "failed attempts leak nothing");
}

#[test]
fn admission_of_a_graph_that_falls_back_compares_nothing() {
    let bench = Bench::new(0);
    let (buffers, stream) = (bench.mlp.buffers(&bench.device.stream), &bench.device.stream);
    let mut program = bench.build(&buffers, Policy::Auto).unwrap();
    let before = buffers.state(stream);
    bench.simulator.fail("cuGraphLaunch", 1, UNKNOWN).unwrap();
    match program.admit(stream, &bench.mlp.controls(0)).unwrap_err() {
        AdmitError::StrategyChanged { expected, found } => {
            assert_eq!((expected, found), (Strategy::Manual, Strategy::Eager));
        }
        error => panic!("{error}"),
    }
    assert!(buffers.state(stream) == before, "the state is restored");
}

#[test]
fn explicit_strategies_do_not_fall_back() {
    let bench = Bench::new(0);
    let buffers = bench.mlp.buffers(&bench.device.stream);
    let mut program = bench.build(&buffers, Policy::Manual).unwrap();
    for step in 0..RETRY_AFTER[0] + 2 {
        bench.simulator.fail("cuGraphLaunch", 1, UNKNOWN).unwrap();
        let controls = bench.mlp.controls(step as u32);
        program.step(&bench.device.stream, &controls).unwrap_err();
        program.step(&bench.device.stream, &controls).unwrap();
    }
    let report = program.report();
    assert_eq!((report.strategy, report.attempts), (Strategy::Manual, 1));
    assert!(report.last_failure.is_none());
}

/// Ends the capture of a launch on another thread, after the launch, so that no call of the
/// program fails by it.
struct Saboteur {
    table: DriverTable,
    /// Launches until then; 0 for never.
    left: u64,
}

thread_local! {
    static SABOTEUR: Cell<Option<Saboteur>> = const { Cell::new(None) };
}

extern "C" fn sabotaged_launch(
    function: CUfunction,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: CUstream,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    let mut saboteur = SABOTEUR.take().unwrap();
    let table = saboteur.table;
    // SAFETY: the arguments are passed on as they came.
    let code = unsafe {
        (table.cuLaunchKernel)(
            function,
            grid_x,
            grid_y,
            grid_z,
            block_x,
            block_y,
            block_z,
            shared_bytes,
            stream,
            parameters,
            extra,
        )
    };
    if saboteur.left == 1 {
        end_elsewhere(&table, stream);
    }
    saboteur.left = saboteur.left.saturating_sub(1);
    SABOTEUR.set(Some(saboteur));
    code
}

fn end_elsewhere(table: &DriverTable, stream: CUstream) {
    let (mut context, mut graph) = (CUcontext::NULL, CUgraph::NULL);
    // SAFETY: the out pointers are valid, and the stream is live.
    unsafe { (table.cuCtxGetCurrent)(&mut context) }.ok().unwrap();
    std::thread::scope(|scope| {
        let ended = scope.spawn(|| {
            // SAFETY: as above.
            unsafe {
                (table.cuCtxSetCurrent)(context).ok().unwrap();
                (table.cuStreamEndCapture)(stream, &mut graph)
            }
        });
        assert_eq!(ended.join().unwrap(), CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    });
}

fn sabotage(table: DriverTable, left: u64) {
    SABOTEUR.set(Some(Saboteur { table, left }));
}

#[test]
fn nothing_runs_when_the_capture_of_a_program_ends_under_it() {
    let bench = Bench::with_table(0, |table| table.cuLaunchKernel = sabotaged_launch);
    let table = *bench.simulator.table();
    sabotage(table, 0);
    let expected = bench.expected(1);
    let buffers = bench.mlp.buffers(&bench.device.stream);
    let untouched = buffers.state(&bench.device.stream);
    let operations = bench.mlp.pass.operations();
    for nth in 1..=operations.len() {
        let launched = bench.simulator.call_count("cuLaunchKernel");
        sabotage(table, nth as u64);
        let error = bench.build(&buffers, Policy::Capture).unwrap_err();
        // The node is queried after each operation, so that the error names the operation.
        let BuildError::Capture(lost) = error else { panic!("{error}") };
        let Some(Error::CaptureLost { loss }) =
            lost.cause.as_deref().and_then(|it| it.downcast_ref())
        else {
            panic!("{lost}")
        };
        let CaptureInvalidation::NotActive { place } = &**loss else { panic!("{lost}") };
        assert_eq!(place, operations[nth - 1].name());
        let launches = bench.simulator.call_count("cuLaunchKernel") - launched;
        assert_eq!(launches, nth as u64, "none reaches the driver after the loss");
        assert!(buffers.state(&bench.device.stream) == untouched, "and none has run");
    }
    sabotage(table, 0);
    assert_works(&bench.device.stream);
    let mut program = bench.build(&buffers, Policy::Capture).unwrap();
    program.step(&bench.device.stream, &bench.mlp.controls(0)).unwrap();
    assert!(buffers.state(&bench.device.stream) == expected, "the step happens once");
}
