//! `adapter_config.json`: reading and writing PEFT's options.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::blocks::stored_parts;
use super::patterns::{self, Ordered};
use super::{AdapterError, EMBEDDING, HEAD, NORMS};
use crate::config::{
    LoraConfig, LoraLayers, LoraModule, LoraPatterns, LoraTargets, PatternError, Projection,
};

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
    /// Returns the text of the file; `modules` are all modules with an update. Updates of the parts
    /// of a fused matrix are blocks of one update, whose rank is the sum of their ranks.
    pub(super) fn to_json(&self, modules: &[LoraModule]) -> Value {
        let LoraConfig { rank, alpha, targets, layers, rslora, dora, dropout, .. } = self.lora;
        let (mut names, mut ranks, mut alphas) = (Vec::new(), Vec::new(), Vec::new());
        for module in modules {
            let Some(own) = self.lora.of(*module) else { continue };
            if !names.contains(&module.last()) {
                names.push(module.last());
            }
            let count = stored_parts(module.projection, targets, module.fused).len();
            let growth = if rslora { (count as f64).sqrt() } else { count as f64 };
            ranks.push((*module, own.rank * count));
            alphas.push((*module, f64::from(own.alpha) * growth));
        }
        let ranks =
            patterns::written(&ranks, rank).into_iter().map(|(name, rank)| (name, json!(rank)));
        let alphas = patterns::written(&alphas, f64::from(alpha));
        let alphas = alphas.into_iter().map(|(name, alpha)| (name, number(alpha)));
        let (ranks, alphas): (Map<_, _>, Map<_, _>) = (ranks.collect(), alphas.collect());
        json!({
            "alpha_pattern": alphas,
            "base_model_name_or_path": self.base,
            "bias": "none",
            "ensure_weight_tying": self.tied,
            "fan_in_fan_out": false,
            "inference_mode": true,
            "init_lora_weights": true,
            "layers_to_transform": layers.listed(),
            "lora_alpha": number(f64::from(alpha)),
            "lora_dropout": dropout,
            "modules_to_save": saved(&self.lora),
            "peft_type": "LORA",
            "r": rank,
            "rank_pattern": ranks,
            "target_modules": names,
            "task_type": "CAUSAL_LM",
            "use_dora": dora,
            "use_rslora": rslora,
        })
    }

    /// Converts the options of a file with fused projections to the options of its run, which
    /// trained `targets`. `modules` are all modules in the file. The rank of a fused update in the
    /// file is the sum of the ranks of its parts.
    pub(super) fn divide(
        &mut self,
        targets: LoraTargets,
        modules: &[LoraModule],
    ) -> Result<(), &'static str> {
        let (whole, rslora) = (self.lora, self.lora.rslora);
        let (mut ranks, mut alphas) = (Vec::new(), Vec::new());
        for module in modules {
            let parts = stored_parts(module.projection, targets, module.fused);
            let count = parts.len();
            let growth = if rslora { (count as f32).sqrt() } else { count as f32 };
            let wrong = "its targets or ranks contradict its weight file";
            let LoraConfig { rank, alpha, .. } = whole.of(*module).ok_or(wrong)?;
            if count == 0 || !rank.is_multiple_of(count) {
                return Err(wrong);
            }
            let (rank, alpha) = (rank / count, alpha / growth);
            // The product of the square root and alpha was rounded.
            let close = (alpha - whole.alpha).abs() <= 1e-6 * whole.alpha.abs();
            ranks.push((*module, rank));
            alphas.push((*module, if close { whole.alpha } else { alpha }));
        }
        let ranks = patterns::written(&ranks, whole.rank);
        let alphas = patterns::written(&alphas, whole.alpha);
        let patterns = LoraPatterns::new(ranks, alphas);
        let patterns = patterns.map_err(|_| "its ranks or alphas are out of range")?;
        self.lora = LoraConfig { targets, patterns, ..whole };
        Ok(())
    }

    /// Reads the text of the file `path`.
    pub(super) fn parse(path: &Path, text: &[u8]) -> Result<Self, AdapterError> {
        let unreadable = |reason: String| AdapterError::damaged(path, reason);
        let map: Map<String, Value> = serde_json::from_slice(text)
            .map_err(|error| unreadable(format!("it is not a JSON object: {error}")))?;
        let options = Options { path, text, map: &map };
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
    text: &'a [u8],
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(change: impl FnOnce(&mut Map<String, Value>)) -> Result<AdapterConfig, String> {
        let lora = LoraConfig::new(4, 8.0);
        let config = AdapterConfig { lora, base: None, tied: false };
        let Value::Object(mut map) = config.to_json(&modules(&lora)) else { panic!() };
        change(&mut map);
        let text = Value::Object(map).to_string();
        AdapterConfig::parse(Path::new("c.json"), text.as_bytes())
            .map_err(|error| error.to_string())
    }

    /// The modules of a model of two layers.
    fn modules(lora: &LoraConfig) -> Vec<LoraModule> {
        lora.modules(&crate::Preset::Tiny.model())
    }

    #[test]
    fn a_configuration_round_trips() {
        let targets = "k,o,down".parse().unwrap();
        let base = Some("Qwen/Qwen2.5-0.5B".to_owned());
        for (norms, alpha) in [(false, 12.5), (true, 16.0)] {
            let dropout = alpha / 32.0;
            let names = ["down_proj", "model.layers.1.self_attn.o_proj"].map(str::to_owned);
            let [down, o] = names;
            let patterns = LoraPatterns::new([(down, 7)], [(o, 1.5)]).unwrap();
            let (rslora, layers) =
                (true, if norms { LoraLayers::ALL } else { "0-1".parse().unwrap() });
            let (embeddings, head) = (!norms, norms);
            let lora = LoraConfig {
                rank: 5,
                alpha,
                targets,
                layers,
                rslora,
                dora: norms,
                norms,
                embeddings,
                head,
                dropout,
                patterns,
            };
            let config = AdapterConfig { lora, base: base.clone(), tied: embeddings };
            let text = config.to_json(&modules(&lora)).to_string();
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
            map.insert("layers_to_transform".into(), json!([]));
            map.insert("layers_pattern".into(), json!("h"));
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
            ("use_dora", json!("yes")),
            ("fan_in_fan_out", json!(true)),
            ("rank_pattern", json!({ "q_proj": 0 })),
            ("rank_pattern", json!({ "(q_proj": 1 })),
            ("alpha_pattern", json!({ "(?!k)._proj": 2 })),
            ("alpha_pattern", json!({ "q_proj": "2" })),
            ("alpha_pattern", json!(3)),
            ("layers_to_transform", json!([-1])),
            ("layers_to_transform", json!(512)),
            ("layers_to_transform", json!("1")),
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

    #[test]
    fn layers_and_patterns_are_read_as_peft_reads_them() {
        let config = parse(|map| {
            map.insert("layers_to_transform".into(), json!([1, 4]));
            map.insert("layers_pattern".into(), json!(["h", "layers"]));
        });
        assert_eq!(config.unwrap().lora.layers, "1,4".parse().unwrap());
        let config = parse(|map| drop(map.insert("layers_to_transform".into(), json!(3))));
        assert_eq!(config.unwrap().lora.layers, "3".parse().unwrap());
        let error = parse(|map| {
            map.insert("layers_to_transform".into(), json!([1]));
            map.insert("layers_pattern".into(), json!("h"));
        });
        assert!(error.unwrap_err().contains("\"layers_pattern\": \"h\""));
        // The first pattern in the file counts, not the first in alphabetical order.
        let text = r#"{"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"],
            "rank_pattern": {"q_proj": 2, "layers.1.self_attn.q_proj": 3}}"#;
        let config = AdapterConfig::parse(Path::new("c.json"), text.as_bytes()).unwrap();
        let module = LoraModule { layer: 1, projection: Projection::Q, fused: false };
        assert_eq!(config.lora.of(module).unwrap().rank, 2);
    }

    /// Names for one layer never overlap with names for all layers.
    #[test]
    fn patterns_are_written_by_layer_if_layers_differ() {
        let pattern = |text: &str| text.to_owned();
        let ranks =
            [(pattern(r"layers\.0\..*"), 2), (pattern("v_proj"), 2), (pattern("o_proj"), 3)];
        let patterns = LoraPatterns::new(ranks, []).unwrap();
        let targets = "q,v,o".parse().unwrap();
        let lora = LoraConfig { targets, patterns, ..LoraConfig::new(4, 8.0) };
        let config = AdapterConfig { lora, base: None, tied: false };
        let written = config.to_json(&modules(&lora));
        let ranks = json!({
            "model.layers.0.self_attn.q_proj": 2, "v_proj": 2,
            "model.layers.0.self_attn.o_proj": 2, "model.layers.1.self_attn.o_proj": 3,
        });
        assert_eq!((&written["rank_pattern"], &written["alpha_pattern"]), (&ranks, &json!({})));
        let read = AdapterConfig::parse(Path::new("c.json"), written.to_string().as_bytes());
        let read = read.unwrap().lora;
        assert!(modules(&lora).into_iter().all(|module| read.of(module) == lora.of(module)));
    }
}
