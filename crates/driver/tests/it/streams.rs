//! Streams, events and use from several threads.

use std::sync::Arc;

use retrograph_driver::{
    DeviceBuffer, Event, KernelArguments, KernelLaunch, LaunchGeometry, Stream,
};

use crate::device::{Device, device, device_of, simulated};
use crate::ptx::{SCALE, load};

/// Enqueues `times` launches that double `buffer`.
fn double(stream: &Stream, buffer: &DeviceBuffer<f32>, times: usize) {
    let function = load(stream.context(), SCALE, "scale");
    let arguments =
        KernelArguments::new().address(buffer.address()).u32(buffer.len() as u32).f32(2.0);
    let geometry = LaunchGeometry::linear(buffer.len().div_ceil(128) as u32, 128);
    let launch = KernelLaunch::new(&function, geometry, &arguments);
    for _ in 0..times {
        // SAFETY: the arguments match the function, for a buffer that outlives the caller's
        // wait; the module is unloaded after a wait.
        unsafe { stream.launch(&launch) }.unwrap();
    }
}

#[test]
fn launches_run_in_the_order_of_the_stream() {
    let Device { stream, .. } = device();
    let buffer = DeviceBuffer::from_slice(&stream, &[1.0_f32; 300]).unwrap();
    double(&stream, &buffer, 5);
    assert_eq!(buffer.download(&stream).unwrap(), [32.0; 300]);
}

#[test]
fn another_stream_waits_for_an_event() {
    let Device { context, stream } = device();
    let second = Stream::new(&context).unwrap();
    let buffer = DeviceBuffer::from_slice(&stream, &[1.0_f32; 256]).unwrap();
    double(&stream, &buffer, 3);
    let event = Event::untimed(&context).unwrap();
    event.record(&stream).unwrap();
    second.wait(&event).unwrap();
    double(&second, &buffer, 1);
    assert_eq!(buffer.download(&second).unwrap(), [16.0; 256]);
    assert!(event.is_complete().unwrap());
}

#[test]
fn events_measure_on_the_device() {
    let Device { context, stream } = device();
    let buffer = DeviceBuffer::from_slice(&stream, &[1.0_f32; 4096]).unwrap();
    let (start, end) = (Event::new(&context).unwrap(), Event::new(&context).unwrap());
    start.record(&stream).unwrap();
    double(&stream, &buffer, 4);
    end.record(&stream).unwrap();
    end.synchronize().unwrap();
    assert!(stream.query().unwrap());
    let elapsed = end.elapsed_ms(&start).unwrap();
    assert!(elapsed >= 0.0 && elapsed.is_finite(), "{elapsed}");
    let untimed = Event::untimed(&context).unwrap();
    untimed.record(&stream).unwrap();
    untimed.synchronize().unwrap();
    assert!(untimed.elapsed_ms(&start).is_err(), "an untimed event measures nothing");
}

#[test]
fn every_thread_can_use_a_context_without_preparing() {
    let Device { context, .. } = device();
    std::thread::scope(|scope| {
        for index in 0..4_u32 {
            let context = &context;
            scope.spawn(move || {
                let stream = Stream::new(context).unwrap();
                let data = vec![index as f32; 500];
                let buffer = DeviceBuffer::from_slice(&stream, &data).unwrap();
                double(&stream, &buffer, 2);
                assert_eq!(buffer.download(&stream).unwrap(), vec![index as f32 * 4.0; 500]);
            });
        }
    });
}

#[test]
fn one_thread_can_use_two_drivers_in_turn() {
    let first = device();
    let second = device_of(&simulated(Default::default()));
    let one = DeviceBuffer::from_slice(&first.stream, &[1.0_f32; 8]).unwrap();
    let two = DeviceBuffer::from_slice(&second.stream, &[2.0_f32; 8]).unwrap();
    double(&first.stream, &one, 1);
    double(&second.stream, &two, 1);
    assert_eq!(one.download(&first.stream).unwrap(), [2.0; 8]);
    assert_eq!(two.download(&second.stream).unwrap(), [4.0; 8]);
}

#[test]
fn a_borrowed_stream_orders_work_with_its_owner_and_is_not_destroyed() {
    let Device { context, stream } = device();
    let buffer = DeviceBuffer::from_slice(&stream, &[1.0_f32; 256]).unwrap();
    let theirs = Arc::new(stream);
    // SAFETY: the stream lives as long as its owner.
    let ours = unsafe { Stream::from_raw(&context, theirs.raw(), theirs.clone()) };
    double(&theirs, &buffer, 1);
    double(&ours, &buffer, 2);
    assert_eq!(Arc::strong_count(&theirs), 2);
    drop(ours);
    assert_eq!(Arc::strong_count(&theirs), 1);
    double(&theirs, &buffer, 1);
    assert_eq!(buffer.download(&theirs).unwrap(), [16.0; 256]);
}
