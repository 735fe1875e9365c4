//! Bulk copies in flight.
//!
//! A load poisons its destination when it is issued and lands when no warp can continue without it,
//! or at random with a seed. A store reads its source at the wait that covers it, and writes its
//! destination at the wait for its completion or when its thread exits.

use std::ops::Range;

use retrograph_ptx::ast::Type;

use super::addition::add;
use super::extent::{Extent, overlap, range};
use super::tensor::PIECE;
use super::undefined;
use crate::access::Memories;
use crate::fault::FaultKind;
use crate::memory::{POISON, fill_host};
use crate::program::LANES;
use crate::undefined::ProxyMisuse;

/// The thread and the instruction that issued a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Issuer {
    pub(super) warp: usize,
    pub(super) lane: u32,
    pub(super) pc: u32,
    /// Whether the thread belongs to another block of the cluster.
    pub(super) is_peer: bool,
}

impl Issuer {
    /// The linear index of the thread in its block, and the instruction.
    pub(crate) fn position(self) -> (u32, u32) {
        ((self.warp * LANES) as u32 + self.lane, self.pc)
    }
}

/// A load to `shared`, which completes at `mbarrier`.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) issuer: Issuer,
    pub(super) shared: u64,
    pub(super) extent: Extent,
    pub(super) mbarrier: u64,
}

#[derive(Clone, Debug)]
struct Store {
    issuer: Issuer,
    group: u32,
    shared: u64,
    extent: Extent,
    /// The bytes of the source, once read.
    read: Option<Vec<u8>>,
    /// The elements, if they are added to the destination.
    adds: Option<Type>,
}

/// A load that has landed: the mbarrier that counts its bytes, and their number.
pub(super) struct Landed {
    pub(super) mbarrier: u64,
    pub(super) bytes: u64,
    pub(super) issuer: Issuer,
}

/// The bulk copies of a block in flight.
#[derive(Clone, Debug, Default)]
pub(super) struct Copies {
    loads: Vec<Load>,
    stores: Vec<Store>,
    /// The number of groups of stores that each thread has committed.
    committed: Vec<u32>,
}

impl Copies {
    /// Resets the state for a new block of `threads` threads.
    pub(super) fn clear(&mut self, threads: usize) {
        self.loads.clear();
        self.stores.clear();
        self.committed.clear();
        self.committed.resize(threads, 0);
    }

    /// The issuer of a load in flight, if there is one.
    pub(super) fn first_load(&self) -> Option<Issuer> {
        self.loads.first().map(|load| load.issuer)
    }

    /// Checks that threads may access shared memory.
    pub(super) fn check(&self, bytes: &Range<u64>, writes: bool) -> Result<(), FaultKind> {
        for load in &self.loads {
            let target = range(load.shared, &load.extent);
            if overlap(bytes, &target) {
                return undefined(ProxyMisuse::TargetInFlight {
                    address: bytes.start,
                    writes,
                    start: target.start,
                    end: target.end,
                    mbarrier: load.mbarrier,
                });
            }
        }
        if writes { self.check_sources(bytes) } else { Ok(()) }
    }

    fn check_sources(&self, bytes: &Range<u64>) -> Result<(), FaultKind> {
        for store in self.stores.iter().filter(|store| store.read.is_none()) {
            let source = range(store.shared, &store.extent);
            if overlap(bytes, &source) {
                return undefined(ProxyMisuse::SourceInFlight {
                    address: bytes.start,
                    start: source.start,
                    end: source.end,
                });
            }
        }
        Ok(())
    }

    /// Issues a load.
    pub(super) fn load(&mut self, memories: &Memories<'_>, load: Load) -> Result<(), FaultKind> {
        load.extent.check(memories, load.shared)?;
        let target = range(load.shared, &load.extent);
        self.check(&target, true)?;
        let bytes = load.extent.shared_bytes();
        let to = memories.shared_bytes(load.shared, bytes)?;
        // SAFETY: `shared_bytes` proved the bytes.
        unsafe { fill_host(to, &POISON.to_le_bytes(), bytes as usize) };
        self.loads.push(load);
        Ok(())
    }

    /// Lands one of the loads in flight, selected by `seed`.
    pub(super) fn land(
        &mut self,
        memories: &mut Memories<'_>,
        seed: u64,
    ) -> Result<Option<Landed>, FaultKind> {
        if self.loads.is_empty() {
            return Ok(None);
        }
        // The last load first, so loads land in another order than they were issued.
        let index = self.loads.len() - 1 - (seed % self.loads.len() as u64) as usize;
        let Load { issuer, shared, extent, mbarrier } = self.loads.remove(index);
        for piece in extent.pieces(shared) {
            let mut bytes = [0; PIECE as usize];
            let to = memories.shared_bytes(piece.shared, PIECE)?;
            // SAFETY: both ranges were proved.
            unsafe {
                if piece.bytes > 0 {
                    let from = memories.global_bytes(piece.global, piece.bytes)?;
                    let inside = bytes.as_mut_ptr().add(piece.before as usize);
                    std::ptr::copy_nonoverlapping(from, inside, piece.bytes as usize);
                }
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
            }
        }
        memories.forget_unfenced(shared, extent.shared_bytes());
        let bytes = extent.bytes();
        Ok(Some(Landed { mbarrier, bytes, issuer }))
    }

    /// Issues a store from `shared`.
    pub(super) fn store(
        &mut self,
        memories: &Memories<'_>,
        shared: u64,
        extent: Extent,
        adds: Option<Type>,
        thread: usize,
        issuer: Issuer,
    ) -> Result<(), FaultKind> {
        extent.check(memories, shared)?;
        let source = range(shared, &extent);
        self.check(&source, false)?;
        if let Some(address) = memories.first_unfenced(&source) {
            return undefined(ProxyMisuse::UnfencedSource { address });
        }
        let group = self.committed[thread];
        self.stores.push(Store { issuer, group, shared, extent, read: None, adds });
        Ok(())
    }

    /// `cp.async.bulk.commit_group` of a thread.
    pub(super) fn commit(&mut self, thread: usize) {
        self.committed[thread] += 1;
    }

    /// Completes all groups of the thread except the last `open`, or only reads their sources. With
    /// `None`, completes all of its stores, committed or not.
    pub(super) fn wait(
        &mut self,
        memories: &Memories<'_>,
        thread: usize,
        warp: usize,
        lane: u32,
        open: Option<u32>,
        read_only: bool,
    ) -> Result<(), FaultKind> {
        let before = open.map(|open| self.committed[thread].saturating_sub(open));
        let mut failure = Ok(());
        self.stores.retain_mut(|store| {
            let own = (store.issuer.warp, store.issuer.lane) == (warp, lane);
            let covered = before.is_none_or(|before| store.group < before);
            if failure.is_err() || !own || !covered {
                return true;
            }
            failure = store.advance(memories, read_only);
            read_only
        });
        failure
    }
}

impl Store {
    /// Reads the source, and writes the destination unless `read_only`.
    fn advance(&mut self, memories: &Memories<'_>, read_only: bool) -> Result<(), FaultKind> {
        let pieces = self.extent.pieces(self.shared);
        if self.read.is_none() {
            let mut bytes = Vec::with_capacity(pieces.len() * PIECE as usize);
            for piece in &pieces {
                let from = memories.shared_bytes(piece.shared, PIECE)?;
                // SAFETY: `shared_bytes` proved the bytes.
                bytes.extend(unsafe { std::slice::from_raw_parts(from, PIECE as usize) });
            }
            self.read = Some(bytes);
        }
        let Some(bytes) = self.read.as_ref().filter(|_| !read_only) else { return Ok(()) };
        for (piece, bytes) in pieces.iter().zip(bytes.chunks_exact(PIECE as usize)) {
            if piece.bytes == 0 {
                continue;
            }
            memories.has_changed_global.set(true);
            let to = memories.global_bytes(piece.global, piece.bytes)?;
            let inside = &bytes[piece.before as usize..][..piece.bytes as usize];
            // SAFETY: `global_bytes` proved the bytes, to which no reference exists.
            unsafe {
                match self.adds {
                    Some(element) => add(element, to, inside),
                    None => std::ptr::copy_nonoverlapping(inside.as_ptr(), to, inside.len()),
                }
            }
        }
        Ok(())
    }
}
