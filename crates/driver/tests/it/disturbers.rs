//! Calls of a thread while another one captures, one entry for each kind of call.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use retrograph_driver::{
    CaptureMode, Context, DeviceBuffer, Driver, Error, Event, Graph, KernelArguments, KernelLaunch,
    LaunchGeometry, MemsetParams, PinnedBuffer, Stream,
};

use crate::device::Device;
use crate::ptx::{SCALE, load};

/// The objects of the disturbing thread.
pub(crate) struct Disturber {
    pub(crate) device: Device,
    pub(crate) buffer: DeviceBuffer<u32>,
    /// Another load of the driver.
    pub(crate) other: Driver,
    /// The first failure of this thread.
    pub(crate) failure: OnceLock<String>,
}

impl Disturber {
    pub(crate) fn record_failure(&self, failure: String) {
        let _ = self.failure.set(failure);
    }

    /// Runs `disturb` once. Records a panic and returns false to stop.
    pub(crate) fn works(&self, disturb: Disturb) -> bool {
        let panicked = catch_unwind(AssertUnwindSafe(|| disturb(self))).err();
        if let Some(payload) = &panicked {
            let text = payload.downcast_ref::<String>().cloned();
            self.record_failure(text.unwrap_or_else(|| "panicked".to_owned()));
        }
        panicked.is_none()
    }
}

pub(crate) type Disturb = fn(&Disturber);

/// Through safe functions of the crate.
pub(crate) const THROUGH_THE_API: [(&str, Disturb); 15] = [
    ("nothing", |_| std::thread::yield_now()),
    ("device memory", |d| drop(DeviceBuffer::<u32>::zeroed(&d.device.context, 1 << 12).unwrap())),
    ("large device memory", |d| drop(DeviceBuffer::<u8>::uninit(&d.device.context, 1 << 24))),
    ("pinned memory", |d| drop(PinnedBuffer::<u8>::zeroed(&d.device.context, 1 << 12).unwrap())),
    ("pinned memory of another load", |d| {
        drop(PinnedBuffer::<u8>::zeroed(&other_context(d), 8).unwrap())
    }),
    ("device memory of another load", |d| {
        drop(DeviceBuffer::<u8>::zeroed(&other_context(d), 8).unwrap())
    }),
    ("copies", |d| {
        d.buffer.upload(&d.device.stream, &vec![1; d.buffer.len()]).unwrap();
        d.buffer.download(&d.device.stream).unwrap();
    }),
    ("streams", |d| {
        let stream = Stream::new(&d.device.context).unwrap();
        stream.query().unwrap();
        stream.synchronize().unwrap();
    }),
    ("events", events),
    ("a wait for the context", |d| wait_for(&d.device.context)),
    ("a wait for the context of another load", |d| wait_for(&other_context(d))),
    ("free memory", |d| assert!(d.device.context.mem_get_info().unwrap().0 > 0)),
    ("modules and their first launch", modules),
    ("graphs", graphs),
    ("captures", captures),
];

fn other_context(d: &Disturber) -> Context {
    Context::new(&d.other, d.device.context.index()).unwrap()
}

fn wait_for(context: &Context) {
    match context.synchronize() {
        Ok(()) | Err(Error::RefusedDuringCapture { .. }) => (),
        Err(error) => panic!("{error}"),
    }
}

fn events(d: &Disturber) {
    let [earlier, later] = [(); 2].map(|()| Event::new(&d.device.context).unwrap());
    earlier.record(&d.device.stream).unwrap();
    later.record(&d.device.stream).unwrap();
    let _ = later.is_complete().unwrap();
    later.synchronize().unwrap();
    assert!(later.elapsed_ms(&earlier).unwrap() >= 0.0);
}

/// Loads an image that no cache of the driver has seen.
fn modules(d: &Disturber) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let ptx = format!("{SCALE}\n// {} {number}\n", std::process::id());
    let function = load(&d.device.context, &ptx, "scale");
    let arguments = KernelArguments::new().address(d.buffer.address()).u32(8).f32(1.0);
    let geometry = LaunchGeometry::linear(1, 32);
    let launch = KernelLaunch::new(&function, geometry, &arguments);
    // SAFETY: the arguments match the function, and the buffer outlives the wait.
    unsafe { d.device.stream.launch(&launch) }.unwrap();
    d.device.stream.synchronize().unwrap();
    drop(function);
}

fn graphs(d: &Disturber) {
    let mut graph = Graph::new(&d.device.context).unwrap();
    let fill = MemsetParams { dst: d.buffer.address(), value: 7, words: 4 };
    // SAFETY: the range is the whole buffer, which outlives the wait.
    let node = unsafe { graph.add_memset(&fill, &[]) }.unwrap();
    // SAFETY: as above.
    unsafe { graph.add_memset(&fill, &[node]) }.unwrap();
    let mut exec = graph.instantiate().unwrap();
    exec.upload(&d.device.stream).unwrap();
    exec.launch(&d.device.stream).unwrap();
    exec.update(&graph).unwrap();
    d.device.stream.synchronize().unwrap();
}

fn captures(d: &Disturber) {
    let graph = d.device.stream.capture(CaptureMode::ThreadLocal, |capturing| {
        // SAFETY: the range is the whole buffer, which outlives the wait.
        unsafe { capturing.stream().memset_d32(d.buffer.address(), 1, 8) }
    });
    let mut exec = graph.unwrap().instantiate().unwrap();
    exec.launch(&d.device.stream).unwrap();
    d.device.stream.synchronize().unwrap();
}
