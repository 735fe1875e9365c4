//! The memory of a simulated device.
//!
//! Device memory is a table of allocations. Addresses are never reused, and wide red zones separate
//! allocations. So an access past an end or through a freed pointer never hits another allocation
//! and is always detected, unlike on hardware.
//!
//! Fresh memory is filled with [`POISON`], a NaN as a float and an invalid index as an integer. An
//! allocation larger than [`Memory::EAGER_POISON`] is filled only at its two ends; the host commits
//! the rest on first access, and it reads as zero. Filling gigabytes that a test never uses would
//! dominate its time.
//!
//! # Races
//!
//! Blocks of a grid run on several host threads and access the same allocation through raw
//! pointers. Accesses are plain byte copies, and no reference to device bytes outlives a copy. As
//! on hardware, a kernel whose blocks race reads torn or stale values; avoiding races is up to the
//! kernel.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};

mod heap;
mod region;
mod snapshot;

use heap::Heap;
use region::{HostBytes, Region};
pub use region::{fill_host, poison_fresh};
pub use snapshot::Snapshot;
pub(crate) use snapshot::Span;

/// The word that fills fresh memory: a NaN with a payload that arithmetic never produces.
pub const POISON: u32 = 0x7fd0_5a5a;

/// The lowest device address: programs and libraries of the host use lower and higher addresses.
const BASE: u64 = 0x6000_0000_0000;
/// The size of a device's address range, which is also the maximum size of its memory.
pub const ADDRESSES: u64 = 1 << 38;
/// Alignment of base addresses.
const ALIGNMENT: u64 = 256;
/// The default size of the heap of kernels, as on hardware.
const HEAP_BYTES: u64 = 8 << 20;
/// The workspace of a cooperative grid when it starts, recorded on an H200: the size in bytes, the
/// barrier of the grid, and two words of unknown meaning.
const WORKSPACE: [u32; 4] = [16, 0, 1, 0];
/// The minimum of unmapped bytes after every allocation.
const RED_ZONE: u64 = 1 << 20;

/// An error of an operation on device memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The device or its host has too little free memory.
    #[error("out of device memory: {requested} bytes requested, {free} of {total} bytes free")]
    OutOfMemory {
        /// Requested bytes.
        requested: u64,
        /// Free bytes.
        free: u64,
        /// Bytes that the device has.
        total: u64,
    },
    /// An injected failure: the allocation would exceed the limit.
    #[error(
        "injected failure: {requested} bytes requested, {used} of at most {limit} bytes allocated"
    )]
    Limited {
        /// Requested bytes.
        requested: u64,
        /// Bytes that are allocated.
        used: u64,
        /// The limit.
        limit: u64,
    },
    /// An allocation of 0 bytes, or one larger than the address range.
    #[error("an allocation of {bytes} bytes is not possible")]
    InvalidSize {
        /// Requested bytes.
        bytes: u64,
    },
    /// Another allocation overlaps the addresses.
    #[error("another allocation overlaps the {bytes} bytes at {address:#x}")]
    Overlap {
        /// The first address.
        address: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// No live allocation starts at the address.
    #[error("no live allocation starts at {address:#x}")]
    NotAnAllocation {
        /// The address.
        address: u64,
    },
    /// The bytes are not in one live allocation.
    #[error("{bytes} bytes at {address:#x} are not in one live allocation")]
    OutOfBounds {
        /// The first address.
        address: u64,
        /// Number of bytes.
        bytes: u64,
    },
}

#[derive(Debug)]
struct State {
    /// Live regions by ascending base, shared with the snapshots of running kernels.
    table: Arc<Vec<Arc<Region>>>,
    /// The next free address, and the end of the device's addresses.
    next: u64,
    end: u64,
    used: u64,
}

/// The memory of one device.
#[derive(Debug)]
pub struct Memory {
    state: RwLock<State>,
    total: u64,
    /// The injected limit of allocated bytes.
    limit: AtomicU64,
    /// The memory of other devices that this device can access.
    peers: RwLock<Vec<Weak<Memory>>>,
    /// The heap of kernels, once one has used it.
    heap: RwLock<Option<Arc<Heap>>>,
    heap_bytes: AtomicU64,
    /// The workspace of cooperative grids, once a kernel has used it.
    workspace: Mutex<Option<u64>>,
}

impl Memory {
    /// The maximum size of an allocation that is completely filled with [`POISON`].
    pub const EAGER_POISON: u64 = 64 << 20;

    /// Creates a memory of `total` bytes, all free.
    pub fn new(total: u64) -> Self {
        Self::of_device(0, total)
    }

    /// Creates a memory whose addresses do not overlap the addresses of other devices.
    pub fn of_device(ordinal: usize, total: u64) -> Self {
        let next = BASE + ordinal as u64 * ADDRESSES;
        let state = State { table: Arc::default(), next, end: next + ADDRESSES, used: 0 };
        let (state, limit) = (RwLock::new(state), AtomicU64::new(u64::MAX));
        let (peers, heap, workspace) = (RwLock::default(), RwLock::default(), Mutex::default());
        let heap_bytes = AtomicU64::new(HEAP_BYTES);
        Self { state, total, limit, peers, heap, heap_bytes, workspace }
    }

    /// Makes allocations fail if they would exceed `bytes` in total.
    pub fn limit_to(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Sets the size of the heap of kernels; no effect if the heap exists.
    pub fn set_heap_bytes(&self, bytes: u64) {
        self.heap_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Creates the heap of kernels. It does not count as allocated, like other memory of the
    /// driver.
    pub fn make_heap(&self) -> Result<(), MemoryError> {
        let mut heap = self.heap.write();
        if heap.is_some() {
            return Ok(());
        }
        let bytes = self.heap_bytes.load(Ordering::Relaxed);
        let base = self.place(None, bytes)?;
        let mut state = self.state.write();
        state.used -= bytes;
        let index = state.table.binary_search_by_key(&base, |region| region.base);
        let index = index.map_err(|_| MemoryError::NotAnAllocation { address: base })?;
        *heap = Some(Arc::new(Heap::new(Arc::clone(&state.table[index]))));
        Ok(())
    }

    /// Resets the workspace of cooperative grids and returns its address. It does not count as
    /// allocated.
    pub(crate) fn fresh_workspace(&self) -> Result<u64, MemoryError> {
        let mut workspace = self.workspace.lock();
        let base = match *workspace {
            Some(base) => base,
            None => self.create(&mut self.state.write(), None, size_of_val(&WORKSPACE) as u64)?,
        };
        *workspace = Some(base);
        self.write(base, &WORKSPACE.map(u32::to_le_bytes).concat())?;
        Ok(base)
    }

    /// Bytes that the device has.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Bytes that are allocated.
    pub fn used(&self) -> u64 {
        self.state.read().used
    }

    /// Number of live allocations.
    pub fn allocations(&self) -> usize {
        let of_driver = [self.heap.read().is_some(), self.workspace.lock().is_some()];
        self.state.read().table.len() - of_driver.map(usize::from).iter().sum::<usize>()
    }

    /// Allocates `bytes` and returns the base address, a multiple of 256.
    pub fn alloc(&self, bytes: u64) -> Result<u64, MemoryError> {
        let (used, limit) = (self.used(), self.limit.load(Ordering::Relaxed));
        if used.saturating_add(bytes) > limit {
            return Err(MemoryError::Limited { requested: bytes, used, limit });
        }
        self.place(None, bytes)
    }

    /// Reserves addresses for a later allocation.
    ///
    /// # Errors
    ///
    /// Fails with [`MemoryError::OutOfMemory`] if the device has too few addresses left.
    pub fn reserve(&self, bytes: u64) -> Result<u64, MemoryError> {
        let mut state = self.state.write();
        let (free, total) = (self.total - state.used, self.total);
        let lacking = MemoryError::OutOfMemory { requested: bytes, free, total };
        advance(&mut state, bytes).ok_or(lacking)
    }

    /// Allocates `bytes` at addresses that [`Memory::reserve`] returned.
    ///
    /// # Errors
    ///
    /// Fails if another allocation overlaps the addresses, and as [`Memory::alloc`].
    pub fn alloc_at(&self, base: u64, bytes: u64) -> Result<(), MemoryError> {
        self.place(Some(base), bytes).map(|_| ())
    }

    /// Allocates `bytes` at reserved addresses, or at new ones.
    fn place(&self, base: Option<u64>, bytes: u64) -> Result<u64, MemoryError> {
        let mut state = self.state.write();
        let (free, total) = (self.total - state.used, self.total);
        if bytes == 0 {
            return Err(MemoryError::InvalidSize { bytes });
        }
        if bytes > free {
            return Err(MemoryError::OutOfMemory { requested: bytes, free, total });
        }
        let base = self.create(&mut state, base, bytes)?;
        state.used += bytes;
        Ok(base)
    }

    /// Adds an allocation that does not count as used.
    fn create(&self, state: &mut State, base: Option<u64>, bytes: u64) -> Result<u64, MemoryError> {
        let (free, total) = (self.total - state.used, self.total);
        let layout = HostBytes::layout(bytes).ok_or(MemoryError::InvalidSize { bytes })?;
        if let Some(address) = base
            && overlaps(state, address, bytes)
        {
            return Err(MemoryError::Overlap { address, bytes });
        }
        // The host may have less memory than the simulated device.
        let lacking = MemoryError::OutOfMemory { requested: bytes, free, total };
        let owned = HostBytes::zeroed(layout).ok_or_else(|| lacking.clone())?;
        // Addresses are never reused, so a device can run out of them.
        let base = base.or_else(|| advance(state, bytes)).ok_or(lacking)?;
        let region = Region { base, bytes, host: owned.aligned(), owned: Some(owned) };
        // SAFETY: the region has this many bytes, which no other thread has seen.
        unsafe { poison_fresh(region.host.as_ptr(), bytes as usize) };
        insert(state, region);
        Ok(base)
    }

    /// Maps `bytes` of host memory at `host`; kernels access them at their host address.
    ///
    /// # Safety
    ///
    /// The bytes must stay valid until [`Memory::free`] of that address, and until every kernel
    /// launched before that has ended.
    pub unsafe fn map_host(&self, host: NonNull<u8>, bytes: u64) -> Result<u64, MemoryError> {
        let base = host.as_ptr() as u64;
        let mut state = self.state.write();
        if bytes == 0 || base.checked_add(bytes).is_none() {
            return Err(MemoryError::InvalidSize { bytes });
        }
        if overlaps(&state, base, bytes) {
            return Err(MemoryError::Overlap { address: base, bytes });
        }
        insert(&mut state, Region { base, bytes, host, owned: None });
        Ok(base)
    }

    /// Frees the allocation that starts at `address` and returns its size. A running kernel keeps
    /// the bytes alive.
    pub fn free(&self, address: u64) -> Result<u64, MemoryError> {
        let mut state = self.state.write();
        let index = state.table.binary_search_by_key(&address, |region| region.base);
        let index = index.map_err(|_| MemoryError::NotAnAllocation { address })?;
        let region = Arc::make_mut(&mut state.table).remove(index);
        if region.owned.is_some() {
            state.used -= region.bytes;
        }
        Ok(region.bytes)
    }

    /// Base and size of the allocation that contains `address`.
    pub fn allocation_of(&self, address: u64) -> Option<(u64, u64)> {
        self.own().find(address).map(|span| (span.base, span.end - span.base))
    }

    /// Base and size of the allocation that contains `address`, on this device or an accessible
    /// peer.
    pub fn reachable(&self, address: u64) -> Option<(u64, u64)> {
        self.snapshot().find(address).map(|span| (span.base, span.end - span.base))
    }

    /// The allocations of this device, without peers.
    fn own(&self) -> Snapshot {
        let heap = self.heap.read().clone();
        Snapshot { table: Arc::clone(&self.state.read().table), peers: Vec::new(), heap }
    }

    /// Reads `into.len()` bytes.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryError> {
        let snapshot = self.snapshot();
        let from = snapshot.host(address, into.len() as u64)?;
        // SAFETY: `host` proved the source; `into` is an exclusive host slice, so it does not
        // overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Writes `bytes`.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        let snapshot = self.snapshot();
        let to = snapshot.host(address, bytes.len() as u64)?;
        // SAFETY: `host` proved the target. `copy` because a mapped host range may hold `bytes`.
        unsafe { std::ptr::copy(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    /// Copies `bytes` from `source` to `target`; overlapping ranges copy as if through a buffer.
    pub fn copy(&self, target: u64, source: u64, bytes: u64) -> Result<(), MemoryError> {
        let snapshot = self.snapshot();
        let (from, to) = (snapshot.host(source, bytes)?, snapshot.host(target, bytes)?);
        // SAFETY: `host` proved both ranges; `copy` allows them to overlap.
        unsafe { std::ptr::copy(from, to, bytes as usize) };
        Ok(())
    }

    /// Writes `pattern` `count` times in a row.
    pub fn fill(&self, address: u64, pattern: &[u8], count: u64) -> Result<(), MemoryError> {
        let size = pattern.len() as u64;
        let bytes = size.checked_mul(count);
        let bytes = bytes.ok_or(MemoryError::OutOfBounds { address, bytes: u64::MAX })?;
        let snapshot = self.snapshot();
        let to = snapshot.host(address, bytes)?;
        // SAFETY: `host` proved the range, and the pattern is copied inside it.
        unsafe { fill_host(to, pattern, bytes as usize) };
        Ok(())
    }

    /// Fills a range with [`POISON`], as fresh memory is.
    pub fn poison(&self, address: u64, bytes: u64) -> Result<(), MemoryError> {
        let snapshot = self.snapshot();
        let to = snapshot.host(address, bytes)?;
        // SAFETY: `host` proved the range.
        unsafe { fill_host(to, &POISON.to_le_bytes(), bytes as usize) };
        Ok(())
    }

    /// A snapshot of the live allocations. It keeps their bytes alive, so a kernel needs no lock.
    pub fn snapshot(&self) -> Snapshot {
        let peers = self.peers.read();
        let peers = peers.iter().filter_map(Weak::upgrade).map(|peer| peer.own().table);
        Snapshot { peers: peers.collect(), ..self.own() }
    }

    /// Gives this device access to the memory of a peer, whose addresses must not overlap.
    pub fn enable_peer(&self, peer: &Arc<Self>) {
        self.disable_peer(peer);
        self.peers.write().push(Arc::downgrade(peer));
    }

    /// Undoes [`Memory::enable_peer`].
    pub fn disable_peer(&self, peer: &Arc<Self>) {
        self.peers.write().retain(|known| known.as_ptr() != Arc::as_ptr(peer));
    }
}

/// Reserves addresses and a red zone after them. Returns `None` if the device has too few left.
fn advance(state: &mut State, bytes: u64) -> Option<u64> {
    let base = state.next;
    let all = bytes.checked_add(RED_ZONE)?.checked_next_multiple_of(ALIGNMENT)?;
    state.next = base.checked_add(all).filter(|next| *next <= state.end)?;
    Some(base)
}

fn overlaps(state: &State, base: u64, bytes: u64) -> bool {
    let after = state.table.partition_point(|region| region.base <= base);
    let before = after.checked_sub(1).map(|index| &state.table[index]);
    before.is_some_and(|region| base - region.base < region.bytes)
        || state.table.get(after).is_some_and(|region| region.base - base < bytes)
}

fn insert(state: &mut State, region: Region) {
    let table = Arc::make_mut(&mut state.table);
    let index = table.partition_point(|other| other.base < region.base);
    table.insert(index, Arc::new(region));
}
