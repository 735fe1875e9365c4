//! Bounds of attention for each row: optional data of a launch, or a sliding window.
//!
//! Rows are queries, with the first key that each attends to, or keys, with the end of the queries
//! that attend to each. Bounds ascend within a sequence, so the bounds of the first and the last
//! row of a block determine which tiles it needs, and which of them have elements to mask.
//!
//! Bounds that are out of range give wrong results, but memory accesses and loops only depend on
//! their values clamped to the sequence.

use retrograph_ptx::build::{Kernel, Ptr, Value};

use super::mask::lane_row;
use crate::primitives::mma::{AccFragment, LANE_ROWS, fragment_column};

/// The side of a row on which its bound masks columns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Masked {
    /// Rows are queries; keys below the bound are masked.
    Below,
    /// Rows are keys; queries from the bound on are masked.
    From,
}

/// The bounds of the rows of a block.
#[derive(Clone, Copy)]
pub(super) struct RowBounds<'k> {
    masked: Masked,
    source: Source<'k>,
    /// Last row of the sequence.
    last_row: Value<'k, u32>,
    /// First row of the block.
    start: Value<'k, u32>,
    /// The row of lane 0 of the first warp.
    lane_start: Value<'k, u32>,
    /// The bound that masks the most columns and the one that masks the fewest, or one that masks
    /// none.
    tightest: Value<'k, u32>,
    loosest: Value<'k, u32>,
}

/// The source of the bounds.
#[derive(Clone, Copy)]
enum Source<'k> {
    Data {
        /// `[batch, seq]`, or null for only the causal mask.
        bounds: Ptr<'k, u32>,
        /// The first row of the sequence in `bounds`.
        first_row: Value<'k, u32>,
    },
    /// Maximum number of keys of a query, its own included.
    Window(Value<'k, u32>),
}

impl<'k> RowBounds<'k> {
    /// The bounds of `rows` rows from `start` on, in sequence `sequence` of `seq` rows.
    pub(super) fn new(
        bounds: Ptr<'k, u32>,
        masked: Masked,
        sequence: Value<'k, u32>,
        seq: Value<'k, u32>,
        start: Value<'k, u32>,
        rows: u32,
    ) -> Self {
        let k = start.kernel();
        let none = match masked {
            Masked::Below => 0,
            Masked::From => u32::MAX,
        };
        let (first_bound, last_bound) = (k.var(none), k.var(none));
        let sequence = [sequence * seq, seq - 1];
        k.when(!bounds.is_null(), || {
            let last = (start + (rows - 1)).min(sequence[1]);
            first_bound.set(bounds.load(sequence[0] + start.min(sequence[1])));
            last_bound.set(bounds.load(sequence[0] + last));
        });
        let (first, last) = (first_bound.get(), last_bound.get());
        let (tightest, loosest) = match masked {
            Masked::Below => (last, first),
            Masked::From => (first, last),
        };
        let [first_row, last_row] = sequence;
        Self {
            masked,
            source: Source::Data { bounds, first_row },
            last_row,
            start,
            lane_start: start,
            tightest,
            loosest,
        }
    }

    /// The bounds of `rows` queries from `start` on, each of which attends to at most `window`
    /// keys.
    pub(super) fn window(window: Value<'k, u32>, start: Value<'k, u32>, rows: u32) -> Self {
        Self {
            masked: Masked::Below,
            source: Source::Window(window),
            last_row: start.kernel().constant(u32::MAX),
            start,
            lane_start: start,
            tightest: first_key_in_window(start + (rows - 1), window),
            loosest: first_key_in_window(start, window),
        }
    }

    /// These bounds in a block where the first row of the first warp is `lane_start`.
    pub(super) fn with_lane_start(self, lane_start: Value<'k, u32>) -> Self {
        Self { lane_start, ..self }
    }

    /// The first column of the first tile of `columns` keys that a block of queries needs.
    pub(super) fn first_key(&self, columns: u32) -> Value<'k, u32> {
        self.loosest.min(self.start) & !(columns - 1)
    }

    /// The end of the queries that a block of keys needs: at least one, except in empty sequences.
    pub(super) fn query_end(&self) -> Value<'k, u32> {
        self.loosest.max(self.start + 1).min(self.last_row + 1)
    }

    /// Sets the elements of `acc` outside the bounds of their row to `value`, in the tile of
    /// `columns` columns that starts at `column`.
    pub(super) fn apply(
        &self,
        k: &Kernel<'k>,
        column: Value<'k, u32>,
        columns: u32,
        accs: &[&[AccFragment<'k>]],
        value: f32,
    ) {
        let crosses = match self.masked {
            Masked::Below => column.lt(self.tightest),
            Masked::From => (column + (columns - 1)).ge(self.tightest),
        };
        k.when(crosses, || {
            let bounds = LANE_ROWS.map(|offset| {
                let row = (self.lane_start + lane_row(k) + offset).min(self.last_row);
                let bound = match self.source {
                    Source::Data { bounds, first_row } => bounds.load(first_row + row),
                    Source::Window(window) => first_key_in_window(row, window),
                };
                (bound - column - fragment_column(k)).cast::<i32>()
            });
            for acc in accs {
                for (j, fragment) in (0..).zip(*acc) {
                    for (index, element) in fragment.iter().enumerate() {
                        let (bound, column) = (bounds[index / 2], j * 8 + index as i32 % 2);
                        let masked = match self.masked {
                            Masked::Below => bound.gt(column),
                            Masked::From => bound.le(column),
                        };
                        element.update(|element| masked.select(value, element));
                    }
                }
            }
        });
    }
}

/// The first key of a query at `position`.
fn first_key_in_window<'k>(position: Value<'k, u32>, window: Value<'k, u32>) -> Value<'k, u32> {
    let end = position + 1;
    end - end.min(window)
}
