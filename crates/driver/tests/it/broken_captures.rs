//! Every way in which library calls break a capture: the first cause is reported and the stream
//! recovers.

use std::ptr::null_mut;

use retrograph_driver::{CaptureError, CaptureMode, Capturing, DeviceBuffer, Error, Event, Stream};
use retrograph_driver_sys::{
    CU_STREAM_DEFAULT, CUgraph, CUresult, CUstream, CUstreamCaptureMode, DriverTable,
};

use crate::device::assert_works;
use crate::device::{Device, alone, device};

/// Captures `body` on a new stream between two fills, expects it to fail with `code` at its place,
/// and checks that the stream works afterwards.
fn breaks<F>(device: &Device, code: u32, body: F) -> CaptureError
where
    F: FnOnce(&mut Capturing<'_>, &DeviceBuffer<u32>) -> Result<(), Error>,
{
    let stream = Stream::new(&device.context).unwrap();
    let buffer = DeviceBuffer::<u32>::zeroed(&device.context, 8).unwrap();
    let fill = |capturing: &Capturing<'_>| {
        // SAFETY: the range is the whole buffer, and the graph is never launched.
        unsafe { capturing.stream().memset_d32(buffer.address(), 1, 8) }
    };
    let error = stream
        .capture(CaptureMode::ThreadLocal, |capturing| {
            capturing.at("the work before");
            fill(capturing)?;
            capturing.at("the library");
            let outcome = body(capturing, &buffer);
            capturing.at("the later work");
            // Later work may run at once, as on an H200 after 908, so it is refused.
            let after = fill(capturing);
            if outcome.is_err() {
                assert_lost(after, Some(code));
            }
            outcome
        })
        .unwrap_err();
    let first = error.first.as_ref().unwrap();
    assert_eq!(first.error.code.0, code, "{error}");
    assert!(error.recovered, "{error}");
    assert_works(&stream);
    assert_eq!(buffer.download(&stream).unwrap(), [0; 8], "nothing of the capture ran");
    error
}

/// Expects a refusal because the capture is lost, by a call that returned `code` or by an unknown
/// cause.
pub(crate) fn assert_lost(outcome: Result<(), Error>, code: Option<u32>) {
    let error = outcome.unwrap_err();
    let Error::CaptureLost { loss } = &error else { panic!("{error}") };
    assert_eq!(loss.first().map(|first| first.error.code.0), code, "{error}");
}

/// A call of a library inside the capture.
pub(crate) fn call<F>(capturing: &mut Capturing<'_>, call: F) -> Result<(), Error>
where
    F: FnOnce(&DriverTable, CUstream) -> CUresult,
{
    // SAFETY: the tests make calls whose pointers are valid and whose graph is never launched.
    unsafe { capturing.library_call("library", call) }
}

#[test]
fn waiting_for_the_stream_is_900() {
    let error = breaks(&device(), 900, |capturing, _| {
        // SAFETY: the stream lives.
        call(capturing, |table, stream| unsafe { (table.cuStreamSynchronize)(stream) })
    });
    let first = error.first.unwrap();
    assert_eq!((first.error.call, first.place.as_str()), ("library", "the library"));
    assert_eq!(error.end, Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
}

#[test]
fn an_allocation_is_900_and_901_is_only_its_consequence() {
    let error = breaks(&device(), 900, |capturing, buffer| {
        let allocated = call(capturing, |table, _| {
            let mut address = 0;
            // SAFETY: the out pointer is valid; the call fails, so nothing is leaked.
            unsafe { (table.cuMemAlloc_v2)(&mut address, 256) }
        });
        assert!(allocated.is_err());
        // The body continues. SAFETY: the range is the whole buffer.
        assert_lost(unsafe { capturing.stream().memset_d32(buffer.address(), 1, 8) }, Some(900));
        assert_lost(call(capturing, |_, _| unreachable!("the capture is lost")), Some(900));
        Ok(())
    });
    assert_eq!(error.end, Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
    assert!(error.cause.is_none(), "the body saw no failure, the capture did");
}

#[test]
fn merging_two_captures_is_902() {
    let device = device();
    let (other, event) =
        (Stream::new(&device.context).unwrap(), Event::untimed(&device.context).unwrap());
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    breaks(&device, 902, |capturing, _| {
        // SAFETY: stream and event live. The runtime does not know of the second capture, which is
        // ended here.
        call(capturing, |table, stream| unsafe {
            let begun = (table.cuStreamBeginCapture_v2)(other.raw(), mode);
            assert!(begun.is_success(), "{begun}");
            let recorded = (table.cuEventRecord)(event.raw(), other.raw());
            assert!(recorded.is_success(), "{recorded}");
            let merged = (table.cuStreamWaitEvent)(stream, event.raw(), 0);
            let mut graph = CUgraph::NULL;
            let _ = (table.cuStreamEndCapture)(other.raw(), &mut graph);
            if !graph.is_null() {
                let _ = (table.cuGraphDestroy)(graph);
            }
            merged
        })
    });
}

#[test]
fn ending_on_another_stream_is_903() {
    let device = device();
    let (side, event) =
        (Stream::new(&device.context).unwrap(), Event::untimed(&device.context).unwrap());
    breaks(&device, 903, |capturing, _| {
        // SAFETY: streams and event live.
        call(capturing, |table, stream| unsafe {
            let recorded = (table.cuEventRecord)(event.raw(), stream);
            let forked = (table.cuStreamWaitEvent)(side.raw(), event.raw(), 0);
            assert!(recorded.is_success() && forked.is_success(), "{recorded} {forked}");
            let mut graph = CUgraph::NULL;
            (table.cuStreamEndCapture)(side.raw(), &mut graph)
        })
    });
}

#[test]
fn a_fork_without_join_is_904_at_the_end() {
    let device = device();
    let (side, event) =
        (Stream::new(&device.context).unwrap(), Event::untimed(&device.context).unwrap());
    let error = breaks(&device, 904, |capturing, buffer| {
        event.record(capturing.stream())?;
        side.wait(&event)?;
        // SAFETY: the range is the whole buffer, and the graph is never launched.
        unsafe { side.memset_d32(buffer.address(), 1, 8) }
    });
    assert!(error.first.unwrap().place.starts_with("the end of the capture, after "));
    assert_works(&side);
}

#[test]
fn waiting_for_work_from_before_the_capture_is_905() {
    let device = device();
    let event = Event::untimed(&device.context).unwrap();
    event.record(&device.stream).unwrap();
    let error = breaks(&device, 905, |capturing, _| capturing.stream().wait(&event));
    assert_eq!(error.first.unwrap().error.call, "cuStreamWaitEvent");
}

#[test]
fn work_on_the_legacy_stream_is_906() {
    let device = device();
    let event = Event::untimed(&device.context).unwrap();
    let mut blocking = CUstream::NULL;
    let table = *device.context.table();
    device.context.bind().unwrap();
    // SAFETY: the out pointer is valid. The runtime makes no blocking streams, but libraries do.
    unsafe { (table.cuStreamCreate)(&mut blocking, CU_STREAM_DEFAULT) }.ok().unwrap();
    breaks(&device, 906, |capturing, buffer| {
        event.record(capturing.stream())?;
        // SAFETY: stream, event and buffer live.
        call(capturing, |table, _| unsafe {
            let forked = (table.cuStreamWaitEvent)(blocking, event.raw(), 0);
            assert!(forked.is_success(), "{forked}");
            (table.cuMemsetD32Async)(buffer.address(), 1, 8, CUstream(null_mut()))
        })
    });
    // SAFETY: the stream was made above and no capture uses it any more.
    unsafe { (table.cuStreamDestroy_v2)(blocking) }.ok().unwrap();
}

#[test]
fn querying_a_captured_event_is_907() {
    let device = device();
    let event = Event::untimed(&device.context).unwrap();
    breaks(&device, 907, |capturing, _| {
        event.record(capturing.stream())?;
        // SAFETY: the event lives.
        call(capturing, |table, _| unsafe { (table.cuEventQuery)(event.raw()) })
    });
}

#[test]
fn ending_on_another_thread_is_908() {
    let error = breaks(&device(), 908, |capturing, _| end_elsewhere(capturing));
    assert_eq!(error.first.unwrap().place, "the library");
}

/// Ends the capture on another thread; the driver returns an error, but the capture is over.
pub(crate) fn end_elsewhere(capturing: &mut Capturing<'_>) -> Result<(), Error> {
    let context = capturing.stream().context().clone();
    call(capturing, |table, stream| {
        std::thread::scope(|scope| {
            let ended = scope.spawn(|| {
                context.bind().unwrap();
                let mut graph = CUgraph::NULL;
                // SAFETY: the stream lives, and the out pointer is valid.
                unsafe { (table.cuStreamEndCapture)(stream, &mut graph) }
            });
            ended.join().unwrap()
        })
    })
}

#[test]
fn beginning_a_second_capture_on_a_stream_fails_without_ending_the_first() {
    let Device { context, stream } = device();
    let buffer = DeviceBuffer::<u32>::zeroed(&context, 8).unwrap();
    let graph = stream.capture(CaptureMode::ThreadLocal, |capturing| {
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let mode = CaptureMode::ThreadLocal;
                capturing_stream_fails(&stream, mode);
            });
            other.join().unwrap();
        });
        capturing.keep(buffer.owner());
        Ok::<_, Error>(())
    });
    // Whether the first capture survives is the driver's choice; the stream must.
    drop(graph);
    assert_works(&stream);
}

fn capturing_stream_fails(stream: &Stream, mode: CaptureMode) {
    let error = stream.capture(mode, |_| Ok::<_, Error>(())).unwrap_err();
    assert!(error.first.is_some() && error.end.is_none(), "{error}");
}

#[test]
fn captures_fail_and_recover_many_times() {
    let name = "broken_captures::captures_fail_and_recover_many_times";
    alone(name, |device| {
        let (before, _) = device.context.mem_get_info().unwrap();
        for _ in 0..20 {
            breaks(&device, 900, |capturing, _| {
                // SAFETY: the stream lives.
                call(capturing, |table, stream| unsafe { (table.cuStreamQuery)(stream) })
            });
        }
        if device.context.driver().is_simulated() {
            assert_eq!(device.context.mem_get_info().unwrap().0, before, "memory is leaked");
        }
    });
}
