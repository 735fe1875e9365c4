//! `adapter_config.json`: the options of PEFT that are written and read.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{AdapterError, NORMS};
use crate::config::{LoraConfig, LoraTargets, Projection};

/// Options that affect neither the trained weights nor their use. They are ignored.
const HARMLESS: [&str; 13] = [
    "arrow_config",
    "auto_mapping",
    "base_model_name_or_path",
    "corda_config",
    "eva_config",
    "inference_mode",
    "layers_pattern",
    "loftq_config",
    "megatron_config",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
];
/// Options that are read.
const READ: [&str; 10] = [
    "bias",
    "init_lora_weights",
    "lora_alpha",
    "lora_dropout",
    "modules_to_save",
    "peft_type",
    "r",
    "target_modules",
    "task_type",
    "use_rslora",
];

/// The module of the embeddings.
const EMBEDDING: &str = "embed_tokens";

/// The configuration of an adapter.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AdapterConfig {
    pub(super) lora: LoraConfig,
    /// The directory or the hub name of the base model.
    pub(super) base: Option<String>,
}

impl AdapterConfig {
    pub(super) fn to_json(&self) -> Value {
        let LoraConfig { rank, alpha, targets, rslora, norms, dropout } = self.lora;
        let modules: Vec<&str> = targets.iter().map(Projection::module).collect();
        // PEFT declares an integer, but accepts a fraction.
        let whole = alpha.fract() == 0.0 && alpha.abs() < 1e9;
        let alpha = if whole { json!(alpha as i64) } else { json!(alpha) };
        json!({
            "base_model_name_or_path": self.base,
            "bias": "none",
            "fan_in_fan_out": false,
            "inference_mode": true,
            "init_lora_weights": true,
            "lora_alpha": alpha,
            "lora_dropout": dropout,
            "modules_to_save": if norms { Some(NORMS) } else { None },
            "peft_type": "LORA",
            "r": rank,
            "target_modules": modules,
            "task_type": "CAUSAL_LM",
            "use_dora": false,
            "use_rslora": rslora,
        })
    }

    /// Reads the text of the file `path`.
    pub(super) fn parse(path: &Path, text: &[u8]) -> Result<Self, AdapterError> {
        let unreadable = |why: String| AdapterError::damaged(path, why);
        let map: Map<String, Value> = serde_json::from_slice(text)
            .map_err(|error| unreadable(format!("it is not a JSON object: {error}")))?;
        let options = Options { path, map: &map };
        options.require("peft_type", |value| *value == "LORA", "only LORA is supported")?;
        let task = |value: &Value| value.is_null() || *value == "CAUSAL_LM";
        options.require("task_type", task, "only CAUSAL_LM is supported")?;
        let none = |value: &Value| value.is_null() || *value == "none";
        options.require("bias", none, "trained biases are not supported, only \"none\"")?;
        let start = |value: &Value| {
            let kept = ["gaussian", "orthogonal", "eva"];
            value.is_null() || value.is_boolean() || kept.iter().any(|name| value == name)
        };
        let rule = "initializations that change the base weights are not supported";
        options.require("init_lora_weights", start, rule)?;
        options.require_defaults()?;
        let base = options.get("base_model_name_or_path").as_str().map(str::to_owned);
        Ok(Self { lora: options.lora()?, base })
    }
}

struct Options<'a> {
    path: &'a Path,
    map: &'a Map<String, Value>,
}

impl Options<'_> {
    fn get(&self, key: &str) -> &Value {
        self.map.get(key).unwrap_or(&Value::Null)
    }

    fn refuse(&self, key: &str, rule: &'static str) -> AdapterError {
        let (path, value) = (self.path.to_owned(), self.get(key).to_string());
        AdapterError::Option { path, key: key.to_owned(), value, rule }
    }

    fn require(
        &self,
        key: &str,
        holds: impl Fn(&Value) -> bool,
        rule: &'static str,
    ) -> Result<(), AdapterError> {
        if holds(self.get(key)) { Ok(()) } else { Err(self.refuse(key, rule)) }
    }

    /// Fails if any other option has an effect. Null, false and empty values have none.
    fn require_defaults(&self) -> Result<(), AdapterError> {
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

    fn lora(&self) -> Result<LoraConfig, AdapterError> {
        let rank =
            self.get("r").as_u64().filter(|rank| (1..=LoraConfig::MOST_RANK as u64).contains(rank));
        let rule = "it must be a whole number from 1 to 65536";
        let rank = rank.ok_or_else(|| self.refuse("r", rule))?;
        let alpha = self.get("lora_alpha").as_f64().map(|alpha| alpha as f32);
        let alpha = alpha.filter(|alpha| alpha.is_finite());
        let alpha = alpha.ok_or_else(|| self.refuse("lora_alpha", "it must be a number"))?;
        let dropout = match self.get("lora_dropout") {
            Value::Null => Some(0.0),
            value => value.as_f64().map(|dropout| dropout as f32),
        };
        let dropout = dropout.filter(|dropout| (0.0..1.0).contains(dropout));
        let rule = "it must be a number of at least 0 and below 1";
        let dropout = dropout.ok_or_else(|| self.refuse("lora_dropout", rule))?;
        let flag = |value: &Value| value.is_null() || value.is_boolean();
        self.require("use_rslora", flag, "it must be true or false")?;
        Ok(LoraConfig {
            rank: rank as usize,
            alpha,
            targets: self.targets()?,
            rslora: *self.get("use_rslora") == true,
            norms: self.norms()?,
            dropout,
        })
    }

    /// Parses a list of names such as `q_proj` or `self_attn.q_proj`, or `all-linear`.
    fn targets(&self) -> Result<LoraTargets, AdapterError> {
        let key = "target_modules";
        let value = self.get(key);
        if *value == "all-linear" {
            return Ok(LoraTargets::ALL);
        }
        let rule = "only a list of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and \
                    down_proj is supported, the same for every layer";
        let target = |name: &Value| {
            let name = name.as_str()?;
            Projection::ALL.into_iter().find(|one| one.module() == name || one.path() == name)
        };
        let embeds = |name: &Value| name.as_str().is_some_and(|name| name.ends_with(EMBEDDING));
        if value.as_array().is_some_and(|names| names.iter().any(embeds)) {
            let rule = "LoRA of embeddings is not supported; merge it into the model with PEFT, or \
                        train one without `embed_tokens`";
            return Err(self.refuse(key, rule));
        }
        let targets = value.as_array().filter(|names| !names.is_empty());
        let targets = targets.and_then(|names| names.iter().map(target).collect());
        targets.ok_or_else(|| self.refuse(key, rule))
    }

    /// Returns whether both norms of each layer are saved. No other module is supported.
    fn norms(&self) -> Result<bool, AdapterError> {
        let mut names = match self.get("modules_to_save") {
            Value::Null => return Ok(false),
            Value::Array(names) if names.is_empty() => return Ok(false),
            Value::Array(names) => names.iter().map(Value::as_str).collect::<Vec<_>>(),
            _ => Vec::new(),
        };
        names.sort_unstable();
        if names == NORMS.map(Some) {
            return Ok(true);
        }
        let rule = "only [\"input_layernorm\", \"post_attention_layernorm\"] is supported";
        Err(self.refuse("modules_to_save", rule))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(change: impl FnOnce(&mut Map<String, Value>)) -> Result<AdapterConfig, String> {
        let lora = LoraConfig::new(4, 8.0);
        let Value::Object(mut map) = AdapterConfig { lora, base: None }.to_json() else { panic!() };
        change(&mut map);
        let text = Value::Object(map).to_string();
        AdapterConfig::parse(Path::new("c.json"), text.as_bytes())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_configuration_round_trips() {
        let targets = "k,o,down".parse().unwrap();
        let base = Some("Qwen/Qwen2.5-0.5B".to_owned());
        for (norms, alpha) in [(false, 12.5), (true, 16.0)] {
            let dropout = alpha / 32.0;
            let lora = LoraConfig { rank: 5, alpha, targets, rslora: true, norms, dropout };
            let config = AdapterConfig { lora, base: base.clone() };
            let text = config.to_json().to_string();
            assert_eq!(AdapterConfig::parse(Path::new("c.json"), text.as_bytes()).unwrap(), config);
        }
    }

    #[test]
    fn other_options_of_peft_are_accepted() {
        let config = parse(|map| {
            map.insert("target_modules".into(), json!(["v_proj", "self_attn.q_proj"]));
            map.insert("lora_dropout".into(), json!(0.05));
            map.insert("rank_pattern".into(), json!({}));
            map.insert("megatron_core".into(), json!("megatron.core"));
            map.insert("layers_to_transform".into(), Value::Null);
            map.insert("qalora_group_size".into(), json!(16));
            map.remove("use_rslora");
        });
        assert_eq!(config.unwrap().lora, LoraConfig { dropout: 0.05, ..LoraConfig::new(4, 8.0) });
        let all = parse(|map| drop(map.insert("target_modules".into(), json!("all-linear"))));
        assert_eq!(all.unwrap().lora.targets, LoraTargets::ALL);
    }

    #[test]
    fn every_option_that_is_not_supported_is_named() {
        let wrong = [
            ("peft_type", json!("LOHA")),
            ("peft_type", Value::Null),
            ("task_type", json!("SEQ_CLS")),
            ("bias", json!("all")),
            ("use_dora", json!(true)),
            ("fan_in_fan_out", json!(true)),
            ("rank_pattern", json!({ "q_proj": 2 })),
            ("layers_to_transform", json!([1])),
            ("init_lora_weights", json!("pissa")),
            ("modules_to_save", json!(["lm_head"])),
            ("modules_to_save", json!(["input_layernorm"])),
            ("target_modules", json!(["q_proj", "lm_head"])),
            ("target_modules", json!(["q_proj", "model.embed_tokens"])),
            ("target_modules", json!([])),
            ("target_modules", json!(".*q_proj")),
            ("use_rslora", json!("yes")),
            ("r", json!(0)),
            ("lora_alpha", json!("16")),
            ("some_later_option", json!(7)),
        ];
        for (key, value) in wrong {
            let shown = value.to_string();
            let error = parse(|map| drop(map.insert(key.into(), value))).unwrap_err();
            assert!(error.contains(&format!("\"{key}\": {shown}")), "{key}: {error}");
            assert_eq!(error.contains("LoRA of embeddings"), shown.contains("embed_tokens"));
        }
    }
}
