//! A capture on one device, and calls of its thread on another device, which the driver restricts,
//! too.

use std::sync::Arc;

use retrograph_driver::{
    CaptureMode, Capturing, Context, DeviceBuffer, DeviceIndex, Error, Event, PinnedBuffer, Result,
    Stream,
};
use retrograph_driver_sim::{Config, Simulator};

use crate::device::{Device, device_of, driver_of, two_devices};
use crate::support::with;

/// Captures a fill on `stream` after `meanwhile`, replays it and checks that it has run.
fn capture_after(stream: &Stream, meanwhile: impl FnOnce(&mut Capturing<'_>)) {
    let buffer = DeviceBuffer::<u32>::zeroed(stream.context(), 4).unwrap();
    let graph = stream.capture(CaptureMode::ThreadLocal, |capturing| {
        meanwhile(capturing);
        capturing.keep(buffer.owner());
        // SAFETY: the range is the whole buffer, which the graph keeps.
        unsafe { capturing.stream().memset_d32(buffer.address(), 7, 4) }
    });
    graph.unwrap().instantiate().unwrap().launch(stream).unwrap();
    assert_eq!(buffer.download(stream).unwrap(), [7; 4]);
}

fn assert_refused<T: std::fmt::Debug>(outcome: Result<T>) {
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::RefusedDuringCapture { .. }), "{error}");
}

#[test]
fn calls_on_another_device_are_refused_in_a_capture() {
    let [here, there] = two_devices();
    let Device { context, stream } = &there;
    let event = Event::new(context).unwrap();
    let buffer = DeviceBuffer::<u32>::zeroed(context, 4).unwrap();
    capture_after(&here.stream, |_| {
        assert_refused(DeviceBuffer::<u32>::zeroed(context, 4));
        assert_refused(PinnedBuffer::<u32>::zeroed(context, 4));
        assert_refused(Stream::new(context));
        assert_refused(stream.synchronize());
        assert_refused(event.synchronize());
        assert_refused(context.synchronize());
        assert_refused(buffer.download(stream));
        assert_refused(context.without_captures("a test", || ()));
    });
}

#[test]
fn objects_of_another_device_dropped_in_a_capture_are_released_after_it() {
    let [here, there] = two_devices();
    let Device { context, stream } = there;
    let event = Event::new(&context).unwrap();
    let buffer = DeviceBuffer::<u32>::zeroed(&context, 4).unwrap();
    let pinned = PinnedBuffer::<u32>::zeroed(&context, 4).unwrap();
    capture_after(&here.stream, |_| {
        drop((event, buffer, pinned, stream));
        assert!(context.deferred_releases() >= 4);
    });
    if context.driver().is_simulated() {
        assert_eq!(context.deferred_releases(), 0, "no other test captures in this context");
    }
}

#[test]
fn releases_of_another_device_wait_for_the_last_of_nested_captures() {
    let [here, there] = two_devices();
    let buffer = DeviceBuffer::<u32>::zeroed(&there.context, 4).unwrap();
    capture_after(&here.stream, |_| {
        let inner = there.stream.capture(CaptureMode::ThreadLocal, |_| {
            drop(buffer);
            Ok::<_, Error>(())
        });
        drop(inner.unwrap());
        assert!(there.context.deferred_releases() > 0);
    });
    if there.context.driver().is_simulated() {
        assert_eq!(there.context.deferred_releases(), 0, "no other test captures there");
    }
}

#[test]
fn a_context_neither_begins_nor_ends_in_a_capture() {
    let simulator = Arc::new(Simulator::new(with(Config::default(), |it| it.devices = 2)).unwrap());
    let driver = driver_of(&simulator).unwrap();
    let here = device_of(&driver);
    let open = || Context::new(&driver, DeviceIndex(1));
    capture_after(&here.stream, |_| assert_refused(open()));
    let there = open().unwrap();
    capture_after(&here.stream, |_| {
        open().unwrap();
        drop(there);
    });
    drop(here);
    assert!(simulator.live().is_empty(), "{} left", simulator.live());
}
