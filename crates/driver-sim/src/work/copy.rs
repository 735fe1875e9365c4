//! Copies and fills.

use std::sync::Arc;

use retrograph_driver_sys::{CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUmemorytype};
use retrograph_ptx_exec::memory::{Memory, MemoryError};

/// The source or destination of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Device memory.
    Device(u64),
    /// An array, by the address of its first row. The array determines pitch and height.
    Array(u64, Strides),
    /// Host memory, read or written when the copy runs. Either it is pinned, and the state keeps it
    /// while queued work uses it; or the copy runs before the call returns.
    Host(usize),
    /// Pageable host memory of a graph node, which the program keeps valid while the graph runs. A
    /// launch of the graph reads it as a source; the copy writes it when it runs.
    Pageable(usize),
    /// Host memory at the time of the call, as hardware reads pageable memory.
    Snapshot(Arc<[u8]>),
}

/// The layout of a box of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strides {
    /// Bytes from row to row.
    pub(crate) pitch: usize,
    /// Rows from slice to slice.
    pub(crate) height: usize,
}

impl Strides {
    /// The strides of the source, unless it is an array.
    pub(crate) fn of_source(given: &CUDA_MEMCPY3D) -> Self {
        Self::of(given, [given.srcXInBytes, given.srcY], given.srcPitch, given.srcHeight)
    }

    /// The strides of the destination, unless it is an array.
    pub(crate) fn of_target(given: &CUDA_MEMCPY3D) -> Self {
        Self::of(given, [given.dstXInBytes, given.dstY], given.dstPitch, given.dstHeight)
    }

    /// A pitch of 0 means rows without gaps, and a height of 0 slices without gaps. Rows begin at
    /// `x` 0 and slices at `y` 0.
    fn of(given: &CUDA_MEMCPY3D, [x, y]: [usize; 2], pitch: usize, height: usize) -> Self {
        // Saturates: a row that ends beyond the last address exceeds every pitch.
        let (row, rows) = (x.saturating_add(given.WidthInBytes), y.saturating_add(given.Height));
        Self {
            pitch: if pitch == 0 { row } else { pitch },
            height: if height == 0 { rows } else { height },
        }
    }
}

impl End {
    /// The address, if it is memory of the device.
    pub(super) fn device_address(&self) -> Option<u64> {
        match self {
            Self::Device(address) | Self::Array(address, _) => Some(*address),
            _ => None,
        }
    }

    /// The strides of an array, or else of the copy's parameters.
    fn strides(&self, given: Strides) -> Strides {
        match self {
            Self::Array(_, strides) => *strides,
            _ => given,
        }
    }
}

/// A box of bytes to copy.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    /// The original parameters, for queries of node parameters.
    pub(crate) given: Box<CUDA_MEMCPY3D>,
    pub(crate) source: End,
    pub(crate) target: End,
}

// SAFETY: the pointers in the parameters are kept for queries and never dereferenced; source and
// destination are addresses, used only while the lock of the state is held.
unsafe impl Send for Copy {}
// SAFETY: as above.
unsafe impl Sync for Copy {}

/// A row of bytes to copy: offset at the source, offset at the target, length.
struct Row {
    from: usize,
    to: usize,
    bytes: usize,
}

impl Copy {
    /// Whether it reads or writes pageable memory when it runs.
    pub(crate) fn is_pageable(&self) -> bool {
        let is_pageable = |end: &End| matches!(end, End::Pageable(_));
        is_pageable(&self.source) || is_pageable(&self.target)
    }

    /// The rows. Offsets are relative to the addresses of source and destination.
    fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        let given = &self.given;
        let from = self.source.strides(Strides::of_source(given));
        let to = self.target.strides(Strides::of_target(given));
        let slices = 0..given.Depth;
        slices.flat_map(move |z| (0..given.Height).map(move |y| (y, z))).map(move |(y, z)| {
            let source_row = given.srcY + y + (given.srcZ + z) * from.height;
            let target_row = given.dstY + y + (given.dstZ + z) * to.height;
            Row {
                from: given.srcXInBytes + source_row * from.pitch,
                to: given.dstXInBytes + target_row * to.pitch,
                bytes: given.WidthInBytes,
            }
        })
    }

    /// The extents of source and destination in bytes from their addresses; `None` on overflow. The
    /// last row of the last slice ends last. The extent in an array is meaningless.
    pub(crate) fn extent(given: &CUDA_MEMCPY3D) -> Option<(usize, usize)> {
        let (y, z) = (given.Height.checked_sub(1)?, given.Depth.checked_sub(1)?);
        let end = |kind, x: usize, rows: usize, slices: usize, strides: Strides| {
            if kind == CUmemorytype::CU_MEMORYTYPE_ARRAY {
                return Some(0);
            }
            let rows = slices.checked_mul(strides.height)?.checked_add(rows)?;
            rows.checked_mul(strides.pitch)?.checked_add(x)?.checked_add(given.WidthInBytes)
        };
        let source = end(
            given.srcMemoryType,
            given.srcXInBytes,
            given.srcY.checked_add(y)?,
            given.srcZ.checked_add(z)?,
            Strides::of_source(given),
        )?;
        let target = end(
            given.dstMemoryType,
            given.dstXInBytes,
            given.dstY.checked_add(y)?,
            given.dstZ.checked_add(z)?,
            Strides::of_target(given),
        )?;
        Some((source, target))
    }

    /// The number of bytes that it moves.
    pub(crate) fn bytes(&self) -> u64 {
        let given = &self.given;
        (given.WidthInBytes as u64)
            .saturating_mul(given.Height as u64)
            .saturating_mul(given.Depth as u64)
    }

    /// Moves the bytes from a source in one memory to a destination in another one.
    pub(super) fn run_between(&self, from: &Memory, to: &Memory) -> Result<(), MemoryError> {
        self.rows().try_for_each(|row| self.run_row([from, to], row))
    }

    fn run_row(
        &self,
        [of_source, of_target]: [&Memory; 2],
        Row { from, to, bytes }: Row,
    ) -> Result<(), MemoryError> {
        let ends = (self.source.device_address(), self.target.device_address());
        if let ((Some(source), Some(target)), true) = (ends, std::ptr::eq(of_source, of_target)) {
            return of_source.copy(target + to as u64, source + from as u64, bytes as u64);
        }
        let row = match &self.source {
            End::Device(source) | End::Array(source, _) => {
                let mut row = vec![0; bytes];
                of_source.read(source + from as u64, &mut row)?;
                row
            }
            End::Host(source) | End::Pageable(source) => read_host(source + from, bytes),
            End::Snapshot(source) => source[from..from + bytes].to_vec(),
        };
        match &self.target {
            End::Device(target) | End::Array(target, _) => {
                of_target.write(target + to as u64, &row)
            }
            End::Host(target) | End::Pageable(target) => {
                write_host(target + to, &row);
                Ok(())
            }
            // A snapshot is never a destination.
            End::Snapshot(_) => Ok(()),
        }
    }

    /// The copy with a snapshot of its pageable source; `None` without one.
    pub(crate) fn with_source_read(&self) -> Option<Self> {
        let (End::Pageable(source), Some((bytes, _))) = (&self.source, Self::extent(&self.given))
        else {
            return None;
        };
        let source = End::Snapshot(read_host(*source, bytes).into());
        Some(Self { source, ..self.clone() })
    }
}

fn read_host(address: usize, bytes: usize) -> Vec<u8> {
    let mut row = vec![0; bytes];
    let source = std::ptr::with_exposed_provenance::<u8>(address);
    // SAFETY: `End::Host` is a range inside pinned memory, which the state does not free before the
    // work that uses it has run, or memory that is valid during the call that runs the copy. The
    // caller that launches a graph guarantees that pageable memory of its nodes is valid.
    unsafe { std::ptr::copy_nonoverlapping(source, row.as_mut_ptr(), bytes) };
    row
}

fn write_host(address: usize, row: &[u8]) {
    let target = std::ptr::with_exposed_provenance_mut::<u8>(address);
    // SAFETY: as in `read_host`; `row` is memory of the simulator.
    unsafe { std::ptr::copy_nonoverlapping(row.as_ptr(), target, row.len()) };
}

/// Rows of elements to fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fill {
    /// Destination, value and extent.
    pub(crate) given: CUDA_MEMSET_NODE_PARAMS,
    /// The index among the devices of the context that fills, and needs access to the destination.
    pub(crate) device: usize,
}

impl Fill {
    /// Whether the element size is valid and the address is a multiple of it.
    pub(crate) fn is_aligned(&self) -> bool {
        let Self { given, .. } = self;
        let size = u64::from(given.elementSize);
        matches!(size, 1 | 2 | 4) && given.dst.is_multiple_of(size)
    }

    /// The extent of the fill in bytes from its address; `None` on overflow.
    pub(crate) fn extent(&self) -> Option<u64> {
        let Self { given, .. } = self;
        let width = (given.width as u64).checked_mul(u64::from(given.elementSize))?;
        let above = (given.height as u64).checked_sub(1)?.checked_mul(given.pitch as u64)?;
        above.checked_add(width)
    }

    /// Whether rows overlap, or begin inside an element.
    pub(crate) fn rows_overlap(&self) -> bool {
        let Self { given, .. } = self;
        let size = given.elementSize as usize;
        let row = given.width.saturating_mul(size);
        given.height > 1 && (given.pitch < row || !given.pitch.is_multiple_of(size))
    }

    /// The number of bytes that it writes.
    pub(crate) fn bytes(&self) -> u64 {
        let Self { given, .. } = self;
        (given.width as u64)
            .saturating_mul(u64::from(given.elementSize))
            .saturating_mul(given.height as u64)
    }

    /// Writes the elements.
    pub(crate) fn run(&self, memory: &Memory) -> Result<(), MemoryError> {
        let Self { given, .. } = self;
        let pattern = given.value.to_le_bytes();
        let pattern = &pattern[..given.elementSize as usize];
        (0..given.height).try_for_each(|row| {
            let address = given.dst + (row * given.pitch) as u64;
            memory.fill(address, pattern, given.width as u64)
        })
    }
}
