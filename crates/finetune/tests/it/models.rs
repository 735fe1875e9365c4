//! Small models to train in tests.

use retrograph_finetune::parameters::Parameter;
use retrograph_finetune::{
    Device, LoraConfig, Mode, ModelConfig, OptimizerConfig, Plan, Precision, Preset, Source,
    TextData, Trainer, TrainerOptions, TrainingConfig, init,
};

/// LoRA with a rank that is not a multiple of any tile.
pub(crate) const LORA: Mode = Mode::Lora(LoraConfig { norms: true, ..LoraConfig::new(3, 12.0) });

/// A run of `steps` steps with warm-up and cosine.
pub(crate) fn config(mode: Mode, steps: u32) -> TrainingConfig {
    let model = ModelConfig {
        vocab: 256,
        hidden: 16,
        layers: 2,
        intermediate: 24,
        heads: 4,
        kv_heads: 2,
        rope_theta: 1e4,
        rms_norm_eps: 1e-6,
        ..Preset::Tiny.model()
    };
    let optimizer =
        OptimizerConfig { warmup_steps: steps.min(5), ..OptimizerConfig::new(0.01, steps) };
    let precision = Precision::F32;
    TrainingConfig { model, mode, precision, batch: 2, seq: 9, optimizer, seed: 11 }
}

/// A token whose embedding is NaN in a model of [`values_with_nan`], so that a step that reads it
/// has no finite loss.
pub(crate) const NAN_TOKEN: u32 = 255;

/// A run of LoRA on a model for [`values_with_nan`]: its output projection is not tied,
/// and no checkpoint has its embeddings.
pub(crate) fn config_with_nan(config: TrainingConfig) -> TrainingConfig {
    let model = ModelConfig { tie_word_embeddings: false, ..config.model };
    TrainingConfig { model, mode: LORA, ..config }
}

/// The initial values of `parameter`, with an embedding of [`NAN_TOKEN`] that is NaN.
pub(crate) fn values_with_nan(parameter: &Parameter) -> Vec<f32> {
    let mut values = init::initial_values(parameter, 3);
    if parameter.name == "model.embed_tokens.weight" {
        let width = values.len() / 256;
        values[width * NAN_TOKEN as usize..][..width].fill(f32::NAN);
    }
    values
}

/// A text with something to learn.
pub(crate) fn text() -> TextData {
    TextData::from_bytes(b"the quick brown fox jumps over the lazy dog. ".repeat(8))
}

/// A trainer of `config` from its seed.
pub(crate) fn trainer(
    device: &Device,
    config: &TrainingConfig,
    options: TrainerOptions,
) -> Trainer {
    let plan = Plan::new(config, options).unwrap();
    plan.start(&device.modules(), Source::Seed, &mut |_| ()).unwrap()
}

/// Trains up to step `until`.
pub(crate) fn train(trainer: &mut Trainer, until: u32) {
    let (config, text) = (*trainer.config(), text());
    while trainer.next_step() < until {
        let shape = [config.batch, config.seq];
        let batch = text.batch(shape, config.seed, trainer.next_step()).unwrap();
        trainer.step(&batch).unwrap();
    }
}

/// The bits of all trained parameters and moments, by the names of their tensors.
pub(crate) fn bits(trainer: &Trainer) -> Vec<(String, Vec<u32>)> {
    use retrograph_finetune::checkpoint::{StatePart, StateReader};
    let parameters = trainer.state().trained_parameters();
    let mut reader = trainer.state().reader(trainer.stream());
    let mut all = Vec::new();
    for (index, parameter) in parameters.iter().enumerate() {
        for &part in StatePart::ALL {
            let values = reader.read(index, part).unwrap();
            let bits = values.into_iter().map(f32::to_bits).collect();
            all.push((part.tensor_name(&parameter.name), bits));
        }
    }
    all
}
