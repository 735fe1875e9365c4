//! Steps on a stream that another thread captures are refused, and no part of them is captured.

use std::thread;

use retrograph_runtime::{CaptureMode, Error, Policy, Program, StepError, Stream};

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
