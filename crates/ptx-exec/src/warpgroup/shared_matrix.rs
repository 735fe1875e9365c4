//! Matrices in shared memory with the 128-byte swizzle, as a `wgmma` descriptor defines them.
//!
//! Source: "Matrix Descriptor Format" and "Shared Memory Matrix Layout" of `wgmma` in the PTX ISA
//! manual.

use std::ops::Range;

use retrograph_ptx::ast::{StateSpace, Type};

use super::STEPS;
use super::input::{of_halves, of_tf32, steps};
use crate::access::{LaneFault, Memories};
use crate::fault::FaultKind;
use crate::memory::Span;
use crate::program::{Access, Width};
use crate::races::AccessKind;
use crate::undefined::Undefined;

/// Bytes that the swizzle moves as a unit, and the maximum elements in them.
const PIECE: u32 = 16;
const ELEMENTS: usize = 8;

const ACCESS: Access = Access {
    space: Some(StateSpace::Shared),
    value: Width::Word,
    address: Width::Word,
    ..Access::generic(PIECE)
};

/// A matrix in shared memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedMatrix {
    start: u64,
    /// Bytes to the next 64 rows or columns of a transposed matrix.
    leading: u64,
    /// Bytes to the next eight lines of 128 bytes.
    stride: u64,
    transposed: bool,
    dtype: Type,
    /// Bytes of an element.
    size: u64,
}

impl SharedMatrix {
    /// Decodes a descriptor in the shared memory that starts at `base`. Fails if the descriptor is
    /// undefined behaviour.
    pub(super) fn of(
        descriptor: u64,
        transposed: bool,
        dtype: Type,
        base: u64,
    ) -> Result<Self, Undefined> {
        let field = |bit: u32| (descriptor >> bit & 0x3fff) << 4;
        if descriptor >> 62 != 1 {
            return Err(Undefined::Swizzle);
        }
        let (start, leading, stride) = (field(0), field(16), field(32));
        if start & 0x380 != 0 || descriptor >> 49 & 7 != 0 || (leading | stride) & 0x3ff & !16 != 0
        {
            return Err(Undefined::DescriptorAlignment);
        }
        let start = base + start;
        Ok(Self { start, leading, stride, transposed, dtype, size: u64::from(dtype.size()) })
    }

    /// The address of the piece that begins with row or column `line` and `step`.
    fn piece(&self, line: usize, step: usize) -> u64 {
        let (line, step) = (line as u64, step as u64);
        let (group, within, along) = if self.transposed {
            (line / 64 * self.leading + step / 8 * self.stride, step % 8, line % 64)
        } else {
            (line / 8 * self.stride, line % 8, step)
        };
        let address = self.start + group + within * 128 + along * self.size;
        // The swizzle: pieces are permuted by the index of their line among eight lines.
        address ^ (address >> 3 & 0x70)
    }

    /// Reads the steps of a product for the rows or columns of `range`, which starts and ends at
    /// multiples of 8.
    pub(super) fn read(
        &self,
        memories: &mut Memories<'_>,
        range: Range<usize>,
    ) -> Result<Vec<[f32; STEPS]>, LaneFault> {
        let mut out = vec![[0.0; STEPS]; range.len()];
        let (elements, whole) = (self.elements(), self.whole(memories, &range));
        for (line, step) in self.positions(&range) {
            let values = self.load(memories, line, step, whole)?;
            let line = line - range.start;
            if self.transposed {
                values.into_iter().enumerate().for_each(|(i, value)| out[line + i][step] = value);
            } else {
                out[line][step..step + elements].copy_from_slice(&values[..elements]);
            }
        }
        Ok(out)
    }

    /// Elements of a piece.
    fn elements(&self) -> usize {
        PIECE as usize / self.size as usize
    }

    /// The positions of the pieces of `range`: a row or column, and a step.
    fn positions(&self, range: &Range<usize>) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (steps, elements) = (steps(self.dtype), self.elements());
        let (lines_apart, apart) = if self.transposed { (elements, 1) } else { (1, elements) };
        let lines = range.clone().step_by(lines_apart);
        lines.flat_map(move |line| (0..steps).step_by(apart).map(move |step| (line, step)))
    }

    /// The memory from the first to the last piece of `range`, if a thread may read all of it.
    /// Otherwise each piece needs its own check, because other data may be between pieces.
    fn whole(&self, memories: &Memories<'_>, range: &Range<usize>) -> Option<Span> {
        let pieces = self.positions(range).map(|(line, step)| self.piece(line, step));
        let (low, high) = pieces.fold((u64::MAX, 0), |(low, high), piece| {
            (low.min(piece), high.max(piece + u64::from(PIECE)))
        });
        let bytes = high.checked_sub(low)?;
        if memories.races.is_some() || memories.first_unfenced(&(low..high)).is_some() {
            return None;
        }
        memories.check_async(Some(StateSpace::Shared), low, bytes, AccessKind::Read).ok()?;
        let host = memories.shared_bytes(low, bytes).ok()?;
        Some(Span { base: low, end: high, host })
    }

    /// Loads a piece, from a checked span or with its own check.
    fn load(
        &self,
        memories: &mut Memories<'_>,
        line: usize,
        step: usize,
        whole: Option<Span>,
    ) -> Result<[f32; ELEMENTS], LaneFault> {
        let address = self.piece(line, step);
        let from = match whole {
            // SAFETY: the piece is inside the span.
            Some(span) => unsafe { span.host.add((address - span.base) as usize) },
            None => Self::checked(memories, address).map_err(|kind| (kind, 0))?,
        };
        if self.dtype == Type::Tf32 {
            // SAFETY: a piece has 16 bytes.
            let [a, b, c, d] = unsafe { from.cast::<[u32; 4]>().read_unaligned() }.map(of_tf32);
            return Ok([a, b, c, d, 0.0, 0.0, 0.0, 0.0]);
        }
        // SAFETY: a piece has 16 bytes.
        let halves = unsafe { from.cast::<[u16; ELEMENTS]>().read_unaligned() };
        Ok(of_halves(self.dtype, halves))
    }

    /// The host address of the piece at `address`, if it may be read.
    fn checked(memories: &mut Memories<'_>, address: u64) -> Result<*mut u8, FaultKind> {
        let from = memories.shared_bytes(address, u64::from(PIECE))?;
        memories.watch(&ACCESS, 0, address, PIECE, AccessKind::Read)?;
        if memories.unfenced.as_ref().is_some_and(|unfenced| unfenced.holds(address)) {
            return Err(FaultKind::Undefined(Undefined::UnfencedSharedMemory));
        }
        Ok(from)
    }
}
