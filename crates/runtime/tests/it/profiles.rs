//! Profiles: every operation is measured once, and profiling changes nothing.

use retrograph_runtime::{CaptureMode, DeviceBuffer, Error, Graph, Policy, ProfileError, Stream};

use crate::device::{Device, device};
use crate::failing_programs::{Bench, UNKNOWN};
use crate::mlp::Mlp;
use crate::programs::build;

const POLICIES: [Policy; 3] = [Policy::Eager, Policy::Manual, Policy::Capture];

#[test]
fn profiling_changes_nothing_and_counts_no_step() {
    let (device, mlp) = (device(), Mlp::new());
    for policy in POLICIES {
        let trained = [false, true].map(|profiled| {
            let buffers = mlp.buffers(&device.stream);
            let mut program = build(&device, &mlp.pass, &mlp.bindings(&buffers), policy).unwrap();
            let mut bits = mlp.train(&mut program, &device.stream, &buffers, 0..3);
            if profiled {
                program.profile(&device.stream, &mlp.controls(9), 3).unwrap();
                assert_eq!(program.steps(), 3);
            }
            bits.extend(mlp.train(&mut program, &device.stream, &buffers, 3..6));
            bits
        });
        assert!(trained[0] == trained[1], "{policy:?} trains otherwise after a profile");
    }
}

#[test]
fn every_operation_and_every_phase_is_measured() {
    let (device, mlp) = (device(), Mlp::new());
    for policy in POLICIES {
        let buffers = mlp.buffers(&device.stream);
        let mut program = build(&device, &mlp.pass, &mlp.bindings(&buffers), policy).unwrap();
        let profile = program.profile(&device.stream, &mlp.controls(0), 5).unwrap();
        assert_eq!(profile.strategy, program.report().strategy.to_string());
        assert_eq!(profile.operations.len(), mlp.pass.operations().len());
        for (at, measured) in profile.operations.iter().enumerate() {
            let operation = &mlp.pass.operations()[at];
            assert_eq!((measured.operation, measured.name.as_str()), (at, operation.name()));
            assert_eq!(measured.kernel, operation.verb());
            assert!(measured.ms.is_finite() && measured.ms >= 0.0);
        }
        let phases: Vec<_> = profile.phases.iter().map(|phase| phase.name.as_str()).collect();
        assert_eq!(phases, ["controls", "forward", "backward", "update"]);
        let operations: usize = profile.phases.iter().map(|phase| phase.operations).sum();
        assert_eq!(operations, profile.operations.len());
        assert!(profile.phases.iter().all(|phase| phase.entries == 1 && phase.ms > 0.0));
        assert!(profile.step_ms > 0.0 && profile.record_ms >= 0.0);
        let kernels: usize = profile.kernels().iter().map(|kernel| kernel.count).sum();
        assert_eq!(kernels, profile.operations.len());
    }
}

#[test]
fn a_simulated_profile_is_labelled_in_every_form() {
    let (device, mlp) = (device(), Mlp::new());
    let buffers = mlp.buffers(&device.stream);
    let mut program = build(&device, &mlp.pass, &mlp.bindings(&buffers), Policy::Manual).unwrap();
    let profile = program.profile(&device.stream, &mlp.controls(0), 1).unwrap();
    let simulated = device.context.driver().is_simulated();
    assert_eq!(profile.simulated, simulated);
    assert_eq!(profile.to_string().contains("SIMULATED"), simulated);
    assert_eq!(mlp.pass.to_svg(Some(&profile)).contains("SIMULATED"), simulated);
    let json = serde_json::to_value(&profile).unwrap();
    assert_eq!(json["simulated"], simulated);
    assert_eq!(json["phases"][1]["name"], "forward");
}

/// A graph that shifts 32 values by one and puts a new one in front: its nodes do not commute.
fn shift(stream: &Stream, values: &DeviceBuffer<u32>, other: &DeviceBuffer<u32>) -> Graph {
    let captured = stream.capture(CaptureMode::ThreadLocal, |capturing| {
        capturing.keep(values.owner());
        capturing.keep(other.owner());
        let (stream, start) = (capturing.stream(), values.address());
        // SAFETY: the ranges are in the buffers, which the graph keeps.
        unsafe {
            stream.memcpy_dtod(other.address(), start, 31 * 4)?;
            stream.memset_d32(start, 1, 1)?;
            stream.memcpy_dtod(start + 4, other.address(), 31 * 4)
        }
    });
    captured.unwrap()
}

#[test]
fn a_graph_of_ones_own_is_run_whole_and_in_order() {
    let Device { context, stream } = device();
    let values = DeviceBuffer::<u32>::zeroed(&context, 32).unwrap();
    let other = DeviceBuffer::<u32>::zeroed(&context, 32).unwrap();
    let graph = shift(&stream, &values, &other);
    let profile = graph.profile(&stream, 4).unwrap();
    let kernels: Vec<_> = profile.operations.iter().map(|held| held.kernel.as_str()).collect();
    assert_eq!(kernels, ["copy", "fill", "copy"]);
    assert!(profile.phases.is_empty() && profile.step_ms >= 0.0);
    // Four replays and one to set up, as it is and node by node.
    let ones = values.download(&stream).unwrap().into_iter().sum::<u32>();
    assert_eq!(ones, 10, "each run does every node once, in order");
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(values.download(&stream).unwrap().into_iter().sum::<u32>(), 11);
}

#[test]
fn no_profile_is_made_in_a_capture_or_without_controls() {
    let (device, mlp) = (device(), Mlp::new());
    let buffers = mlp.buffers(&device.stream);
    let mut program = build(&device, &mlp.pass, &mlp.bindings(&buffers), Policy::Manual).unwrap();
    let incomplete = mlp.pass.controls();
    let refused = program.profile(&device.stream, &incomplete, 1).unwrap_err();
    assert!(matches!(refused, ProfileError::Controls(_)), "{refused}");
    let captured = device.stream.capture(CaptureMode::ThreadLocal, |_| {
        let refused = program.profile(&device.stream, &mlp.controls(0), 1).unwrap_err();
        let expected = matches!(refused, ProfileError::Device(Error::RefusedDuringCapture { .. }));
        assert!(expected, "{refused}");
        Ok::<(), Error>(())
    });
    assert_eq!(captured.unwrap().nodes().unwrap().len(), 0);
    program.step(&device.stream, &mlp.controls(0)).unwrap();
}

#[test]
fn a_profile_that_fails_leaves_the_state_and_the_program_as_they_were() {
    for call in ["cuGraphAddEventRecordNode", "cuGraphRemoveDependencies", "cuEventElapsedTime"] {
        let bench = Bench::new(7);
        let (stream, mlp) = (&bench.device.stream, &bench.mlp);
        let buffers = mlp.buffers(stream);
        let mut program = bench.build(&buffers, Policy::Manual).unwrap();
        mlp.train(&mut program, stream, &buffers, 0..2);
        let before = buffers.state(stream);
        bench.simulator.fail(call, 1, UNKNOWN).unwrap();
        let failed = program.profile(stream, &mlp.controls(2), 2).unwrap_err();
        assert!(failed.to_string().contains(call), "{failed}");
        assert!(buffers.state(stream) == before, "{call} left a changed state");
        assert_eq!(program.steps(), 2);
        program.step(stream, &mlp.controls(2)).unwrap();
        assert!(buffers.state(stream) == bench.expected(3), "{call}: the next step differs");
    }
}

#[test]
fn replays_that_cannot_be_counted_are_limited() {
    let bench = Bench::new(7);
    let (stream, mlp) = (&bench.device.stream, &bench.mlp);
    let buffers = mlp.buffers(stream);
    let mut program = bench.build(&buffers, Policy::Manual).unwrap();
    let before = buffers.state(stream);
    // The first measurement fails, so that the test does not take all replays.
    bench.simulator.fail("cuEventElapsedTime", 1, UNKNOWN).unwrap();
    let failed = program.profile(stream, &mlp.controls(0), usize::MAX).unwrap_err();
    assert!(failed.to_string().contains("cuEventElapsedTime"), "{failed}");
    assert!(buffers.state(stream) == before);
    let [one, other] =
        [(); 2].map(|()| DeviceBuffer::<u32>::zeroed(&bench.device.context, 32).unwrap());
    let graph = shift(stream, &one, &other);
    bench.simulator.fail("cuEventElapsedTime", 1, UNKNOWN).unwrap();
    let failed = graph.profile(stream, usize::MAX).unwrap_err();
    assert!(failed.to_string().contains("cuEventElapsedTime"), "{failed}");
}
