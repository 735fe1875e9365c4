//! Whose turn a slot of a ring is, between a host that writes values and a device that takes them.
//!
//! Both count modulo 2^32, the host the values whose launch was accepted, the device those that it
//! has taken. Slots take turns, so that a value may be written where the device has taken all but
//! so many of those before it. The device's count is asked for only when the host has run out of
//! slots by the count that it knows. This file is checked by a model checker (`tests/models`).

/// The host's side.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RingCounter {
    /// Values whose launch was accepted.
    given: u32,
    /// Values that were taken when the device's count was looked at last.
    taken: u32,
}

impl RingCounter {
    /// The number of the next value: the first has 1, since an empty slot has 0.
    pub(crate) fn number(&self) -> u32 {
        self.given.wrapping_add(1)
    }

    /// The slot of the next value, of `slots`, which is a power of two.
    pub(crate) fn slot(&self, slots: usize) -> usize {
        self.given as usize % slots
    }

    /// What the slot of the next value has for a number while there is none.
    pub(crate) fn number_before(&self, slots: usize) -> u32 {
        self.number().wrapping_sub(slots as u32)
    }

    /// Whether the next value may be written: at most `slots` are in flight. A device that has
    /// taken more than it was given, which none may, leaves no room either.
    pub(crate) fn has_capacity(&self, slots: usize) -> bool {
        (self.in_flight() as usize) < slots
    }

    /// Notes the device's count.
    pub(crate) fn look(&mut self, taken: u32) {
        self.taken = taken;
    }

    /// The launch of the next value was accepted.
    pub(crate) fn accepted(&mut self) {
        self.given = self.number();
    }

    /// Values that were given and, as far as is known, not taken.
    pub(crate) fn in_flight(&self) -> u32 {
        self.given.wrapping_sub(self.taken)
    }
}
