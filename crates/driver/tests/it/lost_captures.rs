//! Work that is enqueued after the loss of a capture reaches no stream.

use retrograph_driver::{
    CaptureMode, DeviceBuffer, Error, Event, KernelArguments, KernelLaunch, LaunchGeometry, Stream,
};
use retrograph_driver_sys::{CUgraph, CUresult, CUstream, DriverTable};

use crate::broken_captures::{assert_lost, call, end_elsewhere};
use crate::device::assert_works;
use crate::device::{Device, device};
use crate::ptx::{SCALE, load};

#[test]
fn a_lost_capture_refuses_work_of_its_thread_on_every_stream() {
    let Device { context, stream } = device();
    let (side, event) = (Stream::new(&context).unwrap(), Event::untimed(&context).unwrap());
    let function = load(&context, SCALE, "scale");
    let buffer = DeviceBuffer::<u32>::zeroed(&context, 8).unwrap();
    let at = buffer.address();
    let arguments = KernelArguments::new().address(at).u32(8).f32(2.0);
    let geometry = LaunchGeometry::linear(1, 32);
    let launch = KernelLaunch::new(&function, geometry, &arguments);
    let mut host = [7_u32; 8];
    let error = stream.capture(CaptureMode::ThreadLocal, |capturing| {
        end_elsewhere(capturing).unwrap_err();
        for stream in [capturing.stream(), &side] {
            let raw = host.as_mut_ptr().cast::<u8>();
            // SAFETY: all ranges are inside the buffer and the array, which outlive the test.
            let outcomes = unsafe {
                [
                    stream.launch(&launch),
                    stream.memcpy_htod(at, raw, 32),
                    stream.memcpy_dtoh(raw, at, 32),
                    stream.memcpy_dtod(at, at + 16, 16),
                    stream.memset_d32(at, 1, 8),
                    stream.wait(&event),
                    event.record(stream),
                ]
            };
            outcomes.into_iter().for_each(|outcome| assert_lost(outcome, Some(908)));
        }
        // SAFETY: as above.
        assert_lost(unsafe { capturing.launch(&launch) }, Some(908));
        Ok::<_, Error>(())
    });
    let error = error.unwrap_err();
    assert!(error.recovered && error.first.unwrap().error.code.0 == 908);
    assert_works(&stream);
    assert_works(&side);
    assert_eq!(buffer.download(&stream).unwrap(), [0; 8]);
    assert_eq!(host, [7; 8]);
}

/// A library call that reports success and leaves a lost capture.
type Sabotage = fn(&DriverTable, CUstream);

fn end_and_drop_the_graph(table: &DriverTable, stream: CUstream) {
    let mut graph = CUgraph::NULL;
    // SAFETY: the stream lives, the out pointer is valid, and the graph is ours.
    unsafe {
        (table.cuStreamEndCapture)(stream, &mut graph).ok().unwrap();
        (table.cuGraphDestroy)(graph).ok().unwrap();
    }
}

fn wait_and_hide_the_failure(table: &DriverTable, stream: CUstream) {
    // SAFETY: the stream lives.
    assert!(unsafe { (table.cuStreamSynchronize)(stream) }.is_capture());
}

#[test]
fn a_capture_that_ends_without_a_failed_call_is_noticed_and_nothing_runs() {
    for (sabotage, through_the_api) in [
        (end_and_drop_the_graph as Sabotage, true),
        (end_and_drop_the_graph, false),
        (wait_and_hide_the_failure, true),
        (wait_and_hide_the_failure, false),
    ] {
        let Device { context, stream } = device();
        let buffer = DeviceBuffer::<u32>::zeroed(&context, 8).unwrap();
        let captured = stream.capture(CaptureMode::ThreadLocal, |capturing| {
            capturing.at("the library");
            if through_the_api {
                let outcome = call(capturing, |table, stream| {
                    sabotage(table, stream);
                    CUresult::CUDA_SUCCESS
                });
                assert_lost(outcome, None);
            } else {
                sabotage(context.table(), capturing.stream().raw());
            }
            // SAFETY: the range is the whole buffer, and the graph is never launched.
            assert_lost(unsafe { capturing.stream().memset_d32(buffer.address(), 1, 8) }, None);
            Ok::<_, Error>(())
        });
        let error = captured.unwrap_err();
        assert!(error.first.is_none() && error.recovered, "{error}");
        assert!(error.to_string().contains("the library"), "{error}");
        assert_eq!(buffer.download(&stream).unwrap(), [0; 8], "nothing of the capture ran");
        assert_works(&stream);
    }
}

#[test]
fn a_capture_that_ended_before_its_body_returns_no_graph() {
    let Device { context, stream } = device();
    let captured = stream.capture(CaptureMode::ThreadLocal, |capturing| {
        end_and_drop_the_graph(context.table(), capturing.stream().raw());
        Ok::<_, Error>(())
    });
    let error = captured.unwrap_err();
    assert!(error.recovered && error.first.is_none(), "not the failed end is the cause: {error}");
    assert!(error.to_string().contains("the end of the capture"), "{error}");
    assert_works(&stream);
}
