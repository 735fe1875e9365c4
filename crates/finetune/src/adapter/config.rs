//! `adapter_config.json`: the options of PEFT that are written and read.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::blocks::{stored_module, stored_parts};
use super::{AdapterError, EMBEDDING, HEAD, NORMS};
use crate::config::{LoraConfig, LoraPatterns, LoraTargets, Projection};

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
const READ: [&str; 13] = [
    "alpha_pattern",
    "bias",
    "ensure_weight_tying",
    "init_lora_weights",
    "lora_alpha",
    "lora_dropout",
    "modules_to_save",
    "peft_type",
    "r",
    "rank_pattern",
    "target_modules",
    "task_type",
    "use_rslora",
];

/// The configuration of an adapter.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AdapterConfig {
    pub(super) lora: LoraConfig,
    /// The directory or the hub name of the base model.
    pub(super) base: Option<String>,
    /// `ensure_weight_tying`: whether the token table of a tied model stays its output projection.
    pub(super) tied: bool,
}

impl AdapterConfig {
    /// Returns the text of the file. In a model with `fused` projections, updates of the parts of a
    /// fused matrix are blocks of one update, whose rank is the sum of their ranks.
    pub(super) fn to_json(&self, fused: bool) -> Value {
        let LoraConfig { rank, alpha, targets, rslora, dropout, .. } = self.lora;
        let mut modules: Vec<&str> = Vec::new();
        let (mut ranks, mut alphas) = (Map::new(), Map::new());
        for target in targets.iter() {
            let (own, parts) = (self.lora.of(target), stored_parts(target, targets, fused));
            let module = stored_module(target, fused);
            if modules.contains(&module) {
                continue;
            }
            modules.push(module);
            let count = parts.len();
            let growth = if rslora { (count as f64).sqrt() } else { count as f64 };
            let (rank, alpha) = (own.rank * count, f64::from(own.alpha) * growth);
            if rank != self.lora.rank {
                ranks.insert(module.to_owned(), json!(rank));
            }
            if alpha != f64::from(self.lora.alpha) {
                alphas.insert(module.to_owned(), number(alpha));
            }
        }
        json!({
            "alpha_pattern": alphas,
            "base_model_name_or_path": self.base,
            "bias": "none",
            "ensure_weight_tying": self.tied,
            "fan_in_fan_out": false,
            "inference_mode": true,
            "init_lora_weights": true,
            "lora_alpha": number(f64::from(alpha)),
            "lora_dropout": dropout,
            "modules_to_save": saved(&self.lora),
            "peft_type": "LORA",
            "r": rank,
            "rank_pattern": ranks,
            "target_modules": modules,
            "task_type": "CAUSAL_LM",
            "use_dora": false,
            "use_rslora": rslora,
        })
    }

    /// Turns the options of a file with fused projections into the options of its run, which
    /// trained `targets`. The rank of a fused update in the file is the sum of the ranks of its
    /// parts.
    pub(super) fn divide(&mut self, targets: LoraTargets) -> Result<(), &'static str> {
        let (whole, rslora) = (self.lora, self.lora.rslora);
        self.lora.targets = targets;
        for target in targets.iter() {
            let count = stored_parts(target, targets, true).len();
            let growth = if rslora { (count as f32).sqrt() } else { count as f32 };
            let LoraConfig { rank, alpha, .. } = whole.of(target);
            if !whole.targets.has(target) || !rank.is_multiple_of(count) {
                return Err("its targets or ranks are not those of its weight file");
            }
            let (rank, alpha) = (rank / count, alpha / growth);
            // The product of the square root and alpha was rounded.
            let close = (alpha - whole.alpha).abs() <= 1e-6 * whole.alpha.abs();
            let alpha = if close { whole.alpha } else { alpha };
            let patterns = &mut self.lora.patterns;
            patterns.set_rank(target, Some(rank).filter(|rank| *rank != whole.rank));
            patterns.set_alpha(target, Some(alpha).filter(|alpha| *alpha != whole.alpha));
        }
        for other in Projection::ALL.into_iter().filter(|other| !targets.has(*other)) {
            self.lora.patterns.set_rank(other, None);
            self.lora.patterns.set_alpha(other, None);
        }
        Ok(())
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
        let flag = |value: &Value| value.is_null() || value.is_boolean();
        options.require("ensure_weight_tying", flag, "it must be true or false")?;
        let tied = *options.get("ensure_weight_tying") == true;
        Ok(Self { lora: options.lora()?, base, tied })
    }
}

/// The modules that are trained whole, if there are any.
fn saved(lora: &LoraConfig) -> Option<Vec<&'static str>> {
    let norms = if lora.norms { &NORMS[..] } else { &[] };
    let others = [(EMBEDDING, lora.embeddings), (HEAD, lora.head)];
    let others = others.into_iter().filter(|(_, trained)| *trained).map(|(module, _)| module);
    let saved: Vec<&str> = norms.iter().copied().chain(others).collect();
    Some(saved).filter(|saved| !saved.is_empty())
}

/// PEFT declares alpha as an integer, but accepts a fraction.
fn number(alpha: f64) -> Value {
    let whole = alpha.fract() == 0.0 && alpha.abs() < 1e9;
    if whole { json!(alpha as i64) } else { json!(alpha) }
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
        self.require("use_rslora", flag, "it must be true or false")?;
        let [norms, embeddings, head] = self.saved()?;
        Ok(LoraConfig {
            rank,
            alpha,
            targets: self.targets()?,
            rslora: *self.get("use_rslora") == true,
            norms,
            embeddings,
            head,
            dropout,
            patterns: self.patterns()?,
        })
    }

    /// Reads the ranks and alphas of single modules.
    fn patterns(&self) -> Result<LoraPatterns, AdapterError> {
        let mut patterns = LoraPatterns::default();
        let [ranks, alphas] = ["rank_pattern", "alpha_pattern"];
        for (targets, rank) in self.pattern(ranks, rank_of)? {
            targets.into_iter().for_each(|target| patterns.set_rank(target, Some(rank)));
        }
        for (targets, alpha) in self.pattern(alphas, alpha_of)? {
            targets.into_iter().for_each(|target| patterns.set_alpha(target, Some(alpha)));
        }
        Ok(patterns)
    }

    /// Reads a pattern: projections with a value for each.
    fn pattern<T>(
        &self,
        key: &str,
        value_of: impl Fn(&Value) -> Option<T>,
    ) -> Result<Vec<(Vec<Projection>, T)>, AdapterError> {
        let entries = match self.get(key) {
            Value::Null => return Ok(Vec::new()),
            value => value.as_object(),
        };
        let entry = |(name, value): (&String, &Value)| projections(name).zip(value_of(value));
        let rule = "only names of modules that hold for every layer are supported, such as \
                    `q_proj`, each with a number that `r` or `lora_alpha` could be";
        let read = entries.and_then(|entries| entries.iter().map(entry).collect());
        read.ok_or_else(|| self.refuse(key, rule))
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
            let rule = "LoRA of embeddings is not supported; merge it into the model with PEFT, or \
                        train one without `embed_tokens`";
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
    let plain = Projection::ALL.into_iter().find(|one| one.module() == name || one.path() == name);
    let last = name.rsplit('.').next().unwrap_or(name);
    let matches = |one: Projection| {
        let (module, parts) = one.fused().filter(|(module, _)| *module == last)?;
        (name == module || name == one.path().replace(one.module(), module)).then_some(parts)
    };
    let fused = || Projection::ALL.into_iter().find_map(matches);
    plain.map(|one| vec![one]).or_else(|| fused().map(<[_]>::to_vec))
}

fn rank_of(value: &Value) -> Option<usize> {
    let rank = value.as_u64().and_then(|rank| usize::try_from(rank).ok());
    rank.filter(|rank| (1..=LoraConfig::MOST_RANK).contains(rank))
}

fn alpha_of(value: &Value) -> Option<f32> {
    value.as_f64().map(|alpha| alpha as f32).filter(|alpha| alpha.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(change: impl FnOnce(&mut Map<String, Value>)) -> Result<AdapterConfig, String> {
        let lora = LoraConfig::new(4, 8.0);
        let Value::Object(mut map) = AdapterConfig { lora, base: None, tied: false }.to_json(false)
        else {
            panic!()
        };
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
            let mut patterns = LoraPatterns::default();
            patterns.set_rank(Projection::Down, Some(7));
            patterns.set_alpha(Projection::O, Some(1.5));
            let rslora = true;
            let (embeddings, head) = (!norms, norms);
            let lora = LoraConfig {
                rank: 5,
                alpha,
                targets,
                rslora,
                norms,
                embeddings,
                head,
                dropout,
                patterns,
            };
            let config = AdapterConfig { lora, base: base.clone(), tied: embeddings };
            let text = config.to_json(false).to_string();
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
            ("rank_pattern", json!({ "layers.1.self_attn.q_proj": 2 })),
            ("rank_pattern", json!({ "q_proj": 0 })),
            ("alpha_pattern", json!({ "lm_head": 2 })),
            ("alpha_pattern", json!(3)),
            ("layers_to_transform", json!([1])),
            ("init_lora_weights", json!("pissa")),
            ("modules_to_save", json!(["lm_head", "norm"])),
            ("modules_to_save", json!(["input_layernorm"])),
            ("modules_to_save", json!("lm_head")),
            ("ensure_weight_tying", json!("yes")),
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
