//! Capture: its result, calls that are refused meanwhile, and that it always ends.

use std::panic::{AssertUnwindSafe, catch_unwind};

use retrograph_driver::{
    CaptureMode, DeviceBuffer, Error, Event, KernelArguments, KernelLaunch, LaunchGeometry, Module,
    NodeKind, PinnedBuffer, Stream,
};

use crate::device::{Device, alone, assert_works, capture_fill, device};
use crate::ptx::{SCALE, load};

#[test]
fn a_capture_runs_nothing_and_its_graph_runs_the_work_repeatedly() {
    let Device { context, stream } = device();
    let function = load(&context, SCALE, "scale");
    let buffer = DeviceBuffer::from_slice(&stream, &[1.0_f32; 64]).unwrap();
    let arguments = KernelArguments::new().buffer(&buffer).u32(64).f32(3.0);
    let geometry = LaunchGeometry::linear(1, 64);
    let launch = KernelLaunch::new(&function, geometry, &arguments);
    let graph = stream
        .capture(CaptureMode::default(), |capturing| {
            // SAFETY: the arguments match the function; the graph keeps the buffer.
            unsafe {
                capturing.launch(&launch)?;
                capturing.launch(&launch)
            }
        })
        .unwrap();
    let kinds: Vec<_> = graph.nodes().unwrap().iter().map(|n| graph.kind(*n).unwrap()).collect();
    assert_eq!(kinds, [NodeKind::Kernel, NodeKind::Kernel]);
    assert_eq!(graph.edges().unwrap().len(), 1);
    assert_eq!(buffer.download(&stream).unwrap(), [1.0; 64], "a capture must not run");
    let mut exec = graph.instantiate().unwrap();
    drop((graph, function));
    exec.upload(&stream).unwrap();
    exec.launch(&stream).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(buffer.download(&stream).unwrap(), [81.0; 64]);
}

#[test]
fn streams_that_fork_and_join_are_part_of_the_graph() {
    let Device { context, stream } = device();
    let side = Stream::new(&context).unwrap();
    let (fork, join) = (Event::untimed(&context).unwrap(), Event::untimed(&context).unwrap());
    let buffer = DeviceBuffer::<u32>::zeroed(&context, 8).unwrap();
    let graph = stream
        .capture(CaptureMode::ThreadLocal, |capturing| {
            capturing.keep(buffer.owner());
            fork.record(capturing.stream())?;
            side.wait(&fork)?;
            // SAFETY: two halves of the buffer, which the graph keeps.
            unsafe {
                capturing.stream().memset_d32(buffer.address(), 1, 4)?;
                side.memset_d32(buffer.address() + 16, 2, 4)?;
            }
            join.record(&side)?;
            capturing.stream().wait(&join)
        })
        .unwrap();
    assert_eq!(graph.nodes().unwrap().len(), 2);
    assert_eq!(graph.edges().unwrap().len(), 0, "the halves are independent");
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(buffer.download(&stream).unwrap(), [1, 1, 1, 1, 2, 2, 2, 2]);
}

#[test]
fn calls_that_would_break_the_capture_are_refused() {
    let Device { context, stream } = device();
    let other = Stream::new(&context).unwrap();
    let event = Event::new(&context).unwrap();
    let buffer = DeviceBuffer::<u32>::zeroed(&context, 8).unwrap();
    let mut ready = capture_fill(&other, &buffer, 0).instantiate().unwrap();
    let graph = stream
        .capture(CaptureMode::ThreadLocal, |capturing| {
            let refused = |outcome: Result<(), Error>| {
                let error = outcome.unwrap_err();
                assert!(matches!(error, Error::RefusedDuringCapture { .. }), "{error}");
            };
            refused(DeviceBuffer::<f32>::uninit(&context, 4).map(drop));
            refused(PinnedBuffer::<f32>::zeroed(&context, 4).map(drop));
            refused(Stream::new(&context).map(drop));
            refused(Event::new(&context).map(drop));
            refused(context.synchronize());
            refused(capturing.stream().synchronize());
            refused(capturing.stream().query().map(drop));
            refused(other.synchronize());
            refused(event.synchronize());
            refused(event.is_complete().map(drop));
            refused(buffer.upload(&other, &[0; 8]));
            refused(buffer.download(&other).map(drop));
            refused(ready.launch(capturing.stream()));
            let refusal = Module::load_ptx(&context, SCALE).unwrap_err().error;
            refused(Err(refusal));
            let nested = other.capture(CaptureMode::ThreadLocal, |_| Ok::<_, Error>(()));
            assert!(nested.unwrap_err().first.is_none(), "no driver call was made");
            capturing.keep(buffer.owner());
            // SAFETY: the range is the whole buffer, which the graph keeps.
            unsafe { capturing.stream().memset_d32(buffer.address(), 9, 8) }
        })
        .unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(buffer.download(&stream).unwrap(), [9; 8]);
}

#[test]
fn objects_dropped_in_a_capture_are_released_after_it() {
    let Device { context, stream } = device();
    let function = load(&context, SCALE, "scale");
    let buffer = DeviceBuffer::<u32>::zeroed(&context, 1 << 20).unwrap();
    let pinned = PinnedBuffer::<u32>::zeroed(&context, 8).unwrap();
    let kept = DeviceBuffer::<u32>::zeroed(&context, 8).unwrap();
    let exec = capture_fill(&stream, &kept, 1).instantiate().unwrap();
    let side = Stream::new(&context).unwrap();
    let graph = stream
        .capture(CaptureMode::ThreadLocal, |capturing| {
            let before = context.deferred_releases();
            drop((buffer, pinned, function, exec, side));
            assert!(context.deferred_releases() >= before + 5);
            capturing.keep(kept.owner());
            // SAFETY: the range is the whole buffer, which the graph keeps.
            unsafe { capturing.stream().memset_d32(kept.address(), 5, 8) }
        })
        .unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(kept.download(&stream).unwrap(), [5; 8]);
    if context.driver().is_simulated() {
        assert_eq!(context.deferred_releases(), 0, "no other test captures in this context");
    }
}

#[test]
fn an_error_of_the_body_ends_the_capture() {
    let Device { stream, .. } = device();
    let error =
        stream.capture(CaptureMode::ThreadLocal, |_| Err("the batch is empty")).unwrap_err();
    assert!(error.first.is_none());
    assert_eq!(error.cause.as_ref().unwrap().to_string(), "the batch is empty");
    assert!(error.recovered);
    assert!(error.to_string().contains("the batch is empty"), "{error}");
    assert_works(&stream);
}

#[test]
fn a_panic_of_the_body_ends_the_capture_and_propagates() {
    let Device { context, stream } = device();
    let buffer = DeviceBuffer::<u32>::zeroed(&context, 8).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        stream.capture(CaptureMode::ThreadLocal, |capturing| -> Result<(), Error> {
            // SAFETY: the graph is never launched.
            unsafe { capturing.stream().memset_d32(buffer.address(), 1, 8) }?;
            drop(buffer.clone());
            panic!("in the middle");
        })
    }));
    let payload = panicked.unwrap_err();
    assert_eq!(*payload.downcast_ref::<&str>().unwrap(), "in the middle");
    assert_works(&stream);
}

#[test]
fn an_empty_capture_is_an_empty_graph() {
    let Device { stream, .. } = device();
    let graph = stream.capture(CaptureMode::ThreadLocal, |_| Ok::<_, Error>(())).unwrap();
    assert!(graph.nodes().unwrap().is_empty());
    assert_works(&stream);
}

#[test]
fn other_threads_work_while_one_captures() {
    let Device { context, stream } = device();
    let buffer = DeviceBuffer::<u32>::zeroed(&context, 8).unwrap();
    let graph = stream
        .capture(CaptureMode::ThreadLocal, |capturing| {
            std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    let stream = Stream::new(&context).unwrap();
                    let data = DeviceBuffer::from_slice(&stream, &[1_u32, 2]).unwrap();
                    data.download(&stream).unwrap()
                });
                assert_eq!(other.join().unwrap(), [1, 2]);
            });
            capturing.keep(buffer.owner());
            // SAFETY: the range is the whole buffer, which the graph keeps.
            unsafe { capturing.stream().memset_d32(buffer.address(), 6, 8) }
        })
        .unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(buffer.download(&stream).unwrap(), [6; 8]);
}

#[test]
fn a_global_capture_returns_the_same_graph() {
    alone("capturing::a_global_capture_returns_the_same_graph", |Device { context, stream }| {
        let buffer = DeviceBuffer::<u32>::zeroed(&context, 4).unwrap();
        let graph = stream
            .capture(CaptureMode::Global, |capturing| {
                capturing.keep(buffer.owner());
                // SAFETY: the range is the whole buffer, which the graph keeps.
                unsafe { capturing.stream().memset_d32(buffer.address(), 2, 4) }
            })
            .unwrap();
        graph.instantiate().unwrap().launch(&stream).unwrap();
        assert_eq!(buffer.download(&stream).unwrap(), [2; 4]);
    });
}

#[test]
fn captures_and_releases_on_many_threads_do_not_disturb_each_other() {
    let Device { context, .. } = device();
    std::thread::scope(|scope| {
        for index in 0..4_u32 {
            let context = &context;
            scope.spawn(move || {
                let stream = Stream::new(context).unwrap();
                for round in 0..10 {
                    let buffer = DeviceBuffer::<u32>::zeroed(context, 8).unwrap();
                    drop(PinnedBuffer::<u32>::zeroed(context, 8).unwrap());
                    let pattern = index * 100 + round;
                    let mut exec = capture_fill(&stream, &buffer, pattern).instantiate().unwrap();
                    exec.launch(&stream).unwrap();
                    assert_eq!(buffer.download(&stream).unwrap(), [pattern; 8]);
                }
            });
        }
    });
}
