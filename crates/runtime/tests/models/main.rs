//! All interleavings of what threads do with the gate between captures and releases, and with the
//! single flight of the module cache, and of what host and device do with the ring of controls, by
//! the model checker `loom`: it runs each model once for every order, up to a bound, in which locks
//! can be had.
//!
//! The gate, the flights and the turns themselves are checked and not copies of them: their files
//! are included here, with the checker's locks under the names of those that the crate takes.

#[path = "../../src/modules/flight.rs"]
#[allow(dead_code, reason = "the models do not ask for everything")]
mod flight;
mod flights;
#[path = "../../src/gate.rs"]
#[allow(dead_code, reason = "the models do not ask for everything")]
mod gate;
mod rings;
mod sync;
#[path = "../../src/memory/turns.rs"]
#[allow(dead_code, reason = "the models do not ask for everything")]
mod turns;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use gate::Gate;

/// The device as captures and releases see it.
#[derive(Default)]
struct World {
    gate: Gate<Arc<AtomicUsize>>,
    /// Captures that are open at the driver.
    open: AtomicUsize,
}

impl World {
    /// What a capture does: no release comes between its begin and its end.
    fn capture(&self) {
        let begin = || {
            self.open.fetch_add(1, Ordering::SeqCst);
            Ok::<_, ()>(())
        };
        self.gate.begin_capture(begin).unwrap();
        thread::yield_now();
        self.open.fetch_sub(1, Ordering::SeqCst);
        let _gate = self.gate.no_capture_begins();
        self.gate.capture_ends();
        self.gate.due().into_iter().for_each(|done| self.free(&done));
    }

    /// What dropping something does, with something in it that is dropped by that.
    fn release(&self, done: &Arc<AtomicUsize>, nested: Option<&Arc<AtomicUsize>>) {
        let _gate = self.gate.no_capture_begins();
        if let Some(done) = self.gate.now_or_later(Arc::clone(done)) {
            self.free(&done);
            if let Some(nested) = nested {
                self.release(nested, None);
            }
        }
    }

    /// What breaks every capture that is open.
    fn free(&self, done: &AtomicUsize) {
        assert_eq!(self.open.load(Ordering::SeqCst), 0, "a capture is broken");
        done.fetch_add(1, Ordering::SeqCst);
        thread::yield_now();
        assert_eq!(self.open.load(Ordering::SeqCst), 0, "a capture began meanwhile");
    }
}

/// Runs `model` in every order in which a thread is interrupted at most twice where it could go on.
/// Waits for locks are no interruptions.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

fn releases() -> [Arc<AtomicUsize>; 2] {
    [(); 2].map(|()| Arc::new(AtomicUsize::new(0)))
}

fn assert_done_once(world: &World, releases: &[Arc<AtomicUsize>]) {
    assert_eq!(world.gate.waiting(), 0, "something was left waiting");
    assert!(!world.gate.capturing());
    assert!(releases.iter().all(|done| done.load(Ordering::SeqCst) == 1));
}

#[test]
fn a_release_comes_before_or_behind_a_capture_and_once() {
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
fn captures_that_overlap_leave_releases_to_the_last_one() {
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
fn a_release_that_drops_another_thing_does_not_wait_for_a_begin_that_waits_for_it() {
    check(|| {
        let (world, [outer, inner]) = (Arc::new(World::default()), releases());
        let capturing = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.capture())
        };
        world.release(&outer, Some(&inner));
        capturing.join().unwrap();
        // What was put off as a whole has its inner part put off with it.
        if inner.load(Ordering::SeqCst) == 0 {
            world.release(&inner, None);
        }
        assert_done_once(&world, &[outer, inner]);
    });
}
