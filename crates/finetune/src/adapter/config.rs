//! `adapter_config.json`: reading and writing PEFT's options.

mod options;

use std::path::Path;

use serde_json::{Map, Value, json};

use super::blocks::stored_parts;
use super::patterns;
use super::{AdapterError, EMBEDDING, HEAD, NORMS};
use crate::config::{LoraConfig, LoraModule, LoraPatterns, LoraTargets};
use options::Options;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{LoraLayers, Projection};

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
