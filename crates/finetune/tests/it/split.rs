//! f32 steps of many rows, whose products read operands that were split into f16 terms before.

use std::collections::BTreeSet;

use half::bf16;
use retrograph_driver_sim::Config;
use retrograph_finetune::model::{GradientOwner, StepOptions, StepPass};
use retrograph_finetune::parameters::{Parameter, Storage};
use retrograph_finetune::{
    Error, F16Copies, F32Products, LoraConfig, LoraTargets, Mode, ModelConfig, Plan, Precision,
    Preset, Source, Stage, TrainerOptions, TrainingConfig,
};
use retrograph_kernels::{Launch, Problem, SmTarget};
use retrograph_runtime::{BufferId, OperationKind, Policy};
use retrograph_test_support::with;

use crate::device::{device, simulated};
use crate::golden::{self, distance, weights};
use crate::precision::{config, trainer};

/// Splits the operands of products of 256 rows, whatever their other sizes.
fn always() -> StepOptions {
    with(StepOptions::default(), |it| it.split_from = Some(1))
}

/// One step of 256 rows.
fn large(mode: Mode) -> TrainingConfig {
    let mut config = config(mode, Precision::F32);
    (config.batch, config.seq) = (4, 64);
    (config.optimizer.warmup_steps, config.optimizer.total_steps) = (1, 3);
    config
}

/// The same with heads of 64 elements in LoRA steps, so that their attention reads terms.
fn with_wide_heads(mode: Mode) -> TrainingConfig {
    let mut config = large(mode);
    if config.mode.lora().is_some() {
        config.model = ModelConfig { heads: 2, kv_heads: 1, head_dim: Some(64), ..config.model };
    }
    config
}

/// The same run with products in tf32x3.
fn in_tf32x3(mut config: TrainingConfig) -> TrainingConfig {
    config.precision.f32_products = F32Products::Tf32x3;
    config
}

fn modes() -> [Mode; 2] {
    let lora = LoraConfig { targets: LoraTargets::ALL, ..LoraConfig::new(4, 12.0) };
    [Mode::Lora(lora), Mode::Full]
}

/// The same, and LoRA on q and v alone, so that only products read the inputs of gate and up.
fn modes_and_default_targets() -> [Mode; 3] {
    let [all, full] = modes();
    [all, full, Mode::Lora(LoraConfig::new(4, 12.0))]
}

/// The kernels of a step, by name, one for each launch.
pub(crate) fn launches(config: &TrainingConfig, step: StepOptions) -> Vec<&'static str> {
    of_launches(config, step, |launch| launch.kernel().name)
}

fn of_launches<T>(
    config: &TrainingConfig,
    step: StepOptions,
    what: impl Fn(&Launch<BufferId>) -> T,
) -> Vec<T> {
    let pass = StepPass::new(config, step).unwrap().pass;
    let launches = pass.operations().iter().filter_map(|operation| match operation.kind() {
        OperationKind::Launch(launch) => Some(what(launch)),
        _ => None,
    });
    launches.collect()
}

#[test]
fn attention_of_many_rows_reads_terms() {
    let hopper = SmTarget::for_device(9, 0).unwrap();
    let config = with_wide_heads(modes()[0]);
    let entries = |config, step| {
        let entries = of_launches(&config, step, |launch| launch.dispatch(hopper).entry);
        let attention =
            entries.into_iter().filter(|entry| entry.starts_with("flash_attention_f32"));
        attention.filter(|entry| !entry.ends_with("preprocess")).collect::<Vec<_>>()
    };
    let whole = entries(config, always());
    assert!(!whole.is_empty() && whole.iter().all(|entry| entry.contains("wgmma")), "{whole:?}");
    let (few_rows, default) =
        (with(always(), |it| it.micro_batch = Some(2)), StepOptions::default());
    // Fewer rows, fewer multiplications, and tf32x3.
    for (config, step) in [(config, few_rows), (config, default), (in_tf32x3(config), always())] {
        let whole = entries(config, step);
        assert!(whole.iter().all(|entry| !entry.contains("wgmma")), "{whole:?}");
    }
}

/// Other activations are split by the kernel that computes them. Weights are split at upload.
#[test]
fn launches_of_split_f16_are_for_attention_o_and_logits() {
    let mut config = large(Mode::Lora(LoraConfig::new(16, 32.0)));
    config.model = ModelConfig { layers: 2, ..Preset::Qwen25OneAndHalf.model() };
    (config.seq, config.precision.f16_copies) = (512, F16Copies::TwoTerms);
    let pass = StepPass::new(&config, StepOptions::default()).unwrap().pass;
    let splits = pass.operations().iter().filter_map(|operation| match operation.kind() {
        OperationKind::Launch(launch) if launch.kernel().name == "split_f16" => {
            let Problem::Rows(rows) = *launch.problem() else { unreachable!("rows are split") };
            Some((operation.name().strip_suffix("/split_f16")?, rows.width))
        }
        _ => None,
    });
    let of_layer = |number: usize, part: &str| format!("layer {number}/{part}");
    // Queries, keys and values.
    let projections = |part: &str| [1536, 256, 256].map(|width| (part.to_owned(), width));
    let forward = |layer| {
        let attention = projections(&of_layer(layer, "attention"));
        attention.into_iter().chain([(of_layer(layer, "o"), 1536)])
    };
    let backward = |layer| {
        let attention = of_layer(layer, "attention backward");
        let grads = [("q", 1536), ("k", 256), ("v", 256)];
        let grads = grads.map(|(of, width)| (of_layer(layer, &format!("{of} backward")), width));
        let operands = projections(&attention).into_iter().chain([(attention, 1536)]);
        operands.chain(grads)
    };
    // The rows of the logits are gathered after the norm.
    let logits = ("logits".to_owned(), 1536);
    let expected = (0..2).flat_map(forward).chain([logits]);
    let expected = expected.chain([1, 0].into_iter().flat_map(backward));
    let found: Vec<_> = splits.map(|(of, width)| (of.to_owned(), width)).collect();
    assert_eq!(found, expected.collect::<Vec<_>>());
}

/// `down` and the gradient through the output projection have few tiles and a long contraction.
#[test]
fn split_operands_are_multiplied_with_split_k_if_tiles_are_few() {
    let hopper = SmTarget::for_device(9, 0).unwrap();
    let mut config = large(modes()[0]);
    config.model = ModelConfig { layers: 1, ..Preset::Qwen25OneAndHalf.model() };
    let mut splits = |seq| {
        config.seq = seq;
        let launches = of_launches(&config, StepOptions::default(), |launch| {
            (launch.kernel().name, launch.dispatch(hopper).grid[2])
        });
        let products = launches.into_iter().filter(|(name, _)| name.starts_with("gemm_"));
        products.filter(|(_, splits)| *splits > 1).collect::<Vec<_>>()
    };
    assert_eq!(splits(128), [("gemm_fprop_split", 2), ("gemm_dgrad_split", 2)]);
    assert_eq!(splits(512), []);
}

/// Weights whose rows have different scales, which also differ between the MLP and attention.
fn uneven(parameter: &Parameter) -> Vec<f32> {
    let (mut values, name) = (weights(parameter), &parameter.name);
    if name.ends_with("_proj.weight") {
        let columns = parameter.shape[1];
        let shift = usize::from(name.contains(".mlp."));
        for (at, value) in values.iter_mut().enumerate() {
            *value *= (-(((at / columns + shift) % 3) as f32)).exp2();
        }
    }
    values
}

#[test]
fn the_loss_and_the_gradients_are_those_of_tf32x3() {
    let gradients = |config: &TrainingConfig| {
        let mut options = TrainerOptions::default();
        options.step = with(always(), |it| it.gradients = GradientOwner::External);
        let mut trainer = trainer(config, options, &mut |p| Ok(uneven(p)));
        let loss = trainer.step(&golden::batch(config, 0)).unwrap().loss;
        (loss, trainer.gradients().unwrap())
    };
    for mode in modes_and_default_targets() {
        let split = with_wide_heads(mode);
        assert!(launches(&split, always()).contains(&"gemm_dgrad_split"), "{mode:?}");
        let [(loss, found), (other, expected)] = [split, in_tf32x3(split)].map(|it| gradients(&it));
        assert!((loss - other).abs() <= 1e-6 * loss, "{mode:?}: {loss} and {other}");
        for ((name, found), (_, expected)) in found.iter().zip(&expected) {
            let expected: Vec<f64> = expected.iter().copied().map(f64::from).collect();
            let error = distance(found, &expected);
            assert!(error < 2e-6, "{mode:?}: the gradient of {name} is off by {error:.2e}");
        }
    }
}

/// The same launches with the same arguments give the same bits.
#[test]
fn a_step_in_tf32x3_is_one_whose_products_are_too_small_to_split() {
    let described =
        |config: &TrainingConfig, step| of_launches(config, step, |launch| format!("{launch:?}"));
    for mode in modes_and_default_targets() {
        let small = with_wide_heads(mode);
        let mut tf32x3 = in_tf32x3(small);
        tf32x3.precision.f16_copies = F16Copies::TwoTerms;
        let expected = described(&small, StepOptions::default());
        assert_eq!(described(&tf32x3, always()), expected, "{mode:?}");
    }
}

#[test]
fn a_large_step_in_tf32x3_has_no_terms_and_takes_less_memory() {
    let mut split = large(Mode::Lora(LoraConfig::new(16, 32.0)));
    split.model = ModelConfig { layers: 2, ..Preset::Qwen25OneAndHalf.model() };
    split.seq = 512;
    let planned = |config: &TrainingConfig| {
        let plan = Plan::new(config, TrainerOptions::default()).unwrap();
        let buffers = plan.step_pass().pass.buffers();
        let terms = buffers.filter(|(_, buffer)| buffer.element() == "f16").count();
        let launches = launches(config, StepOptions::default());
        let splits = launches
            .iter()
            .filter(|name| name.starts_with("split_f16") || name.ends_with("_split"));
        ([terms, splits.count()], *plan.memory())
    };
    let without = planned(&in_tf32x3(split)).1;
    for f16_copies in [F16Copies::None, F16Copies::OneTerm, F16Copies::TwoTerms] {
        split.precision.f16_copies = f16_copies;
        let (split, tf32x3) = (planned(&split), planned(&in_tf32x3(split)));
        assert!(split.0.iter().all(|count| *count > 0), "{split:?}");
        assert_eq!((tf32x3.0, tf32x3.1.parameters), ([0, 0], without.parameters));
        let [more, less] = [split.1, tf32x3.1].map(|memory| memory.least());
        assert!(less < more, "{f16_copies:?}: {less} bytes in tf32x3, {more} in split f16");
    }
}

#[test]
fn replayed_steps_have_the_bits_of_eager_ones() {
    let split = modes_and_default_targets().map(with_wide_heads);
    let tf32x3 = in_tf32x3(with_wide_heads(modes()[0]));
    for config in split.into_iter().chain([tf32x3]) {
        let losses = |policy: Policy| {
            let (build, verify) = (policy.into(), policy != Policy::Eager);
            let mut options = TrainerOptions::default();
            options.build = build;
            options.verify = verify;
            options.step = always();
            let mut trainer = trainer(&config, options, &mut |p| Ok(weights(p)));
            for step in 0..3 {
                trainer.step(&golden::batch(&config, step)).unwrap();
            }
            trainer.losses().iter().map(|loss| loss.to_bits()).collect::<Vec<_>>()
        };
        let eager = losses(Policy::Eager);
        assert_eq!(eager, losses(Policy::Manual), "{config:?}");
    }
}

/// Weights of one shape share three transients, and the projection to logits, which the backward
/// pass reads next, is split once.
#[test]
fn split_weights_take_the_memory_of_a_few() {
    let of_layers = |layers| {
        let mut config = large(modes()[0]);
        config.model.layers = layers;
        config
    };
    let split = |layers| {
        let launches = launches(&of_layers(layers), always());
        launches.iter().filter(|name| **name == "split_f16").count()
    };
    // Of a layer: seven weights in each direction, and operands that no other kernel splits.
    assert_eq!(split(7) - split(6), split(6) - split(5));
    let buffers = |layers| {
        let pass = StepPass::new(&of_layers(layers), always()).unwrap().pass;
        let names = pass.buffers().map(|(_, buffer)| buffer.name().to_owned());
        names.filter(|name| name.starts_with("converted weights")).collect::<BTreeSet<_>>()
    };
    let few = buffers(4);
    assert!(!few.is_empty());
    assert_eq!(few, buffers(9));
}

/// Separate launches to split operands would take longer than they save.
#[test]
fn small_products_split_their_operands_themselves() {
    for mode in modes_and_default_targets() {
        let launches = launches(&large(mode), StepOptions::default());
        let splits: Vec<_> = launches.iter().filter(|name| name.starts_with("split_f16")).collect();
        assert!(splits.is_empty(), "{mode:?}: {splits:?}");
    }
}

/// The weights of the golden model, rounded to bf16 if they are frozen matrices.
fn rounded(parameter: &Parameter) -> Vec<f32> {
    let mut values = weights(parameter);
    if !parameter.trainable && parameter.shape.len() == 2 {
        values.iter_mut().for_each(|value| *value = bf16::from_f32(*value).to_f32());
    }
    values
}

/// The configuration of a LoRA step of 256 rows with these copies.
fn copied(f16_copies: F16Copies) -> TrainingConfig {
    let mut config = large(modes()[0]);
    config.precision.f16_copies = f16_copies;
    config
}

/// The low terms that one term leaves out are 0.
#[test]
fn frozen_weights_are_split_once_and_give_the_same_bits() {
    let losses = |f16_copies, weights: fn(&Parameter) -> Vec<f32>| {
        let mut options = TrainerOptions::default();
        options.verify = true;
        options.step = always();
        let config = copied(f16_copies);
        let mut trainer = trainer(&config, options, &mut |p| Ok(weights(p)));
        for step in 0..3 {
            trainer.step(&golden::batch(&config, step)).unwrap();
        }
        trainer.losses().iter().map(|loss| loss.to_bits()).collect::<Vec<_>>()
    };
    assert_eq!(losses(F16Copies::OneTerm, rounded), losses(F16Copies::None, rounded));
    assert_eq!(losses(F16Copies::TwoTerms, weights), losses(F16Copies::None, weights));

    let converts = |f16_copies| {
        let pass = StepPass::new(&copied(f16_copies), always()).unwrap().pass;
        pass.buffers().any(|(_, buffer)| buffer.name().starts_with("converted weights"))
    };
    let found = [F16Copies::None, F16Copies::OneTerm, F16Copies::TwoTerms].map(converts);
    assert_eq!(found, [true, false, false]);
}

/// A device with too little memory for f16 copies trains without them, with the same bits.
#[test]
fn copies_of_two_terms_are_left_out_where_they_do_not_fit() {
    // Nodes of a graph would take more memory than the weights of this model.
    let mut options = TrainerOptions::default();
    options.build = Policy::Eager.into();
    options.step = always();
    let config = |f16_copies| {
        let mut config = copied(f16_copies);
        // Weights that are split in each step take the memory of three layers.
        config.model.layers = 8;
        config
    };
    let plan = |f16_copies| Plan::new(&config(f16_copies), options).unwrap();
    let [with, without] = [F16Copies::TwoTerms, F16Copies::None].map(|copies| {
        let memory = *plan(copies).memory();
        (memory.least() + memory.driver.total(), memory.parameters)
    });
    assert!(without.0 < with.0, "{without:?} bytes without copies, {with:?} with them");
    let mut losses = Vec::new();
    for (bytes, expected) in [(with.0, 0), (with.0 - 1, with.1 - without.1)] {
        // The device of the simulator takes nothing for itself.
        let mut machine = Config::default();
        machine.memory_bytes = bytes as u64;
        let device = simulated(machine);
        let (mut left_out, mut planned) = (0, 0);
        let values = &mut |parameter: &Parameter| Ok(weights(parameter));
        let on = &mut |stage: Stage<'_>| match stage {
            Stage::WithoutCopies { bytes } => left_out = bytes,
            Stage::Fits(need, _) => planned = need.parameters,
            _ => {}
        };
        let plan = plan(F16Copies::TwoTerms);
        let mut trainer = plan.start(&device.modules(), Source::Values(values), on).unwrap();
        assert_eq!((left_out, planned), (expected, with.1 - expected));
        losses.push(trainer.step(&golden::batch(&config(F16Copies::None), 0)).unwrap().loss);
    }
    assert_eq!(losses[0].to_bits(), losses[1].to_bits());
}

#[test]
fn copies_in_f16_are_kept_for_products_of_many_rows_alone() {
    let [lora, full] = modes();
    for (f16_copies, terms) in [(F16Copies::OneTerm, 1), (F16Copies::TwoTerms, 2)] {
        let stored = |rows: usize, mode: Mode, precision: Precision| {
            let precision = Precision { f16_copies, ..precision };
            let config = TrainingConfig { batch: 1, seq: rows, precision, ..large(mode) };
            let copied = |one: &Parameter| match one.storage {
                Storage::F32WithF16 { terms, .. } => Some((one.name.clone(), terms)),
                _ => None,
            };
            config.parameters().iter().filter_map(copied).collect::<Vec<_>>()
        };
        let copied = stored(32, lora, Precision::F32);
        // Five matrices of each layer, and the output projection. k and v have 12 rows.
        assert_eq!(copied.len(), 5 * large(lora).model.layers + 1, "{copied:?}");
        assert!(copied.iter().all(|(_, found)| *found == terms), "{copied:?}");
        for (rows, mode, precision) in [
            (31, lora, Precision::F32),
            (32, full, Precision::F32),
            (32, lora, Precision::TF32X3),
            (32, lora, Precision::BF16),
            (32, lora, Precision::BF16.nf4(false)),
        ] {
            assert!(stored(rows, mode, precision).is_empty(), "{rows} {mode:?} {precision:?}");
        }
    }
}

#[test]
fn weights_of_more_bits_are_refused_by_name() {
    let config = copied(F16Copies::OneTerm);
    let values = &mut |parameter: &Parameter| {
        let mut values = rounded(parameter);
        if parameter.name.ends_with("1.mlp.up_proj.weight") {
            values[70] = 0.100_000_01;
        }
        Ok(values)
    };
    let plan = Plan::new(&config, TrainerOptions::default()).unwrap();
    let error = plan.start(&device().modules(), Source::Values(values), &mut |_| ()).unwrap_err();
    let Error::NotInF16 { parameter, index: 70, .. } = &error else { panic!("{error}") };
    assert!(parameter.ends_with("1.mlp.up_proj.weight"), "{parameter}");
}
