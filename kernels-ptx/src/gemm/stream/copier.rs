//! The way of an operand that is copied into a stage.
//!
//! Threads have hardly the time for it while tensor cores multiply: a warp that has started
//! products issues little else. So what does not depend on the stage is found out once, and each
//! copy is an addition and a comparison, wherever that is possible.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Shared, Value, Var};

use super::Factor;
use super::panel::{COPY, Lies, Section};
use crate::gemm::operand::Contiguous;
use crate::gemm::sizes::over;

/// One thread's share in copying an operand: as many bytes at the same place of several runs.
pub(super) struct Copier<'k> {
    target: SmTarget,
    section: Section<'k>,
    /// Address of the plane of the current summand.
    base: Var<'k, u64>,
    /// The first line of this thread, and its piece of every line.
    line: Value<'k, u32>,
    piece: Value<'k, u32>,
    /// Lines from one copy to the next.
    stride: u32,
    direct: Option<Direct<'k>>,
}

/// Where a thread's first copy is, if all others are at fixed distances from it and nothing that is
/// past an end is read, wherever it would be.
struct Direct<'k> {
    /// Bytes from the start of the plane.
    bytes: Value<'k, u64>,
    /// Rows or columns from there on.
    left: Value<'k, u32>,
    /// Where along the contraction it is in a stage, and the last such place.
    moving: Value<'k, u32>,
    last: Value<'k, u32>,
}

impl<'k> Direct<'k> {
    fn new(section: &Section<'k>, line: Value<'k, u32>, piece: Value<'k, u32>) -> Self {
        let Section { panel, source, origin, sizes: [extent, depth] } = *section;
        let size = panel.factor.bytes();
        let (unit, along) = (COPY / size, piece * (COPY / size));
        let (across, moving, last) = match panel.contiguous {
            Contiguous::Contraction => (origin + line, along, depth - unit),
            Contiguous::Extent => (origin + along, line, depth - 1),
        };
        let [run, place] = match panel.contiguous {
            Contiguous::Contraction => [across, moving],
            Contiguous::Extent => [moving, across],
        };
        let bytes = (run.mul_wide(source.leading) << size.ilog2()) + place.mul_wide(size);
        Self { bytes, left: extent.max(across) - across, moving, last }
    }
}

impl<'k> Copier<'k> {
    /// The share of `thread`, one of those that the panel names, in copying `section`.
    pub(super) fn new(
        (k, target): (&Kernel<'k>, SmTarget),
        thread: Value<'k, u32>,
        section: Section<'k>,
    ) -> Self {
        let panel = section.panel;
        let pieces = panel.pieces();
        let stride = panel.threads / pieces;
        assert!(panel.threads.is_multiple_of(pieces), "a thread keeps its piece of a line");
        let mixed = panel.lies == Lies::Padded || stride.is_multiple_of(8);
        assert!(mixed, "a thread keeps its place among eight lines");
        let (base, _) = section.source.start(k);
        let (line, piece) = (over(thread, pieces), thread & (pieces - 1));
        // Lines of a thread are at the same places of each panel. In f32 it is no faster.
        let regular = panel.runs()[0].is_multiple_of(stride) || panel.part(line).is_none();
        let able = regular && panel.factor == Factor::Brain && target.features().cp_async;
        let direct = able.then(|| Direct::new(&section, line, piece));
        Self { target, section, base: k.var(base), line, piece, stride, direct }
    }

    /// Moves on to the next summand, if `wraps`.
    pub(super) fn advance(&self, wraps: Pred<'k>) {
        self.section.advance(self.base, wraps);
    }

    /// Starts to fill `stage` with what begins at `start`. What lies past the end of the
    /// contraction or of the operand becomes zero, and is not read; where `more` is false, nothing
    /// is.
    pub(super) fn copy(
        &self,
        start: Value<'k, u32>,
        stage: Shared<'k, u32>,
        more: Option<Pred<'k>>,
    ) {
        let panel = self.section.panel;
        let slot = stage.at(panel.piece(self.line, self.piece));
        let direct = self.direct.as_ref().map(|direct| (direct, self.first(direct, start)));
        for first in (0..panel.lines()).step_by(self.stride as usize) {
            let to = slot.offset(i64::from(first * panel.pitch()));
            let copy = || match direct {
                Some((direct, at)) => self.copy_directly(direct, (at, first, more), to),
                None => self.copy_piece((start, self.line + first, more), to),
            };
            if first + self.stride <= panel.lines() {
                copy();
            } else {
                let k = start.kernel();
                k.when((self.line + first).lt(panel.lines()), copy);
            }
        }
    }

    /// The address of this thread's first copy of the stage that begins at `start`, and where along
    /// the contraction it is.
    fn first(
        &self,
        direct: &Direct<'k>,
        start: Value<'k, u32>,
    ) -> (Value<'k, u64>, Value<'k, u32>) {
        let Section { panel, source, .. } = self.section;
        let size = panel.factor.bytes();
        let way = match panel.contiguous {
            Contiguous::Contraction => start.mul_wide(size),
            Contiguous::Extent => start.mul_wide(source.leading) << size.ilog2(),
        };
        (self.base.get() + direct.bytes + way, start + direct.moving)
    }

    /// Copies this thread's piece of the line `lines` behind its first one, whose place is given.
    fn copy_directly(
        &self,
        direct: &Direct<'k>,
        ((from, moved), lines, more): ((Value<'k, u64>, Value<'k, u32>), u32, Option<Pred<'k>>),
        to: Shared<'k, u32>,
    ) {
        let Section { panel, source, .. } = self.section;
        let (size, runs) = (panel.factor.bytes(), panel.runs()[0]);
        // Rows or columns further, and steps of the contraction.
        let (across, along, from) = match panel.contiguous {
            Contiguous::Contraction => (lines, 0, from + source.leading.mul_wide(lines * size)),
            Contiguous::Extent => {
                let (across, along) = (lines / runs * panel.held(), lines % runs);
                let from = from + source.leading.mul_wide(along * size);
                (across, along, from + u64::from(across * size))
            }
        };
        let inside = (moved + along).le(direct.last);
        let inside = more.map_or(inside, |more| inside & more) & direct.left.gt(across);
        to.copy_async(Ptr::<u32>::from_address(from), inside.select(COPY, 0));
    }

    /// Copies this thread's piece of `line`.
    fn copy_piece(
        &self,
        (start, line, more): (Value<'k, u32>, Value<'k, u32>, Option<Pred<'k>>),
        to: Shared<'k, u32>,
    ) {
        let panel = self.section.panel;
        let bytes = panel.factor.bytes();
        let unit = COPY / bytes;
        let along = self.piece * unit;
        let (run, along) = match panel.part(line) {
            Some([run, before]) => (run, before + along),
            None => (line, along),
        };
        let (index, inside) = self.section.place(start, (run, along), unit);
        let inside = more.map_or(inside, |more| inside & more);
        let from = Ptr::<u32>::from_address(self.base.get() + index.mul_wide(bytes));
        if self.target.features().cp_async {
            to.copy_async(from, inside.select(COPY, 0));
        } else {
            to.store_vec4(0, from.load_vec4(0).map(|word| inside.select(word, 0)));
        }
    }
}
