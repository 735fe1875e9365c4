//! Hints that name the options to change after a library error. Library errors name no options.

use self::Form::{Flag, List, Pairs, Value};
use retrograph_finetune::{
    AdapterError, CheckpointError, DataError, Error, FileError, HubError, Reduce,
};

/// How an option is written for a value of a checkpoint.
#[derive(Clone, Copy)]
enum Form {
    /// With the value as it is.
    Value,
    /// Without a value: the option is given unless the value is `false` or `none`.
    Flag,
    /// With a list of names, separated by commas.
    List,
    /// With a list of names and their values.
    Pairs,
}

/// Fields of a checkpoint, and the options that set them.
const OPTIONS: [(&str, &str, Form); 42] = [
    ("mode", "--mode", Value),
    ("vocab", "--vocab", Value),
    ("hidden", "--hidden", Value),
    ("layers", "--layers", Value),
    ("intermediate", "--intermediate", Value),
    ("heads", "--heads", Value),
    ("kv_heads", "--kv-heads", Value),
    ("rank", "--rank", Value),
    ("alpha", "--alpha", Value),
    ("targets", "--lora-targets", List),
    ("lora layers", "--lora-layers", Value),
    ("ranks", "--rank-pattern", Pairs),
    ("alphas", "--alpha-pattern", Pairs),
    ("rslora", "--rslora", Flag),
    ("dora", "--dora", Flag),
    ("norms", "--train-norms", Value),
    ("embeddings", "--train-embeddings", Flag),
    ("head", "--train-head", Flag),
    ("dropout", "--lora-dropout", Value),
    ("dtype", "--dtype", Value),
    ("quantize", "--quantize", Value),
    ("double", "--double-quant", Flag),
    ("gradients", "--gradient-dtype", Value),
    ("f32_products", "--f32-products", Value),
    ("batch", "--batch times --grad-accumulation", Value),
    ("interleave", "--interleave", Value),
    ("seq", "--seq", Value),
    ("preference", "--dpo", Flag),
    ("beta", "--dpo-beta", Value),
    ("label_smoothing", "--dpo-label-smoothing", Value),
    ("seed", "--seed", Value),
    ("peak_lr", "--lr", Value),
    ("min_lr", "--min-lr", Value),
    ("warmup_steps", "--warmup", Value),
    ("total_steps", "--schedule-steps", Value),
    ("schedule", "--schedule", Value),
    ("decay_steps", "--decay-steps", Value),
    ("beta1", "--beta1", Value),
    ("beta2", "--beta2", Value),
    ("eps", "--eps", Value),
    ("weight_decay", "--weight-decay", Value),
    ("max_norm", "--clip", Value),
];

/// The options that determine the data of a run. A checkpoint has only a digest of the data.
const OF_DATA: &str = "\nhint: --data or --text, --holdout, --packing and --buckets determine the \
    data; run.toml in the checkpoint directory has their values for the saved run";

/// Returns a line to append to `error`, or nothing.
pub(crate) fn of(error: &Error) -> String {
    let hint = match error {
        // No sequence length fits a text of one token.
        Error::TextTooShort { tokens: 2.., .. }
        | Error::Data(DataError::NoTokensWithLoss { .. }) => {
            "--seq sets the tokens per sequence".to_owned()
        }
        Error::Data(DataError::Cache { .. } | DataError::NoSpace { .. }) => {
            "--token-cache sets the directory; --token-cache none disables the cache".to_owned()
        }
        Error::Data(DataError::Holdout { .. }) => "--holdout sets the fraction".to_owned(),
        Error::Data(DataError::OutsideVocabulary { .. }) => {
            "--model sets a model with a tokenizer; without --model, --vocab sets the vocabulary"
                .to_owned()
        }
        Error::Adapter(AdapterError::File(FileError::Read { .. })) => {
            "--adapter names a directory with adapter_config.json and adapter_model.safetensors"
                .to_owned()
        }
        Error::Model(HubError::NoChatTemplate) => "--model sets the model directory".to_owned(),
        Error::PromptTooLong { .. } => {
            "--max-length sets the maximum tokens of prompt and text together".to_owned()
        }
        Error::OutOfMemory { reduce, .. } => match reduced(*reduce) {
            Some(hint) => hint.to_owned(),
            None => return String::new(),
        },
        Error::NotFinite { .. }
        | Error::HeldOutNotFinite { .. }
        | Error::StateNotFinite { .. }
        | Error::Adapter(AdapterError::TrainedNotFinite { .. }) => {
            "see --lr and --warmup".to_owned()
        }
        Error::NotQuantizable { .. } => "leave out --quantize".to_owned(),
        Error::Checkpoint(CheckpointError::Exists { .. }) => {
            "--resume continues the run".to_owned()
        }
        Error::Checkpoint(CheckpointError::Mismatch { what, saved, .. }) => {
            return mismatch(what, saved);
        }
        Error::InvalidConfig { field: "gradients", .. } => "leave out --gradient-dtype".to_owned(),
        Error::InvalidConfig { field: "f32_products", .. } => {
            "give --dtype f32, or leave out --f32-products".to_owned()
        }
        Error::InvalidConfig { field: "quantize", .. } | Error::Adapter(AdapterError::NotLora) => {
            "add --mode lora".to_owned()
        }
        Error::InvalidConfig { field, .. } => match *field {
            "batch x seq" => {
                "see --batch and --seq; --grad-accumulation keeps the sequences of a step"
                    .to_owned()
            }
            "steps" => "see --steps and --schedule-steps".to_owned(),
            "beta" => "see --dpo-beta".to_owned(),
            "label_smoothing" => "see --dpo-label-smoothing".to_owned(),
            // Only options of the same name set them.
            "alpha" | "batch" | "beta1" | "beta2" | "clip" | "decay_steps" | "eps"
            | "interleave" | "lora_dropout" | "lora_layers" | "lora_targets" | "lr" | "min_lr"
            | "rank" | "warmup" | "weight_decay" => format!("see --{}", field.replace('_', "-")),
            _ => return String::new(),
        },
        _ => return String::new(),
    };
    format!("\nhint: {hint}")
}

fn reduced(reduce: Reduce) -> Option<&'static str> {
    Some(match reduce {
        Reduce::Verification => "leave out --verify",
        Reduce::HeldOut => "leave out --holdout",
        Reduce::Batch => "give a smaller --batch or --seq",
        Reduce::Trained => "give --mode lora or a smaller --preset",
        Reduce::Model => "give --dtype bf16, --quantize nf4 or a smaller --preset",
        Reduce::Length => "give a smaller --max-length",
        _ => return None,
    })
}

/// Returns a hint with the options of the saved run, for the `saved` fields that differ.
fn mismatch(what: &str, saved: &str) -> String {
    if what.starts_with("base model") {
        return "\nhint: give the --model of the --checkpoint's run, or none if it had none"
            .to_owned();
    }
    if what == "micro-batch" {
        return match saved {
            "none" => "\nhint: the run had no --grad-accumulation".to_owned(),
            size => format!("\nhint: the run had --batch {size} per GPU with --grad-accumulation"),
        };
    }
    if what.starts_with("data") {
        return OF_DATA.to_owned();
    }
    let fields = saved.strip_prefix('{').and_then(|fields| fields.strip_suffix('}'));
    let given = fields.unwrap_or(saved).split(", ").filter_map(|one| match one.split_once(": ") {
        Some(("layers", value)) if what == "mode" => written("lora layers", value),
        Some((field, value)) => written(field, value),
        None => written(what, one),
    });
    let given: Vec<String> = given.collect();
    if given.is_empty() {
        String::new()
    } else {
        format!("\nhint: the run had {}", given.join(", "))
    }
}

/// Returns the option that sets `field` to `value`, if there is one.
fn written(field: &str, value: &str) -> Option<String> {
    let (_, option, form) = OPTIONS.iter().find(|(known, ..)| *known == field)?;
    let value = match (form, value) {
        (_, "none" | "[]") | (Form::Flag, "false") => return Some(format!("no {option}")),
        (Form::Flag, _) => return Some((*option).to_owned()),
        (Form::Value, value) => value.to_owned(),
        (Form::List, names) => serde_json::from_str::<Vec<String>>(names).ok()?.join(","),
        (Form::Pairs, pairs) => {
            let pairs: Vec<(String, serde_json::Number)> = serde_json::from_str(pairs).ok()?;
            let pairs = pairs.iter().map(|(name, value)| format!("{name}={value}"));
            pairs.collect::<Vec<_>>().join(",")
        }
    };
    Some(format!("{option} {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_the_saved_run_are_named() {
        assert_eq!(
            mismatch("model", "{hidden: 16, layers: 1, tie_word_embeddings: true}"),
            "\nhint: the run had --hidden 16, --layers 1"
        );
        assert_eq!(mismatch("seq", "8"), "\nhint: the run had --seq 8");
        assert!(mismatch("data (SHA-256)", "0f3a").contains("--holdout"));
        let mode = |saved| mismatch("mode", saved);
        assert_eq!(mode("full"), "\nhint: the run had --mode full");
        assert_eq!(
            mode(r#"{targets: ["q","v"], layers: 0-3, rslora: true, dora: false}"#),
            "\nhint: the run had --lora-targets q,v, --lora-layers 0-3, --rslora, no --dora"
        );
        assert_eq!(
            mode(r#"{embeddings: false, ranks: [], alphas: [["q_proj",2.5],["up",1]]}"#),
            "\nhint: the run had no --train-embeddings, no --rank-pattern, --alpha-pattern \
             q_proj=2.5,up=1"
        );
        assert_eq!(mismatch("precision", "{quantize: none}"), "\nhint: the run had no --quantize");
        assert_eq!(
            mismatch("precision", "{f32_products: tf32x3}"),
            "\nhint: the run had --f32-products tf32x3"
        );
        assert_eq!(mismatch("preference", "beta label_smoothing"), "\nhint: the run had --dpo");
        assert_eq!(mismatch("preference", "none"), "\nhint: the run had no --dpo");
        let accumulated = "\nhint: the run had --batch 2 per GPU with --grad-accumulation";
        assert_eq!(mismatch("micro-batch", "2"), accumulated);
    }
}
