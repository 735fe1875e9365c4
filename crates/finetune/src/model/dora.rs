//! The row norms of DoRA layers in a pass, and the scales m / n of their outputs.
//!
//! They depend only on weights. A training pass therefore computes them once for all micro-batches,
//! and prefill computes them for all tokens that are generated after it.

use std::collections::HashMap;

use retrograph_runtime::{BufferId, Pass, Slice};

/// The norms n of the rows of an updated weight, and the scales m / n of its outputs.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowNorms {
    pub(super) norms: Slice<f32>,
    pub(super) mag_norm_scales: Slice<f32>,
}

/// The norms of the DoRA layers of a pass, by the buffer of their magnitudes.
#[derive(Debug, Default)]
pub(super) struct DoraNorms {
    computed: HashMap<BufferId, RowNorms>,
    kept: HashMap<BufferId, RowNorms>,
}

impl DoraNorms {
    /// Returns the norms of the layer with `magnitudes`, if the pass has computed them.
    pub(super) fn get(&self, magnitudes: Slice<f32>) -> Option<RowNorms> {
        self.computed.get(&magnitudes.buffer()).copied()
    }

    /// Returns the buffers of the norms of this layer, if they outlive the pass.
    pub(super) fn kept(&self, magnitudes: Slice<f32>) -> Option<RowNorms> {
        self.kept.get(&magnitudes.buffer()).copied()
    }

    /// Adds the norms that the next launch computes.
    pub(super) fn insert(&mut self, magnitudes: Slice<f32>, norms: RowNorms) {
        self.computed.insert(magnitudes.buffer(), norms);
    }

    /// Declares an external for the norms of the layers with these `magnitudes`, which outlive the
    /// pass; `None` without layers. They are `computed` by an earlier pass, or by this one.
    pub(super) fn keep(
        &mut self,
        pass: &mut Pass,
        magnitudes: &[Slice<f32>],
        computed: bool,
    ) -> Option<Slice<f32>> {
        let rows: usize = magnitudes.iter().map(|it| it.len()).sum();
        if rows == 0 {
            return None;
        }
        let all = pass.external::<f32>("dora norms", 2 * rows);
        let mut first = 0;
        for it in magnitudes {
            let (middle, end) = (first + it.len(), first + 2 * it.len());
            let (norms, mag_norm_scales) = (all.slice(first..middle), all.slice(middle..end));
            let kept = if computed { &mut self.computed } else { &mut self.kept };
            kept.insert(it.buffer(), RowNorms { norms, mag_norm_scales });
            first = end;
        }
        Some(all)
    }
}
