//! Scaling of rotary frequencies for a longer context than in pretraining.

use std::f64::consts::TAU;

use serde::{Deserialize, Serialize};

use super::check::require;
use crate::error::Result;

/// A scaling of rotary frequencies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RopeScaling {
    /// The scaling of Llama 3.1, `rope_type` "llama3". Frequencies with wavelengths above
    /// `original / low` positions are divided by `factor`, those below `original / high` stay, and
    /// those in between are interpolated.
    Llama3 {
        /// Divisor of low frequencies.
        factor: f64,
        /// `low_freq_factor`: the original context over the longest interpolated wavelength.
        low: f64,
        /// `high_freq_factor`: the original context over the shortest interpolated wavelength.
        high: f64,
        /// `original_max_position_embeddings`: context length in pretraining.
        original: f64,
    },
}

impl RopeScaling {
    pub(super) fn validate(self) -> Result<()> {
        let Self::Llama3 { factor, low, high, original } = self;
        let positive = |value: f64| value.is_finite() && value > 0.0;
        require("rope factor", factor, positive(factor), "finite and above 0")?;
        require("low_freq_factor", low, positive(low), "finite and above 0")?;
        let above = high.is_finite() && high > low;
        require("high_freq_factor", high, above, "finite and above low_freq_factor")?;
        let rule = "finite and above 0";
        require("original_max_position_embeddings", original, positive(original), rule)
    }

    /// Scales `frequency`, in radians per position, as `_compute_llama3_parameters` of
    /// `transformers`.
    pub(super) fn scaled(self, frequency: f64) -> f64 {
        let Self::Llama3 { factor, low, high, original } = self;
        let waves = original * frequency / TAU;
        let kept = ((waves - low) / (high - low)).clamp(0.0, 1.0);
        (1.0 - kept) * frequency / factor + kept * frequency
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ModelConfig, Preset};

    const LLAMA: RopeScaling =
        RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 8192.0 };

    /// The branches of Hugging Face's function, written as they stand there.
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
        for (scaled, plain) in model.rope_frequencies().into_iter().zip(plain.rope_frequencies()) {
            assert!((scaled / published(plain) - 1.0).abs() < 1e-14, "{plain}");
            kept += usize::from(scaled == plain);
            slowed += usize::from((scaled * 8.0 / plain - 1.0).abs() < 1e-14);
        }
        // Of the 64 frequencies of Llama 3.1's heads.
        assert_eq!((kept, slowed), (29, 29));
    }

    #[test]
    fn a_wrong_factor_is_named() {
        let wrong = RopeScaling::Llama3 { factor: 8.0, low: 4.0, high: 1.0, original: 8192.0 };
        assert!(wrong.validate().unwrap_err().to_string().contains("high_freq_factor"));
    }
}
