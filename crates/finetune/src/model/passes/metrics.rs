//! The results of a step that the host reads: loss, gradient norm and rewards.

use std::ops::Range;

use retrograph_kernels::ops::Mean;
use retrograph_runtime::{Ranks, Slice};

use super::options::StepOptions;
use super::preference::PREFERENCE_METRICS;
use crate::error::Result;
use crate::model::builder::Builder;

/// Elements of the metrics of every step: the loss and the norm of the gradients before clipping.
pub const METRICS: usize = 2;

/// The elements of the metrics buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsLayout {
    ranks: Ranks,
    further: usize,
}

impl MetricsLayout {
    /// The layout of the metrics of a step with these options.
    pub fn new(options: &StepOptions) -> Self {
        Self { ranks: options.ranks, further: options.preference.map_or(0, |_| PREFERENCE_METRICS) }
    }

    /// Number of elements: the metrics of every step, then those of preferences. With several
    /// ranks, the parts of each mean by rank follow, and then the stop flag of each rank: 0 or 1.
    pub fn len(self) -> usize {
        match self.ranks.world_size {
            1 => METRICS + self.further,
            _ => self.parts(2 + self.further).start,
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(self) -> bool {
        false
    }

    /// The means of preferences; empty without them.
    pub fn preference(self) -> Range<usize> {
        METRICS..METRICS + self.further
    }

    /// The parts of the loss, by rank; empty for one rank.
    pub fn losses(self) -> Range<usize> {
        if self.ranks.world_size == 1 { 0..0 } else { self.parts(0) }
    }

    /// The stop flags, by rank; empty for one rank.
    pub fn stops(self) -> Range<usize> {
        if self.ranks.world_size == 1 { 0..0 } else { self.parts(1 + self.further) }
    }

    /// The elements of a mean: first the loss, then the means of preferences.
    fn means(self) -> impl Iterator<Item = usize> {
        std::iter::once(0).chain(self.preference())
    }

    /// The ranges of elements of which each rank writes one.
    fn parts(self, index: usize) -> Range<usize> {
        let first = METRICS + self.further + index * self.ranks.world_size;
        first..first + self.ranks.world_size
    }
}

/// The results of a step.
pub(super) struct Results<'a> {
    /// The values of each mean, in the order of the layout.
    pub(super) values: &'a [Slice<f32>],
    /// The number of values of all ranks.
    pub(super) counted: Slice<u32>,
    pub(super) layout: MetricsLayout,
    pub(super) metrics: Slice<f32>,
}

impl Results<'_> {
    /// Appends the means of one rank.
    pub(super) fn of_one_rank(&self, builder: &mut Builder) -> Result<()> {
        builder.scope("loss");
        let &Self { values, counted, layout, metrics } = self;
        for (&x, at) in values.iter().zip(layout.means()) {
            builder.launch(Mean { x, counted, out: metrics.slice(at..at + 1) }.launch())?;
        }
        Ok(())
    }

    /// Appends the means of all ranks. Each rank computes its parts: the sums over its values,
    /// divided by the number of values of all ranks. It gathers the other parts and the stop flags
    /// with its last gradients.
    pub(super) fn of_all_ranks(&self, builder: &mut Builder, stop: Slice<f32>) -> Result<()> {
        builder.scope("loss");
        let &Self { values, counted, layout, metrics } = self;
        let rank = layout.ranks.rank;
        let own = |parts: Slice<f32>| parts.slice(rank..rank + 1);
        let mut gathered = Vec::new();
        for (index, &x) in values.iter().enumerate() {
            let parts = metrics.slice(layout.parts(index));
            builder.launch(Mean { x, counted, out: own(parts) }.launch())?;
            gathered.push(parts);
        }
        let stops = metrics.slice(layout.stops());
        builder.pass.copy(stop, own(stops))?;
        gathered.push(stops);
        let first = builder.parameters[0].parameter.name.clone();
        builder.exchange_from(&first, &gathered)?;
        builder.scope("loss");
        // A count of 0 makes the mean a sum.
        let none = builder.transient_of::<u32>("no count", 1);
        builder.pass.fill(none, 0)?;
        for (&x, at) in gathered.iter().zip(layout.means()) {
            let out = metrics.slice(at..at + 1);
            builder.launch(Mean { x, counted: none, out }.launch())?;
        }
        Ok(())
    }
}
