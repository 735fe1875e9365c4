//! Which weights are trained.

use serde::{Deserialize, Serialize};

use super::LoraConfig;

/// Which weights are trained.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// All weights.
    Full,
    /// LoRA: low-rank updates `scale · B · A` of some projections, and optionally the norms of each
    /// layer, the token table and the output projection. All other weights are frozen.
    Lora(LoraConfig),
    /// No weights: the model is not trained.
    Frozen,
}

impl Mode {
    /// Returns the LoRA configuration, if this is LoRA.
    pub fn lora(&self) -> Option<LoraConfig> {
        match self {
            Self::Full | Self::Frozen => None,
            Self::Lora(lora) => Some(*lora),
        }
    }

    /// Whether the base weights are trained.
    pub fn is_full(&self) -> bool {
        *self == Self::Full
    }
}
