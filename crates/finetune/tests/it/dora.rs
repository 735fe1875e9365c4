//! DoRA: its start, unsupported options, and behavior shared with LoRA. The module `transformers`
//! compares gradients and training with PEFT.

use retrograph_finetune::adapter::{Adapter, AdapterOutput};
use retrograph_finetune::model::{ForwardPass, StepPass};
use retrograph_finetune::parameters::inventory;
use retrograph_finetune::{
    Error, LoraConfig, LoraTargets, Mode, ModelConfig, Precision, Trainer, TrainerOptions,
    TrainingConfig, init,
};
use retrograph_runtime::{Operation, OperationKind};

use crate::adapters::has_trained_values;
use crate::device::device;
use crate::models::{bits, config, train, trainer};

/// Every projection, with a rank that is not a multiple of any tile.
pub(crate) const DORA: LoraConfig =
    LoraConfig { targets: LoraTargets::ALL, dora: true, ..LoraConfig::new(3, 12.0) };

/// The loss of the first step.
fn first_loss(config: &TrainingConfig) -> f32 {
    let mut trainer = trainer(&device(), config, TrainerOptions::default());
    train(&mut trainer, 1);
    trainer.losses()[0]
}

fn magnitudes(trainer: &Trainer) -> Vec<(String, Vec<f32>)> {
    let named = trainer.state().trained_parameters();
    let named = named.into_iter().filter(|one| one.name.ends_with("lora_magnitude_vector"));
    let values = |name: &str| trainer.state().values(trainer.stream(), name).unwrap().unwrap();
    named.map(|one| (one.name.clone(), values(&one.name))).collect()
}

#[test]
fn training_starts_from_the_base_model_in_every_precision() {
    for (precision, most) in [
        (Precision::F32, 1e-6),
        (Precision::BF16, 5e-3),
        (Precision::F32.nf4(false), 1e-3),
        (Precision::BF16.nf4(true), 5e-3),
    ] {
        let of = |dora| {
            let lora = LoraConfig { dora, ..DORA };
            TrainingConfig { precision, ..config(Mode::Lora(lora), 4) }
        };
        let [found, expected] = [true, false].map(|dora| first_loss(&of(dora)));
        let error = (found / expected - 1.0).abs();
        assert!(error <= most, "{precision:?}: {found} instead of {expected}");
    }
}

/// The norms of the weights as the device stores them.
#[test]
fn magnitudes_start_as_the_norms_of_the_stored_weights() {
    for precision in [Precision::F32, Precision::BF16, Precision::BF16.nf4(true)] {
        let config = TrainingConfig { precision, ..config(Mode::Lora(DORA), 4) };
        let trainer = trainer(&device(), &config, TrainerOptions::default());
        let found = magnitudes(&trainer);
        assert_eq!(found.len(), 2 * 7);
        for (name, magnitudes) in found {
            let weight = name.replace("lora_magnitude_vector", "weight");
            let values = trainer.state().values(trainer.stream(), &weight).unwrap().unwrap();
            let rows = values.chunks(values.len() / magnitudes.len());
            for (row, magnitude) in rows.zip(magnitudes) {
                let norm = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
                assert!((norm - f64::from(magnitude)).abs() <= 1e-6 * norm, "{name}");
            }
        }
        let parameters = inventory(&config.model, config.mode);
        let one = parameters.iter().find(|one| one.name.ends_with("q_proj.lora_magnitude_vector"));
        assert!(one.unwrap().decayed && one.unwrap().trainable);
        let seeded = init::initial_values(one.unwrap(), config.seed);
        assert_eq!(seeded.len(), config.model.q_width());
    }
}

#[test]
fn magnitudes_learn_and_steps_have_the_bits_of_eager_ones() {
    for (precision, micro_batch) in [
        (Precision::F32, None),
        (Precision::F32, Some(1)),
        (Precision::BF16, None),
        (Precision::BF16.nf4(true), Some(1)),
    ] {
        let config = TrainingConfig { precision, ..config(Mode::Lora(DORA), 12) };
        let mut options = TrainerOptions::default();
        options.verify = true;
        options.step.micro_batch = micro_batch;
        let mut trainer = trainer(&device(), &config, options);
        let before = magnitudes(&trainer);
        train(&mut trainer, 12);
        assert_eq!(trainer.verified_steps(), 12);
        assert!(trainer.losses()[11] < trainer.losses()[0], "{:?}", trainer.losses());
        for ((name, before), (_, after)) in before.iter().zip(&magnitudes(&trainer)) {
            assert!(before.iter().zip(after).all(|(before, after)| before != after), "{name}");
        }
    }
}

/// Micro-batches and recomputed layers read the same norms.
#[test]
fn recomputed_layers_keep_the_bits() {
    let config = config(Mode::Lora(DORA), 4);
    let run = |recompute| {
        let mut options = TrainerOptions::default();
        options.step.recompute = recompute;
        let mut trainer = trainer(&device(), &config, options);
        train(&mut trainer, 4);
        bits(&trainer)
    };
    assert_eq!(run(true), run(false));
    let pass = StepPass::new(&config, TrainerOptions::default().step).unwrap().pass;
    let computes_norms = |operation: &&Operation| match operation.kind() {
        OperationKind::Launch(launch) => launch.kernel().name == "dora_norms",
        _ => false,
    };
    let norms = pass.operations().iter().filter(computes_norms).count();
    assert_eq!(norms, 2 * 7, "norms are computed once");
}

#[test]
fn an_adapter_with_magnitudes_is_read_back() {
    let (device, folder) = (device(), tempfile::tempdir().unwrap());
    for (fused, targets) in [(false, "all"), (false, "q,down"), (true, "all"), (true, "gate,up,o")]
    {
        let lora = LoraConfig { targets: targets.parse().unwrap(), rslora: true, ..DORA };
        let mut config = config(Mode::Lora(lora), 6);
        if fused {
            let (head_dim, rotary_dim, qkv_bias) = (Some(8), Some(6), false);
            config.model = ModelConfig { qkv_bias, fused, head_dim, rotary_dim, ..config.model };
        }
        let mut first = trainer(&device, &config, TrainerOptions::default());
        train(&mut first, 3);
        let place = folder.path().join(format!("{fused} {targets}"));
        first.export_adapter(AdapterOutput { folder: &place, base: None }).unwrap();
        let mut adapter = Adapter::open(&place).unwrap();
        assert_eq!(adapter.lora(), lora);
        has_trained_values(&mut adapter, &first);
        // Without the option, magnitudes are unexpected.
        let path = place.join("adapter_config.json");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("\"use_dora\": true", "\"use_dora\": false")).unwrap();
        let error = Adapter::open(&place).unwrap_err().to_string();
        assert!(error.contains("use_dora") && error.contains("lora_magnitude_vector"), "{error}");
    }
}

#[test]
fn unsupported_options_are_refused_by_name() {
    let named = |result: Result<(), Error>| match result {
        Err(Error::InvalidConfig { field, rule, .. }) => (field, rule),
        other => panic!("{other:?}"),
    };
    let dropout = LoraConfig { dropout: 0.1, ..DORA };
    let step = TrainerOptions::default().step;
    let training = StepPass::new(&config(Mode::Lora(dropout), 4), step).map(drop);
    let (field, rule) = named(training);
    assert!(field == "lora_dropout" && rule.contains("DoRA"), "{field} {rule}");
    // Inference has no dropout.
    ForwardPass::new(&config(Mode::Lora(dropout), 4)).unwrap();
    let lora = LoraConfig { targets: LoraTargets::QV, ..DORA };
    let mut fused = config(Mode::Lora(lora), 4);
    (fused.model.fused, fused.model.qkv_bias) = (true, false);
    let (field, rule) = named(fused.validate());
    assert!(field == "lora_targets" && rule.contains("DoRA"), "{field} {rule}");
    StepPass::new(&config(Mode::Lora(lora), 4), step).unwrap();
}
