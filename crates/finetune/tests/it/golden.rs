//! Compares losses, gradients and trained weights with PyTorch in float64
//! (`golden/make_golden.py`). Weights and tokens are an integer hash of their names in both.

use std::collections::BTreeMap;
use std::path::Path;

use retrograph_finetune::model::GradientOwner;
use retrograph_finetune::parameters::Parameter;
use retrograph_finetune::{
    Batch, LrSchedule, Mode, ModelConfig, OptimizerConfig, Plan, Precision, Preset, Source,
    TrainerOptions, TrainingConfig,
};
use retrograph_test_support::with;
use safetensors::SafeTensors;

use crate::device::device;
use crate::models::LORA;

pub(crate) const TOLERANCE: f64 = 1e-4;

/// The configuration of the script.
pub(crate) fn config(mode: Mode) -> TrainingConfig {
    let model = ModelConfig {
        vocab: 256,
        hidden: 24,
        layers: 2,
        intermediate: 40,
        heads: 4,
        kv_heads: 2,
        rope_theta: 1e4,
        rms_norm_eps: 0.03,
        ..Preset::Tiny.model()
    };
    let optimizer = OptimizerConfig {
        peak_lr: 0.02,
        min_lr: 0.002,
        warmup_steps: 3,
        total_steps: 8,
        schedule: LrSchedule::Cosine,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weight_decay: 0.1,
        max_norm: 0.25,
    };
    let precision = Precision::F32;
    TrainingConfig { model, mode, precision, batch: 3, seq: 11, optimizer, seed: 0 }
}

/// The hash of the script.
pub(crate) fn hashed(name: &str, index: u32) -> u32 {
    hashed_by(seed(name), index)
}

fn seed(name: &str) -> u32 {
    let step = |seed: u32, byte: u8| (seed ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    name.bytes().fold(0x811C_9DC5, step)
}

fn hashed_by(seed: u32, index: u32) -> u32 {
    let mut x = seed.wrapping_add(index.wrapping_mul(0x9E37_79B9));
    x = (x ^ (x >> 16)).wrapping_mul(0x85EB_CA6B);
    x = (x ^ (x >> 13)).wrapping_mul(0xC2B2_AE35);
    x ^ (x >> 16)
}

/// The weights of the script.
pub(crate) fn weights(parameter: &Parameter) -> Vec<f32> {
    let base = if parameter.name.contains("norm") { 1.0 } else { 0.0 };
    let seed = seed(&parameter.name);
    let value = |index| {
        let unit = f64::from(hashed_by(seed, index) >> 8) - f64::from(1 << 23);
        (base + unit / f64::from(1 << 23) / 4.0) as f32
    };
    (0..parameter.len() as u32).map(value).collect()
}

/// The batches of the script.
pub(crate) fn batch(config: &TrainingConfig, step: u32) -> Batch {
    let tokens = |kind: &str| {
        let name = format!("{kind}.{step}");
        (0..config.rows() as u32).map(|index| hashed(&name, index) % 19 * 13).collect()
    };
    Batch { tokens: tokens("tokens"), targets: tokens("targets"), positions: None }
}

/// The tensors that the script wrote.
pub(crate) fn golden(name: &str) -> BTreeMap<String, Vec<f64>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    tensors(&folder.join(format!("{name}.safetensors")))
}

/// The tensors of a file that a script in `golden` wrote.
pub(crate) fn tensors(path: &Path) -> BTreeMap<String, Vec<f64>> {
    let bytes = std::fs::read(path).unwrap_or_else(|error| {
        panic!("{}: {error}; the scripts in tests/golden make it", path.display())
    });
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let float = |bytes: &[u8]| f64::from(f32::from_le_bytes(bytes.try_into().unwrap()));
    let values = |data: &[u8]| data.chunks_exact(4).map(float).collect();
    tensors.iter().map(|(name, tensor)| (name.to_owned(), values(tensor.data()))).collect()
}

/// The distance of two vectors, relative to the length of the second.
pub(crate) fn distance(found: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let square = |value: f64| value * value;
    let pairs = found.iter().zip(expected);
    let error: f64 = pairs.map(|(found, expected)| square(f64::from(*found) - expected)).sum();
    let length: f64 = expected.iter().map(|&value| square(value)).sum();
    assert!(length > 0.0, "nothing can be compared with zero");
    (error / length).sqrt()
}

fn matches_pytorch(mode: Mode, name: &str) {
    let golden = golden(name);
    for precision in [Precision::F32, Precision::TF32X3] {
        let config = TrainingConfig { precision, ..config(mode) };
        gradients_match(config, &golden);
        training_matches(config, &golden);
    }
}

/// The gradients of the first step, tensor by tensor. Without clipping, so that the kernels at the
/// end of the step leave the gradients in place.
fn gradients_match(mut config: TrainingConfig, golden: &BTreeMap<String, Vec<f64>>) {
    config.optimizer.max_norm = f32::MAX;
    let options = with(TrainerOptions::default(), |it| it.step = GradientOwner::External.into());
    let plan = Plan::new(&config, options).unwrap();
    let mut values = |parameter: &Parameter| Ok(weights(parameter));
    let source = Source::Values(&mut values);
    let mut trainer = plan.start(&device().modules(), source, &mut |_| ()).unwrap();
    let metrics = trainer.step(&batch(&config, 0)).unwrap();
    close("loss", f64::from(metrics.loss), golden["losses"][0]);
    close("norm", f64::from(metrics.grad_norm), golden["norms"][0]);
    let gradients = trainer.gradients().unwrap();
    let expected = golden.keys().filter(|name| name.starts_with("grad.")).count();
    assert_eq!(gradients.len(), expected);
    for (name, gradient) in gradients {
        let error = distance(&gradient, &golden[&format!("grad.{name}")]);
        assert!(error <= TOLERANCE, "the gradient of {name} is off by {error:.2e}");
    }
}

/// Losses and norms of every step, and the weights in the end.
fn training_matches(config: TrainingConfig, golden: &BTreeMap<String, Vec<f64>>) {
    let plan = Plan::new(&config, TrainerOptions::default()).unwrap();
    let mut values = |parameter: &Parameter| Ok(weights(parameter));
    let source = Source::Values(&mut values);
    let mut trainer = plan.start(&device().modules(), source, &mut |_| ()).unwrap();
    for step in 0..config.optimizer.total_steps {
        let metrics = trainer.step(&batch(&config, step)).unwrap();
        close("loss", f64::from(metrics.loss), golden["losses"][step as usize]);
        close("norm", f64::from(metrics.grad_norm), golden["norms"][step as usize]);
    }
    let state = trainer.state();
    for parameter in state.trained_parameters() {
        let name = &parameter.name;
        let found = state.values(trainer.stream(), name).unwrap().unwrap();
        let error = distance(&found, &golden[&format!("final.{name}")]);
        assert!(error <= TOLERANCE, "{name} is off by {error:.2e} after training");
    }
}

pub(crate) fn close(what: &str, found: f64, expected: f64) {
    let error = (found - expected).abs() / expected.abs();
    assert!(error <= TOLERANCE, "{what} is {found}, and PyTorch has {expected}");
}

#[test]
fn training_all_weights_matches_pytorch() {
    matches_pytorch(Mode::Full, "full");
}

#[test]
fn training_lora_matches_pytorch() {
    matches_pytorch(LORA, "lora");
}
