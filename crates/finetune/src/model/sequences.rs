//! The inputs of a pass that describe sequences: the position of each token in its document, and
//! the bounds of attention.

use std::ops::Range;

use retrograph_kernels::attention::{first_keys, query_ends};
use retrograph_kernels::ops::AttentionBounds;
use retrograph_runtime::{BufferId, Controls, Pass, Slice};

use crate::data::DataError;
use crate::error::Result;
use crate::spec::ModelSpec;

/// Controls: positions of tokens and bounds of attention, as far as a pass needs them.
///
/// A pass for packed batches has both. A pass for sequences of one document has bounds for sliding
/// windows only, and a pass that generates has positions only.
#[derive(Clone, Debug, Default)]
pub struct Sequences {
    /// Tokens of the batch, and of a sequence.
    rows: usize,
    seq: usize,
    positions: Option<Slice<u32>>,
    /// The bounds of attention for each window; `None` is attention to a whole document.
    bounds: Vec<(Option<u32>, AttentionBounds<BufferId>)>,
}

impl Sequences {
    /// Declares the controls of `batch` sequences of `seq` tokens, which may be `packed`.
    pub(super) fn declare(
        pass: &mut Pass,
        spec: &ModelSpec,
        [batch, seq]: [usize; 2],
        packed: bool,
    ) -> Self {
        let rows = batch * seq;
        let positions = packed.then(|| pass.control_array("positions", rows));
        let mut sequences = Self { rows, seq, positions, bounds: Vec::new() };
        for layer in &spec.layers {
            let window = sequences.effective(layer.attention.window);
            if (window.is_none() && !packed) || sequences.bounds(window).is_some() {
                continue;
            }
            let [first_keys, query_ends] = ["first_keys", "query_ends"].map(|array| {
                let of = window.map_or(String::new(), |window| format!(".window_{window}"));
                pass.control_array(format!("{array}{of}"), rows)
            });
            sequences.bounds.push((window, AttentionBounds { first_keys, query_ends }));
        }
        sequences
    }

    /// The tokens of generation, at `positions` of their sequences. Attention has its own kernels.
    pub(super) fn of_generation(positions: Slice<u32>) -> Self {
        let rows = positions.len();
        Self { rows, seq: rows, positions: Some(positions), bounds: Vec::new() }
    }

    /// The window, if it is narrower than a sequence.
    fn effective(&self, window: Option<u32>) -> Option<u32> {
        window.filter(|window| (*window as usize) < self.seq)
    }

    /// The position of each token; `None` if they count from the start of each sequence.
    pub(super) fn positions(&self) -> Option<Slice<u32>> {
        self.positions
    }

    /// Returns the bounds of attention with `window`; `None` for only the causal mask.
    pub(super) fn bounds(&self, window: Option<u32>) -> Option<AttentionBounds<BufferId>> {
        let window = self.effective(window);
        self.bounds.iter().find(|(other, _)| *other == window).map(|(_, bounds)| *bounds)
    }

    /// The same for a range of whole sequences, given by their tokens.
    pub(super) fn rows(&self, rows: Range<usize>) -> Self {
        let part = |array: Slice<u32>| array.slice(rows.clone());
        let bounds =
            self.bounds.iter().map(|(window, AttentionBounds { first_keys, query_ends })| {
                let (first_keys, query_ends) = (part(*first_keys), part(*query_ends));
                (*window, AttentionBounds { first_keys, query_ends })
            });
        Self {
            rows: rows.len(),
            seq: self.seq,
            positions: self.positions.map(part),
            bounds: bounds.collect(),
        }
    }

    /// Sets the controls. `positions` come from a [`Batch`](crate::Batch).
    ///
    /// # Errors
    /// [`DataError::Packed`] if the batch is packed and the pass is not described for that, or if
    /// the batch has another size.
    pub fn set(&self, controls: &mut Controls, positions: Option<&[u32]>) -> Result<()> {
        if positions.is_some() && self.positions.is_none() {
            return Err(DataError::Packed.into());
        }
        if self.positions.is_none() && self.bounds.is_empty() {
            return Ok(());
        }
        let consecutive = || (0..self.seq as u32).cycle().take(self.rows).collect();
        let positions = positions.map_or_else(consecutive, <[u32]>::to_vec);
        if let Some(control) = self.positions {
            controls.set_array(control, &positions)?;
        }
        for (window, bounds) in &self.bounds {
            let sequences = positions.chunks(self.seq.max(1));
            let keys: Vec<Vec<u32>> =
                sequences.map(|positions| first_keys(positions, *window)).collect();
            let ends: Vec<Vec<u32>> = keys.iter().map(|keys| query_ends(keys)).collect();
            controls.set_array(bounds.first_keys, &keys.concat())?;
            controls.set_array(bounds.query_ends, &ends.concat())?;
        }
        Ok(())
    }
}
