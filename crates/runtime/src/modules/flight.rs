//! One thread makes what several want, and the others wait for it: the rule, apart from any driver.
//!
//! Nobody waits who holds the right to make something, for another thread might wait for that. What
//! fails, a panic included, is the next one's to try.
//!
//! The file uses nothing but locks, and `tests/models` has all its interleavings checked.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use super::sync::{Condvar, Mutex};

/// What is made, and what is being made.
pub(crate) struct Flights<K, V> {
    slots: Mutex<HashMap<K, Slot<V>>>,
    /// Told whenever an attempt ends, well or not.
    ended: Condvar,
}

enum Slot<V> {
    /// A thread is at it.
    Making,
    Made(V),
}

/// What a thread that wants something is told.
enum Lookup<K: Clone + Eq + Hash, V: Clone> {
    Made(V),
    /// It is the one that makes it.
    Mine(Claim<K, V>),
    /// Another thread does.
    Busy,
}

/// A thread that wants several things, of type `W`.
pub(crate) trait Settle<K: Clone + Eq + Hash, V: Clone, W> {
    /// Why it gives up.
    type Error;

    /// What tells one wanted thing from another.
    fn key(wanted: &W) -> &K;

    /// Takes what is there.
    fn take(&mut self, wanted: W, made: V) -> Result<(), Self::Error>;

    /// Makes what nobody else makes. No lock is held meanwhile.
    fn make(&mut self, mine: Vec<(W, Claim<K, V>)>) -> Result<(), Self::Error>;
}

impl<K, V> Default for Flights<K, V> {
    fn default() -> Self {
        Self { slots: Mutex::new(HashMap::new()), ended: Condvar::new() }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Flights<K, V> {
    /// Has `thread` take or make everything that is `open`.
    pub(crate) fn settle<W, S: Settle<K, V, W>>(
        self: &Arc<Self>,
        mut open: Vec<W>,
        thread: &mut S,
    ) -> Result<(), S::Error> {
        while !open.is_empty() {
            let (mut mine, mut busy) = (Vec::new(), Vec::new());
            for wanted in open {
                match self.look_up(S::key(&wanted)) {
                    Lookup::Made(made) => thread.take(wanted, made)?,
                    Lookup::Mine(claim) => mine.push((wanted, claim)),
                    Lookup::Busy => busy.push(wanted),
                }
            }
            if let (true, Some(first)) = (mine.is_empty(), busy.first()) {
                self.wait(S::key(first));
            }
            thread.make(mine)?;
            open = busy;
        }
        Ok(())
    }

    /// What is made of `key`, or the right to make it unless another thread has that.
    fn look_up(self: &Arc<Self>, key: &K) -> Lookup<K, V> {
        let mut slots = self.slots.lock();
        match slots.get(key) {
            Some(Slot::Made(made)) => Lookup::Made(made.clone()),
            Some(Slot::Making) => Lookup::Busy,
            None => {
                slots.insert(key.clone(), Slot::Making);
                Lookup::Mine(Claim { flights: self.clone(), key: key.clone(), made: None })
            }
        }
    }

    /// Waits until no thread makes `key`.
    fn wait(&self, key: &K) {
        let mut slots = self.slots.lock();
        while matches!(slots.get(key), Some(Slot::Making)) {
            self.ended.wait(&mut slots);
        }
    }

    /// How much is made.
    pub(crate) fn made(&self) -> usize {
        self.slots.lock().values().filter(|slot| matches!(slot, Slot::Made(_))).count()
    }
}

/// The right to make something, which ends well or not, a panic included.
pub(crate) struct Claim<K: Clone + Eq + Hash, V: Clone> {
    flights: Arc<Flights<K, V>>,
    key: K,
    made: Option<V>,
}

impl<K: Clone + Eq + Hash, V: Clone> Claim<K, V> {
    /// Shares `made` with all who want it.
    pub(crate) fn fulfil(mut self, made: V) -> V {
        self.made.insert(made).clone()
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Drop for Claim<K, V> {
    fn drop(&mut self) {
        let mut slots = self.flights.slots.lock();
        match self.made.take() {
            Some(made) => slots.insert(self.key.clone(), Slot::Made(made)),
            None => slots.remove(&self.key),
        };
        self.flights.ended.notify_all();
    }
}
