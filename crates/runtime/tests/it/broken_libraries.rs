//! Libraries that break the capture in which they are called, or bake in varying values.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use retrograph_driver::{KernelArguments, KernelLaunch, LaunchAttributes, LaunchGeometry, Module};
use retrograph_driver_sim::DiagnosticKind;
use retrograph_driver_sys::CUresult;
use retrograph_runtime::{
    AdmitError, BuildError, CaptureError, DeviceBuffer, Error, Event, LibraryCall, LibraryScope,
    PassError, Policy, Reason, Strategy, Stream,
};

use crate::device::assert_works;
use crate::device::{Device, device};
use crate::failing_programs::{Bench, UNKNOWN, code_of, fallback};
use crate::libraries::{LEN, Mixed, forking};

type Called = retrograph_runtime::error::Result<()>;

fn copy(scope: &LibraryScope<'_>) -> Called {
    let (from, to) = (scope.range(0), scope.range(1));
    // SAFETY: the ranges are of one length, and the program keeps them.
    unsafe { scope.stream().memcpy_dtod(to.address, from.address, from.bytes) }
}

/// Waits for its stream, which is allowed only outside a capture.
fn wait(scope: &LibraryScope<'_>) -> CUresult {
    // SAFETY: the stream lives.
    unsafe { (scope.context().table().cuStreamSynchronize)(scope.stream().raw()) }
}

/// Returns the error.
fn waiting() -> LibraryCall {
    LibraryCall::new("waiting copy", |scope| {
        copy(scope)?;
        let code = wait(scope);
        scope.check("cuStreamSynchronize", code)
    })
}

/// Ignores the error.
fn waiting_in_silence() -> LibraryCall {
    LibraryCall::new("silent copy", |scope| {
        copy(scope)?;
        let _ = wait(scope);
        Ok(())
    })
}

/// Leaves another stream in the capture without joining it.
fn unjoined(device: &Device) -> LibraryCall {
    let other = Stream::new(&device.context).unwrap();
    let event = Event::untimed(&device.context).unwrap();
    LibraryCall::new("unjoined copy", move |scope| {
        event.record(scope.stream())?;
        other.wait(&event)?;
        let (from, to) = (scope.range(0), scope.range(1));
        // SAFETY: as for `copy`, and the tests wait for the device before they read.
        unsafe { other.memcpy_dtod(to.address, from.address, from.bytes) }?;
        copy(scope)
    })
}

#[test]
fn a_library_call_that_breaks_a_capture_is_named_and_the_steps_are_eager() {
    let device = device();
    let reference = Mixed::new(&device, LibraryCall::new("copy", copy));
    let (mut eager, y) = reference.build(&device, Policy::Eager).unwrap();
    let expected = reference.run(&device.stream, &mut eager, &y);
    let refused = ("cuStreamSynchronize", CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    let broken =
        [(waiting(), "waiting copy", Some(refused)), (waiting_in_silence(), "silent copy", None)];
    for (call, name, failed) in broken {
        let mixed = Mixed::new(&device, call);
        let (mut program, y) = mixed.build(&device, Policy::Auto).unwrap();
        let (failure, retry_after) = fallback(program.report());
        assert_eq!((code_of(failure.call()), retry_after), (failed, Some(16)));
        assert!(failure.to_string().contains(name), "{failure}");
        assert_eq!(mixed.run(&device.stream, &mut program, &y), expected);
        for policy in [Policy::Hybrid, Policy::Capture] {
            let error = mixed.build(&device, policy).unwrap_err();
            let BuildError::Capture(lost) = &error else { panic!("{error}") };
            assert!(lost.recovered, "{error}");
            assert_eq!(code_of(error.call()), failed, "{error}");
            assert!(error.to_string().contains(name), "{error}");
            assert_works(&device.stream);
        }
    }
}

#[test]
fn an_unjoined_stream_is_found_at_the_end_of_the_capture() {
    let device = device();
    let mixed = Mixed::new(&device, unjoined(&device));
    for policy in [Policy::Hybrid, Policy::Capture] {
        let error = mixed.build(&device, policy).unwrap_err();
        let BuildError::Capture(CaptureError { first: Some(first), .. }) = &error else {
            panic!("{error}")
        };
        let unjoined = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        assert_eq!((first.error.call, first.error.code), ("cuStreamEndCapture", unjoined));
        assert_works(&device.stream);
    }
}

#[test]
fn a_lost_graph_is_neither_leaked_nor_destroyed_twice() {
    let bench = Bench::new(0);
    let device = &bench.device;
    for call in [waiting(), waiting_in_silence(), unjoined(device)] {
        let mixed = Mixed::new(device, call);
        drop(mixed.build(device, Policy::Eager).unwrap());
        let before = bench.simulator.live();
        for policy in [Policy::Auto, Policy::Hybrid, Policy::Capture] {
            drop(mixed.build(device, policy));
            assert_eq!(bench.simulator.live(), before, "{policy:?}");
        }
    }
    // The broken captures themselves are expected; a wrong destroy would not be.
    let mut surprises = bench.simulator.diagnostics();
    surprises.retain(|found| found.kind != DiagnosticKind::Capture);
    assert!(surprises.is_empty(), "{surprises:?}");
}

#[test]
fn a_library_that_panics_leaves_a_usable_stream_and_no_graph() {
    let bench = Bench::new(0);
    let device = &bench.device;
    let mixed = Mixed::new(device, LibraryCall::new("panics", |_| panic!("on purpose")));
    let before = bench.simulator.live();
    for policy in [Policy::Hybrid, Policy::Capture] {
        let built = catch_unwind(AssertUnwindSafe(|| drop(mixed.build(device, policy))));
        assert!(built.is_err());
        assert_eq!(bench.simulator.live(), before, "{policy:?}");
        assert_works(&device.stream);
    }
}

/// Each call that a build by capture into a graph makes fails once.
#[test]
fn failed_calls_leak_nothing() {
    let bench = Bench::new(0);
    let device = &bench.device;
    let mixed = Mixed::new(device, forking(device));
    for (call, nth) in [
        ("cuStreamBeginCaptureToGraph", 1),
        ("cuStreamUpdateCaptureDependencies", 1),
        ("cuStreamUpdateCaptureDependencies", 2),
        ("cuGraphAddKernelNode_v2", 1),
        ("cuStreamGetCaptureInfo_v3", 1),
        ("cuStreamGetCaptureInfo_v3", 4),
        ("cuGraphGetNodes", 2),
        ("cuMemcpyDtoDAsync_v2", 2),
        ("cuGraphGetEdges_v2", 1),
    ] {
        let before = bench.simulator.live();
        bench.simulator.fail(call, nth, UNKNOWN).unwrap();
        let error = mixed.build(device, Policy::Hybrid).unwrap_err();
        assert_eq!(code_of(error.call()), Some((call, UNKNOWN)), "{error}");
        assert_eq!(bench.simulator.live(), before, "{call} leaks");
        mixed.build(device, Policy::Hybrid).unwrap();
    }
}

#[test]
fn a_driver_that_cannot_capture_into_a_graph_captures_the_whole_stream() {
    let bench = Bench::with_table(0, |table| table.cuStreamBeginCaptureToGraph = None);
    let mixed = Mixed::new(&bench.device, forking(&bench.device));
    let (program, _) = mixed.build(&bench.device, Policy::Auto).unwrap();
    let report = program.report();
    assert_eq!((report.strategy, report.library_nodes), (Strategy::Capture, 3), "{report}");
    assert!(matches!(report.reason, Reason::NoCaptureIntoGraph), "{report}");
    let error = mixed.build(&bench.device, Policy::Hybrid).unwrap_err();
    assert!(error.to_string().contains("cuStreamBeginCaptureToGraph"), "{error}");
}

#[test]
fn work_of_libraries_cannot_be_added_by_hand() {
    let device = device();
    let mixed = Mixed::new(&device, LibraryCall::new("copy", copy));
    let error = mixed.build(&device, Policy::Manual).unwrap_err();
    assert!(matches!(&error, BuildError::NotManual { operation } if operation == "library scale"));
}

/// Everything that a call declares is checked like the arguments of a kernel.
#[test]
fn operands_of_library_calls_are_checked() {
    let mut pass = retrograph_runtime::Pass::new("checked");
    let out = pass.external::<f32>("out", LEN);
    let fresh = pass.transient::<f32>("fresh", LEN);
    let call = |name: &str| LibraryCall::new(name, |_| Ok(()));
    // SAFETY: none of the calls does anything.
    let refused = unsafe {
        [
            pass.library(call("reads nothing").reads(fresh)).unwrap_err(),
            pass.library(call("twice").writes(out).writes(out.slice(3..5))).unwrap_err(),
        ]
    };
    assert!(matches!(refused[0], PassError::ReadBeforeWrite { .. }), "{}", refused[0]);
    assert!(matches!(refused[1], PassError::Aliased { .. }), "{}", refused[1]);
    assert!(pass.operations().is_empty());
}

/// A number that grows with each call is one of the step during which the graph was built.
#[test]
fn admission_finds_values_that_a_library_bakes_in() {
    let device = device();
    let count = AtomicU32::new(0);
    let counting = LibraryCall::new("counting", move |scope| {
        let pattern = count.fetch_add(1, Ordering::Relaxed);
        let to = scope.range(1);
        // SAFETY: the range is the program's.
        unsafe { scope.stream().memset_d32(to.address, pattern, to.bytes / 4) }
    });
    for policy in [Policy::Hybrid, Policy::Capture] {
        let mixed = Mixed::new(&device, LibraryCall::new("copy", copy));
        let (mut program, _) = mixed.build(&device, policy).unwrap();
        let admission = program.admit(&device.stream, &mixed.controls()).unwrap();
        assert_eq!((admission.nodes, admission.bytes), (7, (LEN + 1) * 4), "{policy:?}");
    }
    let mixed = Mixed::new(&device, counting);
    let (mut program, _) = mixed.build(&device, Policy::Hybrid).unwrap();
    let error = program.admit(&device.stream, &mixed.controls()).unwrap_err();
    assert!(
        matches!(&error, AdmitError::LibraryVaries { operation } if operation == "counting"),
        "{error}"
    );
}

#[test]
fn admission_finds_launch_attributes_that_differ_between_captures() {
    let device = device();
    let ptx = ".version 6.3\n.target sm_75\n.address_size 64\n.visible .entry nothing() { ret; }";
    for varies in [false, true] {
        let module = Module::load_ptx(&device.context, ptx).unwrap();
        let (nothing, calls) = (module.function("nothing").unwrap(), AtomicU32::new(0));
        let launching = LibraryCall::new("launching", move |scope| {
            copy(scope)?;
            let is_odd = calls.fetch_add(1, Ordering::Relaxed) % 2 == 1;
            let attributes = match varies && is_odd {
                true => LaunchAttributes::new().cooperative(),
                false => LaunchAttributes::new(),
            };
            let (geometry, none) = (LaunchGeometry::linear(1, 32), KernelArguments::new());
            let launch = KernelLaunch::new(&nothing, geometry, &none).with(attributes);
            // SAFETY: the kernel accesses no memory.
            unsafe { scope.stream().launch(&launch) }
        });
        let mixed = Mixed::new(&device, launching);
        let (mut program, _) = mixed.build(&device, Policy::Hybrid).unwrap();
        match program.admit(&device.stream, &mixed.controls()) {
            Ok(_) if !varies => {}
            Err(AdmitError::LibraryVaries { operation }) if varies => {
                assert_eq!(operation, "launching");
            }
            other => panic!("{varies}: {other:?}"),
        }
    }
}

#[test]
fn admission_refuses_nodes_that_it_cannot_read() {
    let device = device();
    let host = retrograph_runtime::PinnedBuffer::<f32>::zeroed(&device.context, LEN).unwrap();
    let uploading = LibraryCall::new("uploading", move |scope| {
        let to = scope.range(1);
        // SAFETY: the range is the program's, and the call keeps the host's memory.
        unsafe { scope.stream().memcpy_htod(to.address, host.as_ptr().cast(), to.bytes) }
    });
    let mixed = Mixed::new(&device, uploading);
    let (mut program, _) = mixed.build(&device, Policy::Hybrid).unwrap();
    let error = program.admit(&device.stream, &mixed.controls()).unwrap_err();
    assert!(
        matches!(&error, AdmitError::Unreadable { operation, .. } if operation == "uploading"),
        "{error}"
    );
}

#[test]
fn allocations_that_a_library_captures_are_refused() {
    let device = device();
    let allocating = LibraryCall::new("allocating", |scope| {
        let (table, stream, mut address) = (scope.context().table(), scope.stream().raw(), 0);
        // SAFETY: the out pointer is valid, and the memory is freed after its allocation.
        unsafe {
            scope.check("cuMemAllocAsync", (table.cuMemAllocAsync)(&mut address, 256, stream))?;
            scope.check("cuMemFreeAsync", (table.cuMemFreeAsync)(address, stream))?;
        }
        copy(scope)
    });
    let mixed = Mixed::new(&device, allocating);
    for policy in [Policy::Hybrid, Policy::Capture] {
        let error = mixed.build(&device, policy).unwrap_err();
        let BuildError::Device(Error::MemoryNodes { nodes }) = error else { panic!("{error}") };
        assert_eq!(nodes, 2);
    }
    let (mut program, y): (_, DeviceBuffer<f32>) = mixed.build(&device, Policy::Auto).unwrap();
    assert_eq!(program.report().strategy, Strategy::Eager, "{}", program.report());
    assert_eq!(mixed.run(&device.stream, &mut program, &y).len(), 3 * (LEN + 1));
}
