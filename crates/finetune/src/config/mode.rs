//! Which weights are trained.

use serde::{Deserialize, Serialize};

use super::LoraConfig;

/// Which weights are trained.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Every weight.
    Full,
    /// The base is frozen; low-rank updates `scale · B · A` of some projections are trained, and
    /// the norms of each layer where that is asked for.
    Lora(LoraConfig),
    /// None: the model is only run.
    Frozen,
}

impl Mode {
    /// The LoRA parameters, if this is LoRA.
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
