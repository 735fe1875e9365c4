//! All interleavings of captures, releases and enqueued work, checked by the model checker `loom`.
//!
//! Includes the source of the lock, with the checker's locks in place of the crate's.

#[path = "../../src/locks/capture_lock.rs"]
#[allow(dead_code, reason = "the models do not call everything")]
mod capture_lock;
#[path = "../support/locks.rs"]
#[allow(dead_code, unreachable_pub, reason = "other models use the rest")]
mod sync;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use capture_lock::CaptureLock;

/// A device with captures and releases.
#[derive(Default)]
struct World {
    lock: CaptureLock<Arc<AtomicUsize>>,
    /// Open captures of the driver.
    open: AtomicUsize,
    /// Whether a stream captures.
    stream_captures: AtomicBool,
}

impl World {
    /// A capture; no release may run between its begin and its end.
    fn capture(&self) {
        let begin = || {
            self.open.fetch_add(1, Ordering::SeqCst);
            Ok::<_, ()>(())
        };
        self.lock.begin_capture(begin).unwrap();
        thread::yield_now();
        self.open.fetch_sub(1, Ordering::SeqCst);
        self.lock.capture_ends();
        let _lock = self.lock.no_capture_begins();
        self.lock.take_ready().into_iter().for_each(|done| self.free(&done));
    }

    /// A capture that the stream joins.
    fn capture_and_join(&self) {
        self.lock.begin_capture(|| Ok::<_, ()>(())).unwrap();
        self.lock.join_capture(|| self.stream_captures.store(true, Ordering::SeqCst));
        thread::yield_now();
        self.stream_captures.store(false, Ordering::SeqCst);
        self.lock.capture_ends();
    }

    /// Enqueues work on the stream, unless that captures.
    fn enqueue(&self) {
        let _lock = self.lock.no_capture_begins_in_turn();
        if self.lock.capturing() && self.stream_captures.load(Ordering::SeqCst) {
            return;
        }
        thread::yield_now();
        assert!(!self.stream_captures.load(Ordering::SeqCst), "the work is captured");
    }

    /// A release, with an inner object that it drops.
    fn release(&self, done: &Arc<AtomicUsize>, nested: Option<&Arc<AtomicUsize>>) {
        let _lock = self.lock.no_capture_begins();
        if let Some(done) = self.lock.ready_or_defer(Arc::clone(done)) {
            self.free(&done);
            if let Some(nested) = nested {
                self.release(nested, None);
            }
        }
    }

    /// A call that breaks every open capture.
    fn free(&self, done: &AtomicUsize) {
        assert_eq!(self.open.load(Ordering::SeqCst), 0, "a capture is broken");
        done.fetch_add(1, Ordering::SeqCst);
        thread::yield_now();
        assert_eq!(self.open.load(Ordering::SeqCst), 0, "a capture began meanwhile");
    }
}

/// Runs `model` in every interleaving with at most two preemptions per thread.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

fn releases() -> [Arc<AtomicUsize>; 2] {
    [(); 2].map(|()| Arc::new(AtomicUsize::new(0)))
}

fn assert_done_once(world: &World, releases: &[Arc<AtomicUsize>]) {
    assert_eq!(world.lock.deferred(), 0, "something was left waiting");
    assert!(!world.lock.capturing());
    assert!(releases.iter().all(|done| done.load(Ordering::SeqCst) == 1));
}

#[test]
fn a_release_runs_once_and_never_during_a_capture() {
    check(|| {
        let (world, [outer, other]) = (Arc::new(World::default()), releases());
        let capturing = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.capture())
        };
        let releasing = {
            let (world, other) = (Arc::clone(&world), Arc::clone(&other));
            thread::spawn(move || world.release(&other, None))
        };
        world.release(&outer, None);
        capturing.join().unwrap();
        releasing.join().unwrap();
        assert_done_once(&world, &[outer, other]);
    });
}

#[test]
fn the_last_of_overlapping_captures_runs_the_releases() {
    check(|| {
        let (world, [only, _]) = (Arc::new(World::default()), releases());
        let capturing = [(); 2].map(|()| {
            let world = Arc::clone(&world);
            thread::spawn(move || world.capture())
        });
        world.release(&only, None);
        capturing.into_iter().for_each(|thread| thread.join().unwrap());
        assert_done_once(&world, &[only]);
    });
}

#[test]
fn work_is_not_captured_by_a_capture_that_its_stream_joins() {
    check(|| {
        let world = Arc::new(World::default());
        let threads = [World::capture_and_join, World::enqueue].map(|act| {
            let world = Arc::clone(&world);
            thread::spawn(move || act(&world))
        });
        world.enqueue();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_done_once(&world, &[]);
    });
}

#[test]
fn a_nested_release_does_not_deadlock_with_a_capture_that_begins() {
    check(|| {
        let (world, [outer, inner]) = (Arc::new(World::default()), releases());
        let capturing = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.capture())
        };
        world.release(&outer, Some(&inner));
        capturing.join().unwrap();
        // A deferred release was not run, so the inner object was not dropped yet.
        if inner.load(Ordering::SeqCst) == 0 {
            world.release(&inner, None);
        }
        assert_done_once(&world, &[outer, inner]);
    });
}
