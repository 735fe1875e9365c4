//! Programmatic dependent launch: kernels that start before their predecessor has ended.

use retrograph_kernels::Argument;
use retrograph_kernels::ops::{Add, Gemv, Silu};
use retrograph_runtime::{
    Bindings, BuildOptions, CustomLaunch, DeviceBuffer, LaunchAttributes, LaunchGeometry, OpId,
    Pass, PdlMode, Policy, Report, Slice,
};

use crate::device::{Device, device};
use crate::failing_programs::Bench;
use crate::programs::build;
use crate::ptx::{SCALE, image};
use crate::support::with;

const LEN: usize = 64;
/// Kernels in a row.
const ROW: usize = 6;

/// [`SCALE`] with PDL: it lets dependents start immediately and waits before it accesses memory.
/// The conditional return of the original comes after the wait.
fn waiting_scale() -> String {
    let ptx = SCALE.replace(".version 6.3", ".version 7.8").replace("sm_75", "sm_90");
    let first = "    ld.param.u64        %rd0, [x];";
    assert!(ptx.contains(first));
    let pdl = "    griddepcontrol.launch_dependents;\n    griddepcontrol.wait;\n";
    ptx.replace(first, &format!("{pdl}{first}"))
}

/// The device, if it has programmatic dependent launch. The simulated one has.
#[allow(clippy::print_stderr)]
fn able() -> Option<Device> {
    let device = device();
    let target = device.context.device_target();
    if !target.features().pdl {
        eprintln!("SKIPPED: {target} has no programmatic dependent launch");
        return None;
    }
    Some(device)
}

fn scale(pass: &mut Pass, x: Slice<f32>, factor: f32, pdl: bool) -> OpId {
    let image = image("waiting scale", &waiting_scale());
    let arguments = vec![Argument::update(x), Argument::U32(x.len() as u32), Argument::f32(factor)];
    let mut launch =
        CustomLaunch::new(image, "scale", LaunchGeometry::linear(1, LEN as u32), arguments);
    if pdl {
        // SAFETY: the kernel waits before it touches memory.
        launch.attributes = unsafe { LaunchAttributes::new().programmatic_stream_serialization() };
    }
    // SAFETY: the entry point takes these arguments, and scales the elements that they name.
    unsafe { pass.custom(launch) }.unwrap()
}

/// A fill, a row of kernels that wait by themselves, and a kernel of the workspace.
fn pass(pdl: bool) -> (Pass, [Slice<f32>; 2]) {
    let mut pass = Pass::new("pdl");
    let (x, y) = (pass.external::<f32>("x", LEN), pass.external::<f32>("y", LEN));
    pass.fill(x, 1.0_f32.to_bits()).unwrap();
    for at in 0..ROW {
        scale(&mut pass, x, 1.0 + at as f32 / 8.0, pdl);
    }
    pass.launch(Silu { x, y }.launch().unwrap()).unwrap();
    (pass, [x, y])
}

fn run(device: &Device, pdl: bool, options: BuildOptions) -> (Vec<u32>, Report) {
    let (pass, slices) = pass(pdl);
    let buffers = slices.map(|_| DeviceBuffer::<f32>::zeroed(&device.context, LEN).unwrap());
    let mut bindings = Bindings::new();
    for (slice, buffer) in slices.into_iter().zip(&buffers) {
        bindings.bind(slice, buffer);
    }
    let mut program = build(device, &pass, &bindings, options).unwrap();
    for _ in 0..20 {
        program.step(&device.stream, &pass.controls()).unwrap();
    }
    program.admit(&device.stream, &pass.controls()).unwrap();
    program.profile(&device.stream, &pass.controls(), 1).unwrap();
    let values = buffers[1].download(&device.stream).unwrap();
    (values.iter().map(|value| value.to_bits()).collect(), program.report().clone())
}

#[test]
fn kernels_that_wait_by_themselves_compute_the_same_bits() {
    let Some(device) = able() else { return };
    let options = |policy, pdl| with(BuildOptions::from(policy), |it| it.pdl = pdl);
    let (expected, eager) = run(&device, true, options(Policy::Eager, PdlMode::Always));
    assert_eq!(eager.programmatic_edges, 0);
    let measured = usize::from(device.context.device_target().features().faster_with_pdl);
    for (enabled, policy, mode, edges) in [
        // The first kernel waits for a fill, the last is one of the workspace.
        (true, Policy::Manual, PdlMode::Always, ROW),
        (true, Policy::Auto, PdlMode::Always, ROW),
        (true, Policy::Manual, PdlMode::Measured, ROW - 1 + measured),
        (true, Policy::Manual, PdlMode::Never, 0),
        (true, Policy::Capture, PdlMode::Always, 0),
        (false, Policy::Manual, PdlMode::Always, 1),
        (false, Policy::Manual, PdlMode::Measured, measured),
        (false, Policy::Manual, PdlMode::Never, 0),
    ] {
        let (found, report) = run(&device, enabled, options(policy, mode));
        assert_eq!(report.programmatic_edges, edges, "{report}");
        assert_eq!((report.nodes, report.edges, report.depth), (ROW + 2, ROW + 1, ROW + 2));
        assert_eq!(found, expected, "{report}");
        assert_eq!(report.to_string().contains("are programmatic"), edges > 0, "{report}");
    }
}

#[test]
fn pdl_needs_kernels_as_all_predecessors() {
    let Some(device) = able() else { return };
    let run = |kernels: usize, policy| {
        let mut pass = Pass::new("several");
        let given = pass.external::<f32>("given", LEN);
        let out = pass.external::<f32>("out", LEN);
        let operands = ["a", "b"].map(|name| pass.transient::<f32>(name, LEN));
        let first = pass.transient::<f32>("first", LEN);
        pass.launch(Silu { x: given, y: first }.launch().unwrap()).unwrap();
        for (at, operand) in operands.into_iter().enumerate() {
            match at < kernels {
                true => pass.launch(Silu { x: [first, given][at], y: operand }.launch().unwrap()),
                false => pass.fill(operand, 2.0_f32.to_bits()),
            }
            .unwrap();
        }
        let [a, b] = operands;
        pass.launch(Add { a, b, out }.launch().unwrap()).unwrap();
        let values: Vec<f32> = (0..LEN).map(|at| at as f32 / 9.0 - 3.0).collect();
        let given_buffer = DeviceBuffer::from_slice(&device.stream, &values).unwrap();
        let buffer = DeviceBuffer::<f32>::zeroed(&device.context, LEN).unwrap();
        let mut bindings = Bindings::new();
        bindings.bind(given, &given_buffer).bind(out, &buffer);
        let mut options = BuildOptions::from(policy);
        options.pdl = PdlMode::Always;
        let mut program = build(&device, &pass, &bindings, options).unwrap();
        for _ in 0..20 {
            program.step(&device.stream, &pass.controls()).unwrap();
        }
        let found = buffer.download(&device.stream).unwrap();
        let bits: Vec<u32> = found.iter().map(|value| value.to_bits()).collect();
        (bits, program.report().programmatic_edges)
    };
    // The second kernel waits for the first, and the sum for both of its operands.
    for (kernels, edges) in [(2, 3), (1, 1)] {
        let (expected, none) = run(kernels, Policy::Eager);
        let (found, programmatic_edges) = run(kernels, Policy::Manual);
        assert_eq!((none, programmatic_edges), (0, edges), "{kernels} kernels");
        assert_eq!(found, expected, "{kernels} kernels");
    }
}

#[test]
fn a_kernel_that_prefetches_a_written_buffer_has_no_programmatic_edge() {
    let Some(device) = able() else { return };
    let zeros = |len| DeviceBuffer::<f32>::zeroed(&device.context, len).unwrap();
    let programmatic_edges = |write: Option<std::ops::Range<usize>>, after: bool| {
        let mut pass = Pass::new("ahead");
        let (x, inner) = (pass.external::<f32>("x", 8), pass.transient::<f32>("inner", 8));
        let (w, y) = (pass.external::<f32>("w", 64), pass.external::<f32>("y", 4));
        let weights = w.slice(0..32);
        let overwrite = |pass: &mut Pass| {
            if let Some(range) = write.clone() {
                pass.fill(w.slice(range), 0).unwrap();
            }
        };
        if !after {
            overwrite(&mut pass);
        }
        pass.launch(Silu { x, y: inner }.launch().unwrap()).unwrap();
        let (bias, alpha, accumulate) = (None, 1.0, false);
        let product = Gemv { x: inner, w: weights, bias, y, alpha, accumulate };
        pass.launch(product.launch().unwrap()).unwrap();
        if after {
            overwrite(&mut pass);
        }
        let buffers = [zeros(8), zeros(64), zeros(4)];
        let mut bindings = Bindings::new();
        for (slice, buffer) in [x, w, y].into_iter().zip(&buffers) {
            bindings.bind(slice, buffer);
        }
        let mut options = BuildOptions::from(Policy::Manual);
        options.pdl = PdlMode::Always;
        let mut program = build(&device, &pass, &bindings, options).unwrap();
        program.step(&device.stream, &pass.controls()).unwrap();
        program.report().programmatic_edges
    };
    assert_eq!(programmatic_edges(None, false), 1);
    // Other bytes of the buffer do not matter.
    assert_eq!(programmatic_edges(Some(32..64), true), 1);
    assert_eq!(programmatic_edges(Some(31..64), true), 0);
    assert_eq!(programmatic_edges(Some(31..32), false), 0);
}

#[test]
fn a_driver_without_such_edges_gets_full_ones() {
    let bench = Bench::with_table(0, |table| table.cuGraphAddDependencies_v2 = None);
    let (_, report) = run(&bench.device, true, Policy::Manual.into());
    assert_eq!((report.programmatic_edges, report.edges), (0, ROW + 1), "{report}");
}
