//! A host that writes values to the slots of a ring, and a device that fetches them.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use loom::thread;

use crate::check;
use crate::ring_counter::RingCounter;

/// Fewer slots than in the program, so that they are reused soon.
const SLOTS: usize = 2;

/// The memory that host and device share, and the order of launches.
#[derive(Default)]
struct Ring {
    /// The device's fetch count.
    count: AtomicU32,
    numbers: [AtomicU32; SLOTS],
    /// The checker reports if one side writes a value while the other accesses it.
    values: [UnsafeCell<u32>; SLOTS],
    /// Accepted launches; a launch sees everything that the host did before.
    launched: AtomicUsize,
}

impl Ring {
    fn put(&self, counter: &mut RingCounter, value: u32) {
        while !counter.has_capacity(SLOTS) {
            counter.look(self.count.load(Ordering::Acquire));
            thread::yield_now();
        }
        let slot = counter.slot(SLOTS);
        // SAFETY: the checker finds concurrent accesses.
        self.values[slot].with_mut(|place| unsafe { *place = value });
        self.numbers[slot].store(counter.number(), Ordering::Release);
    }

    fn withdraw(&self, counter: &RingCounter) {
        let slot = counter.slot(SLOTS);
        self.numbers[slot].store(counter.number_before(SLOTS), Ordering::Release);
    }

    fn launch(&self, counter: &mut RingCounter) {
        self.launched.fetch_add(1, Ordering::Release);
        counter.accepted();
    }

    /// The kernel, once for each of `launches` launches.
    fn run(&self, launches: usize) -> Vec<Option<u32>> {
        let mut taken = 0_u32;
        let run = |launch| {
            while self.launched.load(Ordering::Acquire) <= launch {
                thread::yield_now();
            }
            let slot = taken as usize % SLOTS;
            let number = self.numbers[slot].load(Ordering::Relaxed);
            (number == taken + 1).then(|| {
                // SAFETY: as above.
                let value = self.values[slot].with(|place| unsafe { *place });
                taken += 1;
                self.count.store(taken, Ordering::Release);
                value
            })
        };
        (0..launches).map(run).collect()
    }
}

fn launched(launches: usize, host: impl Fn(&Ring) + Send + Sync + 'static) -> Vec<Option<u32>> {
    let ring = Arc::new(Ring::default());
    let device = {
        let ring = Arc::clone(&ring);
        thread::spawn(move || ring.run(launches))
    };
    host(&ring);
    device.join().unwrap()
}

#[test]
fn each_launch_takes_its_own_values_and_no_slot_is_written_too_early() {
    check(|| {
        let found = launched(4, |ring| {
            let mut counter = RingCounter::default();
            for value in [10, 11, 12, 13] {
                ring.put(&mut counter, value);
                ring.launch(&mut counter);
            }
        });
        assert_eq!(found, [10, 11, 12, 13].map(Some));
    });
}

#[test]
fn values_whose_launch_failed_are_taken_by_none() {
    check(|| {
        let found = launched(3, |ring| {
            let mut counter = RingCounter::default();
            for value in [10, 11, 12] {
                ring.put(&mut counter, value + 100);
                ring.withdraw(&counter);
                ring.put(&mut counter, value);
                ring.launch(&mut counter);
            }
        });
        assert_eq!(found, [10, 11, 12].map(Some));
    });
}

#[test]
fn a_launch_by_other_means_between_steps_takes_nothing() {
    check(|| {
        let found = launched(3, |ring| {
            let mut counter = RingCounter::default();
            ring.put(&mut counter, 10);
            ring.launch(&mut counter);
            ring.put(&mut counter, 11);
            ring.withdraw(&counter);
            // Not a step, so that nothing is counted.
            ring.launched.fetch_add(1, Ordering::Release);
            while ring.count.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            ring.launched.fetch_add(1, Ordering::Release);
        });
        assert_eq!(found, [Some(10), None, None]);
    });
}
