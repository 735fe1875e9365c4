//! Weights that a pass converts to the form that products read.
//!
//! Weights of one shape share a few transients, so a pass needs memory only for these. A weight is
//! converted while the products of earlier weights run, after the last product that reads the
//! weight it replaces. A weight that is still in its slot is not converted again, for example the
//! output projection in the backward pass.

use std::collections::HashMap;

use retrograph_kernels::ops::TensorView;
use retrograph_runtime::{BufferId, Pass};

/// Converted weights of one shape: two for products that run concurrently, and one for the next
/// product.
const SLOTS: usize = 3;

/// The converted weights of a pass.
#[derive(Debug, Default)]
pub(super) struct ConvertedWeights {
    by_shape: HashMap<[usize; 2], Slots>,
}

/// The transients of one shape.
#[derive(Debug, Default)]
struct Slots {
    /// The slots, each with its current weight.
    slots: Vec<(Source, TensorView<BufferId>)>,
    /// The slot to replace next.
    next: usize,
}

/// A weight: its buffer and its first element.
type Source = (BufferId, usize);

/// A converted weight.
#[derive(Clone, Copy, Debug)]
pub(super) enum Converted {
    /// It is there.
    Found(TensorView<BufferId>),
    /// The next launch must write it.
    Unwritten(TensorView<BufferId>),
}

impl ConvertedWeights {
    /// Returns the converted weight of the matrix `w` with the rows and columns `shape`.
    /// `declare` declares a transient with the given name for it.
    pub(super) fn get(
        &mut self,
        pass: &mut Pass,
        w: TensorView<BufferId>,
        shape: [usize; 2],
        declare: impl FnOnce(&mut Pass, &str) -> TensorView<BufferId>,
    ) -> Converted {
        let source = source(w);
        let Slots { slots, next } = self.by_shape.entry(shape).or_default();
        if let Some((_, found)) = slots.iter().find(|(held, _)| *held == source) {
            return Converted::Found(*found);
        }
        let slot = *next;
        *next = (slot + 1) % SLOTS;
        if slot == slots.len() {
            let [rows, columns] = shape;
            let view = declare(pass, &format!("converted weights/{rows} x {columns}/{slot}"));
            slots.push((source, view));
            return Converted::Unwritten(view);
        }
        slots[slot].0 = source;
        Converted::Unwritten(slots[slot].1)
    }
}

fn source(w: TensorView<BufferId>) -> Source {
    match w {
        TensorView::F32(view) => (view.buffer(), view.byte_range().start),
        TensorView::Bf16(view) => (view.buffer(), view.byte_range().start),
        TensorView::Nf4(matrix) => (matrix.codes.buffer(), matrix.codes.byte_range().start),
        TensorView::Split(matrix) => (matrix.terms.buffer(), matrix.terms.byte_range().start),
    }
}
