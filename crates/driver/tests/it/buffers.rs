//! Device and pinned memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use retrograph_driver::{Context, DeviceBuffer, DeviceIndex, Error, MemoryPool, PinnedBuffer};
use retrograph_driver_sim::Config;

use crate::device::{Device, capture_fill, device, device_of, simulated};
use crate::support::with;

#[test]
fn uploads_and_downloads_round_trip() {
    let device = device();
    let data: Vec<f32> = (0..1000).map(|index| index as f32 * 0.5).collect();
    let buffer = DeviceBuffer::from_slice(&device.stream, &data).unwrap();
    assert_eq!(buffer.download(&device.stream).unwrap(), data);
    buffer.upload_at(&device.stream, 998, &[-1.0, -2.0]).unwrap();
    assert_eq!(buffer.download_range(&device.stream, 997..1000).unwrap(), [498.5, -1.0, -2.0]);
}

#[test]
fn new_memory_is_zeroed_on_request_and_nan_in_debug_builds() {
    let device = device();
    let zeroed = DeviceBuffer::<f64>::zeroed(&device.context, 33).unwrap();
    assert_eq!(zeroed.download(&device.stream).unwrap(), [0.0; 33]);
    let uninit = DeviceBuffer::<f32>::uninit(&device.context, 33).unwrap();
    let values = uninit.download(&device.stream).unwrap();
    if cfg!(debug_assertions) {
        assert!(values.iter().all(|value| value.is_nan()), "{values:?}");
    }
}

#[test]
fn lengths_are_checked_before_the_driver_is_called() {
    let device = device();
    let buffer = DeviceBuffer::<u32>::zeroed(&device.context, 4).unwrap();
    let error = buffer.upload(&device.stream, &[1, 2, 3]).unwrap_err();
    assert_eq!(error, Error::LengthMismatch { what: "upload", expected: 4, found: 3 });
    assert!(buffer.upload_at(&device.stream, 3, &[1, 2]).is_err());
    assert!(buffer.upload_at(&device.stream, usize::MAX, &[1, 2]).is_err());
    let error = buffer.download_range(&device.stream, 2..5).unwrap_err();
    let Error::OutsideBuffer { range, len, .. } = error else { panic!("{error}") };
    assert_eq!((range, len), (2..5, 4));
    assert_eq!(buffer.download(&device.stream).unwrap(), [0; 4]);
}

#[test]
fn a_slice_shares_the_memory_of_its_buffer_and_keeps_it() {
    let device = device();
    let buffer = DeviceBuffer::from_slice(&device.stream, &[0_u32, 1, 2, 3, 4]).unwrap();
    let kept = Arc::downgrade(&buffer.owner());
    let slice = buffer.slice(1..5).unwrap().slice(1..3).unwrap();
    assert_eq!((slice.address(), slice.len()), (buffer.address() + 8, 2));
    slice.upload(&device.stream, &[20, 30]).unwrap();
    assert_eq!(buffer.download(&device.stream).unwrap(), [0, 1, 20, 30, 4]);
    drop(buffer);
    assert!(kept.upgrade().is_some());
    assert_eq!(slice.download(&device.stream).unwrap(), [20, 30]);
    assert!(slice.slice(2..2).unwrap().is_empty());
    let error = slice.slice(1..3).unwrap_err();
    assert_eq!(error, Error::OutsideBuffer { what: "slice", range: 1..3, len: 2 });
    drop(slice);
    assert!(kept.upgrade().is_none());
}

#[test]
fn a_buffer_may_be_empty() {
    let device = device();
    let buffer = DeviceBuffer::<f32>::from_slice(&device.stream, &[]).unwrap();
    assert!(buffer.is_empty());
    assert_eq!(buffer.download(&device.stream).unwrap(), [0.0; 0]);
}

#[test]
fn memory_that_does_not_fit_is_refused_with_the_numbers() {
    let driver = simulated(with(Config::default(), |it| it.memory_bytes = 64 << 20));
    let device = device_of(&driver);
    let error = DeviceBuffer::<f32>::zeroed(&device.context, 32 << 20).unwrap_err();
    let Error::OutOfMemory { requested, free, total } = error else { panic!("{error}") };
    assert_eq!((requested, total), (128 << 20, 64 << 20));
    assert!(free > 0 && free <= total);
    // The failure leaves everything as it was.
    DeviceBuffer::<f32>::zeroed(&device.context, 1 << 20).unwrap();
}

#[test]
fn a_length_that_overflows_is_out_of_memory_and_not_a_small_buffer() {
    let device = device();
    let error = DeviceBuffer::<f64>::uninit(&device.context, usize::MAX / 4).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { .. } | Error::Call(_)), "{error}");
}

#[test]
fn memory_is_free_again_after_the_last_clone() {
    let device = device_of(&simulated(Config::default()));
    let (before, _) = device.context.mem_get_info().unwrap();
    let buffer = DeviceBuffer::<f32>::zeroed(&device.context, 1 << 20).unwrap();
    let clone = buffer.clone();
    drop(buffer);
    let (held, _) = device.context.mem_get_info().unwrap();
    assert!(held + (4 << 20) <= before);
    drop(clone);
    assert_eq!(device.context.mem_get_info().unwrap().0, before);
}

#[test]
fn pinned_memory_is_a_slice_that_copies_go_through() {
    let device = device();
    let buffer = DeviceBuffer::<u32>::zeroed(&device.context, 3).unwrap();
    let source = PinnedBuffer::from_slice(&device.context, &[1_u32, 2, 3]).unwrap();
    let mut target = PinnedBuffer::<u32>::zeroed(&device.context, 3).unwrap();
    // SAFETY: the ranges are whole buffers, which are not touched before the wait.
    unsafe {
        device.stream.memcpy_htod(buffer.address(), source.as_ptr().cast(), 12).unwrap();
        let place = target.as_mut_ptr().cast();
        device.stream.memcpy_dtoh(place, buffer.address(), 12).unwrap();
    }
    device.stream.synchronize().unwrap();
    assert_eq!(&*target, [1, 2, 3]);
}

#[test]
fn objects_of_different_contexts_cannot_be_combined() {
    let driver = simulated(with(Config::default(), |it| it.devices = 2));
    let device = device_of(&driver);
    let other = Context::new(&driver, DeviceIndex(1)).unwrap();
    let buffer = DeviceBuffer::<u32>::zeroed(&other, 1).unwrap();
    let error = buffer.upload(&device.stream, &[1]).unwrap_err();
    assert_eq!(error, Error::WrongContext { what: "the stream" });
    let error = Context::new(&driver, DeviceIndex(2)).unwrap_err();
    assert_eq!(error, Error::NoSuchDevice { index: 2, count: 2 });
}

#[test]
fn a_graph_holds_the_owner_of_borrowed_memory() {
    let device = device();
    let theirs = Arc::new(DeviceBuffer::from_slice(&device.stream, &[7_u32; 5]).unwrap());
    let (address, owner) = (theirs.address(), theirs.clone());
    // SAFETY: the memory lives as long as its owner.
    let ours = unsafe { DeviceBuffer::<u32>::from_raw(&device.context, address, 5, owner) };
    assert_eq!(ours.download(&device.stream).unwrap(), [7; 5]);
    let mut exec = capture_fill(&device.stream, &ours, 9).instantiate().unwrap();
    drop(ours);
    assert_eq!(Arc::strong_count(&theirs), 2, "the graph holds it");
    exec.launch(&device.stream).unwrap();
    assert_eq!(theirs.download(&device.stream).unwrap(), [9; 5]);
    drop(exec);
    // The driver releases what a graph holds on a thread of its own.
    let deadline = Instant::now() + Duration::from_secs(10);
    while Arc::strong_count(&theirs) > 1 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(Arc::strong_count(&theirs), 1);
    // Nothing has freed the memory.
    assert_eq!(theirs.download(&device.stream).unwrap(), [9; 5]);
}

#[test]
fn a_pool_in_memory_that_is_not_aligned_gives_aligned_buffers() {
    let Device { context, stream } = device();
    let theirs = Arc::new(DeviceBuffer::<u32>::zeroed(&context, 1024).unwrap());
    for (offset, capacity) in [(0, 4000), (4, 4000 - 252), (252, 4000 - 4), (4092, 0)] {
        let (address, owner) = (theirs.address() + offset, theirs.clone());
        let words = if capacity == 0 { 1 } else { 1000 };
        // SAFETY: the range is inside of the buffer, which is its owner.
        let part = unsafe { DeviceBuffer::<u32>::from_raw(&context, address, words, owner) };
        let pool = MemoryPool::of(part);
        assert_eq!(pool.usage().capacity, capacity);
        if capacity == 0 {
            assert!(matches!(pool.zeroed::<u8>(1), Err(Error::PoolExhausted { .. })));
            continue;
        }
        let [one, two] = [1.5, 2.5].map(|value| (pool.zeroed::<f64>(200).unwrap(), value));
        for (buffer, value) in [&one, &two] {
            assert!(buffer.address().is_multiple_of(256));
            assert!(buffer.address() + 1600 <= address + 4000);
            buffer.upload(&stream, &[*value; 200]).unwrap();
        }
        assert_eq!(one.0.download(&stream).unwrap(), [1.5; 200]);
    }
}
