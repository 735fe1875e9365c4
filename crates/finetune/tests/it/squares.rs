//! The gradient norm of a step. Products that compute whole gradients also sum their squares.

use retrograph_finetune::model::{GradientOwner, StepOptions, StepPass};
use retrograph_finetune::parameters::{EMBEDDING, Parameter};
use retrograph_finetune::{Mode, Precision, TrainerOptions, TrainingConfig};
use retrograph_kernels::Access;
use retrograph_test_support::with;

use crate::golden::{self, weights};
use crate::precision::{config, trainer};

/// A step of 64 rows, in bf16, with a tied or a separate output projection.
fn bf16(tied: bool) -> TrainingConfig {
    let mut config = config(Mode::Full, Precision::BF16);
    (config.batch, config.seq, config.model.tie_word_embeddings) = (4, 16, tied);
    config
}

fn external(micro_batch: Option<usize>) -> StepOptions {
    with(StepOptions::default(), |it| {
        it.gradients = GradientOwner::External;
        it.micro_batch = micro_batch;
    })
}

#[test]
fn the_norm_is_that_of_the_gradients() {
    for (tied, micro_batch) in [(true, None), (false, None), (true, Some(2))] {
        let config = bf16(tied);
        let mut options = TrainerOptions::default();
        options.step = external(micro_batch);
        let mut trainer = trainer(&config, options, &mut |p| Ok(weights(p)));
        let norm = f64::from(trainer.step(&golden::batch(&config, 0)).unwrap().grad_norm);
        let all = trainer.gradients().unwrap();
        let squares = all.iter().flat_map(|(_, values)| values).map(|x| f64::from(*x).powi(2));
        let expected = squares.sum::<f64>().sqrt();
        let error = (norm - expected).abs() / expected;
        assert!(error < 1e-6, "tied {tied}, {micro_batch:?}: {norm} is not {expected}");
    }
}

/// The number of elements that are read only for the norm, in f32.
fn read_for_the_norm(config: &TrainingConfig, options: StepOptions) -> usize {
    let pass = StepPass::new(config, options).unwrap().pass;
    let sums =
        pass.operations().iter().filter(|operation| operation.verb() == "grad_norm_partials");
    let read = sums.flat_map(|sum| sum.accesses()).filter(|access| access.access == Access::Read);
    read.map(|access| access.bytes.len() / 4).sum()
}

/// Products sum the squares of all weights of linear layers, and of an output projection that is
/// not the token table. The gradient of a tied table has a further part, and micro-batches add to
/// gradients.
#[test]
fn the_norm_reads_no_gradient_that_a_product_has_summed() {
    let len = |config: &TrainingConfig, by_products: bool| -> usize {
        let all = config.parameters();
        // k and v have 12 rows, which products in bf16 cannot copy in vectors.
        let is_vectorized = |p: &Parameter| p.shape.iter().all(|size| size.is_multiple_of(8));
        let of_product = |p: &Parameter| p.shape.len() == 2 && p.name != EMBEDDING;
        let summed = |p: &Parameter| of_product(p) && is_vectorized(p);
        all.iter().filter(|p| summed(p) == by_products).map(Parameter::len).sum()
    };
    for tied in [true, false] {
        let config = bf16(tied);
        let whole = read_for_the_norm(&config, external(None));
        assert_eq!(whole, len(&config, false), "tied {tied}");
        let all = len(&config, false) + len(&config, true);
        assert_eq!(read_for_the_norm(&config, external(Some(2))), all, "tied {tied}");
        let in_f32 = TrainingConfig { precision: Precision::F32, ..config };
        assert_eq!(read_for_the_norm(&in_f32, external(None)), all, "tied {tied}");
    }
}
