//! LoRA: the projections with an update, and its rank and scale.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::check::{require, within};
use super::choice::UnknownChoice;
use super::{ModelConfig, Projection};
use crate::error::Result;

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
        Projection::ALL.into_iter().filter(move |&projection| self.has(projection))
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
            let known = Projection::ALL.into_iter();
            known.into_iter().find(|p| p.name() == name || p.module() == name).ok_or_else(|| {
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

/// The LoRA configuration of a run. Missing fields default to the values of runs from before
/// the field existed: updates of queries and values, scaled by `alpha / rank`, and trained norms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoraConfig {
    /// Rank of the updates.
    pub rank: usize,
    /// Numerator of the scale of the updates.
    pub alpha: f32,
    /// The projections with an update.
    #[serde(default = "queries_and_values")]
    pub targets: LoraTargets,
    /// Whether updates are scaled by `alpha / √rank` (rsLoRA, Kalajdzievski, arXiv 2312.03732)
    /// instead of `alpha / rank`.
    #[serde(default)]
    pub rslora: bool,
    /// Whether both norms of each layer are also trained.
    #[serde(default = "trained")]
    pub norms: bool,
    /// Whether the token table is also trained, and with it the output projection of a tied model.
    #[serde(default)]
    pub embeddings: bool,
    /// Whether the output projection of a model that is not tied is also trained.
    #[serde(default)]
    pub head: bool,
    /// Dropout probability of the inputs of updates in training, at least 0 and below 1.
    #[serde(default)]
    pub dropout: f32,
    /// Projections with a rank or alpha of their own.
    #[serde(default)]
    pub patterns: LoraPatterns,
}

/// Ranks and alphas of some projections, in every layer. [`LoraConfig`] has the values of the
/// others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoraPatterns {
    ranks: [Option<usize>; Projection::ALL.len()],
    alphas: [Option<f32>; Projection::ALL.len()],
}

impl LoraPatterns {
    /// Sets the rank of a projection; `None` for the rank of the configuration.
    pub fn set_rank(&mut self, projection: Projection, rank: Option<usize>) {
        self.ranks[projection as usize] = rank;
    }

    /// Sets alpha of a projection; `None` for alpha of the configuration.
    pub fn set_alpha(&mut self, projection: Projection, alpha: Option<f32>) {
        self.alphas[projection as usize] = alpha;
    }
}

fn queries_and_values() -> LoraTargets {
    LoraTargets::QV
}

fn trained() -> bool {
    true
}

impl LoraConfig {
    /// Maximum rank.
    pub const MOST_RANK: usize = 1 << 16;

    /// Returns updates of queries and values, scaled by `alpha / rank`, without trained norms.
    pub const fn new(rank: usize, alpha: f32) -> Self {
        let none = [None; Projection::ALL.len()];
        let patterns = LoraPatterns { ranks: none, alphas: [None; Projection::ALL.len()] };
        let (targets, rslora, dropout) = (LoraTargets::QV, false, 0.0);
        let (norms, embeddings, head) = (false, false, false);
        Self { rank, alpha, targets, rslora, norms, embeddings, head, dropout, patterns }
    }

    /// Returns the options with which every projection has rank and alpha of `projection`.
    pub fn of(&self, projection: Projection) -> Self {
        let LoraPatterns { ranks, alphas } = self.patterns;
        Self {
            rank: ranks[projection as usize].unwrap_or(self.rank),
            alpha: alphas[projection as usize].unwrap_or(self.alpha),
            patterns: LoraPatterns::default(),
            ..*self
        }
    }

    /// Whether weights of the base model are also trained.
    pub fn trains_base(&self) -> bool {
        self.norms || self.embeddings || self.head
    }

    /// The largest rank of a target.
    pub fn largest_rank(&self) -> usize {
        self.targets.iter().map(|target| self.of(target).rank).max().unwrap_or(self.rank)
    }

    /// Returns the factor of `B · A` of projections without a pattern.
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
        within("rank", self.rank, Self::MOST_RANK)?;
        require("alpha", self.alpha, self.alpha.is_finite(), "finite")?;
        for target in self.targets.iter() {
            let Self { rank, alpha, .. } = self.of(target);
            within("rank", rank, Self::MOST_RANK)?;
            require("alpha", alpha, alpha.is_finite(), "finite")?;
            let [inputs, outputs] = model.projection(target);
            let largest = rank.saturating_mul(inputs.max(outputs));
            let rule = "such that every low-rank matrix has fewer than 2^32 elements";
            require("rank", rank, u32::try_from(largest).is_ok(), rule)?;
        }
        for together in [&[Projection::Q, Projection::K, Projection::V][..], &GATE_UP] {
            self.validate_alike(together)?;
        }
        let rule = "false in a tied model, whose token table is also its output projection";
        require("head", self.head, !(self.head && model.tied), rule)?;
        let holds = (0.0..1.0).contains(&self.dropout);
        require("lora_dropout", self.dropout, holds, "at least 0 and below 1")?;
        let some = self.targets.iter().next().is_some();
        require("lora_targets", self.targets, some, "at least one projection")
    }

    /// Checks that the targets among projections that share an input, and so launches, have one
    /// rank and one scale.
    fn validate_alike(&self, together: &[Projection]) -> Result<()> {
        let mut targets = together.iter().filter(|target| self.targets.has(**target));
        let Some(first) = targets.next() else { return Ok(()) };
        for target in targets {
            let [one, other] = [*first, *target].map(|target| self.of(target));
            let rule =
                format!("as for {}: projections with one input need equal ones", first.module());
            let of = |value: &dyn fmt::Display| format!("{value} for {}", target.module());
            require("rank", of(&other.rank), one.rank == other.rank, &rule)?;
            require("alpha", of(&other.alpha), one.alpha == other.alpha, &rule)?;
        }
        Ok(())
    }
}

/// The projections of the input of the MLP.
const GATE_UP: [Projection; 2] = [Projection::Gate, Projection::Up];

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
    fn a_pattern_changes_rank_and_scale_of_its_projection_only() {
        let model = crate::Preset::Tiny.model();
        let mut lora = LoraConfig { targets: LoraTargets::ALL, ..LoraConfig::new(4, 8.0) };
        lora.patterns.set_rank(Projection::Down, Some(16));
        lora.patterns.set_alpha(Projection::O, Some(4.0));
        lora.validate(&model).unwrap();
        let of = |projection| (lora.of(projection).rank, lora.of(projection).scale());
        assert_eq!(of(Projection::Q), (4, 2.0));
        assert_eq!((of(Projection::Down), of(Projection::O)), ((16, 0.5), (4, 1.0)));
        assert_eq!(lora.largest_rank(), 16);
        let text = serde_json::to_string(&lora).unwrap();
        assert_eq!(serde_json::from_str::<LoraConfig>(&text).unwrap(), lora);
        lora.patterns.set_rank(Projection::K, Some(8));
        let error = lora.validate(&model).unwrap_err().to_string();
        assert!(error.contains("rank is 8 for k_proj") && error.contains("q_proj"), "{error}");
    }
}
