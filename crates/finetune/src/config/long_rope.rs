//! LongRoPE: a divisor for each frequency, which depends on the length of the run.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::check::require;
use crate::error::Result;

/// Arguments of [`RopeScaling::LongRope`](super::RopeScaling::LongRope) (Ding et al.,
/// arXiv 2402.13753), as `transformers` reads them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LongRope {
    /// `short_factor`: divisors for runs of at most `original` positions.
    #[serde(alias = "short")]
    pub short_factor: RopeFactors,
    /// `long_factor`: divisors for longer runs.
    #[serde(alias = "long")]
    pub long_factor: RopeFactors,
    /// `original_max_position_embeddings`: context length in pretraining.
    #[serde(alias = "original")]
    pub original_max_position_embeddings: f64,
    /// `attention_factor`: the factor of all cosines and sines.
    #[serde(alias = "attention")]
    pub attention_factor: f64,
}

impl LongRope {
    /// Returns the default of the attention factor for a context that is `factor` times `original`:
    /// `√(1 + ln(factor) / ln(original))`.
    pub fn default_attention_factor(factor: f64, original: f64) -> f64 {
        if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / original.ln()).sqrt() }
    }

    /// Returns the divisor of a frequency in a run of `length` positions.
    pub(super) fn divisor(&self, pair: usize, length: f64) -> f64 {
        let factors = if length > self.original_max_position_embeddings {
            &self.long_factor
        } else {
            &self.short_factor
        };
        f64::from(factors.as_slice()[pair])
    }

    pub(super) fn validate(self, rotary: usize) -> Result<()> {
        let rule = "a list of numbers above 0, one for each pair of a head";
        for (name, factors) in
            [("short_factor", self.short_factor), ("long_factor", self.long_factor)]
        {
            let factors = factors.as_slice();
            let positive = factors.iter().all(|factor| factor.is_finite() && *factor > 0.0);
            let holds = positive && factors.len() == rotary / 2;
            require(name, format!("{factors:?}"), holds, rule)?;
        }
        let original = self.original_max_position_embeddings.is_finite()
            && self.original_max_position_embeddings > 1.0;
        require(
            "original_max_position_embeddings",
            self.original_max_position_embeddings,
            original,
            "above 1",
        )?;
        let attention = self.attention_factor.is_finite() && self.attention_factor > 0.0;
        require("attention_factor", self.attention_factor, attention, "finite and above 0")
    }
}

/// Up to [`RopeFactors::MAX_LEN`] divisors of frequencies, stored inline, so that configurations
/// are `Copy`.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(into = "Vec<f32>", try_from = "Vec<f32>")]
pub struct RopeFactors {
    len: usize,
    values: [f32; Self::MAX_LEN],
}

impl RopeFactors {
    /// Maximum number of divisors, enough for heads of 256 elements.
    pub const MAX_LEN: usize = 128;

    /// The divisors.
    pub fn as_slice(&self) -> &[f32] {
        &self.values[..self.len]
    }
}

impl fmt::Debug for RopeFactors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

impl From<RopeFactors> for Vec<f32> {
    fn from(factors: RopeFactors) -> Self {
        factors.as_slice().to_vec()
    }
}

impl TryFrom<Vec<f32>> for RopeFactors {
    type Error = String;

    fn try_from(factors: Vec<f32>) -> Result<Self, String> {
        let (len, mut values) = (factors.len(), [0.0; Self::MAX_LEN]);
        let Some(kept) = values.get_mut(..len) else {
            return Err(format!("{len} RoPE factors, but at most {} are supported", Self::MAX_LEN));
        };
        kept.copy_from_slice(&factors);
        Ok(Self { len, values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ModelConfig, Preset, RopeScaling};

    fn model() -> ModelConfig {
        let factors = |first: f32| RopeFactors::try_from(vec![first, 2.0, 4.0]).unwrap();
        let long = LongRope {
            short_factor: factors(1.0),
            long_factor: factors(8.0),
            original_max_position_embeddings: 16.0,
            attention_factor: LongRope::default_attention_factor(4.0, 16.0),
        };
        let rope_scaling = Some(RopeScaling::LongRope(long));
        ModelConfig { rope_scaling, rotary_dim: Some(6), ..Preset::Tiny.model() }
    }

    #[test]
    fn the_length_of_the_run_chooses_the_factors() {
        let model = model();
        model.validate().unwrap();
        let plain = ModelConfig { rope_scaling: None, ..model }.rope_frequencies(16);
        for (positions, first) in [(16, 1.0), (17, 8.0)] {
            let expected: Vec<f64> =
                plain.iter().zip([first, 2.0, 4.0]).map(|(plain, factor)| plain / factor).collect();
            assert_eq!(model.rope_frequencies(positions), expected);
        }
    }

    #[test]
    fn only_rotated_pairs_are_scaled() {
        let (cos, sin) = model().rope_tables(3);
        let amplitude = 1.5f64.sqrt() as f32;
        assert_eq!((cos.len(), sin.len()), (24, 24));
        assert_eq!(cos[..8], [amplitude, amplitude, amplitude, 1.0, 1.0, 1.0, 1.0, 1.0]);
        assert!(sin[8] > 0.0 && sin[11..16].iter().all(|sin| *sin == 0.0));
        assert!(cos[19..].iter().all(|cos| *cos == 1.0));
    }

    #[test]
    fn factors_round_trip_and_a_wrong_number_is_named() {
        let model = model();
        let text = serde_json::to_string(&model).unwrap();
        assert_eq!(serde_json::from_str::<ModelConfig>(&text).unwrap(), model);
        let wrong = ModelConfig { rotary_dim: Some(8), ..model };
        assert!(wrong.validate().unwrap_err().to_string().contains("short_factor"));
        assert!(RopeFactors::try_from(vec![1.0; 129]).unwrap_err().contains("129"));
    }
}
