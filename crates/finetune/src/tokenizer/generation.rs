//! `generation_config.json`: default sampling parameters and end tokens of a model.

use std::path::Path;

use serde::Deserialize;

use super::Tokenizer;
use super::settings::read_if_there;
use crate::error::Result;

/// Default sampling parameters of a model; `None` if the files do not have them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationConfig {
    /// Tokens that end a text, ascending.
    pub eos: Vec<u32>,
    /// Whether tokens are sampled; if not, decoding is greedy.
    pub do_sample: Option<bool>,
    /// Divisor of the logits.
    pub temperature: Option<f32>,
    /// Number of most likely tokens to sample from; 0 for all.
    pub top_k: Option<usize>,
    /// Total probability of the most likely tokens to sample from.
    pub top_p: Option<f32>,
    /// Penalty of tokens that are already in the text; 1 for none.
    pub repetition_penalty: Option<f32>,
}

#[derive(Debug, Default, Deserialize)]
struct Raw {
    eos_token_id: Option<Ids>,
    do_sample: Option<bool>,
    temperature: Option<f32>,
    top_k: Option<usize>,
    top_p: Option<f32>,
    repetition_penalty: Option<f32>,
}

/// The fields of `config.json` that are read: older models have the end tokens there.
#[derive(Debug, Default, Deserialize)]
struct Model {
    eos_token_id: Option<Ids>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Ids {
    One(u32),
    Many(Vec<u32>),
}

impl GenerationConfig {
    /// Reads the file in `directory`. If it has no end tokens, they come from `config.json`, or
    /// else from `tokenizer`. Without any of these files, nothing is set.
    ///
    /// # Errors
    /// [`HubError::Json`](crate::HubError::Json) for a file that exists and cannot be used.
    pub fn open(directory: &Path, tokenizer: &Tokenizer) -> Result<Self> {
        let raw: Raw =
            read_if_there(&directory.join("generation_config.json"))?.unwrap_or_default();
        let model: Model = read_if_there(&directory.join("config.json"))?.unwrap_or_default();
        let mut eos = match raw.eos_token_id.or(model.eos_token_id) {
            Some(Ids::One(id)) => vec![id],
            Some(Ids::Many(ids)) => ids,
            None => tokenizer.eos().into_iter().collect(),
        };
        eos.sort_unstable();
        eos.dedup();
        let Raw { do_sample, temperature, top_k, top_p, repetition_penalty, .. } = raw;
        Ok(Self { eos, do_sample, temperature, top_k, top_p, repetition_penalty })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> Result<GenerationConfig> {
        let folder = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| {
            std::fs::write(folder.path().join(name), text).unwrap();
        });
        GenerationConfig::open(folder.path(), &Tokenizer::bytes())
    }

    #[test]
    fn given_fields_are_read_and_others_stay_unset() {
        assert_eq!(read(&[]).unwrap(), GenerationConfig::default());
        let text = r#"{ "eos_token_id": [9, 7, 9], "do_sample": true, "temperature": 0.7,
            "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.05, "pad_token_id": 7 }"#;
        let found = read(&[("generation_config.json", text)]).unwrap();
        let expected = GenerationConfig {
            eos: vec![7, 9],
            do_sample: Some(true),
            temperature: Some(0.7),
            top_k: Some(20),
            top_p: Some(0.8),
            repetition_penalty: Some(1.05),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn the_end_of_a_text_may_be_in_the_configuration_of_the_model() {
        let config = ("config.json", r#"{ "eos_token_id": 3, "vocab_size": 8 }"#);
        assert_eq!(read(&[config]).unwrap().eos, [3]);
        let newer = ("generation_config.json", r#"{ "eos_token_id": 4 }"#);
        assert_eq!(read(&[config, newer]).unwrap().eos, [4]);
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named() {
        for text in ["{", r#"{ "top_k": "many" }"#, r#"{ "eos_token_id": -1 }"#] {
            let error = read(&[("generation_config.json", text)]).unwrap_err().to_string();
            assert!(error.contains("generation_config.json"), "{error}");
        }
        let text = r#"{ "temperature": 1, "top_k": "many" }"#;
        let error = read(&[("generation_config.json", text)]).unwrap_err().to_string();
        assert!(error.contains("top_k: invalid type: string"), "{error}");
    }
}
