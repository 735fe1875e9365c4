//! Compares training in bf16 and over NF4 weights with training in f32 and a reference in f64.

use half::bf16;
use retrograph_driver_sim::Config;
use retrograph_finetune::checkpoint::Header;
use retrograph_finetune::model::{GradientOwner, StepOptions, StepPass};
use retrograph_finetune::parameters::{Parameter, Storage};
use retrograph_finetune::{
    Error, GatedActivation, GenerationPlan, GeneratorOptions, LoraConfig, LoraTargets, Mode,
    ModelConfig, Plan, Precision, Preset, Request, Sampling, SlidingWindow, Source, Trainer,
    TrainerOptions, TrainingConfig,
};
use retrograph_kernels::DType;
use retrograph_kernels::nf4::{self, Nested};
use retrograph_kernels::ops::TensorView;
use retrograph_test_support::numbers::doubles;
use retrograph_test_support::with;

use crate::device::{device, simulated};
use crate::golden::{self, distance, weights};
use crate::models;
use crate::reference::{Reference, Weights};

/// Every projection, and no norm.
const LORA: Mode = Mode::Lora(LoraConfig { targets: LoraTargets::ALL, ..LoraConfig::new(3, 12.0) });

const NF4: Precision = Precision::F32.nf4(false);
const NESTED: Precision = Precision::F32.nf4(true);

/// The weights of the golden script, rounded to the storage of the parameter.
fn stored(parameter: &Parameter) -> Vec<f32> {
    let values = weights(parameter);
    match parameter.storage {
        Storage::F32 | Storage::F32WithBf16 | Storage::F32WithF16 { .. } => values,
        Storage::Bf16 => values.iter().map(|&value| bf16::from_f32(value).to_f32()).collect(),
        Storage::Nf4 { double } => {
            let quantized = nf4::quantize(&values).unwrap();
            let scales = quantized.absmax;
            let scales = if double { Nested::new(&scales).scales() } else { scales };
            nf4::dequantize(&quantized.codes, &scales, values.len())
        }
    }
}

/// The golden configuration with another precision, and no clipping.
pub(crate) fn config(mode: Mode, precision: Precision) -> TrainingConfig {
    let mut config = TrainingConfig { precision, ..golden::config(mode) };
    config.optimizer.max_norm = f32::MAX;
    config
}

pub(crate) fn trainer(
    config: &TrainingConfig,
    options: TrainerOptions,
    values: &mut dyn FnMut(&Parameter) -> retrograph_finetune::Result<Vec<f32>>,
) -> Trainer {
    let plan = Plan::new(config, options).unwrap();
    plan.start(&device().modules(), Source::Values(values), &mut |_| ()).unwrap()
}

/// The losses of all steps, verified against eager ones.
fn losses(
    config: &TrainingConfig,
    values: &mut dyn FnMut(&Parameter) -> retrograph_finetune::Result<Vec<f32>>,
) -> Vec<f32> {
    let mut options = TrainerOptions::default();
    options.verify = true;
    let mut trainer = trainer(config, options, values);
    let steps = config.optimizer.total_steps;
    for step in 0..steps {
        trainer.step(&golden::batch(config, step)).unwrap();
    }
    assert_eq!(trainer.verified_steps(), u64::from(steps));
    trainer.losses().to_vec()
}

/// The largest distance of two lists of losses, relative to the second.
fn apart(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let pairs = found.iter().zip(expected);
    pairs.map(|(found, expected)| (found / expected - 1.0).abs()).fold(0.0, f32::max)
}

#[test]
fn losses_in_bf16_stay_near_those_in_f32_and_replay_equals_eager() {
    for mode in [Mode::Full, LORA] {
        let single = losses(&config(mode, Precision::F32), &mut |p| Ok(weights(p)));
        let rounded = losses(&config(mode, Precision::BF16), &mut |p| Ok(weights(p)));
        // A factor has a relative error of at most 2⁻⁸. The errors of the many terms of a sum are
        // independent, so a product has about the relative error of one of its terms; a dozen
        // consecutive products and eight consecutive steps leave 1 %.
        let distance = apart(&rounded, &single);
        assert!(distance < 0.01, "{mode:?}: {distance}: {rounded:?}, {single:?}");
        assert!(distance > 0.0, "nothing was rounded");
    }
}

#[test]
fn large_steps_in_bf16_read_rounded_operands_and_stay_near_those_in_f32() {
    for mode in [LORA, Mode::Full] {
        let losses = |precision| losses(&large(mode, precision), &mut |p| Ok(weights(p)));
        let distance = apart(&losses(Precision::BF16), &losses(Precision::F32));
        assert!(distance > 0.0 && distance < 0.01, "{mode:?}: {distance}");
    }
}

#[test]
fn gradients_in_bf16_stay_near_those_in_f32_and_replay_equals_eager() {
    let config = |precision| large(Mode::Full, precision);
    let with_gradients = |precision| losses(&config(precision), &mut |p| Ok(weights(p)));
    let half = Precision::BF16.bf16_gradients();
    let distance = apart(&with_gradients(half), &with_gradients(Precision::BF16));
    assert!(distance > 0.0 && distance < 1e-3, "{distance}");
    let dtype = |options: StepOptions, name: &str| {
        let step = StepPass::new(&config(half), options).unwrap();
        let held = step.parameters.into_iter().find(|held| held.parameter.name.ends_with(name));
        TensorView::from(held.unwrap().trained.unwrap().grad).dtype()
    };
    let whole = StepOptions::default();
    assert_eq!(dtype(whole, "0.mlp.down_proj.weight"), DType::Bf16);
    assert_eq!(dtype(whole, "embed_tokens.weight"), DType::F32);
    assert_eq!(dtype(whole, "0.input_layernorm.weight"), DType::F32);
    // What is added, and what the caller reads, is f32.
    let mut added = whole;
    added.micro_batch = Some(4);
    assert_eq!(dtype(added, "0.mlp.down_proj.weight"), DType::F32);
    assert_eq!(dtype(GradientOwner::External.into(), "0.mlp.down_proj.weight"), DType::F32);
    let single = TrainingConfig { precision: Precision::F32.bf16_gradients(), ..config(half) };
    let error = StepPass::new(&single, whole).unwrap_err();
    assert!(matches!(error, Error::InvalidConfig { field: "gradients", .. }), "{error}");
}

/// Three steps of enough tokens for multistage kernels, also in micro-batches.
fn large(mode: Mode, precision: Precision) -> TrainingConfig {
    let mut config = TrainingConfig { batch: 8, seq: 16, ..config(mode, precision) };
    (config.optimizer.warmup_steps, config.optimizer.total_steps) = (1, 3);
    config
}

/// The gradients of the first step.
fn gradients(config: &TrainingConfig, micro_batch: Option<usize>) -> Vec<(String, Vec<f32>)> {
    let mut options = TrainerOptions::default();
    options.step.gradients = GradientOwner::External;
    options.step.micro_batch = micro_batch;
    let mut trainer = trainer(config, options, &mut |p| Ok(weights(p)));
    trainer.step(&golden::batch(config, 0)).unwrap();
    trainer.gradients().unwrap()
}

#[test]
fn gradients_of_all_weights_in_bf16_stay_near_those_in_f32() {
    let expected = gradients(&large(Mode::Full, Precision::F32), None);
    for micro_batch in [None, Some(2)] {
        let found = gradients(&large(Mode::Full, Precision::BF16), micro_batch);
        for ((name, found), (_, expected)) in found.iter().zip(&expected) {
            let expected = doubles(expected);
            let error = distance(found, &expected);
            // As for losses, but relative to the largest element of one gradient.
            assert!(error < 0.05, "the gradient of {name} is off by {error:.2e}");
        }
    }
}

/// Attention is fused in bf16, also over a window.
#[test]
fn gradients_of_capped_scores_in_bf16_stay_near_those_in_f32() {
    let capped = |precision| {
        let mut config = large(Mode::Full, precision);
        let model = ModelConfig { attention_softcap: Some(0.75), ..config.model };
        let sliding_window = Some(SlidingWindow::new(5, 1));
        config.model = ModelConfig { head_dim: Some(8), sliding_window, ..model };
        config
    };
    let fused = [Precision::F32, Precision::BF16].map(|it| capped(it).fuses_attention());
    assert_eq!(fused, [false, true]);
    let expected = gradients(&capped(Precision::F32), None);
    for ((name, found), (_, expected)) in
        gradients(&capped(Precision::BF16), None).iter().zip(&expected)
    {
        let error = distance(found, &doubles(expected));
        assert!(error < 0.05, "the gradient of {name} is off by {error:.2e}");
    }
}

/// Products that compute RoPE, a gated linear unit or its gradient have the bits of separate
/// launches. One product of the gradients through gate and up rounds their sum once.
#[test]
fn fused_products_keep_the_loss_and_the_gradients() {
    let lora = |targets| {
        let lora = LoraConfig { targets, ..LoraConfig::new(8, 12.0) };
        let mut config = TrainingConfig { batch: 32, ..large(Mode::Lora(lora), Precision::BF16) };
        (config.model.hidden, config.model.intermediate) = (64, 128);
        config
    };
    let wide = |config: TrainingConfig, heads, kv_heads, head_dim| {
        let model = ModelConfig { heads, kv_heads, head_dim: Some(head_dim), ..config.model };
        TrainingConfig { model, ..config }
    };
    let nf4 = |config| TrainingConfig { precision: Precision::BF16.nf4(false), ..config };
    let geglu = |config: TrainingConfig| {
        let model = ModelConfig { activation: GatedActivation::GeluTanh, ..config.model };
        TrainingConfig { model, ..config }
    };
    // Gate and up with LoRA are products of their own, and so are queries and keys whose heads are
    // not of 64 or 128 elements.
    for (config, fused) in [
        (large(Mode::Full, Precision::BF16), [0, 1, 1]),
        (wide(large(Mode::Full, Precision::BF16), 2, 1, 64), [1, 1, 1]),
        (lora(LoraConfig::new(8, 12.0).targets), [0, 1, 1]),
        (wide(lora(LoraConfig::new(8, 12.0).targets), 3, 1, 128), [1, 1, 1]),
        (lora(LoraTargets::ALL), [0, 0, 1]),
        (wide(lora(LoraTargets::ALL), 4, 2, 64), [1, 0, 1]),
        (wide(nf4(lora(LoraTargets::ALL)), 1, 1, 64), [1, 0, 1]),
        (geglu(lora(LoraConfig::new(8, 12.0).targets)), [0, 1, 1]),
    ] {
        let [fprop, dgrad] = match config.model.activation {
            GatedActivation::Silu => ["gemm_swiglu_fprop", "gemm_swiglu_dgrad"],
            GatedActivation::GeluTanh => ["gemm_geglu_fprop", "gemm_geglu_dgrad"],
        };
        let run = |fuse_from| {
            let mut options = TrainerOptions::default();
            options.step.gradients = GradientOwner::External;
            options.step.fuse_from = fuse_from;
            options.verify = true;
            let plan = Plan::new(&config, options).unwrap();
            let kernels = plan.requirements();
            let uses = |name| kernels.kernels().iter().any(|kernel| kernel.name == name);
            let fused = ["gemm_qkv_rope_fprop", fprop, dgrad].map(|name| usize::from(uses(name)));
            let mut trainer = trainer(&config, options, &mut |p| Ok(weights(p)));
            let loss = trainer.step(&golden::batch(&config, 0)).unwrap().loss;
            (fused, loss.to_bits(), trainer.gradients().unwrap())
        };
        let (separate, whole) = (run(None), run(Some(0)));
        assert_eq!((separate.0, whole.0), ([0; 3], fused), "{:?}", config.mode);
        assert_eq!(separate.1, whole.1, "{:?}", config.mode);
        for ((name, separate), (_, whole)) in separate.2.iter().zip(&whole.2) {
            let expected = doubles(separate);
            let error = distance(whole, &expected);
            assert!(error <= 0.01, "{name} is off by {error:.2e}");
        }
    }
}

/// Updates of a rank that bf16 products take, on every projection, and enough rows for them.
#[test]
fn lora_gradients_by_bf16_products_stay_near_those_in_f32() {
    for (dora, precisions) in
        [(false, &[Precision::BF16, Precision::BF16.nf4(false)][..]), (true, &[Precision::BF16])]
    {
        let lora = LoraConfig { targets: LoraTargets::ALL, dora, ..LoraConfig::new(8, 12.0) };
        gradients_by_bf16_products_stay_near_those_in_f32(lora, precisions);
    }
}

fn gradients_by_bf16_products_stay_near_those_in_f32(lora: LoraConfig, precisions: &[Precision]) {
    let rows = |precision| {
        let mut config = TrainingConfig { batch: 32, ..large(Mode::Lora(lora), precision) };
        (config.model.hidden, config.model.intermediate) = (64, 128);
        config
    };
    let single = gradients(&rows(Precision::F32), None);
    for &precision in precisions {
        let plan = Plan::new(&rows(precision), TrainerOptions::default()).unwrap();
        let uses = |name| plan.requirements().kernels().iter().any(|kernel| kernel.name == name);
        assert!(uses("gemm_wgrad_multistage") && !uses("lora_grad"), "{precision:?}");
        let expected = match precision.quantize {
            None => single.clone(),
            Some(_) => {
                let dequantized = TrainingConfig { precision: NF4, ..rows(Precision::F32) };
                gradients(&dequantized, None)
            }
        };
        for micro_batch in [None, Some(16)] {
            let found = gradients(&rows(precision), micro_batch);
            assert_eq!(found.len(), expected.len());
            for ((name, found), (_, expected)) in found.iter().zip(&expected) {
                let expected = doubles(expected);
                let error = distance(found, &expected);
                assert!(error < 0.05, "the gradient of {name} is off by {error:.2e}");
            }
        }
    }
}

#[test]
fn large_steps_over_nf4_read_rounded_operands_and_stay_near_those_in_f32() {
    let large = |precision| {
        let mut config = TrainingConfig { batch: 8, seq: 16, ..config(LORA, precision) };
        // Down projections have rows that are not whole blocks, and do not stream.
        (config.model.hidden, config.model.intermediate) = (64, 72);
        (config.optimizer.warmup_steps, config.optimizer.total_steps) = (1, 3);
        config
    };
    let quantized = large(Precision::BF16.nf4(true));
    let plan = Plan::new(&quantized, TrainerOptions::default()).unwrap();
    let kernels = plan.requirements().kernels();
    for name in ["gemm_fprop_multistage_nf4", "gemm_dgrad_multistage_nf4", "gemm_dgrad_bf16_nf4"] {
        assert!(kernels.iter().any(|kernel| kernel.name == name), "{name}");
    }
    let found = losses(&quantized, &mut |p| Ok(weights(p)));
    let forms = quantized.parameters();
    let form = |name: &str| forms.iter().find(|parameter| parameter.name == name).unwrap();
    let single = large(Precision::F32);
    let expected = losses(&single, &mut |p| Ok(stored(form(&p.name))));
    let distance = apart(&found, &expected);
    assert!(distance > 0.0 && distance < 0.01, "{distance}");
}

/// From 512 tokens on, weights are decoded before their products, which then are those for bf16.
#[test]
fn decoded_nf4_weights_train_with_the_bits_of_the_same_weights_in_bf16() {
    for (rank, fuse_from, double) in
        [(8, Some(1), true), (8, Some(1), false), (8, None, true), (3, None, false)]
    {
        let lora = LoraConfig { targets: LoraTargets::ALL, ..LoraConfig::new(rank, 12.0) };
        let of = |precision| {
            let mut config = config(Mode::Lora(lora), precision);
            (config.batch, config.seq) = (4, 128);
            (config.model.hidden, config.model.intermediate) = (64, 128);
            (config.model.layers, config.optimizer.total_steps) = (1, 2);
            config.optimizer.warmup_steps = 1;
            config
        };
        let mut step = StepOptions::default();
        step.fuse_from = fuse_from;
        let losses = |config: &TrainingConfig, values: &mut dyn FnMut(&Parameter) -> _| {
            let mut options = TrainerOptions::default();
            options.step = step;
            options.verify = true;
            let mut trainer = trainer(config, options, values);
            for step in 0..2 {
                trainer.step(&golden::batch(config, step)).unwrap();
            }
            trainer.losses().to_vec()
        };
        let quantized = of(Precision::BF16.nf4(double));
        let pass = StepPass::new(&quantized, step).unwrap().pass;
        let kernels = pass.requirements();
        let uses = |name| kernels.kernels().iter().any(|kernel| kernel.name == name);
        assert!(uses("nf4_dequantize") && !uses("gemm_fprop_multistage_nf4"));
        let found = losses(&quantized, &mut |p| Ok(weights(p)));
        let forms = quantized.parameters();
        let form = |name: &str| forms.iter().find(|parameter| parameter.name == name).unwrap();
        let expected = losses(&of(Precision::BF16), &mut |p| Ok(stored(form(&p.name))));
        assert_eq!(found, expected, "rank {rank}, fused from {fuse_from:?}");
    }
}

#[test]
fn training_over_nf4_is_training_over_the_values_of_its_codes() {
    for precision in [NF4, NESTED] {
        let quantized = config(LORA, precision);
        let found = losses(&quantized, &mut |p| Ok(weights(p)));
        // The same numbers as f32. Only the order of additions may differ.
        let forms = quantized.parameters();
        let form = |name: &str| forms.iter().find(|parameter| parameter.name == name).unwrap();
        let single = config(LORA, Precision::F32);
        let expected = losses(&single, &mut |p| Ok(stored(form(&p.name))));
        assert!(apart(&found, &expected) < 1e-5, "{found:?}, {expected:?}");
        let rounded = TrainingConfig {
            precision: Precision { dtype: DType::Bf16, ..precision },
            ..quantized
        };
        let rounded = losses(&rounded, &mut |p| Ok(weights(p)));
        assert!(apart(&rounded, &expected) < 0.01, "{rounded:?}, {expected:?}");
    }
}

/// The likeliest tokens, each step verified against an eager one.
fn greedy(
    config: &TrainingConfig,
    values: &mut dyn FnMut(&Parameter) -> retrograph_finetune::Result<Vec<f32>>,
) -> Vec<u32> {
    let mut options = GeneratorOptions::new(24);
    options.verify = true;
    let plan = GenerationPlan::new(&config.into(), options).unwrap();
    let source = Source::Values(values);
    let mut generator = plan.start(&device().modules(), source, &mut |_| ()).unwrap();
    let prompt: Vec<u32> = (0..9).map(|i| (i * i + 7 * i + 3) % 256).collect();
    let request = Request { max_tokens: 12, ..Request::new(&prompt, Sampling::greedy()) };
    generator.tokens(&request).unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn text_over_nf4_is_text_over_the_values_of_its_codes() {
    let quantized = config(LORA, NESTED);
    let found = greedy(&quantized, &mut |p| Ok(weights(p)));
    let forms = quantized.parameters();
    let form = |name: &str| forms.iter().find(|parameter| parameter.name == name).unwrap();
    let single = config(LORA, Precision::F32);
    assert_eq!(found, greedy(&single, &mut |p| Ok(stored(form(&p.name)))));
    // In bf16 another token may be the likeliest; replay and eager agree on it.
    let rounded = config(LORA, Precision::BF16.nf4(true));
    assert_eq!(greedy(&rounded, &mut |p| Ok(weights(p))).len(), 12);
}

#[test]
fn gradients_of_lora_over_nf4_are_those_of_a_reference_over_its_values() {
    let mut config = config(LORA, NESTED);
    (config.batch, config.seq, config.model.layers) = (1, 5, 1);
    let batch = golden::batch(&config, 0);
    let parameters = config.parameters();
    let mut all = Weights::new();
    for parameter in &parameters {
        all.insert(parameter.name.clone(), stored(parameter).into_iter().map(f64::from).collect());
    }
    for (precision, allowed) in [(NESTED, 1e-4), (Precision::BF16.nf4(true), 0.05)] {
        let config = TrainingConfig { precision, ..config };
        let options =
            with(TrainerOptions::default(), |it| it.step = GradientOwner::External.into());
        let mut trainer = trainer(&config, options, &mut |p| Ok(weights(p)));
        trainer.step(&batch).unwrap();
        for (name, gradient) in trainer.gradients().unwrap() {
            // Central differences of the loss, every other element.
            let loss = |index: usize, by: f64| {
                let mut moved = all.clone();
                moved.get_mut(&name).unwrap()[index] += by;
                Reference { config: &config, weights: &moved }.loss(&batch)
            };
            let some: Vec<usize> = (0..gradient.len()).step_by(5).collect();
            let slope = |&i: &usize| (loss(i, 1e-4) - loss(i, -1e-4)) / 2e-4;
            let slopes: Vec<f64> = some.iter().map(slope).collect();
            let found: Vec<f32> = some.iter().map(|&i| gradient[i]).collect();
            let error = distance(&found, &slopes);
            assert!(error <= allowed, "{precision}: the gradient of {name} is off by {error:.2e}");
        }
    }
}

#[test]
fn seeds_and_texts_train_in_every_precision() {
    for precision in [Precision::BF16, Precision::BF16.nf4(true)] {
        let config = TrainingConfig { precision, ..models::config(LORA, 12) };
        let mut trainer = models::trainer(&device(), &config, TrainerOptions::default());
        models::train(&mut trainer, 12);
        let losses = trainer.losses();
        assert!(losses[11] < losses[0] * 0.95, "{losses:?}");
        assert_eq!(trainer.jit_after_warm(), 0);
    }
}

#[test]
fn a_run_takes_the_bytes_of_its_types() {
    let config = |precision| TrainingConfig {
        model: ModelConfig { layers: 2, ..Preset::Qwen25OneAndHalf.model() },
        ..TrainingConfig { precision, ..models::config(LORA, 1) }
    };
    let bytes = |precision| {
        let plan = Plan::new(&config(precision), TrainerOptions::default()).unwrap();
        plan.memory().parameters
    };
    let all = config(Precision::F32).parameters();
    let count = |keep: &dyn Fn(&Parameter) -> bool| -> usize {
        all.iter().filter(|parameter| keep(parameter)).map(Parameter::len).sum()
    };
    let matrices = count(&|p| !p.trainable && p.shape.len() == 2);
    let table = 151_936 * 1536;
    // LoRA matrices have a copy in bf16.
    let adapters = count(&|p| p.trainable && p.shape.len() == 2);
    assert_eq!(bytes(Precision::F32) - bytes(Precision::BF16), 2 * matrices - 2 * adapters);
    // All matrices but the table are read by products, and the table is the output projection.
    let full = |precision| TrainingConfig { mode: Mode::Full, ..config(precision) };
    let full = |precision| *Plan::new(&full(precision), Default::default()).unwrap().memory();
    let (single, copied) = (full(Precision::F32), full(Precision::BF16));
    assert_eq!(copied.parameters - single.parameters, 2 * matrices);
    assert_eq!(copied.optimizer, single.optimizer);
    let linear = matrices - table;
    let saved = bytes(Precision::BF16) - bytes(Precision::BF16.nf4(false));
    // 2 bytes become half a byte and a sixteenth of a byte for the scale.
    assert_eq!(saved, linear * 2 - linear / 2 - linear / 16);
    assert!(bytes(Precision::BF16.nf4(true)) < bytes(Precision::BF16.nf4(false)));
}

#[test]
fn weights_take_the_planned_bytes() {
    for (mode, precision) in [(LORA, Precision::BF16.nf4(true)), (Mode::Full, Precision::BF16)] {
        let device = simulated(Config::default());
        let model = Preset::Tiny.model();
        let config = TrainingConfig { precision, model, ..models::config(mode, 1) };
        let modules = device.modules();
        let before = modules.context().mem_get_info().unwrap().0;
        let mut options = TrainerOptions::default();
        options.verify = mode.is_full();
        let trainer = models::trainer(&device, &config, options);
        let taken = before - modules.context().mem_get_info().unwrap().0;
        let plan = Plan::new(&config, options).unwrap();
        let planned = plan.memory().least();
        assert!(taken <= planned, "{taken} bytes are taken, and {planned} were planned");
        drop(trainer);
    }
}

#[test]
fn a_checkpoint_does_not_continue_in_another_precision() {
    let saved = models::config(LORA, 4);
    let header = Header::new(saved, "text", Vec::new());
    header.require(&saved, "text").unwrap();
    for (precision, words) in
        [(Precision::BF16, "dtype: bf16"), (Precision::TF32X3, "f32_products: tf32x3")]
    {
        let asked = TrainingConfig { precision, ..saved };
        let error = header.require(&asked, "text").unwrap_err().to_string();
        assert!(error.contains("precision") && error.contains(words), "{error}");
    }
}

#[test]
fn weights_that_nf4_cannot_represent_are_named() {
    let config = config(LORA, NF4);
    let plan = Plan::new(&config, TrainerOptions::default()).unwrap();
    let mut values = |parameter: &Parameter| {
        let mut values = weights(parameter);
        if parameter.name.ends_with("layers.1.mlp.up_proj.weight") {
            values[70] = f32::INFINITY;
        }
        Ok(values)
    };
    let error = plan.start(&device().modules(), Source::Values(&mut values), &mut |_| ());
    let error = error.unwrap_err();
    let Error::NotQuantizable { parameter, index: 70, .. } = &error else { panic!("{error}") };
    assert_eq!(parameter, "model.layers.1.mlp.up_proj.weight");
}
