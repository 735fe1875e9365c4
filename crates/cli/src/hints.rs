//! Options that help against an error of the library, which names none.

use retrograph_finetune::{AdapterError, CheckpointError, DataError, Error, HubError, Reduce};

/// Fields of a configuration, and the options that set them.
const OPTIONS: [(&str, &str); 31] = [
    ("vocab", "--vocab"),
    ("hidden", "--hidden"),
    ("layers", "--layers"),
    ("intermediate", "--intermediate"),
    ("heads", "--heads"),
    ("kv_heads", "--kv-heads"),
    ("rank", "--rank"),
    ("alpha", "--alpha"),
    ("norms", "--train-norms"),
    ("embeddings", "--train-embeddings"),
    ("head", "--train-head"),
    ("dropout", "--lora-dropout"),
    ("dtype", "--dtype"),
    ("gradients", "--gradient-dtype"),
    ("batch", "--batch times --grad-accumulation"),
    ("interleave", "--interleave"),
    ("seq", "--seq"),
    ("preference", "--dpo"),
    ("beta", "--dpo-beta"),
    ("label_smoothing", "--dpo-label-smoothing"),
    ("seed", "--seed"),
    ("peak_lr", "--lr"),
    ("min_lr", "--min-lr"),
    ("warmup_steps", "--warmup"),
    ("total_steps", "--schedule-steps"),
    ("schedule", "--schedule"),
    ("decay_steps", "--decay-steps"),
    ("beta1", "--beta1"),
    ("beta2", "--beta2"),
    ("weight_decay", "--weight-decay"),
    ("max_norm", "--clip"),
];

/// Returns a line to append to `error`, or nothing.
pub(crate) fn of(error: &Error) -> String {
    let hint = match error {
        Error::TextTooShort { .. } | Error::Data(DataError::NothingToLearn { .. }) => {
            "--seq sets the tokens of a sequence".to_owned()
        }
        Error::Data(DataError::Cache { .. }) => {
            "--token-cache sets the directory, or none".to_owned()
        }
        Error::Data(DataError::Holdout { .. }) => "--holdout sets the fraction".to_owned(),
        Error::Data(DataError::OutsideVocabulary { .. }) => {
            "--model sets a model with a tokenizer, and --vocab the vocabulary of other models"
                .to_owned()
        }
        Error::Model(HubError::NoChatTemplate) => "--model sets the model directory".to_owned(),
        Error::PromptTooLong { .. } => {
            "--max-length sets the tokens of prompt and text together".to_owned()
        }
        Error::OutOfMemory { reduce, .. } => reduced(*reduce).to_owned(),
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
        Error::InvalidConfig { field: "quantize", .. } | Error::Adapter(AdapterError::NotLora) => {
            "add --mode lora".to_owned()
        }
        _ => return String::new(),
    };
    format!("\nhint: {hint}")
}

fn reduced(reduce: Reduce) -> &'static str {
    match reduce {
        Reduce::Verification => "leave out --verify",
        Reduce::HeldOut => "leave out --holdout",
        Reduce::Batch => "give a smaller --batch or --seq",
        Reduce::Trained => "give --mode lora or a smaller --preset",
        Reduce::Model => "give --dtype bf16, --quantize nf4 or a smaller --preset",
        Reduce::Length => "give a smaller --max-length",
    }
}

/// Returns the options of the saved run, for the `saved` fields that differ.
fn mismatch(what: &str, saved: &str) -> String {
    let option = |field: &str| OPTIONS.iter().find(|(known, _)| *known == field);
    if what.starts_with("base model") {
        return "\nhint: give the --model of the run of the --checkpoint, or none if it had none"
            .to_owned();
    }
    if what == "micro-batch" {
        return match saved {
            "none" => "\nhint: the run had no --grad-accumulation".to_owned(),
            size => format!("\nhint: the run had --batch {size} per GPU with --grad-accumulation"),
        };
    }
    let fields = saved.trim_start_matches('{').trim_end_matches('}');
    let given = fields.split(", ").filter_map(|one| match one.split_once(": ") {
        Some((field, value)) => option(field).map(|(_, option)| format!("{option} {value}")),
        None => option(what).map(|(_, option)| format!("{option} {one}")),
    });
    let given: Vec<String> = given.collect();
    if given.is_empty() {
        String::new()
    } else {
        format!("\nhint: the run had {}", given.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_the_saved_run_are_named() {
        assert_eq!(
            mismatch("model", "{hidden: 16, layers: 1, tied: true}"),
            "\nhint: the run had --hidden 16 --layers 1"
        );
        assert_eq!(mismatch("seq", "8"), "\nhint: the run had --seq 8");
        assert_eq!(mismatch("data (SHA-256)", "0f3a"), "");
        let accumulated = "\nhint: the run had --batch 2 per GPU with --grad-accumulation";
        assert_eq!(mismatch("micro-batch", "2"), accumulated);
    }
}
