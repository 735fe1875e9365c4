//! The part of an operand that a stage holds, and where it lies in global and in shared memory.

use retrograph_ptx::build::{Pred, Value, Var};

use super::Factor;
use crate::gemm::operand::Contiguous;
use crate::gemm::sizes::{Source, over};

/// Bytes of a copy.
pub(super) const COPY: u32 = 16;

/// The part of an operand that a stage holds, in the orientation of global memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Panel {
    /// Rows or columns of the tile.
    pub(super) extent: u32,
    /// Length of the contraction in one stage.
    pub(super) depth: u32,
    /// Threads of the block.
    pub(super) threads: u32,
    /// The direction of neighbours.
    pub(super) contiguous: Contiguous,
    pub(super) factor: Factor,
    pub(super) lies: Lies,
}

/// How runs lie in shared memory, so that those who read there do not wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lies {
    /// One after another, with padding, for warps.
    Padded,
    /// In lines of 128 bytes with their pieces mixed, for warpgroups
    /// ([`Swizzled`](retrograph_ptx::build::Swizzled)). A stage has a depth of 64, so that a line
    /// holds all of a run along the contraction; of longer runs, each 64 elements have lines of
    /// their own, one such panel after another.
    Swizzled,
}

/// Words of a line of a swizzled panel, and of what is copied at once.
pub(super) const LINE: u32 = 32;
const PIECE: u32 = COPY / 4;

impl Panel {
    /// Number of runs of neighbours, and elements of a run.
    pub(super) fn runs(self) -> [u32; 2] {
        match self.contiguous {
            Contiguous::Contraction => [self.extent, self.depth],
            Contiguous::Extent => [self.depth, self.extent],
        }
    }

    /// Words from one run to the next, with padding: 16 bytes put the eight rows of a matrix load
    /// into different banks, and 32 the four runs from which the lanes of a warp read single
    /// elements.
    pub(super) fn pitch(self) -> u32 {
        if self.lies == Lies::Swizzled {
            return LINE;
        }
        let by_element = self.factor == Factor::Single && self.contiguous == Contiguous::Extent;
        self.runs()[1] * self.factor.bytes() / 4 + if by_element { 8 } else { 4 }
    }

    /// Words in a stage.
    pub(super) fn words(self) -> u32 {
        match self.lies {
            Lies::Padded => self.runs()[0] * self.pitch(),
            Lies::Swizzled => self.extent * self.depth * self.factor.bytes() / 4,
        }
    }

    /// The word where what a run has from element `along` goes.
    pub(super) fn word<'k>(self, run: Value<'k, u32>, along: Value<'k, u32>) -> Value<'k, u32> {
        let word = (along * self.factor.bytes()) >> 2;
        if self.lies == Lies::Padded {
            return run * self.pitch() + word;
        }
        // Each line of a run is in a panel of its own.
        let line = over(word, LINE) * self.runs()[0] + run;
        self.piece(line, over(word & (LINE - 1), PIECE))
    }

    /// Pieces that lie together: a line of a swizzled panel, or else a run.
    pub(super) fn pieces(self) -> u32 {
        match self.lies {
            Lies::Padded => self.runs()[1] * self.factor.bytes() / COPY,
            Lies::Swizzled => LINE / PIECE,
        }
    }

    /// Lines of so many pieces.
    pub(super) fn lines(self) -> u32 {
        self.extent * self.depth * self.factor.bytes() / COPY / self.pieces()
    }

    /// The word where a piece of a line goes.
    pub(super) fn piece<'k>(self, line: Value<'k, u32>, piece: Value<'k, u32>) -> Value<'k, u32> {
        let piece = match self.lies {
            Lies::Padded => piece,
            Lies::Swizzled => piece ^ (line & 7),
        };
        line * self.pitch() + piece * PIECE
    }

    /// The run that a line is of, if it has not all of it, and how many elements come before.
    pub(super) fn part<'k>(self, line: Value<'k, u32>) -> Option<[Value<'k, u32>; 2]> {
        let ([runs, length], held) = (self.runs(), self.held());
        (held < length).then(|| [line & (runs - 1), over(line, runs) * held])
    }

    /// Elements of a line.
    pub(super) fn held(self) -> u32 {
        self.pieces() * COPY / self.factor.bytes()
    }
}

/// The part of an operand that a block takes, panel by panel.
pub(super) struct Section<'k> {
    pub(super) panel: Panel,
    pub(super) source: Source<'k>,
    /// First row or column of the tile.
    pub(super) origin: Value<'k, u32>,
    /// Rows or columns of the operand, and length of the contraction.
    pub(super) sizes: [Value<'k, u32>; 2],
}

impl<'k> Section<'k> {
    /// The place of `unit` neighbours from element `along` of run `run` in the panel that begins at
    /// `start`, and whether they lie in the operand.
    pub(super) fn place(
        &self,
        start: Value<'k, u32>,
        spot: (Value<'k, u32>, Value<'k, u32>),
        unit: u32,
    ) -> (Value<'k, u32>, Pred<'k>) {
        self.spot(spot, unit).at(start)
    }

    /// The place of `unit` neighbours from element `along` of run `run` in whichever panel. What
    /// lies outside is moved inside. Whoever reads it nevertheless where only the row or column is
    /// outside gets elements of c that are not written; but many threads that read one place wait
    /// for each other. In f32 that is not asked: tiles of few rows do not stream there, and
    /// splitting leaves no time for it.
    pub(super) fn spot(
        &self,
        (run, along): (Value<'k, u32>, Value<'k, u32>),
        unit: u32,
    ) -> Spot<'k> {
        let ([extent, depth], contiguous) = (self.sizes, self.panel.contiguous);
        let asks = self.panel.factor == Factor::Brain;
        let (across, moving, units) = match contiguous {
            Contiguous::Contraction => (self.origin + run, along, [1, unit]),
            Contiguous::Extent => (self.origin + along, run, [unit, 1]),
        };
        let fixed = across.min(extent - units[0]);
        let last = depth - units[1];
        let fits = asks.then(|| across.lt(extent));
        Spot { fixed, moving, last, fits, contiguous, leading: self.source.leading }
    }

    /// Moves the address of a plane to that of the next summand, if `wraps`.
    pub(super) fn advance(&self, base: Var<'k, u64>, wraps: Pred<'k>) {
        let apart = wraps.select(self.source.reduce, 0);
        base.add_assign(apart.mul_wide(self.panel.factor.bytes()));
    }
}

/// A place in every panel of an operand.
pub(super) struct Spot<'k> {
    contiguous: Contiguous,
    leading: Value<'k, u32>,
    /// Row or column of the operand.
    fixed: Value<'k, u32>,
    /// Where along the contraction, from the start of a panel, and the last such place.
    moving: Value<'k, u32>,
    last: Value<'k, u32>,
    /// Whether the row or column is there, if that is asked.
    fits: Option<Pred<'k>>,
}

impl<'k> Spot<'k> {
    /// The place in the panel that begins at `start`, and whether it lies in the operand.
    pub(super) fn at(&self, start: Value<'k, u32>) -> (Value<'k, u32>, Pred<'k>) {
        let moved = start + self.moving;
        let (inside, place) = (moved.le(self.last), moved.min(self.last));
        let index = match self.contiguous {
            Contiguous::Contraction => self.fixed.mul_add(self.leading, place),
            Contiguous::Extent => place.mul_add(self.leading, self.fixed),
        };
        (index, self.fits.map_or(inside, |fits| inside & fits))
    }
}
