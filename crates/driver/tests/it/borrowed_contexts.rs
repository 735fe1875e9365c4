//! Contexts that somebody else made.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use retrograph_driver::{
    CaptureMode, Context, DeviceBuffer, Driver, Error, KernelArguments, KernelLaunch,
    LaunchGeometry, MemoryPool, PinnedBuffer, Stream,
};
use retrograph_driver_sim::{Config, Simulator};
use retrograph_driver_sys::CUcontext;

use crate::device::{Device, assert_works, device, driver_of};
use crate::ptx::{SCALE, load};

/// A context of another library, which destroys it.
struct Theirs {
    driver: Driver,
    raw: CUcontext,
    is_destroyed: Arc<AtomicBool>,
}

impl Theirs {
    /// A context on the device of `context`.
    fn new(context: &Context) -> Self {
        let (driver, mut raw, mut popped) =
            (context.driver().clone(), CUcontext::NULL, CUcontext::NULL);
        let (table, mut device) = (driver.table(), 0);
        // SAFETY: the out pointers are valid, and the new context is current until it is popped.
        unsafe {
            (table.cuDeviceGet)(&mut device, context.index().0 as i32).ok().unwrap();
            (table.cuCtxCreate_v2)(&mut raw, 0, device).ok().unwrap();
            (table.cuCtxPopCurrent_v2)(&mut popped).ok().unwrap();
        }
        assert_eq!(popped, raw);
        Self { driver, raw, is_destroyed: Arc::default() }
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        // SAFETY: the tests drop it after everything in the context.
        let code = unsafe { (self.driver.table().cuCtxDestroy_v2)(self.raw) };
        assert!(code.is_success(), "{code:?}");
        self.is_destroyed.store(true, Ordering::Relaxed);
    }
}

/// Borrows the context that `theirs` keeps alive.
fn borrow(theirs: &Arc<Theirs>) -> Result<Context, Error> {
    // SAFETY: the owner destroys the context when it is dropped.
    unsafe { Context::from_raw(&theirs.driver, theirs.raw, theirs.clone()) }
}

/// A context on the device of `device`, and a stream there.
fn borrowed(device: &Device) -> (Arc<Theirs>, Device) {
    let theirs = Arc::new(Theirs::new(&device.context));
    let context = borrow(&theirs).unwrap();
    let stream = Stream::new(&context).unwrap();
    (theirs, Device { context, stream })
}

#[test]
fn streams_memory_modules_and_captures_work_in_a_borrowed_context() {
    let own = device();
    let (theirs, Device { context, stream }) = borrowed(&own);
    assert_eq!((context.raw(), context.index()), (theirs.raw, own.context.index()));
    assert_ne!(context.raw(), own.context.raw());
    let function = load(&context, SCALE, "scale");
    let buffer = DeviceBuffer::from_slice(&stream, &[1.0_f32; 4]).unwrap();
    let arguments = KernelArguments::new().buffer(&buffer).u32(4).f32(3.0);
    let launch = KernelLaunch::new(&function, LaunchGeometry::linear(1, 32), &arguments);
    // SAFETY: the arguments match the function, and the downloads wait.
    let graph =
        stream.capture(CaptureMode::ThreadLocal, |capturing| unsafe { capturing.launch(&launch) });
    let mut exec = graph.unwrap().instantiate().unwrap();
    // SAFETY: as above.
    unsafe { stream.launch(&launch) }.unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(buffer.download(&stream).unwrap(), [9.0; 4]);
    assert_works(&stream);
    // The primary context is current between the calls.
    assert_works(&own.stream);
    let pool = MemoryPool::new(&context, 1 << 16).unwrap();
    assert_eq!(pool.zeroed::<u32>(3).unwrap().download(&stream).unwrap(), [0; 3]);
    assert_eq!(*PinnedBuffer::from_slice(&context, &[7_u32]).unwrap(), [7]);
    context.synchronize().unwrap();
}

#[test]
fn objects_of_a_borrowed_and_the_primary_context_cannot_be_combined() {
    let own = device();
    let (_theirs, there) = borrowed(&own);
    let buffer = DeviceBuffer::<u32>::zeroed(&there.context, 1).unwrap();
    let error = buffer.upload(&own.stream, &[1]).unwrap_err();
    assert_eq!(error, Error::WrongContext { what: "the stream" });
    buffer.upload(&there.stream, &[1]).unwrap();
}

#[test]
fn a_borrowed_context_lives_as_long_as_its_objects_and_is_not_destroyed() {
    let own = device();
    let (theirs, Device { context, stream }) = borrowed(&own);
    let is_destroyed = theirs.is_destroyed.clone();
    let owner = Arc::downgrade(&theirs);
    let buffer = DeviceBuffer::from_slice(&stream, &[5_u32; 3]).unwrap();
    drop((context, stream));
    assert_eq!(owner.strong_count(), 2, "the buffer holds the context");
    drop(buffer);
    assert_eq!(owner.strong_count(), 1);
    assert!(!is_destroyed.load(Ordering::Relaxed));
    // Its owner uses it on, and lends it again.
    let context = borrow(&theirs).unwrap();
    drop(theirs);
    assert_works(&Stream::new(&context).unwrap());
    assert!(!is_destroyed.load(Ordering::Relaxed), "the context is held");
    drop(context);
    assert!(is_destroyed.load(Ordering::Relaxed));
    assert_works(&own.stream);
}

#[test]
fn users_of_one_handle_share_the_context() {
    let own = device();
    let (theirs, there) = borrowed(&own);
    let again = borrow(&theirs).unwrap();
    again.same(&there.context, "the context").unwrap();
    assert_eq!(Arc::strong_count(&theirs), 2, "one of them holds the owner");
    let buffer = DeviceBuffer::<u32>::zeroed(&again, 1).unwrap();
    buffer.upload(&there.stream, &[3]).unwrap();
}

#[test]
fn the_handle_of_the_primary_context_gives_that_context() {
    let own = device();
    let owner = Arc::new(());
    // SAFETY: the context lives as long as `own`.
    let same = unsafe {
        Context::from_raw(own.context.driver(), own.context.raw(), owner.clone()).unwrap()
    };
    same.same(&own.context, "the context").unwrap();
    assert_eq!(Arc::strong_count(&owner), 1, "a retained context needs no owner");
}

#[test]
fn a_borrowed_context_neither_begins_nor_ends_in_a_capture() {
    let own = device();
    let theirs = Arc::new(Theirs::new(&own.context));
    let mut there = None;
    let capture = |meanwhile: &mut dyn FnMut()| {
        let graph = own.stream.capture(CaptureMode::ThreadLocal, |_| {
            meanwhile();
            Ok::<_, Error>(())
        });
        graph.unwrap();
    };
    capture(&mut || {
        let error = borrow(&theirs).unwrap_err();
        assert!(matches!(error, Error::RefusedDuringCapture { .. }), "{error}");
    });
    let context = borrow(&theirs).unwrap();
    there.replace(DeviceBuffer::<u32>::zeroed(&context, 4).unwrap());
    drop(context);
    capture(&mut || {
        borrow(&theirs).unwrap();
        drop(there.take());
        assert_eq!(Arc::strong_count(&theirs), 2, "it ends after the capture");
    });
    assert_eq!(Arc::strong_count(&theirs), 1);
    assert_works(&own.stream);
}

#[test]
fn nothing_is_left_in_a_context_that_is_destroyed() {
    let simulator = Arc::new(Simulator::new(Config::default()).unwrap());
    let driver = driver_of(&simulator).unwrap();
    let own = crate::device::device_of(&driver);
    for _ in 0..3 {
        let (theirs, there) = borrowed(&own);
        assert_works(&there.stream);
        load(&there.context, SCALE, "scale");
        drop(there);
        let live = simulator.live();
        assert_eq!((live.streams, live.modules, live.allocations), (2, 0, 0), "{live}");
        drop(theirs);
    }
    drop((own, driver));
    assert!(simulator.live().is_empty(), "{} left", simulator.live());
}
