//! The products of low-rank updates, `y += s·(x·Aᵀ)·Bᵀ`, and their gradients, all in f32.
//!
//! ```text
//! t  = x·Aᵀ         LowRankDown, A         dt = s·dy·B      LowRankDown, B
//! y += s·t·Bᵀ       LowRankAdd,  B         dx += Σ dt·A     LowRankAdd,  A
//! dA = dtᵀ·x        LowRankGrad, A         dB = s·dyᵀ·t     LowRankGrad, B
//! ```
//!
//! A launch has one to three updates of one rank that share the long operand: x, dx, dy or y. Its
//! contraction is cut into parts so that there are enough blocks; into how many follows from the
//! sizes ([`LowRankShape::parts`], [`LowRankShape::runs`]), and so do the bits of the result.
//!
//! Nothing here is rounded but to f32, whatever the products with the weights compute in. Ranks are
//! not limited, but what they take grows with them: from [`LOW_RANK_MOST`] on products by tiles
//! ([`Fprop`](crate::ops::Fprop) and its kin) are the better choice.

mod expand;
mod grad;
mod shrink;

pub use expand::{LOW_RANK_ADD, LowRankAdd, LowRankAdded};
pub use grad::{LOW_RANK_GRAD, LowRankGrad, LowRankGraded};
pub use shrink::{LOW_RANK_DOWN, LowRankDown, LowRankTaken};

use crate::checks::Check;
use crate::{Argument, Kernel, KernelError, View};

/// The most updates of a launch.
pub const LOW_RANK_UPDATES: usize = 3;

/// The greatest rank for which these kernels are meant.
pub const LOW_RANK_MOST: usize = 64;

/// The sizes of an update on one of its sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LowRankShape {
    /// Rows of x and y.
    pub rows: usize,
    /// Elements of a row: the inputs of the layer on the side of A, its outputs on that of B.
    pub width: usize,
    /// The rank of each update.
    pub rank: usize,
}

/// The matrix of an update that a launch takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LowRankSide {
    /// A, `rank × inputs`.
    A,
    /// B, `outputs × rank`.
    B,
}

/// Blocks that keep a device of 132 multiprocessors busy: two on each.
const ENOUGH_BLOCKS: usize = 264;

impl LowRankShape {
    /// Into how many parts a [`LowRankDown`] of so many updates is best cut.
    pub fn parts(self, updates: usize) -> usize {
        shrink::parts(self, updates)
    }

    /// Into how many runs of rows a [`LowRankGrad`] of so many updates is best cut.
    pub fn runs(self, updates: usize) -> usize {
        grad::runs(self, updates)
    }

    /// Elements of x or y.
    fn long(self, check: Check) -> Result<usize, KernelError> {
        check.product("rows × width", &[self.rows, self.width])
    }

    /// Elements of A or B.
    fn matrix(self, check: Check) -> Result<usize, KernelError> {
        check.product("rank × width", &[self.rank, self.width])
    }

    /// The sizes as parameters, where kernels can count them.
    fn sizes(self, check: Check) -> Result<[u32; 3], KernelError> {
        Ok([
            check.at_most("rows", self.rows, MOST)?,
            check.at_most("width", self.width, MOST_COLUMNS)?,
            check.at_most("rank", self.rank, MOST_RANK)?,
        ])
    }
}

/// The most rows: kernels count them in steps, and must not wrap around.
const MOST: usize = 1 << 31;
/// The most columns: a grid has up to 65 535 blocks of 128.
const MOST_COLUMNS: usize = 65_535 * 128;
/// The most ranks, for the same reason.
const MOST_RANK: usize = 65_535;

impl LowRankSide {
    /// As a size of a problem.
    fn number(self) -> u32 {
        self as u32
    }
}

/// The number of updates, of which there must be one to three.
fn updates(check: Check, count: usize) -> Result<u32, KernelError> {
    let few = (1..=LOW_RANK_UPDATES).contains(&count);
    check.rule(few, "a launch has one to three updates", (count, LOW_RANK_UPDATES))?;
    check.size("the number of updates", count)
}

/// What `argument` makes of each of the views, and null for those that are not there.
fn each<B: Copy>(
    views: impl Iterator<Item = Option<View<B, f32>>>,
    argument: impl Fn(View<B, f32>) -> Argument<B>,
) -> impl Iterator<Item = Argument<B>> {
    let arguments = views.map(move |view| view.map_or(Argument::Null, &argument));
    arguments.chain(std::iter::repeat_with(|| Argument::Null)).take(LOW_RANK_UPDATES)
}

/// The kernels of this family.
pub(crate) static KERNELS: &[&Kernel] = &[&LOW_RANK_ADD, &LOW_RANK_DOWN, &LOW_RANK_GRAD];
