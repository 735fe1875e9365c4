//! Calls of one thread do not break the capture of another.

use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use retrograph_driver::{
    CaptureMode, Context, DeviceBuffer, Driver, Error, KernelArguments, KernelLaunch,
    LaunchGeometry, PinnedBuffer, Stream,
};

use crate::device::{alone, device_of, loaded_twice};
use crate::disturbers::{Disturb, Disturber, THROUGH_THE_API};
use crate::ptx::{SCALE, load};

/// Minimum time, long enough for hundreds of captures.
const MIN_TIME: Duration = Duration::from_millis(50);
/// Minimum rounds of a slow disturber, such as one that compiles.
const MIN_ROUNDS: u32 = 3;
const MAX_TIME: Duration = Duration::from_millis(400);
/// The time limit of the first round is much longer, because the disturbing calls may wait for an
/// operating system that other processes keep busy.
const FIRST_ROUND_MAX_TIME: Duration = Duration::from_secs(30);
const ENQUEUED: usize = 50;

/// The effect of one kind of call on the captures of another thread.
struct Outcome {
    name: &'static str,
    captures: u32,
    rounds: u32,
    lost: u32,
    /// The error of the first lost capture.
    error: Option<String>,
    /// The failure of the other thread.
    failure: Option<String>,
}

/// Captures on this thread for a while, and lets another one call `disturb` in a loop.
fn disturbed([driver, other]: &[Driver; 2], name: &'static str, disturb: Disturb) -> Outcome {
    let (device, rounds) = (device_of(driver), AtomicU32::new(0));
    let buffer = DeviceBuffer::zeroed(&device.context, 8).unwrap();
    let failure = OnceLock::new();
    let disturber = Disturber { device, buffer, other: other.clone(), failure };
    let (stop, stopped) = channel::<()>();
    let mut outcome = Outcome { name, captures: 0, rounds: 0, lost: 0, error: None, failure: None };
    thread::scope(|scope| {
        scope.spawn(|| {
            let stopped = stopped;
            while stopped.try_recv() == Err(TryRecvError::Empty) && disturber.works(disturb) {
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        // Also dropped by a panic, so that the other thread ends.
        let _stop = stop;
        let started = Instant::now();
        capture_while(&disturber.device.context, &mut outcome, || {
            let most = match rounds.load(Ordering::Relaxed) {
                0 => FIRST_ROUND_MAX_TIME,
                done if done < MIN_ROUNDS => MAX_TIME,
                _ => MIN_TIME,
            };
            // A failed round ends the other thread.
            started.elapsed() < most && disturber.failure.get().is_none()
        });
    });
    outcome.rounds = rounds.into_inner();
    outcome.failure = disturber.failure.into_inner();
    outcome
}

fn capture_while(context: &Context, outcome: &mut Outcome, more: impl Fn() -> bool) {
    let stream = Stream::new(context).unwrap();
    let function = load(context, SCALE, "scale");
    let buffer = DeviceBuffer::<f32>::zeroed(context, 8).unwrap();
    let arguments = KernelArguments::new().address(buffer.address()).u32(8).f32(2.0);
    let geometry = LaunchGeometry::linear(1, 32);
    let launch = KernelLaunch::new(&function, geometry, &arguments);
    // At least one capture, even if the other thread delays it.
    while outcome.captures == 0 || more() {
        outcome.captures += 1;
        let captured = stream.capture(CaptureMode::ThreadLocal, |capturing| {
            // SAFETY: the arguments match the function, and the graph is never launched.
            (0..ENQUEUED).try_for_each(|_| unsafe { capturing.launch(&launch) })
        });
        match captured {
            Ok(graph) => assert_eq!(graph.nodes().unwrap().len(), ENQUEUED),
            Err(error) => {
                outcome.lost += 1;
                outcome.error.get_or_insert(error.to_string());
            }
        }
    }
}

fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::from("lost of captures (rounds of the other thread):\n");
    for Outcome { name, captures, rounds, lost, error, failure } in outcomes {
        let said = [error, failure].map(|text| text.as_deref().unwrap_or_default()).join("; ");
        let _ = writeln!(text, "{lost:6} of {captures:6} ({rounds:6}) {name} {said}");
    }
    text
}

#[test]
// The table is useful even if no capture is lost.
#[allow(clippy::print_stderr)]
fn no_capture_is_lost_by_what_another_thread_does() {
    let name = "no_capture_is_lost_by_what_another_thread_does";
    // In a separate process, because other tests would serialize the two threads.
    alone(&format!("disturbed_captures::{name}"), |_| {
        let drivers = loaded_twice();
        let outcomes = THROUGH_THE_API.map(|(name, disturb)| disturbed(&drivers, name, disturb));
        eprintln!("{}", table(&outcomes));
        for Outcome { name, captures, rounds, .. } in &outcomes {
            assert!(*captures > 0 && *rounds > 0, "{name}: nothing was tried");
        }
        let undisturbed = |outcome: &Outcome| outcome.lost == 0 && outcome.failure.is_none();
        assert!(outcomes.iter().all(undisturbed), "{}", table(&outcomes));
    });
}

#[test]
fn captures_are_known_to_every_loaded_driver() {
    let [driver, other] = loaded_twice();
    let (here, there) = (device_of(&driver), device_of(&other));
    let pinned = PinnedBuffer::<u32>::from_slice(&there.context, &[1; 8]).unwrap();
    let buffer = DeviceBuffer::from_slice(&here.stream, &pinned).unwrap();
    let captured = here.stream.capture(CaptureMode::ThreadLocal, |capturing| {
        let waiting = thread::scope(|scope| {
            let other = scope.spawn(|| {
                drop(pinned);
                let refused = there.context.synchronize().unwrap_err();
                assert!(matches!(refused, Error::RefusedDuringCapture { .. }), "{refused}");
                there.context.deferred_releases()
            });
            other.join().unwrap()
        });
        assert!(waiting > 0, "pinned memory was freed, which waits for the context");
        let refused = there.stream.synchronize().unwrap_err();
        assert!(matches!(refused, Error::RefusedDuringCapture { .. }), "{refused}");
        // SAFETY: the range is the whole buffer, and the graph is never launched.
        unsafe { capturing.stream().memset_d32(buffer.address(), 2, 8) }
    });
    assert_eq!(captured.unwrap().nodes().unwrap().len(), 1);
    assert_eq!(buffer.download(&there.stream).unwrap(), [1; 8], "the same context");
}
