//! Safe calls of one thread on a stream that another thread captures.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use retrograph_driver::{
    CaptureError, CaptureMode, DeviceBuffer, DeviceScalar, Driver, Error, Event, Graph, Origin,
    Stream,
};
use retrograph_driver_sim::{Config, Simulator};
use retrograph_driver_sys::{CUevent, CUresult, CUstream, DriverTable};

use crate::device::{Device, assert_works, capture_fill, device, device_of};

/// Captures a fill of `kept` on `stream` while another thread does `meanwhile`.
fn capture_while(
    stream: &Stream,
    kept: &DeviceBuffer<u32>,
    meanwhile: impl FnOnce() + Send,
) -> Result<Graph, CaptureError> {
    stream.capture(CaptureMode::ThreadLocal, |capturing| {
        capturing.keep(kept.owner());
        thread::scope(|scope| scope.spawn(meanwhile).join()).unwrap();
        // SAFETY: the range is the whole buffer, which the graph keeps.
        unsafe { capturing.stream().memset_d32(kept.address(), 9, kept.len()) }
    })
}

fn assert_refused<T: std::fmt::Debug>(outcome: Result<T, Error>) {
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::RefusedDuringCapture { .. }), "{error}");
}

#[test]
fn work_of_another_thread_does_not_become_part_of_a_capture() {
    let Device { context, stream } = device();
    let [kept, own] = [(); 2].map(|()| DeviceBuffer::<u32>::zeroed(&context, 8).unwrap());
    let mut exec = capture_fill(&stream, &own, 1).instantiate().unwrap();
    let mut scalar = DeviceScalar::new(&stream, 1.0_f32).unwrap();
    let graph = capture_while(&stream, &kept, || {
        assert_refused(exec.launch(&stream));
        assert_refused(exec.upload(&stream));
        assert_refused(scalar.set(2.0));
        assert_refused(own.upload(&stream, &[1; 8]));
        assert_refused(own.download(&stream));
    });
    let graph = graph.unwrap();
    assert_eq!(graph.nodes().unwrap().len(), 1);
    drop((exec, own));
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(kept.download(&stream).unwrap(), [9; 8]);
    assert!(scalar.value().total_cmp(&1.0).is_eq(), "unchanged");
    scalar.set(2.0).unwrap();
    assert_works(&stream);
}

#[test]
fn waits_of_another_thread_for_a_captured_stream_are_refused() {
    let Device { context, stream } = device();
    let kept = DeviceBuffer::<u32>::zeroed(&context, 8).unwrap();
    let event = Event::new(&context).unwrap();
    let graph = capture_while(&stream, &kept, || {
        event.record(&stream).unwrap();
        assert_refused(stream.synchronize());
        assert_refused(stream.query());
        assert_refused(event.synchronize());
        assert_refused(event.is_complete());
    });
    assert_eq!(graph.unwrap().nodes().unwrap().len(), 1);
    event.record(&stream).unwrap();
    event.synchronize().unwrap();
}

#[test]
fn a_stream_that_joins_a_capture_accepts_no_other_work() {
    let Device { context, stream } = device();
    let side = Stream::new(&context).unwrap();
    let [kept, own] = [(); 2].map(|()| DeviceBuffer::<u32>::zeroed(&context, 8).unwrap());
    let [fork, join] = [(); 2].map(|()| Event::untimed(&context).unwrap());
    let mut exec = capture_fill(&stream, &own, 1).instantiate().unwrap();
    let graph = capture_while(&stream, &kept, || {
        exec.launch(&side).unwrap();
        side.synchronize().unwrap();
        fork.record(&stream).unwrap();
        side.wait(&fork).unwrap();
        assert_refused(exec.launch(&side));
        assert_refused(side.synchronize());
        join.record(&side).unwrap();
        stream.wait(&join).unwrap();
    });
    assert_eq!(graph.unwrap().nodes().unwrap().len(), 1);
    assert_eq!(own.download(&side).unwrap(), [1; 8]);
}

#[test]
fn a_thread_that_excludes_captures_does_not_deadlock() {
    let Device { context, stream } = device();
    let begin = || stream.capture(CaptureMode::ThreadLocal, |_| Ok::<_, Error>(()));
    let refused = [context.without_captures("a test", begin).unwrap().unwrap_err(), {
        let _outside = stream.outside_capture("a test").unwrap();
        begin().unwrap_err()
    }];
    for error in refused {
        let cause = error.cause.unwrap();
        let cause = cause.downcast_ref::<Error>().unwrap();
        assert!(matches!(cause, Error::CaptureExcluded { .. }), "{cause}");
        assert!(error.recovered && error.first.is_none());
    }
    begin().unwrap();
}

#[test]
fn a_thread_that_excludes_captures_joins_none() {
    let Device { context, stream } = device();
    let [side, busy] = [(); 2].map(|()| Stream::new(&context).unwrap());
    let kept = DeviceBuffer::<u32>::zeroed(&context, 8).unwrap();
    let [captured, free] = [(); 2].map(|()| Event::untimed(&context).unwrap());
    let graph = capture_while(&stream, &kept, || {
        captured.record(&stream).unwrap();
        let busy = busy.outside_capture("a test").unwrap();
        free.record(&busy).unwrap();
        side.wait(&free).unwrap();
        let refused = side.wait(&captured).unwrap_err();
        assert!(matches!(refused, Error::CaptureExcluded { .. }), "{refused}");
        side.synchronize().unwrap();
    });
    assert_eq!(graph.unwrap().nodes().unwrap().len(), 1);
}

#[test]
fn an_event_is_not_recorded_while_it_is_queried() {
    static QUERYING: AtomicBool = AtomicBool::new(false);
    static RECORDED_MEANWHILE: AtomicBool = AtomicBool::new(false);
    static TABLE: OnceLock<DriverTable> = OnceLock::new();
    unsafe extern "C" fn slow_query(event: CUevent) -> CUresult {
        QUERYING.store(true, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(100));
        // SAFETY: passed on from the caller.
        let code = unsafe { (TABLE.get().unwrap().cuEventQuery)(event) };
        QUERYING.store(false, Ordering::SeqCst);
        code
    }
    unsafe extern "C" fn record(event: CUevent, stream: CUstream) -> CUresult {
        RECORDED_MEANWHILE.fetch_or(QUERYING.load(Ordering::SeqCst), Ordering::SeqCst);
        // SAFETY: as above.
        unsafe { (TABLE.get().unwrap().cuEventRecord)(event, stream) }
    }
    let simulator = Arc::new(Simulator::new(Config::default()).unwrap());
    let mut table = *TABLE.get_or_init(|| *simulator.table());
    (table.cuEventQuery, table.cuEventRecord) = (slow_query, record);
    let keep = Some(Arc::clone(&simulator) as _);
    // SAFETY: every function of the table belongs to the simulator, or calls it; `keep` keeps the
    // simulator alive.
    let driver = unsafe { Driver::from_table(table, Origin::Simulated, keep) }.unwrap();
    let Device { context, stream } = device_of(&driver);
    let kept = DeviceBuffer::<u32>::zeroed(&context, 8).unwrap();
    let event = Event::untimed(&context).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| assert!(event.is_complete().unwrap()));
        while !QUERYING.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        let graph = stream.capture(CaptureMode::ThreadLocal, |capturing| {
            event.record(capturing.stream())?;
            capturing.keep(kept.owner());
            // SAFETY: the range is the whole buffer, which the graph keeps.
            unsafe { capturing.stream().memset_d32(kept.address(), 9, kept.len()) }
        });
        assert_eq!(graph.unwrap().nodes().unwrap().len(), 1);
    });
    assert!(!RECORDED_MEANWHILE.load(Ordering::SeqCst));
}
