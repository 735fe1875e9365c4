//! The products of low-rank updates, `y += s·(x·Aᵀ)·Bᵀ`, whose matrices have one short side.
//!
//! | Entries | Formula | What it is for |
//! |---|---|---|
//! | `low_rank_down` | `t = α·x·Aᵀ`, `α·dy·B` | the forward pass, and the gradient of t |
//! | `low_rank_add` | `y (+)= α·Σ t·Bᵀ`, `α·Σ dt·A` | the forward pass, and the gradient of x |
//! | `low_rank_grad` | `dB = α·dyᵀ·t`, `dA = α·dtᵀ·x` | the gradients of the matrices |
//!
//! Each reads the long operand, which has `rows × width` elements, once and little else, so that
//! its bytes are the floor. A launch has up to three updates of one rank that share this operand.
//! Entries end in `a` or `b`, for the matrix that they take: A is `rank × width`, B `width × rank`.
//!
//! All is in f32, by fused multiply-adds: a product with a rank of 16 has too little to compute for
//! tensor cores to be worth rounding its factors.
//!
//! **Determinism.** Contractions are cut by the sizes of the problem alone; threads add their parts
//! in ascending order, and parts are added in ascending order.

mod expand;
mod grad;
mod shrink;

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder, Pred, Ptr, Scalar, Value};

/// The most updates of a launch.
const UPDATES: usize = 3;
/// Ranks that threads work on at a time, where the contraction is along the ranks or the rows.
const RANKS: u32 = 16;

/// The matrix of an update.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    /// The first, `rank × width`.
    A,
    /// The second, `width × rank`.
    B,
}

impl Side {
    fn name(self) -> &'static str {
        if self == Self::A { "a" } else { "b" }
    }
}

/// The image for `target`.
pub(crate) fn module(target: SmTarget) -> Module {
    let mut module = ModuleBuilder::new(target);
    for side in [Side::A, Side::B] {
        for columns in [16, 32] {
            module = module.entry(shrink::entry(side, columns));
        }
        module = module.entry(expand::entry(side)).entry(grad::entry(side));
    }
    module.build()
}

/// The parameters `name0`, `name1` and `name2`.
fn pointers<'k>(k: &Kernel<'k>, name: &str) -> [Ptr<'k, f32>; UPDATES] {
    std::array::from_fn(|update| k.pointer(&format!("{name}{update}")))
}

/// A rank of one of the updates, found by its number among those of all.
#[derive(Clone, Copy)]
struct Rank<'k> {
    /// Whether it belongs to the second update or a later one, and whether to the third.
    later: [Pred<'k>; UPDATES - 1],
    /// Its number in its update.
    number: Value<'k, u32>,
}

impl<'k> Rank<'k> {
    /// The rank `number`, where each update has `each`.
    fn of(number: Value<'k, u32>, each: Value<'k, u32>) -> Self {
        let later = [number.ge(each), number.ge(each * 2)];
        let before = later[1].select(each * 2, later[0].select(each, 0));
        Self { later, number: number - before }
    }

    /// Of these pointers that of its update.
    fn pick(self, pointers: [Ptr<'k, f32>; UPDATES]) -> Ptr<'k, f32> {
        Ptr::from_address(self.select(pointers.map(|pointer| pointer.address())))
    }

    /// The same of numbers.
    fn select<T: Scalar>(self, [first, second, third]: [Value<'k, T>; UPDATES]) -> Value<'k, T> {
        self.later[1].select(third, self.later[0].select(second, first))
    }
}

/// Whether rows of `width` elements of `array` start at multiples of 16 bytes.
fn rows_aligned<'k>(array: Ptr<'k, f32>, width: Value<'k, u32>) -> Pred<'k> {
    crate::primitives::vec4::aligned(&[array]) & (width & 3).eq(0)
}
