//! Reading PEFT's options one by one, and refusing those that are not supported.

use std::path::Path;

use serde_json::{Map, Value};

use crate::adapter::patterns::{self, Ordered};
use crate::adapter::{AdapterError, EMBEDDING, HEAD, NORMS};
use crate::config::{LoraConfig, LoraLayers, LoraPatterns, LoraTargets, PatternError, Projection};

/// Options that affect neither the trained weights nor their use. They are ignored.
const HARMLESS: [&str; 12] = [
    "arrow_config",
    "auto_mapping",
    "base_model_name_or_path",
    "corda_config",
    "eva_config",
    "inference_mode",
    "loftq_config",
    "megatron_config",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
];
/// Options that are read.
const READ: [&str; 16] = [
    "alpha_pattern",
    "bias",
    "ensure_weight_tying",
    "init_lora_weights",
    "layers_pattern",
    "layers_to_transform",
    "lora_alpha",
    "lora_dropout",
    "modules_to_save",
    "peft_type",
    "r",
    "rank_pattern",
    "target_modules",
    "task_type",
    "use_dora",
    "use_rslora",
];

/// The options of a file.
pub(super) struct Options<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a [u8],
    pub(super) map: &'a Map<String, Value>,
}

impl Options<'_> {
    pub(super) fn get(&self, key: &str) -> &Value {
        self.map.get(key).unwrap_or(&Value::Null)
    }

    fn refuse(&self, key: &str, rule: &'static str) -> AdapterError {
        let (path, value) = (self.path.to_owned(), self.get(key).to_string());
        AdapterError::Option { path, key: key.to_owned(), value, rule }
    }

    pub(super) fn require(
        &self,
        key: &str,
        holds: impl Fn(&Value) -> bool,
        rule: &'static str,
    ) -> Result<(), AdapterError> {
        if holds(self.get(key)) { Ok(()) } else { Err(self.refuse(key, rule)) }
    }

    /// Fails if any other option has an effect. Null, false and empty values have none.
    pub(super) fn require_defaults(&self) -> Result<(), AdapterError> {
        for (key, value) in self.map {
            let known = HARMLESS.contains(&key.as_str()) || READ.contains(&key.as_str());
            let nothing = match value {
                Value::Null | Value::Bool(false) => true,
                Value::Array(entries) => entries.is_empty(),
                Value::Object(entries) => entries.is_empty(),
                _ => false,
            };
            if !known && !nothing {
                return Err(self.refuse(key, "this option is not supported"));
            }
        }
        Ok(())
    }

    /// Reads the options that are supported.
    pub(super) fn lora(&self) -> Result<LoraConfig, AdapterError> {
        let rank = rank_of(self.get("r"));
        let rule = "it must be a whole number from 1 to 65536";
        let rank = rank.ok_or_else(|| self.refuse("r", rule))?;
        let alpha = alpha_of(self.get("lora_alpha"));
        let alpha = alpha.ok_or_else(|| self.refuse("lora_alpha", "it must be a number"))?;
        let dropout = match self.get("lora_dropout") {
            Value::Null => Some(0.0),
            value => value.as_f64().map(|dropout| dropout as f32),
        };
        let dropout = dropout.filter(|dropout| (0.0..1.0).contains(dropout));
        let rule = "it must be a number of at least 0 and below 1";
        let dropout = dropout.ok_or_else(|| self.refuse("lora_dropout", rule))?;
        let flag = |value: &Value| value.is_null() || value.is_boolean();
        for key in ["use_dora", "use_rslora"] {
            self.require(key, flag, "it must be true or false")?;
        }
        let [norms, embeddings, head] = self.saved()?;
        Ok(LoraConfig {
            rank,
            alpha,
            targets: self.targets()?,
            layers: self.layers()?,
            rslora: *self.get("use_rslora") == true,
            dora: *self.get("use_dora") == true,
            norms,
            embeddings,
            head,
            dropout,
            patterns: self.patterns()?,
        })
    }

    /// Reads the ranks and alphas of individual modules.
    fn patterns(&self) -> Result<LoraPatterns, AdapterError> {
        const RULE: &str = "each name must have a number that is valid for `r` or `lora_alpha`";
        let object = |value: &Value| value.is_null() || value.is_object();
        for key in ["rank_pattern", "alpha_pattern"] {
            self.require(key, object, RULE)?;
        }
        let read = patterns::read(self.text);
        let [ranks, alphas] =
            read.map_err(|error| AdapterError::damaged(self.path, error.to_string()))?;
        let ranks = valued(&ranks, rank_of).ok_or_else(|| self.refuse("rank_pattern", RULE))?;
        let alphas = valued(&alphas, alpha_of).ok_or_else(|| self.refuse("alpha_pattern", RULE))?;
        let checked = |key, patterns: Result<LoraPatterns, PatternError>| {
            let rule = "only regular expressions without lookaround are supported";
            patterns.map_err(|_| self.refuse(key, rule))
        };
        checked("rank_pattern", LoraPatterns::new(ranks.clone(), []))?;
        checked("alpha_pattern", LoraPatterns::new(ranks, alphas))
    }

    /// Reads the layers with updates: all if none are listed.
    fn layers(&self) -> Result<LoraLayers, AdapterError> {
        let (key, value) = ("layers_to_transform", self.get("layers_to_transform"));
        let listed = match value {
            Value::Null => return Ok(LoraLayers::ALL),
            Value::Array(layers) if layers.is_empty() => return Ok(LoraLayers::ALL),
            Value::Array(layers) => layers.iter().map(index_of).collect(),
            layer => index_of(layer).map(|layer| vec![layer]),
        };
        let rule = "it must be a layer from 0 to 511, or a list of them";
        let layers = listed.and_then(LoraLayers::of).ok_or_else(|| self.refuse(key, rule))?;
        let names_layers = |value: &Value| {
            let names = match value {
                Value::Array(names) => names.iter().map(Value::as_str).collect(),
                name => name.as_str().map(|name| vec![Some(name)]).unwrap_or_default(),
            };
            names.is_empty() || names.contains(&Some("layers")) || names == [Some("")]
        };
        let rule = "only \"layers\" is supported";
        let holds = |value: &Value| value.is_null() || names_layers(value);
        self.require("layers_pattern", holds, rule)?;
        Ok(layers)
    }

    /// Parses a list of names such as `q_proj` or `self_attn.q_proj`, or `all-linear`.
    fn targets(&self) -> Result<LoraTargets, AdapterError> {
        let key = "target_modules";
        let value = self.get(key);
        if *value == "all-linear" {
            return Ok(LoraTargets::ALL);
        }
        let rule = "only a list of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and \
                    down_proj, or of qkv_proj and gate_up_proj, is supported, the same for every \
                    layer";
        let target = |name: &Value| projections(name.as_str()?);
        let embeds = |name: &Value| name.as_str().is_some_and(|name| name.ends_with(EMBEDDING));
        if value.as_array().is_some_and(|names| names.iter().any(embeds)) {
            let rule = "LoRA of embeddings is not supported; merge the adapter into the model with \
                        PEFT, or train one without `embed_tokens`";
            return Err(self.refuse(key, rule));
        }
        let targets = value.as_array().filter(|names| !names.is_empty());
        let targets: Option<Vec<Vec<Projection>>> =
            targets.and_then(|names| names.iter().map(target).collect());
        let targets = targets.map(|targets| targets.into_iter().flatten().collect());
        targets.ok_or_else(|| self.refuse(key, rule))
    }

    /// Returns whether both norms of each layer, the token table and the output projection are
    /// trained whole. No other module is supported.
    fn saved(&self) -> Result<[bool; 3], AdapterError> {
        let key = "modules_to_save";
        let rule = "only embed_tokens, lm_head, and input_layernorm with post_attention_layernorm \
                    are supported";
        let names = match self.get(key) {
            Value::Null => return Ok([false; 3]),
            Value::Array(names) => names.iter().map(Value::as_str).collect::<Option<Vec<_>>>(),
            _ => None,
        };
        let names = names.ok_or_else(|| self.refuse(key, rule))?;
        // PEFT adds the path of a tied module to its name.
        let has = |module: &str| {
            names.iter().any(|name| *name == module || *name == format!("model.{module}"))
        };
        let known = |name: &&str| {
            let module = name.strip_prefix("model.").unwrap_or(name);
            NORMS.contains(&module) || module == EMBEDDING || module == HEAD
        };
        let norms = NORMS.map(has);
        if !names.iter().all(known) || norms[0] != norms[1] {
            return Err(self.refuse(key, rule));
        }
        Ok([norms[0], has(EMBEDDING), has(HEAD)])
    }
}

/// Returns the projections of a module: several if it is fused.
fn projections(name: &str) -> Option<Vec<Projection>> {
    let plain =
        Projection::ALL.iter().copied().find(|one| one.module() == name || one.path() == name);
    let last = name.rsplit('.').next().unwrap_or(name);
    let matches = |one: Projection| {
        let (module, parts) = one.fused().filter(|(module, _)| *module == last)?;
        (name == module || name == one.path().replace(one.module(), module)).then_some(parts)
    };
    let fused = || Projection::ALL.iter().copied().find_map(matches);
    plain.map(|one| vec![one]).or_else(|| fused().map(<[_]>::to_vec))
}

/// Returns patterns with their values; fails if a value is invalid.
fn valued<T>(
    Ordered(entries): &Ordered,
    value_of: impl Fn(&Value) -> Option<T>,
) -> Option<Vec<(String, T)>> {
    entries.iter().map(|(name, value)| Some((name.clone(), value_of(value)?))).collect()
}

fn index_of(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|index| usize::try_from(index).ok())
}

fn rank_of(value: &Value) -> Option<usize> {
    index_of(value).filter(|rank| (1..=LoraConfig::MAX_RANK).contains(rank))
}

fn alpha_of(value: &Value) -> Option<f32> {
    value.as_f64().map(|alpha| alpha as f32).filter(|alpha| alpha.is_finite())
}
