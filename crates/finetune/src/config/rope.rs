//! Scaling of rotary frequencies for a longer context than in pretraining.

use std::f64::consts::TAU;

use serde::{Deserialize, Serialize};

use super::LongRope;
use super::check::require;
use crate::error::Result;

/// A scaling of rotary frequencies.
#[expect(clippy::large_enum_variant, reason = "a boxed list of factors could not be copied")]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RopeScaling {
    /// `rope_type` "linear": all frequencies are divided by `factor`.
    Linear {
        /// Divisor of the frequencies.
        factor: f64,
    },
    /// `rope_type` "yarn": low frequencies are divided, high frequencies stay, frequencies in
    /// between are interpolated, and queries and keys are scaled.
    Yarn(Yarn),
    /// `rope_type` "llama3", the scaling of Llama 3.1: wavelengths above `original / low` positions
    /// have their frequency divided by `factor`, wavelengths below `original / high` stay, and
    /// frequencies in between are interpolated.
    Llama3 {
        /// Divisor of low frequencies.
        factor: f64,
        /// `low_freq_factor`: the original context over the longest interpolated wavelength.
        #[serde(alias = "low")]
        low_freq_factor: f64,
        /// `high_freq_factor`: the original context over the shortest interpolated wavelength.
        #[serde(alias = "high")]
        high_freq_factor: f64,
        /// `original_max_position_embeddings`: context length in pretraining.
        #[serde(alias = "original")]
        original_max_position_embeddings: f64,
    },
    /// `rope_type` "dynamic", for runs that are longer than the context in pretraining: the base of
    /// the frequencies grows with the length of the run.
    Dynamic {
        /// The factor of the context; the base also grows with it.
        factor: f64,
        /// `original_max_position_embeddings`: context length in pretraining.
        #[serde(alias = "original")]
        original_max_position_embeddings: f64,
    },
    /// `rope_type` "longrope": a divisor for each frequency.
    LongRope(LongRope),
}

/// Arguments of [`RopeScaling::Yarn`], with the names of the paper (Peng et al., arXiv 2309.00071).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Yarn {
    /// Divisor of low frequencies.
    pub factor: f64,
    /// `original_max_position_embeddings`: context length in pretraining.
    #[serde(alias = "original")]
    pub original_max_position_embeddings: f64,
    /// `beta_fast`: rotations in the original context from which a frequency stays.
    #[serde(alias = "fast")]
    pub beta_fast: f64,
    /// `beta_slow`: rotations in the original context up to which a frequency is divided.
    #[serde(alias = "slow")]
    pub beta_slow: f64,
    /// `attention_factor`: the factor of all cosines and sines.
    #[serde(alias = "attention")]
    pub attention_factor: f64,
    /// `truncate`: whether the range of interpolated pairs ends at whole pairs.
    pub truncate: bool,
}

impl Yarn {
    /// Default of `beta_fast`.
    pub const BETA_FAST: f64 = 32.0;
    /// Default of `beta_slow`.
    pub const BETA_SLOW: f64 = 1.0;

    /// Returns the default of the attention factor, with `mscale` 1: `0.1 · ln(factor) + 1`.
    pub fn default_attention_factor(factor: f64, mscale: f64) -> f64 {
        if factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 }
    }

    /// Returns the pairs between which frequencies are interpolated, of heads of `width`.
    fn range(self, width: usize, theta: f64) -> [f64; 2] {
        let pair = |rotations: f64| {
            width as f64 * (self.original_max_position_embeddings / (rotations * TAU)).ln()
                / (2.0 * theta.ln())
        };
        let [low, high] = [pair(self.beta_fast), pair(self.beta_slow)];
        let [low, high] = if self.truncate { [low.floor(), high.ceil()] } else { [low, high] };
        let [low, high] = [low.max(0.0), high.min(width as f64 - 1.0)];
        // Equal ends would divide by zero.
        [low, if low == high { high + 0.001 } else { high }]
    }

    fn validate(self) -> Result<()> {
        let Self {
            factor,
            original_max_position_embeddings: original,
            beta_fast: fast,
            beta_slow: slow,
            attention_factor: attention,
            ..
        } = self;
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let rule = "finite and above 0";
        require("rope factor", factor, positive(factor), rule)?;
        require("original_max_position_embeddings", original, positive(original), rule)?;
        require("beta_slow", slow, positive(slow), rule)?;
        require("beta_fast", fast, positive(fast), rule)?;
        require("attention_factor", attention, positive(attention), rule)
    }
}

impl RopeScaling {
    /// Checks the arguments for heads of which `rotary` elements are rotated.
    pub(super) fn validate(self, rotary: usize) -> Result<()> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let rule = "finite and above 0";
        match self {
            Self::Linear { factor } => require("rope factor", factor, positive(factor), rule),
            Self::Yarn(yarn) => yarn.validate(),
            Self::LongRope(long) => long.validate(rotary),
            Self::Dynamic { factor, original_max_position_embeddings: original } => {
                require("rope factor", factor, factor.is_finite() && factor >= 1.0, "at least 1")?;
                require("head_dim", rotary, rotary > 2, "above 2 with dynamic RoPE scaling")?;
                require("original_max_position_embeddings", original, positive(original), rule)
            }
            Self::Llama3 {
                factor,
                low_freq_factor: low,
                high_freq_factor: high,
                original_max_position_embeddings: original,
            } => {
                require("rope factor", factor, positive(factor), rule)?;
                require("low_freq_factor", low, positive(low), rule)?;
                let above = high.is_finite() && high > low;
                require("high_freq_factor", high, above, "finite and above low_freq_factor")?;
                require("original_max_position_embeddings", original, positive(original), rule)
            }
        }
    }

    /// Scales the frequencies of the pairs of a head, in radians per position, as `transformers`
    /// does for a sequence of `positions` tokens; `theta` is their base.
    pub(super) fn scaled(self, frequencies: Vec<f64>, theta: f64, positions: usize) -> Vec<f64> {
        let (width, length) = (2 * frequencies.len(), positions as f64);
        let scale = |(pair, frequency): (usize, f64)| match self {
            Self::Linear { factor } => frequency / factor,
            Self::Llama3 {
                factor,
                low_freq_factor: low,
                high_freq_factor: high,
                original_max_position_embeddings: original,
            } => {
                let waves = original * frequency / TAU;
                let kept = ((waves - low) / (high - low)).clamp(0.0, 1.0);
                (1.0 - kept) * frequency / factor + kept * frequency
            }
            Self::Yarn(yarn) => {
                let [low, high] = yarn.range(width, theta);
                let kept = 1.0 - ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0);
                (1.0 - kept) * frequency / yarn.factor + kept * frequency
            }
            Self::Dynamic { factor, original_max_position_embeddings: original } => {
                let growth = factor * length.max(original) / original - (factor - 1.0);
                frequency / growth.powf(2.0 * pair as f64 / (width as f64 - 2.0))
            }
            Self::LongRope(long) => frequency / long.divisor(pair, length),
        };
        frequencies.into_iter().enumerate().map(scale).collect()
    }

    /// The factor of all cosines and sines.
    pub(super) fn amplitude(self) -> f64 {
        match self {
            Self::Yarn(Yarn { attention_factor: attention, .. }) => attention,
            Self::LongRope(LongRope { attention_factor: attention, .. }) => attention,
            Self::Linear { .. } | Self::Llama3 { .. } | Self::Dynamic { .. } => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ModelConfig, Preset};

    const LLAMA: RopeScaling = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 8192.0,
    };

    /// Checkpoints before 2026-11-28 have shorter names.
    #[test]
    fn names_in_older_checkpoints_are_read() {
        let old = r#"{"llama3":{"factor":8.0,"low":1.0,"high":4.0,"original":8192.0}}"#;
        assert_eq!(serde_json::from_str::<RopeScaling>(old).unwrap(), LLAMA);
        let old = r#"{"yarn":{"factor":4.0,"original":64.0,"fast":32.0,"slow":1.0,"attention":1.1,
            "truncate":true}}"#;
        let read: RopeScaling = serde_json::from_str(old).unwrap();
        let written = serde_json::to_string(&read).unwrap();
        assert!(written.contains(r#""beta_fast":32.0"#) && written.contains("attention_factor"));
        assert_eq!(serde_json::from_str::<RopeScaling>(&written).unwrap(), read);
        let model = Preset::Tiny.model();
        let written = serde_json::to_string(&model).unwrap();
        let old = written.replace("tie_word_embeddings", "tied");
        assert_ne!(old, written);
        assert_eq!(serde_json::from_str::<ModelConfig>(&old).unwrap(), model);
    }

    /// The branches of the function in `transformers`.
    fn published(frequency: f64) -> f64 {
        let wave = TAU / frequency;
        let (longest, shortest) = (8192.0 / 1.0, 8192.0 / 4.0);
        if wave > longest {
            frequency / 8.0
        } else if wave < shortest {
            frequency
        } else {
            let smooth = (8192.0 / wave - 1.0) / (4.0 - 1.0);
            (1.0 - smooth) * (frequency / 8.0) + smooth * frequency
        }
    }

    #[test]
    fn llama_scales_slow_waves_keeps_fast_ones_and_interpolates_between() {
        let model = ModelConfig {
            head_dim: Some(128),
            rope_theta: 5e5,
            rope_scaling: Some(LLAMA),
            ..Preset::Tiny.model()
        };
        let plain = ModelConfig { rope_scaling: None, ..model };
        let (mut kept, mut slowed) = (0, 0);
        let [scaled, plain] = [model, plain].map(|model| model.rope_frequencies(1));
        for (scaled, plain) in scaled.into_iter().zip(plain) {
            assert!((scaled / published(plain) - 1.0).abs() < 1e-14, "{plain}");
            kept += usize::from(scaled == plain);
            slowed += usize::from((scaled * 8.0 / plain - 1.0).abs() < 1e-14);
        }
        // Of the 64 frequencies of Llama 3.1's heads.
        assert_eq!((kept, slowed), (29, 29));
    }

    #[test]
    fn yarn_keeps_fast_pairs_and_divides_slow_ones() {
        // Qwen 2.5 with four times its context of 32768, as in its model card.
        let attention = Yarn::default_attention_factor(4.0, 1.0);
        let (factor, original) = (4.0, 32768.0);
        let (fast, slow, truncate) = (Yarn::BETA_FAST, Yarn::BETA_SLOW, true);
        let yarn = Yarn {
            factor,
            original_max_position_embeddings: original,
            beta_fast: fast,
            beta_slow: slow,
            attention_factor: attention,
            truncate,
        };
        assert!((attention - 1.138_629_436_111_989).abs() < 1e-15);
        let plain = ModelConfig { head_dim: Some(128), rope_theta: 1e6, ..Preset::Tiny.model() };
        let scaled = ModelConfig { rope_scaling: Some(RopeScaling::Yarn(yarn)), ..plain };
        let [before, after] = [plain, scaled].map(|model| model.rope_frequencies(1));
        // 64 · ln(32768 / (32 · 2π)) / ln(10^6) is 23.6, and 64 · ln(32768 / 2π) / ln(10^6) is
        // 39.7.
        assert_eq!(yarn.range(128, 1e6), [23.0, 40.0]);
        assert_eq!(before[..24], after[..24]);
        assert!(before[40..].iter().zip(&after[40..]).all(|(one, other)| *one == other * 4.0));
        let half = before[31] * (0.25 * (8.0 / 17.0) + 9.0 / 17.0);
        assert!((after[31] / half - 1.0).abs() < 1e-14);
        let (cos, sin) = scaled.rope_tables(2);
        assert_eq!((cos[0], sin[0]), (attention as f32, 0.0));
        assert_eq!(sin[64], (attention * after[0].sin()) as f32);
        assert_eq!((cos.len(), sin.len()), (128, 128));
    }

    #[test]
    fn linear_scaling_divides_all_frequencies() {
        let plain = Preset::Tiny.model();
        let rope_scaling = Some(RopeScaling::Linear { factor: 2.0 });
        let scaled = ModelConfig { rope_scaling, ..plain }.rope_frequencies(1);
        assert!(
            scaled.iter().zip(plain.rope_frequencies(1)).all(|(one, other)| one * 2.0 == other)
        );
    }

    #[test]
    fn a_wrong_factor_is_named() {
        let wrong = RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 4.0,
            high_freq_factor: 1.0,
            original_max_position_embeddings: 8192.0,
        };
        assert!(wrong.validate(8).unwrap_err().to_string().contains("high_freq_factor"));
    }

    #[test]
    fn dynamic_scaling_starts_beyond_the_context_and_keeps_the_first_pair() {
        let plain = Preset::Tiny.model();
        let rope_scaling =
            Some(RopeScaling::Dynamic { factor: 2.0, original_max_position_embeddings: 64.0 });
        let dynamic = ModelConfig { rope_scaling, ..plain };
        assert_eq!(dynamic.rope_frequencies(64), plain.rope_frequencies(64));
        let [long, before] = [dynamic, plain].map(|model| model.rope_frequencies(128));
        assert_eq!(long[0], before[0]);
        // The base grows by (2 · 128 / 64 - 1)^(16 / 14), and the last frequency has 14 / 16 of it.
        assert!((before[7] / long[7] / 3.0 - 1.0).abs() < 1e-14);
    }
}
