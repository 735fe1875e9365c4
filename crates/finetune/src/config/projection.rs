//! The linear layers of a transformer layer.

/// A linear layer of each transformer layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Projection {
    /// Queries.
    Q,
    /// Keys.
    K,
    /// Values.
    V,
    /// Output projection of attention.
    O,
    /// Gate of the MLP.
    Gate,
    /// Up projection of the MLP, multiplied by the gate.
    Up,
    /// Down projection of the MLP.
    Down,
}

impl Projection {
    /// Every projection, in the order of the forward pass.
    pub const ALL: &[Self] =
        &[Self::Q, Self::K, Self::V, Self::O, Self::Gate, Self::Up, Self::Down];

    /// The short name, for example `q`.
    pub fn name(self) -> &'static str {
        self.module().trim_end_matches("_proj")
    }

    /// The name of the module in Hugging Face models, for example `q_proj`.
    pub fn module(self) -> &'static str {
        match self {
            Self::Q => "q_proj",
            Self::K => "k_proj",
            Self::V => "v_proj",
            Self::O => "o_proj",
            Self::Gate => "gate_proj",
            Self::Up => "up_proj",
            Self::Down => "down_proj",
        }
    }

    /// The module with this and other projections as one matrix in models with fused projections,
    /// and the projections of that module in the order of its rows.
    pub fn fused(self) -> Option<(&'static str, &'static [Self])> {
        match self {
            Self::Q | Self::K | Self::V => Some(("qkv_proj", &[Self::Q, Self::K, Self::V])),
            Self::Gate | Self::Up => Some(("gate_up_proj", &[Self::Gate, Self::Up])),
            Self::O | Self::Down => None,
        }
    }

    /// The module within its layer, for example `self_attn.q_proj`.
    pub fn path(self) -> String {
        let block = if self as u8 <= Self::O as u8 { "self_attn" } else { "mlp" };
        format!("{block}.{}", self.module())
    }
}
