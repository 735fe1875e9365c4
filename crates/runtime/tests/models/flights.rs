//! Threads that need the same values from a module cache.

use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::check;
use crate::flight::{Claim, Flights, Settle};

type Shared = Flights<&'static str, usize>;
/// The keys that a thread wanted, with the values it got.
type Got = Vec<(&'static str, usize)>;

/// The state shared by all threads of a model.
#[derive(Default)]
struct World {
    flights: Arc<Shared>,
    /// Number of attempts that were started.
    begun: AtomicUsize,
    /// Number of concurrent makers of a value; the tests check a single value.
    at_it: AtomicUsize,
}

/// A thread that makes values; a value is the number of attempts that were started before.
struct Maker {
    world: loom::sync::Arc<World>,
    /// Attempts with numbers below this fail, over all threads.
    failing: usize,
    alone: bool,
    got: Got,
}

impl Settle<&'static str, usize, &'static str> for Maker {
    type Error = ();

    fn key<'k>(wanted: &'k &'static str) -> &'k &'static str {
        wanted
    }

    fn take(&mut self, wanted: &'static str, made: usize) -> Result<(), ()> {
        self.got.push((wanted, made));
        Ok(())
    }

    fn make(&mut self, mine: Vec<(&'static str, Claim<&'static str, usize>)>) -> Result<(), ()> {
        for (wanted, claim) in mine {
            let others = self.world.at_it.fetch_add(1, Ordering::SeqCst);
            assert!(!self.alone || others == 0, "two make the same");
            let number = self.world.begun.fetch_add(1, Ordering::SeqCst);
            thread::yield_now();
            self.world.at_it.fetch_sub(1, Ordering::SeqCst);
            if number < self.failing {
                // This and all further claims end without a value.
                return Err(());
            }
            self.got.push((wanted, claim.fulfil(number)));
        }
        Ok(())
    }
}

/// Runs threads that want `wanted` each; the first `failing` attempts fail. Returns the values of
/// each thread that had no failure.
fn run(
    wanted: &[&'static [&'static str]],
    failing: usize,
) -> (loom::sync::Arc<World>, Vec<Option<Got>>) {
    let world = loom::sync::Arc::new(World::default());
    let alone = wanted.iter().all(|wanted| wanted.len() == 1);
    let settle = move |world: loom::sync::Arc<World>, wanted: &[&'static str]| {
        let flights = world.flights.clone();
        let mut maker = Maker { world, failing, alone, got: Vec::new() };
        flights.settle(wanted.to_vec(), &mut maker).ok().map(|()| maker.got)
    };
    let (last, others) = wanted.split_last().unwrap();
    let threads: Vec<_> = others
        .iter()
        .map(|&wanted| {
            let world = world.clone();
            thread::spawn(move || settle(world, wanted))
        })
        .collect();
    let mut got = vec![settle(world.clone(), last)];
    got.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
    (world, got)
}

#[test]
fn a_value_that_several_threads_want_is_made_once() {
    check(|| {
        let (world, got) = run(&[&["a"], &["a"], &["a"]], 0);
        assert!(got.iter().all(|got| got.as_deref() == Some(&[("a", 0)])), "{got:?}");
        assert_eq!((world.begun.load(Ordering::SeqCst), world.flights.made()), (1, 1));
    });
}

#[test]
fn a_failed_attempt_is_repeated_by_the_next_thread() {
    check(|| {
        let (world, got) = run(&[&["a"], &["a"], &["a"]], 1);
        let failed = got.iter().filter(|got| got.is_none()).count();
        assert_eq!((failed, world.begun.load(Ordering::SeqCst)), (1, 2), "{got:?}");
        assert!(got.iter().flatten().all(|got| *got == [("a", 1)]), "{got:?}");
    });
}

#[test]
fn threads_that_want_two_things_in_opposite_orders_do_not_wait_for_each_other() {
    check(|| {
        let (world, got) = run(&[&["a", "b"], &["b", "a"]], 0);
        assert_eq!((world.begun.load(Ordering::SeqCst), world.flights.made()), (2, 2));
        for got in got {
            let mut names: Vec<_> = got.unwrap().into_iter().map(|(name, _)| name).collect();
            names.sort_unstable();
            assert_eq!(names, ["a", "b"]);
        }
    });
}

#[test]
fn a_failure_gives_back_every_claim() {
    check(|| {
        let (world, got) = run(&[&["a", "b"], &["b", "a"]], 1);
        assert_eq!(got.iter().filter(|got| got.is_none()).count(), 1, "{got:?}");
        assert_eq!((world.begun.load(Ordering::SeqCst), world.flights.made()), (3, 2));
    });
}
