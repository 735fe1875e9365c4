//! Compares architectures other than Qwen2 with a model in f64: losses with its losses, and
//! gradients with central differences of its loss.

use retrograph_finetune::model::{GradientOwner, StepOptions, StepPass};
use retrograph_finetune::parameters::{Parameter, inventory};
use retrograph_finetune::{
    Batch, GatedActivation, LoraConfig, LoraLayers, LoraPatterns, LoraTargets, Mode, ModelConfig,
    Plan, Precision, RopeScaling, SlidingWindow, Source, TrainerOptions, TrainingConfig,
};

use crate::device::device;
use crate::golden::{TOLERANCE, batch, close, config, hashed, weights};
use crate::models::LORA;
use crate::reference::{Reference, Weights};

/// The step of the differences; their error is of the order of its square.
const STEP: f64 = 1e-4;

/// Heads with a norm and an explicit dimension, no biases, and an output projection.
fn qwen3(mode: Mode) -> TrainingConfig {
    let mut config = config(mode);
    config.model = ModelConfig {
        head_dim: Some(10),
        qkv_bias: false,
        qk_norm: true,
        tie_word_embeddings: false,
        ..config.model
    };
    config
}

/// No biases, scaled rotary frequencies: of the three pairs of a head, the first is kept, the
/// second interpolated and the third slowed down.
fn llama3(mode: Mode) -> TrainingConfig {
    let scaling = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 27.0,
    };
    let mut config = config(mode);
    config.model = ModelConfig {
        qkv_bias: false,
        rope_theta: 20.0,
        rope_scaling: Some(scaling),
        ..config.model
    };
    config
}

/// No biases and a window in every layer: heads of 6 elements, which are not fused.
fn mistral(mode: Mode) -> TrainingConfig {
    let mut config = config(mode);
    let sliding_window = Some(SlidingWindow::new(4, 0));
    config.model = ModelConfig { qkv_bias: false, sliding_window, ..config.model };
    config
}

/// Qwen2 with a window in the second layer of two.
fn windowed_qwen2(mode: Mode, head_dim: usize) -> TrainingConfig {
    let mut config = config(mode);
    let sliding_window = Some(SlidingWindow::new(3, 1));
    config.model = ModelConfig { head_dim: Some(head_dim), sliding_window, ..config.model };
    config
}

/// Fused projections in files, and heads of 8 elements of which 6 are rotated, the last pair not.
fn phi(mode: Mode) -> TrainingConfig {
    let mut config = config(mode);
    let (head_dim, rotary_dim) = (Some(8), Some(6));
    let (qkv_bias, fused) = (false, true);
    config.model = ModelConfig { qkv_bias, fused, head_dim, rotary_dim, ..config.model };
    config
}

/// Biases of every projection.
fn biased(mode: Mode) -> TrainingConfig {
    let mut config = config(mode);
    config.model = ModelConfig { o_bias: true, mlp_bias: true, ..config.model };
    config
}

/// A second layer without RoPE. A bias of its keys would have no gradient: it adds the same to all
/// scores of a query.
fn smollm3(mode: Mode) -> TrainingConfig {
    let mut config = config(mode);
    let (qkv_bias, no_rope_interval) = (false, Some(2));
    config.model = ModelConfig { qkv_bias, no_rope_interval, ..config.model };
    config
}

/// Gemma 2 with caps that bend scores and logits, and a window in every other layer.
fn gemma2(mode: Mode) -> TrainingConfig {
    let mut config = config(mode);
    let window = SlidingWindow { full_interval: Some(2), ..SlidingWindow::new(4, 0) };
    config.model = ModelConfig {
        head_dim: Some(8),
        qkv_bias: false,
        activation: GatedActivation::GeluTanh,
        post_norms: true,
        unit_offset_norms: true,
        scaled_embedding: true,
        query_pre_attn_scalar: Some(5.0),
        attention_softcap: Some(0.75),
        logit_softcap: Some(1.5),
        sliding_window: Some(window),
        ..config.model
    };
    config
}

/// Gemma 3: norms of heads instead of caps, and two bases of RoPE.
fn gemma3(mode: Mode) -> TrainingConfig {
    let mut config = gemma2(mode);
    config.model = ModelConfig {
        qk_norm: true,
        attention_softcap: None,
        logit_softcap: None,
        local_rope_theta: Some(7.0),
        rope_theta: 50.0,
        rope_scaling: Some(RopeScaling::Linear { factor: 2.0 }),
        ..config.model
    };
    config
}

/// LoRA of every projection with ranks and scales that differ.
fn patterned() -> Mode {
    let ranks = [("o_proj", 5), ("down_proj", 1), ("gate_proj|up_proj", 7)];
    let alphas = [("o_proj", 2.0), ("gate_proj|up_proj", -3.0)];
    Mode::Lora(LoraConfig { patterns: patterns(&ranks, &alphas), ..LORA_OF_ALL })
}

/// LoRA of every projection: those that share an input differ, and so do layers.
fn differing() -> Mode {
    let ranks = [("layers.1.self_attn.k_proj", 1), ("k_proj", 5), ("layers.1.mlp.up_proj", 70)];
    let alphas = [("layers.0.self_attn.v_proj", 2.0), (r"layers\.1\..*(q|gate)_proj", -3.0)];
    Mode::Lora(LoraConfig { patterns: patterns(&ranks, &alphas), ..LORA_OF_ALL })
}

/// LoRA of every projection of the last layer only, and of the first layer only.
fn one_layer(layer: usize) -> Mode {
    Mode::Lora(LoraConfig { layers: LoraLayers::of([layer]).unwrap(), ..LORA_OF_ALL })
}

/// LoRA of every projection.
const LORA_OF_ALL: LoraConfig =
    LoraConfig { targets: LoraTargets::ALL, ..LoraConfig::new(3, 12.0) };

fn patterns(ranks: &[(&str, usize)], alphas: &[(&str, f32)]) -> LoraPatterns {
    let ranks = ranks.iter().map(|(pattern, rank)| ((*pattern).to_owned(), *rank));
    let alphas = alphas.iter().map(|(pattern, alpha)| ((*pattern).to_owned(), *alpha));
    LoraPatterns::new(ranks, alphas).unwrap()
}

/// Trains one step without clipping, and compares loss and gradients; then the same in documents.
fn matches_reference(mut config: TrainingConfig) {
    config.optimizer.max_norm = f32::MAX;
    let batch = batch(&config, 0);
    batch_matches_reference(&config, &batch);
    // Documents of 1 to 7 tokens, three or four in each sequence.
    let documents = [4, 7, 1, 7, 3, 5, 1, 5];
    let positions = documents.into_iter().flat_map(|tokens| 0..tokens).collect();
    batch_matches_reference(&config, &Batch { positions: Some(positions), ..batch });
}

fn batch_matches_reference(config: &TrainingConfig, batch: &Batch) {
    let mut options = TrainerOptions::default();
    options.step.gradients = GradientOwner::External;
    options.step.packed = batch.positions.is_some();
    let mut values = |parameter: &Parameter| Ok(weights(parameter));
    let plan = Plan::new(config, options).unwrap();
    let source = Source::Values(&mut values);
    let mut trainer = plan.start(&device().modules(), source, &mut |_| ()).unwrap();
    let metrics = trainer.step(batch).unwrap();
    let mut all: Weights = inventory(&config.model, config.mode)
        .iter()
        .map(|one| (one.name.clone(), weights(one).into_iter().map(f64::from).collect()))
        .collect();
    let loss = |weights: &Weights| Reference { config, weights }.loss(batch);
    close("loss", f64::from(metrics.loss), loss(&all));
    let gradients = trainer.gradients().unwrap();
    let trained = trainer.state().trained_parameters().len();
    assert_eq!(gradients.len(), trained);
    for (name, gradient) in gradients {
        let length = gradient.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
        assert!(length > 0.0, "the gradient of {name} is zero");
        let along: Vec<f64> = gradient.iter().map(|&g| f64::from(g) / length).collect();
        // A gradient that lacks a part is correct along itself, but not along another direction.
        let root = (gradient.len() as f64).sqrt();
        let sign = |at: usize| if hashed(&name, at as u32) & 1 == 0 { 1.0 } else { -1.0 };
        let across = (0..gradient.len()).map(|at| sign(at) / root).collect();
        for direction in [along, across] {
            let mut moved = |step: f64| {
                let mut values: Vec<f64> = all[&name].clone();
                values.iter_mut().zip(&direction).for_each(|(value, d)| *value += step * d);
                let before = all.insert(name.clone(), values).unwrap();
                let loss = loss(&all);
                all.insert(name.clone(), before);
                loss
            };
            let slope = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
            let found: f64 = gradient.iter().zip(&direction).map(|(&g, d)| f64::from(g) * d).sum();
            let error = (slope - found).abs() / length;
            assert!(error <= TOLERANCE, "the gradient of {name} is off by {error:.2e}");
        }
    }
}

#[test]
fn the_reference_agrees_with_pytorch_on_qwen2() {
    let config = config(Mode::Full);
    let all = inventory(&config.model, config.mode);
    let value = |one: &Parameter| weights(one).into_iter().map(f64::from).collect();
    let weights = all.iter().map(|one| (one.name.clone(), value(one))).collect();
    let loss = Reference { config: &config, weights: &weights }.loss(&batch(&config, 0));
    close("loss", loss, crate::golden::golden("full")["losses"][0]);
}

#[test]
fn qwen3_matches_the_reference_and_its_differences() {
    matches_reference(qwen3(Mode::Full));
}

#[test]
fn qwen3_by_lora_matches_the_reference_and_its_differences() {
    matches_reference(qwen3(LORA));
}

#[test]
fn mistral_matches_the_reference_and_its_differences() {
    matches_reference(mistral(Mode::Full));
    matches_reference(mistral(LORA));
}

#[test]
fn a_window_in_later_layers_matches_the_reference_and_its_differences() {
    for head_dim in [8, 132] {
        let config = windowed_qwen2(Mode::Full, head_dim);
        assert_eq!(config.fuses_attention(), head_dim == 8);
        matches_reference(config);
    }
}

#[test]
fn a_window_as_wide_as_a_sequence_changes_no_operation() {
    let mut config = windowed_qwen2(Mode::Full, 8);
    let step = |config: &TrainingConfig| {
        let step = StepPass::new(config, StepOptions::default()).unwrap();
        format!("{:?}", step.pass.operations())
    };
    let narrow = step(&config);
    config.model.sliding_window = Some(SlidingWindow::new(config.seq as u32, 0));
    let wide = step(&config);
    config.model.sliding_window = None;
    assert_eq!(wide, step(&config));
    assert_ne!(narrow, wide);
}

#[test]
fn llama3_matches_the_reference_and_its_differences() {
    let frequencies = llama3(Mode::Full).model.rope_frequencies(1);
    let plain = ModelConfig { rope_scaling: None, ..llama3(Mode::Full).model }.rope_frequencies(1);
    assert_eq!(frequencies[0], plain[0]);
    assert!(frequencies[1] < plain[1] && frequencies[1] > plain[1] / 8.0);
    assert_eq!(frequencies[2], plain[2] / 8.0);
    matches_reference(llama3(Mode::Full));
}

#[test]
fn gemma2_matches_the_reference_and_its_differences() {
    assert!(!gemma2(Mode::Full).fuses_attention());
    matches_reference(gemma2(Mode::Full));
    matches_reference(gemma2(LORA));
}

#[test]
fn gemma3_matches_the_reference_and_its_differences() {
    assert!(gemma3(Mode::Full).fuses_attention());
    matches_reference(gemma3(Mode::Full));
    matches_reference(gemma3(LORA));
}

/// In bf16, replay equals eager, and the loss stays within one percent of the reference.
#[test]
fn gemma_in_bf16_stays_near_the_reference() {
    for of in [gemma2, gemma3] {
        let config = TrainingConfig { precision: Precision::BF16, ..of(LORA) };
        assert!(config.fuses_attention());
        let all = config.parameters();
        let value = |one: &Parameter| weights(one).into_iter().map(f64::from).collect();
        let reference = all.iter().map(|one| (one.name.clone(), value(one))).collect();
        let batch = batch(&config, 0);
        let expected = Reference { config: &config, weights: &reference }.loss(&batch);
        let mut options = TrainerOptions::default();
        options.verify = true;
        let plan = Plan::new(&config, options).unwrap();
        let mut values = |parameter: &Parameter| Ok(weights(parameter));
        let source = Source::Values(&mut values);
        let mut trainer = plan.start(&device().modules(), source, &mut |_| ()).unwrap();
        let found = f64::from(trainer.step(&batch).unwrap().loss);
        assert!((found / expected - 1.0).abs() < 0.01, "{found}, expected {expected}");
    }
}

#[test]
fn partly_rotated_heads_match_the_reference_and_its_differences() {
    matches_reference(phi(Mode::Full));
    matches_reference(phi(LORA));
}

#[test]
fn biases_of_every_projection_match_the_reference_and_its_differences() {
    matches_reference(biased(Mode::Full));
    matches_reference(biased(LORA));
}

#[test]
fn layers_without_rope_match_the_reference_and_its_differences() {
    matches_reference(smollm3(Mode::Full));
    matches_reference(smollm3(LORA));
}

#[test]
fn ranks_and_scales_of_projections_match_the_reference_and_its_differences() {
    matches_reference(qwen3(patterned()));
    matches_reference(qwen3(differing()));
}

/// Layers without updates pass gradients on.
#[test]
fn updates_of_one_layer_match_the_reference_and_its_differences() {
    for layer in [0, 1] {
        let config = qwen3(one_layer(layer));
        let trained = config.parameters().into_iter().filter(|one| one.trainable);
        let name = format!("model.layers.{layer}.");
        assert_eq!(trained.filter(|one| one.name.starts_with(&name)).count(), 14);
        matches_reference(config);
    }
}
