//! The part of the optimizer state that a rank keeps.

use std::ops::Range;

use retrograph_runtime::Ranks;

use super::{EMBEDDING, Parameter};
use crate::config::Mode;

/// Elements that start at a multiple of this many have the alignment of whole buffers.
pub(crate) const ALIGNED_ELEMENTS: usize = 64;

/// How the trained parameters of a run are divided among its ranks.
///
/// If all weights are trained, each rank updates a block of every large parameter and has only the
/// moments of that block. Other parameters are replicated: every rank updates all of them, to
/// the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharding {
    ranks: Ranks,
    full: bool,
    large: usize,
}

impl Sharding {
    /// One rank with everything.
    pub const NONE: Self = Self { ranks: Ranks::ONE, full: false, large: Self::LARGE };

    /// Default minimum elements of a large parameter. Exchanging a smaller parameter takes longer
    /// than updating all of it (docs/hardware/2026-11-27-two-h200).
    pub const LARGE: usize = 1 << 20;

    /// The division of a run in `mode`, where parameters of at least `large` elements are large;
    /// `None` for [`Sharding::LARGE`].
    pub fn new(mode: Mode, ranks: Ranks, large: Option<usize>) -> Self {
        Self { ranks, full: mode.is_full(), large: large.unwrap_or(Self::LARGE) }
    }

    /// Returns the minimum elements of a large parameter.
    pub(crate) fn large(self) -> usize {
        self.large
    }

    /// The ranks.
    pub fn ranks(self) -> Ranks {
        self.ranks
    }

    /// Whether each rank updates a block of `parameter`: it is large, and its blocks are equal and
    /// aligned.
    pub fn is_sharded(self, parameter: &Parameter) -> bool {
        let blocks = self.ranks.world_size * ALIGNED_ELEMENTS;
        let may = self.full && self.ranks.world_size > 1 && parameter.trainable;
        may && parameter.len() >= self.large && parameter.len().is_multiple_of(blocks)
    }

    /// The elements of `parameter` that this rank updates.
    pub fn block(self, parameter: &Parameter) -> Range<usize> {
        match self.is_sharded(parameter) {
            true => self.ranks.block(parameter.len()),
            false => 0..parameter.len(),
        }
    }

    /// Whether the step that updates the sharded `parameter` also exchanges its f32 values: those
    /// of the embedding, which the next step reads first. Other weights are exchanged when the next
    /// step begins, while it computes the layers before them.
    pub fn gathers_at_once(self, parameter: &Parameter) -> bool {
        self.is_sharded(parameter) && parameter.name == EMBEDDING
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{LoraConfig, Preset};
    use crate::parameters::{FINAL_NORM, inventory, layer_name};

    fn find(mode: Mode, name: &str) -> Parameter {
        let list = inventory(&Preset::Tiny.model(), mode);
        list.into_iter().find(|parameter| parameter.name == name).unwrap()
    }

    #[test]
    fn large_weights_are_sharded_and_the_rest_is_replicated() {
        let weight = layer_name(0, "mlp.up_proj.weight");
        let [weight, norm] = [&weight, FINAL_NORM].map(|name| find(Mode::Full, name));
        let second = Sharding::new(Mode::Full, Ranks { rank: 1, world_size: 2 }, Some(0));
        assert_eq!(second.block(&weight), weight.len() / 2..weight.len());
        assert_eq!(second.block(&norm), 0..norm.len(), "64 elements are one aligned block");
        let third = Sharding::new(Mode::Full, Ranks { rank: 2, world_size: 3 }, Some(0));
        assert_eq!(third.block(&weight), 0..weight.len(), "176 × 64 elements have no three blocks");
        assert!(!Sharding::NONE.is_sharded(&weight));
        let large =
            Sharding::new(Mode::Full, Ranks { rank: 1, world_size: 2 }, Some(weight.len() + 1));
        assert_eq!(large.block(&weight), 0..weight.len(), "smaller than a large parameter");
    }

    #[test]
    fn lora_matrices_are_replicated() {
        let mode = Mode::Lora(LoraConfig::new(64, 1.0));
        let a = find(mode, &layer_name(0, "self_attn.q_proj.lora_A.weight"));
        let sharding = Sharding::new(mode, Ranks { rank: 0, world_size: 2 }, Some(0));
        assert!(a.len().is_multiple_of(128) && !sharding.is_sharded(&a));
    }
}
