//! Single flight: one thread computes a value that several threads need, and the others wait for
//! it.
//!
//! A thread that holds a claim does not wait, since another thread might wait for it. After a
//! failed attempt or a panic, the next thread tries.
//!
//! This file uses only locks; `tests/models` checks all its interleavings.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use super::sync::{Condvar, Mutex};

/// Values that are complete or in progress.
pub(crate) struct Flights<K, V> {
    slots: Mutex<HashMap<K, Slot<V>>>,
    /// Notified whenever an attempt ends.
    ended: Condvar,
}

enum Slot<V> {
    /// A thread is making it.
    Making,
    Made(V),
}

/// The result of looking up a value.
enum Lookup<K: Clone + Eq + Hash, V: Clone> {
    Made(V),
    /// This thread makes it.
    Mine(Claim<K, V>),
    /// Another thread is computing it.
    Busy,
}

/// A thread that needs several values, described by `W`.
pub(crate) trait Settle<K: Clone + Eq + Hash, V: Clone, W> {
    /// The error of this thread.
    type Error;

    /// The key of a value.
    fn key(wanted: &W) -> &K;

    /// Receives a complete value.
    fn take(&mut self, wanted: W, made: V) -> Result<(), Self::Error>;

    /// Computes values that no other thread computes. Holds no lock meanwhile.
    fn make(&mut self, mine: Vec<(W, Claim<K, V>)>) -> Result<(), Self::Error>;
}

impl<K, V> Default for Flights<K, V> {
    fn default() -> Self {
        Self { slots: Mutex::new(HashMap::new()), ended: Condvar::new() }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Flights<K, V> {
    /// Lets `thread` receive or compute every value in `open`.
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

    /// Returns the value of `key`, or the claim to compute it, unless another thread holds the
    /// claim.
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

    /// Waits until no thread computes `key`.
    fn wait(&self, key: &K) {
        let mut slots = self.slots.lock();
        while matches!(slots.get(key), Some(Slot::Making)) {
            self.ended.wait(&mut slots);
        }
    }

    /// Number of values made.
    pub(crate) fn made(&self) -> usize {
        self.slots.lock().values().filter(|slot| matches!(slot, Slot::Made(_))).count()
    }
}

/// The exclusive right to compute a value. Released on drop, including by a panic.
pub(crate) struct Claim<K: Clone + Eq + Hash, V: Clone> {
    flights: Arc<Flights<K, V>>,
    key: K,
    made: Option<V>,
}

impl<K: Clone + Eq + Hash, V: Clone> Claim<K, V> {
    /// Shares `made` with all waiting threads and returns it.
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
