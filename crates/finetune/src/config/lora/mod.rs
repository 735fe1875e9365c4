//! LoRA: the projections with an update, and its rank and scale.

mod layers;
mod module;
mod patterns;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::check::{require, within};
use super::choice::UnknownChoice;
use super::{ModelConfig, Projection};
use crate::error::Result;
pub use layers::LoraLayers;
pub use module::LoraModule;
pub use patterns::{LoraPatterns, PatternError};

/// A set of projections, written as `q,v`.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Vec<String>", try_from = "Vec<String>")]
pub struct LoraTargets(u8);

impl LoraTargets {
    /// Queries and values, as in the LoRA paper (Hu et al., arXiv 2106.09685).
    pub const QV: Self = Self(1 << Projection::Q as u8 | 1 << Projection::V as u8);
    /// Every projection.
    pub const ALL: Self = Self((1 << Projection::ALL.len()) - 1);

    /// Whether `projection` is in the set.
    pub fn has(self, projection: Projection) -> bool {
        self.0 & 1 << projection as u8 != 0
    }

    /// The projections of the set, in the order of the forward pass.
    pub fn iter(self) -> impl Iterator<Item = Projection> {
        Projection::ALL.iter().copied().filter(move |&projection| self.has(projection))
    }
}

impl FromIterator<Projection> for LoraTargets {
    fn from_iter<I: IntoIterator<Item = Projection>>(projections: I) -> Self {
        Self(projections.into_iter().fold(0, |set, projection| set | 1 << projection as u8))
    }
}

impl fmt::Display for LoraTargets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.iter().map(Projection::name).collect::<Vec<_>>().join(","))
    }
}

impl fmt::Debug for LoraTargets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for LoraTargets {
    type Err = UnknownChoice;

    fn from_str(text: &str) -> Result<Self, UnknownChoice> {
        if text == "all" {
            return Ok(Self::ALL);
        }
        let find = |name: &str| {
            let mut known = Projection::ALL.iter().copied();
            known.find(|p| p.name() == name || p.module() == name).ok_or_else(|| {
                UnknownChoice::new(name, "a projection", format!("a list of {}, or all", Self::ALL))
            })
        };
        text.split(',').map(|name| find(name.trim())).collect()
    }
}

impl From<LoraTargets> for Vec<String> {
    fn from(targets: LoraTargets) -> Self {
        targets.iter().map(|projection| projection.name().to_owned()).collect()
    }
}

impl TryFrom<Vec<String>> for LoraTargets {
    type Error = UnknownChoice;

    fn try_from(names: Vec<String>) -> Result<Self, UnknownChoice> {
        names.join(",").parse()
    }
}

/// The LoRA configuration of a run. A missing field defaults to the behavior from before the field
/// existed: updates of queries and values, scaled by `alpha / rank`, and trained norms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoraConfig {
    /// Rank of the updates.
    pub rank: usize,
    /// Numerator of the scale of the updates.
    pub alpha: f32,
    /// The projections with an update.
    #[serde(default = "queries_and_values")]
    pub targets: LoraTargets,
    /// The layers with updates.
    #[serde(default)]
    pub layers: LoraLayers,
    /// Whether updates are scaled by `alpha / √rank` (rsLoRA, Kalajdzievski, arXiv 2312.03732)
    /// instead of `alpha / rank`.
    #[serde(default)]
    pub rslora: bool,
    /// Whether the magnitudes (row norms) of updated weights are trained separately from their
    /// directions (DoRA, Liu et al., arXiv 2402.09353).
    #[serde(default)]
    pub dora: bool,
    /// Whether both norms of each layer are also trained.
    #[serde(default = "trained")]
    pub norms: bool,
    /// Whether the token embeddings are also trained, and with them the output projection of a tied
    /// model.
    #[serde(default)]
    pub embeddings: bool,
    /// Whether the output projection of a model that is not tied is also trained.
    #[serde(default)]
    pub head: bool,
    /// Dropout probability of the inputs of updates in training, at least 0 and below 1.
    #[serde(default)]
    pub dropout: f32,
    /// Modules with their own rank or alpha.
    #[serde(default)]
    pub patterns: LoraPatterns,
}

fn queries_and_values() -> LoraTargets {
    LoraTargets::QV
}

fn trained() -> bool {
    true
}

impl LoraConfig {
    /// Maximum rank.
    pub const MAX_RANK: usize = patterns::MAX_RANK;

    /// Returns updates of queries and values, scaled by `alpha / rank`, without trained norms.
    pub const fn new(rank: usize, alpha: f32) -> Self {
        Self {
            rank,
            alpha,
            targets: LoraTargets::QV,
            layers: LoraLayers::ALL,
            rslora: false,
            dora: false,
            norms: false,
            embeddings: false,
            head: false,
            dropout: 0.0,
            patterns: LoraPatterns::NONE,
        }
    }

    /// Returns the options of the update of a module, with patterns applied; `None` if the module
    /// has no update.
    pub fn of(&self, module: LoraModule) -> Option<Self> {
        if !self.targets.has(module.projection) || !self.layers.has(module.layer) {
            return None;
        }
        let (rank, alpha) = self.patterns.of(module);
        Some(Self {
            rank: rank.unwrap_or(self.rank),
            alpha: alpha.unwrap_or(self.alpha),
            patterns: LoraPatterns::NONE,
            ..*self
        })
    }

    /// The modules of `model` with an update, in the order of the forward pass.
    pub fn modules(&self, model: &ModelConfig) -> Vec<LoraModule> {
        let layers = (0..model.layers).filter(|layer| self.layers.has(*layer));
        let of = |layer| {
            let fused = model.fused;
            self.targets.iter().map(move |projection| LoraModule { layer, projection, fused })
        };
        layers.flat_map(of).collect()
    }

    /// Whether the updates of each projection have equal ranks and scales in all layers of `model`.
    pub fn layers_are_alike(&self, model: &ModelConfig) -> bool {
        let of = |layer, projection| self.of(LoraModule { layer, projection, fused: model.fused });
        let mut all = Projection::ALL.iter().copied();
        all.all(|one| (1..model.layers).all(|layer| of(layer, one) == of(0, one)))
    }

    /// Returns the first pattern that matches no module with an update in `model`.
    pub fn unused_pattern(&self, model: &ModelConfig) -> Option<&'static str> {
        self.patterns.unused(&self.modules(model))
    }

    /// Whether weights of the base model are also trained.
    pub fn trains_base(&self) -> bool {
        self.norms || self.embeddings || self.head
    }

    /// The largest rank of a module of `model`.
    pub fn largest_rank(&self, model: &ModelConfig) -> usize {
        let ranks = self.modules(model).into_iter().filter_map(|module| self.of(module));
        ranks.map(|lora| lora.rank).max().unwrap_or(self.rank)
    }

    /// Returns the factor of `B · A` in modules that no pattern matches.
    pub fn scale(&self) -> f32 {
        self.exact_scale() as f32
    }

    /// Returns the scale before rounding to f32.
    pub fn exact_scale(&self) -> f64 {
        let rank = self.rank as f64;
        f64::from(self.alpha) / if self.rslora { rank.sqrt() } else { rank }
    }

    /// Checks every value, and that the matrices have fewer than 2^32 elements in `model`.
    pub(super) fn validate(&self, model: &ModelConfig) -> Result<()> {
        within("rank", self.rank, Self::MAX_RANK)?;
        require("alpha", self.alpha, self.alpha.is_finite(), "finite")?;
        let modules = self.modules(model);
        for module in &modules {
            let Some(Self { rank, alpha, .. }) = self.of(*module) else { continue };
            within("rank", rank, Self::MAX_RANK)?;
            require("alpha", alpha, alpha.is_finite(), "finite")?;
            let [inputs, outputs] = model.projection(module.projection);
            let largest = rank.saturating_mul(inputs.max(outputs));
            let rule = "such that every low-rank matrix has fewer than 2^32 elements";
            require("rank", rank, u32::try_from(largest).is_ok(), rule)?;
        }
        let rule = "false in a tied model, whose token embeddings are also its output projection";
        require("head", self.head, !(self.head && model.tie_word_embeddings), rule)?;
        let holds = (0.0..1.0).contains(&self.dropout);
        require("lora_dropout", self.dropout, holds, "at least 0 and below 1")?;
        let some = self.targets.iter().next().is_some();
        require("lora_targets", self.targets, some, "at least one projection")?;
        self.validate_dora(model)?;
        let listed = self.layers.listed();
        let last = listed.as_ref().map_or(Some(0), |layers| layers.last().copied());
        let within = last.is_some_and(|last| last < model.layers);
        let rule = format!("at least one layer, each below {}", model.layers);
        require("lora_layers", self.layers, within, &rule)
    }

    /// Checks that each matrix of a file has an update in all of its rows or in none, since a file
    /// has one magnitude vector for all rows.
    fn validate_dora(&self, model: &ModelConfig) -> Result<()> {
        let whole = |projection: Projection| {
            let parts = projection.fused().map_or(&[][..], |(_, parts)| parts);
            parts.iter().all(|part| self.targets.has(*part))
        };
        let holds = !self.dora || !model.fused || self.targets.iter().all(whole);
        let rule = "all or none of q, k and v, and of gate and up, for DoRA of a model with fused \
                    projections";
        require("lora_targets", self.targets, holds, rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_written_as_they_are_read() {
        assert_eq!("q,v".parse(), Ok(LoraTargets::QV));
        assert_eq!("all".parse(), Ok(LoraTargets::ALL));
        assert_eq!("down, q_proj".parse::<LoraTargets>().unwrap().to_string(), "q,down");
        for wrong in ["", "q,x", "q_proj_proj"] {
            let error = wrong.parse::<LoraTargets>().unwrap_err();
            assert!(error.choices.contains("q,k,v,o,gate,up,down"), "{error}");
        }
        assert_eq!(Projection::O.path(), "self_attn.o_proj");
        assert_eq!(Projection::Gate.path(), "mlp.gate_proj");
    }

    #[test]
    fn the_scale_of_rslora_shrinks_with_the_root_of_the_rank() {
        let plain = LoraConfig::new(16, 32.0);
        assert_eq!(plain.scale(), 2.0);
        assert_eq!(LoraConfig { rslora: true, ..plain }.scale(), 8.0);
    }

    #[test]
    fn fields_missing_in_older_checkpoints_have_their_old_meaning() {
        let old: LoraConfig = serde_json::from_str(r#"{"rank":8,"alpha":32.0}"#).unwrap();
        assert_eq!(old, LoraConfig { norms: true, ..LoraConfig::new(8, 32.0) });
        let new = LoraConfig { targets: LoraTargets::ALL, rslora: true, ..LoraConfig::new(8, 1.0) };
        let text = serde_json::to_string(&new).unwrap();
        assert!(text.contains(r#"["q","k","v","o","gate","up","down"]"#), "{text}");
        assert_eq!(serde_json::from_str::<LoraConfig>(&text).unwrap(), new);
        let empty = r#"{"rank":8,"alpha":32.0,"targets":[]}"#;
        assert!(serde_json::from_str::<LoraConfig>(empty).is_err());
    }

    #[test]
    fn a_pattern_changes_rank_and_scale_of_its_modules_only() {
        let model = crate::Preset::Tiny.model();
        let pattern = |text: &str| text.to_owned();
        let ranks = [(pattern("layers.1.mlp.down_proj"), 16)];
        let patterns = LoraPatterns::new(ranks, [(pattern("o_proj"), 4.0)]).unwrap();
        let plain = LoraConfig { targets: LoraTargets::ALL, ..LoraConfig::new(4, 8.0) };
        let lora = LoraConfig { patterns, ..plain };
        lora.validate(&model).unwrap();
        let of = |layer, projection| {
            let lora = lora.of(LoraModule { layer, projection, fused: false }).unwrap();
            (lora.rank, lora.scale())
        };
        assert_eq!((of(0, Projection::Q), of(0, Projection::Down)), ((4, 2.0), (4, 2.0)));
        assert_eq!((of(1, Projection::Down), of(1, Projection::O)), ((16, 0.5), (4, 1.0)));
        assert_eq!((lora.largest_rank(&model), plain.largest_rank(&model)), (16, 4));
        let text = serde_json::to_string(&lora).unwrap();
        assert_eq!(serde_json::from_str::<LoraConfig>(&text).unwrap(), lora);
        assert_eq!(lora.unused_pattern(&model), None);
        let queries = LoraConfig { targets: LoraTargets::QV, ..lora };
        assert_eq!(queries.unused_pattern(&model), Some("layers.1.mlp.down_proj"));
    }

    #[test]
    fn only_listed_layers_have_updates() {
        let model = crate::Preset::Tiny.model();
        let lora = LoraConfig { layers: "1".parse().unwrap(), ..LoraConfig::new(4, 8.0) };
        lora.validate(&model).unwrap();
        let module = |layer| LoraModule { layer, projection: Projection::Q, fused: false };
        assert!(lora.of(module(0)).is_none() && lora.of(module(1)).is_some());
        assert_eq!(lora.modules(&model).len(), 2);
        let text = serde_json::to_string(&lora).unwrap();
        assert_eq!(serde_json::from_str::<LoraConfig>(&text).unwrap(), lora);
        for layers in [LoraLayers::of([]).unwrap(), "1-2".parse().unwrap()] {
            let error = LoraConfig { layers, ..lora }.validate(&model).unwrap_err().to_string();
            assert!(error.contains("lora_layers") && error.contains("below 2"), "{error}");
        }
    }
}
