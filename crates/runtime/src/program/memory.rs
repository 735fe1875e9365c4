//! The device memory of a program: transients, control block and argument tables, in one
//! allocation. In a program cache, transients are in a shared arena instead.

use retrograph_driver::memory::NAN_PATTERN;
use retrograph_driver::{DeviceBuffer, Error, LaunchGeometry, OutsideCapture, Owner, Stream};
use retrograph_kernel_abi::step_parameters;
use retrograph_kernel_abi::{Argument, Cell, View};

use super::arena::{Share, Sharing};
use super::bindings::{External, find};
use super::blueprint::Blueprint;
use super::control_ring::ControlRing;
use super::error::BuildError;
use super::relocations::Relocations;
use crate::pass::{BufferAccess, BufferId, BufferKind, MemoryPlan, Pass, Reuse};

const ALIGNMENT: usize = 256;
/// After the control block: the number of fetches so far.
const COUNT_BYTES: usize = 16;

/// The memory layout. Fields of the hot path come first; see [`retrograph_driver::hot_path`].
#[repr(C)]
pub(super) struct Memory {
    /// The arena of the transients, if they are not at the start of the buffer.
    share: Option<Share>,
    /// Device address of the control block; the fetch count follows it.
    control_address: u64,
    buffer: DeviceBuffer<u32>,
    plan: MemoryPlan,
    controls_at: usize,
    /// Bytes of the control block, without and with the count.
    block_bytes: usize,
    control_bytes: usize,
    /// The address of every accessed buffer, by index.
    addresses: Vec<Option<u64>>,
    tables: Tables,
    /// In the order of declaration.
    pub(super) externals: Vec<External>,
}

impl Memory {
    /// Plans and allocates the memory, and writes the tables.
    pub(super) fn new(
        blueprint: &Blueprint<'_>,
        externals: Vec<External>,
        stream: &Stream,
    ) -> Result<Self, BuildError> {
        let (pass, reuse) = (blueprint.pass, blueprint.options.reuse);
        let block_bytes = pass.control_layout().block_bytes();
        let control_bytes = if block_bytes == 0 { 0 } else { block_bytes + COUNT_BYTES };
        let tables = Tables::of(pass);
        let fixed = control_bytes.next_multiple_of(ALIGNMENT) + tables.bytes;
        let sharing = blueprint.sharing.as_ref();
        let free = free_bytes(stream)?.saturating_sub(fixed);
        let plan = match sharing {
            None => choose_plan(pass, reuse, free)?,
            Some(sharing) => {
                sharing.within(free, fixed, |capacity| choose_plan(pass, reuse, capacity))?
            }
        };
        let (plan, (buffer, share)) = match allocate(stream, &plan, fixed, sharing) {
            Err(BuildError::Device(Error::OutOfMemory { .. })) if reuse.is_none() => {
                // The free memory is fragmented.
                let plan = pass.plan_with(Reuse::Full);
                let allocated = allocate(stream, &plan, fixed, sharing)?;
                (plan, allocated)
            }
            outcome => (plan, outcome?),
        };
        let controls_at = if share.is_some() { 0 } else { controls_at(&plan) };
        let addresses = vec![None; pass.buffers().len()];
        let control_address = buffer.address() + controls_at as u64;
        let mut memory = Self {
            buffer,
            share,
            plan,
            controls_at,
            control_address,
            block_bytes,
            control_bytes,
            addresses,
            tables,
            externals,
        };
        memory.locate(pass);
        memory.fill_tables(pass);
        // The count begins with 0.
        let start = memory.controls_at + memory.block_bytes;
        let mut words = vec![0; (memory.tables_at() - start) / 4];
        words.extend_from_slice(&memory.tables.words);
        if !words.is_empty() {
            memory.buffer.upload_at(stream, start / 4, &words)?;
        }
        Ok(memory)
    }

    fn locate(&mut self, pass: &Pass) {
        let (transients, controls) = (self.transients(), self.control_address);
        for (id, buffer) in pass.buffers() {
            let (base, offset) = match buffer.kind() {
                BufferKind::External => continue,
                BufferKind::Transient => (transients, self.plan.offset(id)),
                BufferKind::Control => (controls, pass.control_layout().offset(id.index())),
            };
            self.addresses[id.index()] = offset.map(|offset| base + offset as u64);
        }
        for external in &self.externals {
            self.addresses[external.id.index()] = Some(external.address);
        }
    }

    /// Fills the host copy of the tables.
    fn fill_tables(&mut self, pass: &Pass) {
        let mut words: Vec<u32> = Vec::with_capacity(self.tables.bytes / 4);
        for (start, cells) in self.tables.starts.iter().zip(tables_of(pass)) {
            words.resize(start / 4, 0);
            for cell in cells {
                let value = match cell {
                    Cell::Address(range) => self.address(range),
                    Cell::Word(word) => *word,
                };
                words.extend([value as u32, (value >> 32) as u32]);
            }
        }
        self.tables.words = words;
    }

    /// Rebinds an external buffer, and returns the previous binding and whether tables changed.
    /// Tables change on the host only.
    pub(super) fn move_external(&mut self, to: External) -> (External, bool) {
        self.addresses[to.id.index()] = Some(to.address);
        let relocations = self.tables.relocations.of(to.id);
        for relocation in relocations {
            let value = to.address + relocation.offset;
            self.tables.words[relocation.location] = value as u32;
            self.tables.words[relocation.location + 1] = (value >> 32) as u32;
        }
        let at = self.externals.binary_search_by_key(&to.id, |held| held.id);
        let held = &mut self.externals[at.expect("bindings give the buffers that are accessed")];
        (std::mem::replace(held, to), !relocations.is_empty())
    }

    /// The external buffer `id`, if operations access it.
    pub(super) fn external(&self, id: BufferId) -> Option<&External> {
        find(&self.externals, id)
    }

    /// The device address of the first table, and the host copy of all tables.
    pub(super) fn tables(&self) -> (u64, &[u32]) {
        (self.buffer.address() + self.tables_at() as u64, &self.tables.words)
    }

    fn tables_at(&self) -> usize {
        self.controls_at + self.control_bytes.next_multiple_of(ALIGNMENT)
    }

    /// The device address of the first byte of `range`; null for empty ranges, which nothing
    /// accesses.
    pub(super) fn address(&self, range: &BufferAccess) -> u64 {
        let start = self.addresses[range.buffer.index()];
        start.map_or(0, |start| start + range.bytes.start as u64)
    }

    /// The device address of the `at`-th table of the pass.
    pub(super) fn table_address(&self, at: usize) -> u64 {
        self.buffer.address() + (self.tables_at() + self.tables.starts[at]) as u64
    }

    /// The geometry and arguments of the launch that fetches the next controls from `ring`.
    pub(super) fn fetch_launch(&self, ring: &ControlRing) -> (LaunchGeometry, Vec<Argument<u64>>) {
        let block = View::new(self.control_address, self.block_bytes / 4);
        let taken = View::new(self.control_address + self.block_bytes as u64, 1);
        // A pass has at most `Pass::MAX_CONTROL_BYTES`, so sizes in words fit in 32 bits.
        let threads = step_parameters::threads((block.len() / 4) as u32);
        let geometry = LaunchGeometry { grid: [1; 3], block: [threads, 1, 1], shared_bytes: 0 };
        (geometry, step_parameters::arguments(ring.view(), block, taken))
    }

    /// The device address of the first transient.
    fn transients(&self) -> u64 {
        self.share.as_ref().map_or(self.buffer.address(), Share::address)
    }

    /// The share in an arena of several programs, if any.
    pub(super) fn share(&self) -> Option<&Share> {
        self.share.as_ref()
    }

    /// Keeps all memory alive that operations access.
    pub(super) fn owners(&self) -> impl Iterator<Item = Owner> {
        let own = [Some(self.buffer.owner()), self.share.as_ref().map(Share::owner)];
        let externals = self.externals.iter().map(|external| external.owner.clone());
        own.into_iter().flatten().chain(externals)
    }

    /// Bytes that are not in a shared arena.
    pub(super) fn own_bytes(&self) -> usize {
        self.buffer.bytes()
    }

    /// The plan of the transients.
    pub(super) fn plan(&self) -> &MemoryPlan {
        &self.plan
    }

    /// Bytes other than transients.
    pub(super) fn fixed_bytes(&self) -> usize {
        self.buffer.bytes() - self.controls_at
    }

    /// Enqueues a fill of every transient with NaN.
    pub(super) fn fill_transients_with_nan(
        &self,
        stream: &OutsideCapture<'_>,
    ) -> retrograph_driver::error::Result<()> {
        let words = self.plan.peak_bytes() / 4;
        if words == 0 {
            return Ok(());
        }
        // SAFETY: transients are the first bytes of the allocation or arena, and the stream is
        // ordered after earlier steps.
        unsafe { stream.memset_d32(self.transients(), NAN_PATTERN, words) }
    }
}

/// The tables of a pass: offsets relative to the first, and contents.
struct Tables {
    starts: Vec<usize>,
    bytes: usize,
    words: Vec<u32>,
    /// Positions in `words`; an address takes two words.
    relocations: Relocations<usize>,
}

impl Tables {
    fn of(pass: &Pass) -> Self {
        let (mut starts, mut bytes, mut relocations) = (Vec::new(), 0usize, Relocations::new(pass));
        for cells in tables_of(pass) {
            let start = bytes.next_multiple_of(ALIGNMENT);
            starts.push(start);
            for (at, cell) in cells.iter().enumerate() {
                if let Cell::Address(range) = cell {
                    relocations.add(range, (start + size_of::<u64>() * at) / 4);
                }
            }
            bytes = start + size_of::<u64>() * cells.len();
        }
        Self { starts, bytes, words: Vec::new(), relocations }
    }
}

/// Every table argument of a pass, in the order of the operations.
fn tables_of(pass: &Pass) -> impl Iterator<Item = &[Cell<BufferId>]> {
    let arguments = pass.operations().iter().flat_map(|operation| operation.arguments());
    arguments.filter_map(|argument| match argument {
        Argument::Table(cells) => Some(cells.as_slice()),
        _ => None,
    })
}

fn free_bytes(stream: &Stream) -> Result<usize, BuildError> {
    Ok(stream.context().mem_get_info()?.0)
}

/// Offset of the control block, after the transients.
fn controls_at(plan: &MemoryPlan) -> usize {
    plan.peak_bytes().next_multiple_of(ALIGNMENT)
}

/// Allocates the transients of `plan` followed by `fixed` bytes, or only the latter with an arena.
fn allocate(
    stream: &Stream,
    plan: &MemoryPlan,
    fixed: usize,
    sharing: Option<&Sharing<'_>>,
) -> Result<(DeviceBuffer<u32>, Option<Share>), BuildError> {
    let words = |bytes: usize| DeviceBuffer::uninit(stream.context(), bytes.div_ceil(4));
    match sharing {
        None => Ok((words(controls_at(plan) + fixed)?, None)),
        Some(sharing) => {
            let share = sharing.share(stream, plan.peak_bytes(), fixed)?;
            Ok((words(fixed)?, Some(share)))
        }
    }
}

/// The requested plan, or the one with the fewest edges that fits.
fn choose_plan(pass: &Pass, reuse: Option<Reuse>, free: usize) -> Result<MemoryPlan, BuildError> {
    let mut plan = pass.plan_with(reuse.unwrap_or(Reuse::WhenOrdered));
    if reuse.is_none() && plan.peak_bytes() > free {
        plan = pass.plan_with(Reuse::Full);
    }
    if plan.peak_bytes() > free {
        return Err(BuildError::OutOfMemory { needed: plan.peak_bytes(), free });
    }
    Ok(plan)
}
