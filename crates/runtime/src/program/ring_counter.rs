//! Slot accounting of a ring, between a host that writes values and a device that fetches them.
//!
//! Both count modulo 2^32: the host counts values whose launch was accepted, the device its
//! fetches. A slot may be written once the device has fetched its previous value. The host reads
//! the device's count only when the last known count leaves no free slot. `tests/models` checks
//! this file.

/// The host's counters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RingCounter {
    /// Values whose launch was accepted.
    given: u32,
    /// Fetches when the device's count was last read.
    taken: u32,
}

impl RingCounter {
    /// The number of the next value, from 1; an empty slot has 0.
    pub(crate) fn number(&self) -> u32 {
        self.given.wrapping_add(1)
    }

    /// The slot of the next value; `slots` is a power of two.
    pub(crate) fn slot(&self, slots: usize) -> usize {
        self.given as usize % slots
    }

    /// The number in the next slot before the next value is written.
    pub(crate) fn number_before(&self, slots: usize) -> u32 {
        self.number().wrapping_sub(slots as u32)
    }

    /// Whether the next value may be written: fewer than `slots` are in flight. Also false if the
    /// device has fetched more than it was given, which is an error.
    pub(crate) fn has_capacity(&self, slots: usize) -> bool {
        (self.in_flight() as usize) < slots
    }

    /// Records the device's count.
    pub(crate) fn look(&mut self, taken: u32) {
        self.taken = taken;
    }

    /// Records that the launch of the next value was accepted.
    pub(crate) fn accepted(&mut self) {
        self.given = self.number();
    }

    /// Returns the number of values that are given but not known to be fetched.
    pub(crate) fn in_flight(&self) -> u32 {
        self.given.wrapping_sub(self.taken)
    }

    /// Values whose launch was accepted, and fetches when the count was last read.
    pub(crate) fn given_and_fetched(&self) -> (u32, u32) {
        (self.given, self.taken)
    }
}
