//! The last accesses to each byte of a memory.

use std::collections::HashMap;

use crate::fault::RacingAccess;

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessKind {
    /// It reads.
    Read,
    /// It writes. Writing the value that memory already holds is not a race.
    Write { same: bool },
    /// It reads and writes atomically.
    Atomic,
}

/// A recorded access.
#[derive(Clone, Copy, Debug)]
pub(super) struct AccessStamp {
    pub(super) block: u64,
    pub(super) thread: u32,
    /// The clock of its warp.
    pub(super) clock: u32,
    /// The number of earlier strong writes of its cluster.
    pub(super) writes: u32,
    pub(super) pc: u32,
    pub(super) strong: bool,
}

impl AccessStamp {
    pub(super) fn is_by_same_thread(&self, other: &Self) -> bool {
        (self.block, self.thread) == (other.block, other.thread)
    }
}

/// The last write to a byte, and the last reads by two different threads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cell {
    write: Option<AccessStamp>,
    reads: [Option<AccessStamp>; 2],
}

impl Cell {
    /// Returns the recorded access that a new access races with.
    pub(super) fn conflict(
        &self,
        kind: AccessKind,
        races: impl Fn(&AccessStamp) -> bool,
    ) -> Option<(AccessStamp, RacingAccess)> {
        if kind == (AccessKind::Write { same: true }) {
            return None;
        }
        if let Some(other) = self.write.filter(|other| races(other)) {
            return Some((other, RacingAccess::Write));
        }
        let mut reads = self.reads.iter().flatten().filter(|_| kind != AccessKind::Read);
        reads.find(|other| races(other)).map(|other| (*other, RacingAccess::Read))
    }

    pub(super) fn note(&mut self, kind: AccessKind, stamp: AccessStamp) {
        match kind {
            AccessKind::Read => {}
            // It may be unordered with the recorded reads.
            AccessKind::Write { same: true } => {
                self.write = Some(stamp);
                return;
            }
            _ => {
                *self = Self { write: Some(stamp), reads: [None; 2] };
                return;
            }
        }
        let [last, before] = &mut self.reads;
        if last.is_some_and(|other| !other.is_by_same_thread(&stamp)) {
            *before = *last;
        }
        *last = Some(stamp);
    }
}

/// Bytes of a page.
const PAGE: u64 = 1024;

/// The accesses to one memory.
#[derive(Debug, Default)]
pub(crate) struct AccessHistory {
    pages: HashMap<u64, Vec<Cell>>,
    /// Releases of strong writes, by address.
    pub(super) releases: HashMap<u64, Release>,
}

impl AccessHistory {
    pub(super) fn cell(&mut self, address: u64) -> &mut Cell {
        let fresh = || vec![Cell::default(); PAGE as usize];
        let page = self.pages.entry(address / PAGE).or_insert_with(fresh);
        &mut page[(address % PAGE) as usize]
    }
}

/// The clocks of the writers, which a thread acquires by reading a strong write.
#[derive(Clone, Debug, Default)]
pub(super) struct Release {
    /// The clocks of the warps of each cluster that wrote, by its first block.
    pub(super) clocks: HashMap<u64, Vec<u32>>,
    /// Blocks and the clocks of their clusters.
    pub(super) blocks: HashMap<u64, u32>,
}
