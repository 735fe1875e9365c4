//! Programs: every strategy gives the same bits, and no error is silent.
//!
//! The silent errors of earlier systems, and the tests that each is impossible or detected:
//!
//! - a captured step was lost: [`building_runs_nothing_and_each_step_runs_once`]
//! - `lr` and `step` were baked in: [`controls_reach_every_step`],
//!   [`admission_finds_nothing_that_varies`]
//! - `?` inside the captured window left the stream capturing:
//!   `failing_programs::a_failed_capture_leaves_a_usable_stream`
//! - replay through dangling buffers: [`a_program_keeps_what_it_accesses`]
//! - operations that were not wired into the graph: [`graphs_have_one_node_for_each_operation`]
//! - copies on the legacy stream: `failing_programs::controls_travel_on_the_stream_of_the_step`
//! - swapped (m, n, k): [`swapped_shapes_are_refused_by_length`]
//! - cold JIT in the middle of training: [`cold_kernels_are_named_when_a_program_is_built`]
//! - scratch memory that held lucky zeros: [`nan_in_fresh_transients_changes_nothing`]
//! - one memory with two names: `bound::shared_memory_is_refused`

use retrograph_kernels::KernelError;
use retrograph_kernels::ops::{Dgrad, Fprop, GemmShape, Silu};
use retrograph_runtime::{
    Bindings, BuildError, BuildOptions, DeviceBuffer, ModuleCache, Pass, Policy, Program, Reuse,
    StepError, Strategy, Stream,
};

use crate::device::{Device, device};
use crate::mlp::Mlp;

const POLICIES: [Policy; 4] = [Policy::Eager, Policy::Manual, Policy::Capture, Policy::Auto];

/// Builds `pass` with everything warm.
pub(crate) fn build(
    device: &Device,
    pass: &Pass,
    bindings: &Bindings,
    options: impl Into<BuildOptions>,
) -> Result<Program, BuildError> {
    let cache = ModuleCache::new(&device.context);
    let modules = cache.prewarm(&pass.requirements(), |_| ()).unwrap();
    Program::build(&device.stream, &modules, pass, bindings, options)
}

#[test]
fn strategies_agree_bit_for_bit() {
    let (device, mlp) = (device(), Mlp::new());
    let trained = POLICIES.map(|policy| {
        let buffers = mlp.buffers(&device.stream);
        let mut program = build(&device, &mlp.pass, &mlp.bindings(&buffers), policy).unwrap();
        mlp.train(&mut program, &device.stream, &buffers, 0..10)
    });
    let losses: Vec<f32> = trained[0][..10].iter().map(|&bits| f32::from_bits(bits)).collect();
    assert!(losses.iter().all(|loss| loss.is_finite()), "{losses:?}");
    assert!(losses[9] < losses[0], "training lowers the loss: {losses:?}");
    for (policy, bits) in POLICIES.iter().zip(&trained) {
        assert!(*bits == trained[0], "{policy:?} differs from eager");
    }
}

#[test]
fn building_runs_nothing_and_each_step_runs_once() {
    let (device, mlp) = (device(), Mlp::new());
    let after_one = POLICIES.map(|policy| {
        let buffers = mlp.buffers(&device.stream);
        let before = buffers.state(&device.stream);
        let mut program = build(&device, &mlp.pass, &mlp.bindings(&buffers), policy).unwrap();
        device.stream.synchronize().unwrap();
        assert!(buffers.state(&device.stream) == before, "building with {policy:?} ran a step");
        let outcome = program.step(&device.stream, &mlp.controls(0)).unwrap();
        assert_eq!((outcome.index, program.steps()), (0, 1));
        let after = buffers.state(&device.stream);
        assert!(after != before, "the first step with {policy:?} was lost");
        after
    });
    assert!(after_one.iter().all(|after| *after == after_one[0]));
}

#[test]
fn controls_reach_every_step() {
    let device = device();
    let mut pass = Pass::new("controls");
    let lr = pass.control::<f32>("lr");
    let tokens = pass.control_array::<u32>("tokens", 70);
    let (lr_out, tokens_out) = (pass.external("lr out", 1), pass.external("tokens out", 70));
    pass.copy(lr, lr_out).unwrap();
    pass.copy(tokens, tokens_out).unwrap();
    for policy in POLICIES {
        let lr_buffer = DeviceBuffer::zeroed(&device.context, 1).unwrap();
        let token_buffer = DeviceBuffer::zeroed(&device.context, 70).unwrap();
        let mut bindings = Bindings::new();
        bindings.bind(lr_out, &lr_buffer).bind(tokens_out, &token_buffer);
        let mut program = build(&device, &pass, &bindings, policy).unwrap();
        let mut controls = pass.controls();
        for step in 0..9_u32 {
            let values: Vec<u32> = (0..70).map(|at| at * 1000 + step).collect();
            controls.set(lr, step as f32 * 0.5).unwrap();
            controls.set_array(tokens, &values).unwrap();
            program.step(&device.stream, &controls).unwrap();
            // Values of later steps must not reach this one while it is still in flight.
            controls.set(lr, f32::NAN).unwrap();
            assert_eq!(lr_buffer.download(&device.stream).unwrap(), [step as f32 * 0.5]);
            assert_eq!(token_buffer.download(&device.stream).unwrap(), values);
        }
    }
}

#[test]
fn many_steps_in_flight_keep_their_own_controls() {
    let device = device();
    let mut pass = Pass::new("history");
    let value = pass.control::<f32>("value");
    let history = pass.external::<f32>("history", 64);
    let shifted = pass.transient::<f32>("shifted", 63);
    pass.copy(history.slice(0..63), shifted).unwrap();
    pass.copy(shifted, history.slice(1..64)).unwrap();
    pass.copy(value, history.slice(0..1)).unwrap();
    for policy in POLICIES {
        let buffer = DeviceBuffer::zeroed(&device.context, 64).unwrap();
        let mut bindings = Bindings::new();
        bindings.bind(history, &buffer);
        let mut program = build(&device, &pass, &bindings, policy).unwrap();
        let mut controls = pass.controls();
        for step in 0..64 {
            controls.set(value, step as f32).unwrap();
            program.step(&device.stream, &controls).unwrap();
        }
        let expected: Vec<f32> = (0..64).rev().map(|step| step as f32).collect();
        assert_eq!(buffer.download(&device.stream).unwrap(), expected, "{policy:?}");
    }
}

#[test]
fn steps_on_changing_streams_run_in_order() {
    let (device, mlp) = (device(), Mlp::new());
    let other = Stream::new(&device.context).unwrap();
    let trained = [Policy::Eager, Policy::Manual, Policy::Capture].map(|policy| {
        let buffers = mlp.buffers(&device.stream);
        let mut program = build(&device, &mlp.pass, &mlp.bindings(&buffers), policy).unwrap();
        for step in 0..6 {
            let stream = if step % 2 == 0 { &device.stream } else { &other };
            program.step(stream, &mlp.controls(step)).unwrap();
        }
        other.synchronize().unwrap();
        buffers.state(&device.stream)
    });
    let buffers = mlp.buffers(&device.stream);
    let mut program = build(&device, &mlp.pass, &mlp.bindings(&buffers), Policy::Eager).unwrap();
    mlp.train(&mut program, &device.stream, &buffers, 0..6);
    let expected = buffers.state(&device.stream);
    assert!(trained.iter().all(|state| *state == expected));
}

#[test]
fn admission_finds_nothing_that_varies() {
    let (device, mlp) = (device(), Mlp::new());
    for policy in POLICIES {
        let buffers = mlp.buffers(&device.stream);
        let mut program = build(&device, &mlp.pass, &mlp.bindings(&buffers), policy).unwrap();
        mlp.train(&mut program, &device.stream, &buffers, 0..2);
        let before = buffers.state(&device.stream);
        let admission = program.admit(&device.stream, &mlp.controls(2)).unwrap();
        assert_eq!(admission.nodes, program.report().nodes);
        assert!(admission.bytes > 0);
        assert!(buffers.state(&device.stream) == before, "admission leaves the state as it was");
        assert_eq!(program.steps(), 2);
    }
}

#[test]
fn a_program_keeps_what_it_accesses() {
    let (device, mlp) = (device(), Mlp::new());
    for policy in POLICIES {
        let buffers = mlp.buffers(&device.stream);
        let expected = {
            let bindings = mlp.bindings(&buffers);
            let mut program = build(&device, &mlp.pass, &bindings, policy).unwrap();
            mlp.train(&mut program, &device.stream, &buffers, 0..4)
        };
        // All handles except the loss's are gone before the first step.
        let buffers = mlp.buffers(&device.stream);
        let loss = buffers.loss();
        let mut program = build(&device, &mlp.pass, &mlp.bindings(&buffers), policy).unwrap();
        drop(buffers);
        let fresh: Vec<DeviceBuffer<f32>> =
            (0..20).map(|_| DeviceBuffer::zeroed(&device.context, 64).unwrap()).collect();
        for step in 0..4 {
            program.step(&device.stream, &mlp.controls(step)).unwrap();
            let bits = loss.download(&device.stream).unwrap()[0].to_bits();
            assert_eq!(bits, expected[step as usize], "{policy:?}, step {step}");
        }
        drop(program);
        let clean = |buffer: &DeviceBuffer<f32>| buffer.download(&device.stream).unwrap();
        assert!(fresh.iter().all(|buffer| clean(buffer).iter().all(|&value| value == 0.0)));
    }
}

#[test]
fn graphs_have_one_node_for_each_operation() {
    let (device, mlp) = (device(), Mlp::new());
    let buffers = mlp.buffers(&device.stream);
    let bindings = mlp.bindings(&buffers);
    let operations = mlp.pass.operations().len();
    let manual = build(&device, &mlp.pass, &bindings, Policy::Manual).unwrap();
    let (report, edges) = (manual.report(), mlp.pass.edges());
    assert_eq!((report.nodes, report.operations), (operations, operations));
    assert_eq!((report.edges, report.depth), (edges.len(), edges.depth()));
    assert!(report.depth < operations, "independent operations run concurrently");
    let capture = build(&device, &mlp.pass, &bindings, Policy::Capture).unwrap();
    let report = capture.report();
    assert_eq!((report.nodes, report.edges), (operations, operations - 1));
    assert_eq!(report.depth, operations, "one stream is one chain");
}

#[test]
fn swapped_shapes_are_refused_by_length() {
    let mut pass = Pass::new("swapped");
    let (rows, inputs, outputs) = (4, 6, 10);
    let x = pass.external::<f32>("x", rows * inputs);
    let w = pass.external::<f32>("w", outputs * inputs);
    let y = pass.external::<f32>("y", rows * outputs);
    let (bias, alpha, accumulate) = (None, 1.0, false);
    let shape = GemmShape { rows, inputs: outputs, outputs: inputs };
    let swapped = Fprop { x, w, bias, y, shape, alpha, accumulate }.launch();
    assert!(matches!(swapped, Err(KernelError::Length { .. })), "{swapped:?}");
    let shape = GemmShape { rows: inputs, inputs: rows, outputs };
    let swapped = Dgrad { grad_out: y, w, grad_input: x, shape, alpha, accumulate }.launch();
    assert!(matches!(swapped, Err(KernelError::Length { .. })), "{swapped:?}");
}

#[test]
fn cold_kernels_are_named_when_a_program_is_built() {
    let device = device();
    let mut pass = Pass::new("cold");
    let (x, y) = (pass.external("x", 4), pass.external("y", 4));
    pass.set_scope("layer 7");
    pass.launch(Silu { x, y }.launch().unwrap()).unwrap();
    let buffer = || DeviceBuffer::zeroed(&device.context, 4).unwrap();
    let mut bindings = Bindings::new();
    bindings.bind(x, &buffer()).bind(y, &buffer());
    let cache = ModuleCache::new(&device.context);
    let nothing_warm = cache.prewarm(&Pass::new("empty").requirements(), |_| ()).unwrap();
    for policy in POLICIES {
        let built = Program::build(&device.stream, &nothing_warm, &pass, &bindings, policy);
        match built.unwrap_err() {
            BuildError::Cold { operation, cause: cold } => {
                assert_eq!(operation, "layer 7/silu");
                assert!(cold.kernel.contains("silu"), "{cold}");
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn nan_in_fresh_transients_changes_nothing() {
    let (device, mlp) = (device(), Mlp::new());
    let plain = mlp.buffers(&device.stream);
    let mut program = build(&device, &mlp.pass, &mlp.bindings(&plain), Policy::Manual).unwrap();
    let expected = mlp.train(&mut program, &device.stream, &plain, 0..5);
    for policy in POLICIES {
        for reuse in [Reuse::WhenOrdered, Reuse::Full, Reuse::Never] {
            let buffers = mlp.buffers(&device.stream);
            let mut options = BuildOptions::default();
            options.policy = policy;
            options.reuse = Some(reuse);
            options.nan_transients = true;
            let bindings = mlp.bindings(&buffers);
            let mut program = build(&device, &mlp.pass, &bindings, options).unwrap();
            assert_eq!(program.report().reuse, reuse);
            let trained = mlp.train(&mut program, &device.stream, &buffers, 0..5);
            assert!(trained == expected, "{policy:?} with {reuse:?}");
        }
    }
}

#[test]
fn empty_passes_and_single_operations_work() {
    let device = device();
    let mut pass = Pass::new("small");
    for operations in 0..2 {
        for policy in POLICIES {
            let out = DeviceBuffer::<u32>::zeroed(&device.context, 3).unwrap();
            let mut bindings = Bindings::new();
            for (id, buffer) in pass.buffers() {
                bindings.bind(retrograph_runtime::Slice::new(id, buffer.len()), &out);
            }
            let mut program = build(&device, &pass, &bindings, policy).unwrap();
            assert_eq!(program.report().operations, operations);
            program.step(&device.stream, &pass.controls()).unwrap();
            program.admit(&device.stream, &pass.controls()).unwrap();
            let expected = if operations == 0 { 0 } else { 9 };
            assert_eq!(out.download(&device.stream).unwrap(), [expected; 3]);
            if policy == Policy::Auto {
                assert_eq!(program.report().strategy, Strategy::Eager);
            }
        }
        let out = pass.external::<u32>("out", 3);
        pass.fill(out, 9).unwrap();
    }
}

#[test]
fn empty_launches_are_left_out() {
    let device = device();
    let mut pass = Pass::new("empty launch");
    let (x, y) = (pass.external("x", 4), pass.external("y", 4));
    let nothing = Silu { x: x.slice(0..0), y: y.slice(0..0) };
    pass.launch(nothing.launch().unwrap()).unwrap();
    pass.copy(x.slice(2..2), y.slice(1..1)).unwrap();
    pass.copy(x, y).unwrap();
    for policy in POLICIES {
        let from = DeviceBuffer::from_slice(&device.stream, &[1.0, 2.0, 3.0, 4.0]).unwrap();
        let to = DeviceBuffer::zeroed(&device.context, 4).unwrap();
        let mut bindings = Bindings::new();
        bindings.bind(x, &from).bind(y, &to);
        let mut program = build(&device, &pass, &bindings, policy).unwrap();
        assert_eq!((program.report().operations, program.report().skipped), (3, 2));
        program.step(&device.stream, &pass.controls()).unwrap();
        assert_eq!(to.download(&device.stream).unwrap(), [1.0, 2.0, 3.0, 4.0]);
    }
}

#[test]
fn a_step_without_all_controls_does_not_start() {
    let (device, mlp) = (device(), Mlp::new());
    let buffers = mlp.buffers(&device.stream);
    let mut program = build(&device, &mlp.pass, &mlp.bindings(&buffers), Policy::Manual).unwrap();
    let before = buffers.state(&device.stream);
    let error = program.step(&device.stream, &mlp.pass.controls()).unwrap_err();
    assert!(matches!(error, StepError::Controls(_)) && error.to_string().contains("`x`"));
    let error = program.step(&device.stream, &Mlp::new().controls(0)).unwrap_err();
    assert!(matches!(error, StepError::Controls(_)), "controls of another pass: {error}");
    assert!(buffers.state(&device.stream) == before);
    program.step(&device.stream, &mlp.controls(0)).unwrap();
}

#[test]
fn reports_have_the_strategy_and_its_reason() {
    let (device, mlp) = (device(), Mlp::new());
    let buffers = mlp.buffers(&device.stream);
    let program = build(&device, &mlp.pass, &mlp.bindings(&buffers), Policy::Auto).unwrap();
    let (report, text) = (program.report(), program.report().to_string());
    assert_eq!(report.strategy, Strategy::Manual);
    assert_eq!(report.peak_bytes, mlp.pass.plan().peak_bytes());
    let reason = report.reason.to_string();
    for part in ["manual", "nodes", "edges", "depth", "instantiated", "`mlp`", &reason] {
        assert!(text.contains(part), "`{part}` is missing in:\n{text}");
    }
}
