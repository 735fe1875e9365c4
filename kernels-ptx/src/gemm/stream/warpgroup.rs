//! What a warpgroup multiplies of a stage, by tensor cores that read shared memory themselves.
//!
//! The products of a stage are one group. Between their starts, threads do piece by piece what is
//! to be done for later stages; behind them they wait for the group of the stage before.

use retrograph_ptx::build::{Kernel, Line, Shared, Swizzled, Value, Var};

use super::panel::{LINE, Panel};
use super::ring::PIECES;
use crate::gemm::brain::Patch;
use crate::gemm::operand::Contiguous;

/// Threads of a warpgroup. Of each 64 rows of a product a warp has 16, in all columns.
pub(super) const THREADS: u32 = 128;
/// Rows of a product, and its steps of the contraction.
const ROWS: u32 = 64;
const STEPS: u32 = 16;
/// Steps of the contraction in a stage.
const DEPTH: u32 = 64;
const _: () = assert!(DEPTH / STEPS == PIECES, "a piece behind each step");

/// Words in front of the rows of this thread's warpgroup, which have these sums: a value that is
/// known to be the same for all of a warp.
pub(super) fn first<'k>(k: &Kernel<'k>, sums: &[Vec<Patch<'k>>]) -> Value<'k, u32> {
    let rows = sums.len() as u32 * ROWS;
    // 64 elements of both directions are 64 lines, whichever of them a line holds.
    k.shuffle_index(k.tid_x() >> THREADS.ilog2(), 0) * (rows * LINE)
}

/// Adds the products of one stage to `sums`, of warpgroups one below the other, whose rows begin
/// at `first`. `meanwhile` does a piece of what else there is to do.
pub(super) fn multiply<'k>(
    k: &Kernel<'k>,
    panels: [Panel; 2],
    (stages, meanwhile): ([Shared<'k, u32>; 2], &mut dyn FnMut(u32)),
    (first, sums): (Value<'k, u32>, &[Vec<Patch<'k>>]),
) {
    let (a, b) = (swizzled(panels[0], stages[0].at(first)), swizzled(panels[1], stages[1]));
    k.begin_products();
    for step in 0..DEPTH / STEPS {
        let b = b.offset(step * step_bytes(panels[1]));
        for (i, patches) in (0..).zip(sums) {
            let a = a.offset(i * ROWS * LINE * 4 + step * step_bytes(panels[0]));
            let sums: Vec<Var<'k, f32>> = patches.iter().flatten().copied().collect();
            k.multiply_async([a, b], &sums);
        }
        meanwhile(step);
    }
    k.commit_products();
    k.wait_products(1);
}

fn swizzled<'k>(panel: Panel, stage: Shared<'k, u32>) -> Swizzled<'k> {
    assert_eq!(panel.depth, DEPTH, "a line holds a stage");
    stage.swizzled(match panel.contiguous {
        Contiguous::Contraction => Line::Contraction,
        Contiguous::Extent => Line::Extent(DEPTH * LINE * 4),
    })
}

/// Bytes from one step of a product to the next: a part of a line, or so many lines.
fn step_bytes(panel: Panel) -> u32 {
    match panel.contiguous {
        Contiguous::Contraction => STEPS * panel.factor.bytes(),
        Contiguous::Extent => STEPS * LINE * 4,
    }
}
