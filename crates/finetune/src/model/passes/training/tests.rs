//! The operations of training steps in every mode and precision.

use retrograph_kernels::{Access, Kernel, Problem, ops};
use retrograph_runtime::OperationKind;

use super::super::count;
use super::*;
use crate::config::{LoraConfig, ModelConfig, OptimizerConfig, Preset};

fn config(mode: Mode) -> TrainingConfig {
    TrainingConfig {
        model: Preset::Tiny.model(),
        mode,
        precision: crate::config::Precision::F32,
        batch: 2,
        seq: 8,
        optimizer: OptimizerConfig::new(1e-3, 10),
        seed: 0,
    }
}

fn step(mode: Mode) -> StepPass {
    StepPass::new(&config(mode), StepOptions::default()).unwrap()
}

/// Products whose operands are bf16 and copied asynchronously.
const MULTISTAGE: [&Kernel; 3] =
    [&ops::FPROP_MULTISTAGE, &ops::DGRAD_MULTISTAGE, &ops::WGRAD_MULTISTAGE];

#[test]
fn kernels_of_a_large_step_round_their_outputs_to_bf16() {
    let step = |seq| {
        let precision = crate::config::Precision::BF16;
        let mode = Mode::Lora(LoraConfig::new(4, 8.0));
        let config = TrainingConfig { precision, batch: 1, seq, ..config(mode) };
        StepPass::new(&config, StepOptions::default()).unwrap()
    };
    let (large, small) = (step(9), step(8));
    let layers = Preset::Tiny.model().layers;
    // Forward and backward, and the logits.
    assert_eq!(count(&large.pass, &MULTISTAGE), 2 * (7 * layers + 1));
    assert_eq!(count(&small.pass, &MULTISTAGE), 0);
    // Only the LoRA update of v is cast by a separate launch; with small products, the gradient
    // of attention is as well.
    assert_eq!(count(&large.pass, &[&ops::CAST]), layers);
    assert_eq!(count(&small.pass, &[&ops::CAST]), 2 * layers);
}

#[test]
fn a_large_full_step_in_bf16_computes_every_product_from_bf16_operands() {
    let precision = crate::config::Precision::BF16;
    let config = TrainingConfig { precision, batch: 1, seq: 16, ..config(Mode::Full) };
    let step = StepPass::new(&config, StepOptions::default()).unwrap();
    let layers = Preset::Tiny.model().layers;
    // Forward, gradient of the input, gradient of the weight.
    assert_eq!(count(&step.pass, &MULTISTAGE), 3 * (7 * layers + 1));
    let is_product = |operation: &&retrograph_runtime::Operation| {
        let OperationKind::Launch(launch) = operation.kind() else { return false };
        matches!(*launch.problem(), Problem::Gemm(_))
    };
    let products = step.pass.operations().iter().filter(is_product).count();
    assert_eq!(products, count(&step.pass, &MULTISTAGE));
    assert_eq!(count(&step.pass, &[&ops::CAST]), 0);
}

#[test]
fn norms_of_a_large_step_in_bf16_read_branches_and_gradients_in_bf16() {
    let counts = |precision| {
        let config = TrainingConfig { precision, batch: 1, seq: 16, ..config(Mode::Full) };
        let pass = StepPass::new(&config, StepOptions::default()).unwrap().pass;
        [&ops::RMS_NORM, &ops::RMS_NORM_BACKWARD].map(|kernel| {
            let reads_bf16 = |operation: &&retrograph_runtime::Operation| {
                let OperationKind::Launch(launch) = operation.kind() else { return false };
                let mut read = operation.accesses().iter().filter(|it| it.access != Access::Write);
                launch.kernel() == kernel
                    && read.any(|it| pass.buffer(it.buffer).unwrap().element().contains("bf16"))
            };
            pass.operations().iter().filter(reads_bf16).count()
        })
    };
    let layers = Preset::Tiny.model().layers;
    // Outputs of attention and MLP, and gradients through q, k, v, gate and up.
    assert_eq!(counts(crate::config::Precision::BF16), [2 * layers, 2 * layers]);
    assert_eq!(counts(crate::config::Precision::F32), [0, 0]);
}

#[test]
fn attention_rotates_its_gradients_back_in_bf16() {
    let rotations = |precision| {
        let config = TrainingConfig { precision, ..config(Mode::Full) };
        let step = StepPass::new(&config, StepOptions::default()).unwrap();
        count(&step.pass, &[&ops::ROPE])
    };
    let layers = Preset::Tiny.model().layers;
    assert_eq!(rotations(crate::config::Precision::BF16), layers);
    // In f32 a separate launch rotates them.
    assert_eq!(rotations(crate::config::Precision::F32), 2 * layers);
}

#[test]
fn the_full_step_has_a_weight_gradient_for_each_matrix() {
    let step = step(Mode::Full);
    // Seven projections in each of two layers, and the logits.
    assert_eq!(count(&step.pass, &[&ops::WGRAD]), 2 * 7 + 1);
    assert_eq!(count(&step.pass, &[&ops::COLUMN_SUM]), 2 * 3);
    assert_eq!(count(&step.pass, &[&ops::EMBEDDING_BACKWARD]), 1);
    assert!(step.parameters.iter().all(|held| held.trained.is_some()));
}

#[test]
fn the_lora_step_computes_no_unused_gradient() {
    let step = step(Mode::Lora(LoraConfig { norms: true, ..LoraConfig::new(8, 32.0) }));
    // B of q, B of v, and A of both in each of two layers.
    assert_eq!(
        (count(&step.pass, &[&ops::WGRAD]), count(&step.pass, &[&ops::LORA_GRAD])),
        (0, 2 * 3)
    );
    assert_eq!(count(&step.pass, &[&ops::COLUMN_SUM]), 0);
    assert_eq!(count(&step.pass, &[&ops::EMBEDDING_BACKWARD]), 0);
    assert_eq!(count(&step.pass, &[&ops::RMS_NORM_GAMMA_REDUCE]), 2 * 2);
}

#[test]
fn norms_fuse_the_residual_adds() {
    let options = StepOptions { recompute: true, ..StepOptions::default() };
    for options in [StepOptions::default(), options] {
        let step = StepPass::new(&config(Mode::Full), options).unwrap();
        assert_eq!(count(&step.pass, &[&ops::ADD]), 0);
        // Two in each of two layers, and the one before the logits.
        assert_eq!(count(&step.pass, &[&ops::RMS_NORM_BACKWARD]), 2 * 2 + 1);
    }
}

#[test]
fn adapters_of_one_input_share_launches() {
    let count = |lora: LoraConfig| {
        let step = step(Mode::Lora(lora));
        [&ops::LORA_SHRINK, &ops::LORA_EXPAND, &ops::LORA_GRAD]
            .map(|kernel| count(&step.pass, &[kernel]))
    };
    // One launch for q and v: x·Aᵀ, its gradient, both outputs, and the input gradient.
    assert_eq!(count(LoraConfig::new(8, 32.0)), [2 * 3, 2 * 3, 2 * 3]);
    // With dropout, each has its own input.
    let dropout = LoraConfig { dropout: 0.1, ..LoraConfig::new(8, 32.0) };
    assert_eq!(count(dropout), [2 * 4, 2 * 4, 2 * 4]);
    // Larger ranks are computed by GEMM.
    assert_eq!(count(LoraConfig::new(65, 32.0)), [0; 3]);
}

#[test]
fn long_contractions_are_split() {
    let mut config = config(Mode::Full);
    config.model.intermediate = 8192;
    let step = StepPass::new(&config, StepOptions::default()).unwrap();
    // In each of two layers: down in the forward pass; gate, up and the sum over the heads
    // that share a key in the backward pass.
    assert_eq!(count(&step.pass, &[&ops::SPLIT_K_SUM]), 2 * 4);
}

#[test]
fn every_operation_has_a_scope() {
    let step = step(Mode::Full);
    assert!(step.pass.operations().iter().all(|it| it.name() != it.verb()));
}

#[test]
fn independent_operations_have_no_edges() {
    let step = step(Mode::Full);
    let (operations, depth) = (step.pass.operations().len(), step.pass.depth());
    assert!(depth * 4 < operations * 3, "{depth} of {operations} operations in a row");
}

#[test]
fn post_norms_of_a_large_step_in_bf16_write_only_bf16() {
    let names = |precision| {
        let model = ModelConfig { post_norms: true, ..Preset::Tiny.model() };
        let mode = Mode::Lora(LoraConfig::new(4, 8.0));
        let config = TrainingConfig { model, precision, batch: 1, seq: 16, ..config(mode) };
        let step = StepPass::new(&config, StepOptions::default()).unwrap();
        let names = step.pass.buffers().map(|(_, buffer)| buffer.name().to_owned());
        let normed = names.filter(|name| name.contains("post-") && name.contains("/normed"));
        normed.collect::<Vec<_>>()
    };
    for (precision, ending) in [
        (crate::config::Precision::F32, "/normed"),
        (crate::config::Precision::BF16, "/normed_bf16"),
    ] {
        let names = names(precision);
        assert_eq!(names.len(), 2 * Preset::Tiny.model().layers, "{names:?}");
        assert!(names.iter().all(|name| name.ends_with(ending)), "{names:?}");
    }
}

/// The weight gradient of a trained output projection is a sum over all rows.
#[test]
fn logits_and_their_gradients_stop_at_the_last_row_with_a_target() {
    let limited = |mode, precision, seq| {
        let config = TrainingConfig { precision, batch: 1, seq, ..config(mode) };
        let options = StepOptions { split_from: Some(1), ..StepOptions::default() };
        let step = StepPass::new(&config, options).unwrap();
        let mut kernels = Vec::new();
        for operation in step.pass.operations() {
            let OperationKind::Launch(launch) = operation.kind() else { continue };
            let parameters = launch.kernel().parameters.iter().zip(launch.arguments());
            let is_limit = |(parameter, argument): (&retrograph_kernels::Parameter, &_)| {
                parameter.name == "row_limit" && *argument != retrograph_kernels::Argument::Null
            };
            if parameters.into_iter().any(is_limit) {
                kernels.push(launch.kernel().name);
            }
        }
        kernels
    };
    let [gather, scatter] = [ops::GATHER_ROWS.name, ops::SCATTER_ROWS.name];
    let full = Mode::Full;
    let lora = Mode::Lora(LoraConfig::new(4, 8.0));
    let (bf16, f32) = (crate::config::Precision::BF16, crate::config::Precision::F32);
    let [fprop, dgrad] = [&ops::FPROP_MULTISTAGE, &ops::DGRAD_MULTISTAGE].map(|it| it.name);
    let loss = ops::CROSS_ENTROPY_BF16.name;
    assert_eq!(limited(lora, bf16, 16), [gather, fprop, loss, dgrad, scatter]);
    assert_eq!(limited(full, bf16, 16), [gather, fprop, dgrad, scatter]);
    let [fprop, dgrad] = [&ops::FPROP_SPLIT, &ops::DGRAD_SPLIT].map(|it| it.name);
    let loss = ops::SPLIT_CROSS_ENTROPY.name;
    assert_eq!(limited(lora, f32, 256), [gather, fprop, loss, dgrad, scatter]);
    assert_eq!(limited(full, f32, 256), [gather, fprop, dgrad, scatter]);
}
