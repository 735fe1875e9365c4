//! The scaling of RoPE in `config.json`.

use std::path::Path;

use serde::Deserialize;

use super::error::HubError;
use crate::config::{LongRope, RopeFactors, RopeScaling, Yarn};

/// The context in pretraining, in the scaling of RoPE.
const ORIGINAL: &str = "original_max_position_embeddings";

/// `rope_scaling` or `rope_parameters`.
#[derive(Debug, Deserialize)]
pub(super) struct Rope {
    rope_type: Option<String>,
    /// The name of `rope_type` in older versions; some files have both.
    #[serde(rename = "type")]
    kind: Option<String>,
    pub(super) rope_theta: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<f64>,
    beta_fast: Option<f64>,
    beta_slow: Option<f64>,
    attention_factor: Option<f64>,
    mscale: Option<f64>,
    mscale_all_dim: Option<f64>,
    truncate: Option<bool>,
    pub(super) partial_rotary_factor: Option<f64>,
    short_factor: Option<RopeFactors>,
    long_factor: Option<RopeFactors>,
    /// RoPE of layers without a window, in files that distinguish the two kinds of layers.
    pub(super) full_attention: Option<Box<Self>>,
    /// RoPE of layers with a window.
    pub(super) sliding_attention: Option<Box<Self>>,
}

impl Rope {
    /// The kind of scaling; `default` for none.
    pub(super) fn kind(&self) -> &str {
        self.rope_type.as_ref().or(self.kind.as_ref()).map_or("default", String::as_str)
    }
}

/// The context lengths of a model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context {
    /// `max_position_embeddings`.
    pub(super) positions: Option<usize>,
    /// `original_max_position_embeddings` at the top level.
    pub(super) original: Option<f64>,
}

/// Returns the scaling of a model of type `model_type`.
pub(super) fn scaling(
    path: &Path,
    model_type: &str,
    rope: &Rope,
    context: Context,
) -> Result<Option<RopeScaling>, HubError> {
    let kind = rope.kind();
    let need = |value: Option<f64>, name: &str| {
        value.ok_or_else(|| HubError::json(path, format!("{kind} rope scaling needs {name}")))
    };
    let positions = context.positions.map(|positions| positions as f64);
    match kind {
        "default" => Ok(None),
        "dynamic" => Ok(Some(RopeScaling::Dynamic {
            factor: need(rope.factor, "factor")?,
            original_max_position_embeddings: need(positions, "max_position_embeddings")?,
        })),
        // Older files of Phi-3 call it `su` or `yarn`. The YaRN of other models is another scaling.
        "longrope" | "su" | "yarn" if kind == "longrope" || model_type == "phi3" => {
            long_rope(path, kind, rope, context).map(Some)
        }
        "linear" => Ok(Some(RopeScaling::Linear { factor: need(rope.factor, "factor")? })),
        "llama3" => Ok(Some(RopeScaling::Llama3 {
            factor: need(rope.factor, "factor")?,
            low_freq_factor: need(rope.low_freq_factor, "low_freq_factor")?,
            high_freq_factor: need(rope.high_freq_factor, "high_freq_factor")?,
            original_max_position_embeddings: need(
                rope.original_max_position_embeddings,
                ORIGINAL,
            )?,
        })),
        "yarn" => {
            let original = need(rope.original_max_position_embeddings.or(positions), ORIGINAL)?;
            let factor = rope.factor.or(positions.map(|positions| positions / original));
            let factor = need(factor, "factor")?;
            Ok(Some(RopeScaling::Yarn(Yarn {
                factor,
                original_max_position_embeddings: original,
                beta_fast: rope.beta_fast.unwrap_or(Yarn::BETA_FAST),
                beta_slow: rope.beta_slow.unwrap_or(Yarn::BETA_SLOW),
                attention_factor: rope.attention_factor.unwrap_or_else(|| attention(rope, factor)),
                truncate: rope.truncate.unwrap_or(true),
            })))
        }
        _ => Err(HubError::Unsupported {
            path: path.to_owned(),
            field: "rope_type",
            value: kind.to_owned(),
            supported: "default, linear, dynamic, yarn, longrope or llama3",
        }),
    }
}

/// The attention factor of YaRN by `mscale`, as DeepSeek sets it, or by its default.
fn attention(rope: &Rope, factor: f64) -> f64 {
    let set = |value: Option<f64>| value.filter(|value| *value != 0.0);
    match (set(rope.mscale), set(rope.mscale_all_dim)) {
        (Some(one), Some(all)) => {
            Yarn::default_attention_factor(factor, one)
                / Yarn::default_attention_factor(factor, all)
        }
        _ => Yarn::default_attention_factor(factor, 1.0),
    }
}

fn long_rope(
    path: &Path,
    kind: &str,
    rope: &Rope,
    context: Context,
) -> Result<RopeScaling, HubError> {
    let missing = |name: &str| HubError::json(path, format!("{kind} rope scaling needs {name}"));
    let original = rope.original_max_position_embeddings.or(context.original);
    let original = original.ok_or_else(|| missing(ORIGINAL))?;
    let attention = match (rope.attention_factor, rope.factor, context.positions) {
        (Some(attention), _, _) => attention,
        (None, Some(factor), _) => LongRope::default_attention_factor(factor, original),
        (None, None, Some(positions)) => {
            LongRope::default_attention_factor(positions as f64 / original, original)
        }
        (None, None, None) => return Err(missing("max_position_embeddings")),
    };
    Ok(RopeScaling::LongRope(LongRope {
        short_factor: rope.short_factor.ok_or_else(|| missing("short_factor"))?,
        long_factor: rope.long_factor.ok_or_else(|| missing("long_factor"))?,
        original_max_position_embeddings: original,
        attention_factor: attention,
    }))
}
