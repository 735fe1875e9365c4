//! Steps on a stream that another thread captures are refused, and no part of them is captured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use retrograph_runtime::{
    Bindings, CaptureMode, DeviceBuffer, Error, LibraryCall, Pass, Policy, Program, StepError,
    Stream,
};

use crate::device::device;
use crate::mlp::Mlp;
use crate::programs::build;

/// Does `act` on another thread while this one captures `stream`, and checks that the graph stays
/// empty.
fn while_captured(stream: &Stream, act: impl FnOnce() + Send) {
    let graph = stream.capture(CaptureMode::ThreadLocal, |_| {
        thread::scope(|scope| scope.spawn(act).join()).unwrap();
        Ok::<_, Error>(())
    });
    assert!(graph.unwrap().nodes().unwrap().is_empty());
}

fn assert_refused(outcome: Result<(), Error>) {
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::RefusedDuringCapture { .. }), "{error}");
}

fn assert_not_started(program: &mut Program, stream: &Stream, mlp: &Mlp) {
    let before = program.steps();
    match program.step(stream, &mlp.controls(0)) {
        Err(StepError::NotStarted { cause }) => assert_refused(Err(cause)),
        outcome => panic!("{outcome:?}"),
    }
    assert_eq!(program.steps(), before);
}

#[test]
fn a_step_on_a_captured_stream_is_refused_and_can_be_repeated() {
    let (device, mlp) = (device(), Mlp::new());
    let stream = &device.stream;
    for policy in [Policy::Eager, Policy::Manual, Policy::Capture] {
        let train = |disturb: bool| {
            let buffers = mlp.buffers(stream);
            let mut program = build(&device, &mlp.pass, &mlp.bindings(&buffers), policy).unwrap();
            if disturb {
                while_captured(stream, || {
                    assert_not_started(&mut program, stream, &mlp);
                    assert_refused(program.fill_transients_with_nan(stream));
                    assert!(program.rebind(stream, &mlp.bindings(&buffers)).is_err());
                    assert!(program.admit(stream, &mlp.controls(0)).is_err());
                    assert!(program.profile(stream, &mlp.controls(0), 1).is_err());
                });
            }
            mlp.train(&mut program, stream, &buffers, 0..3)
        };
        assert_eq!(train(true), train(false), "{policy:?}");
    }
}

#[test]
fn a_step_after_one_on_a_captured_stream_is_refused() {
    let (device, mlp) = (device(), Mlp::new());
    let other = Stream::new(&device.context).unwrap();
    let buffers = mlp.buffers(&device.stream);
    let bindings = mlp.bindings(&buffers);
    let mut program = build(&device, &mlp.pass, &bindings, Policy::Manual).unwrap();
    program.step(&device.stream, &mlp.controls(0)).unwrap();
    while_captured(&device.stream, || assert_not_started(&mut program, &other, &mlp));
    program.step(&other, &mlp.controls(1)).unwrap();
    assert_eq!(program.steps(), 2);
}

/// Memory of another library, which records when it is freed.
struct Borrowed {
    memory: DeviceBuffer<f32>,
    freed: Arc<AtomicBool>,
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.freed.store(true, Ordering::Relaxed);
    }
}

#[test]
fn borrowed_memory_outlives_the_last_step_of_a_program_that_is_dropped_in_a_capture() {
    let device = device();
    let stream = &device.stream;
    let side = Stream::new(&device.context).unwrap();
    for policy in [Policy::Eager, Policy::Hybrid, Policy::Capture] {
        let freed = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
        let borrowed = |at: usize| {
            let memory = DeviceBuffer::zeroed(&device.context, 4).unwrap();
            Arc::new(Borrowed { memory, freed: Arc::clone(&freed[at]) })
        };
        let bound = |at: usize| {
            let owner = borrowed(at);
            let address = owner.memory.address();
            // SAFETY: the memory lives as long as its owner.
            unsafe { DeviceBuffer::<f32>::from_raw(&device.context, address, 4, owner) }
        };
        let mut pass = Pass::new("copy");
        let [x, y] = ["x", "y"].map(|name| pass.external::<f32>(name, 4));
        pass.copy(x, y).unwrap();
        let workspace = borrowed(2);
        let call = LibraryCall::new("fill", move |scope| {
            let address = workspace.memory.address();
            // SAFETY: the workspace has 4 words.
            unsafe { scope.stream().memset_d32(address, 1, 4) }
        });
        // SAFETY: the call accesses only its own workspace.
        unsafe { pass.library(call.reads(y)) }.unwrap();
        let mut bindings = Bindings::new();
        bindings.bind(x, &bound(0)).bind(y, &bound(1));
        let mut program = build(&device, &pass, &bindings, policy).unwrap();
        program.step(stream, &pass.controls()).unwrap();
        drop((bindings, pass));
        let is_freed = || freed.each_ref().map(|freed| freed.load(Ordering::Relaxed));
        let graph = side.capture(CaptureMode::ThreadLocal, |_| {
            drop(program);
            assert_eq!(is_freed(), [false; 3], "{policy:?}");
            Ok::<_, Error>(())
        });
        graph.unwrap();
        assert_eq!(is_freed(), [true; 3], "{policy:?}");
    }
}
