//! The loss over a whole text equals the loss of a step, however the text is cut into batches.

use retrograph_finetune::parameters::Parameter;
use retrograph_finetune::{
    Data, Error, Evaluator, Mode, TextData, TrainerOptions, TrainingConfig, init,
};
use retrograph_runtime::Ranks;

use crate::device::device;
use crate::models::{LORA, NAN_TOKEN, config, config_with_nan, text, trainer, values_with_nan};

fn evaluator(config: &TrainingConfig) -> Evaluator {
    let seed = config.seed;
    let values = &mut |parameter: &Parameter| Ok(init::initial_values(parameter, seed));
    Evaluator::new(&device().modules(), config, values).unwrap()
}

#[test]
fn a_batch_has_the_loss_of_the_training_step() {
    let config = config(Mode::Full, 1);
    let config = TrainingConfig { batch: 1, ..config };
    let batch = text().batch([1, config.seq], config.seed, 0).unwrap();
    let mut trainer = trainer(&device(), &config, TrainerOptions::default());
    let expected = f64::from(trainer.step(&batch).unwrap().loss);
    let mut tokens = batch.tokens.clone();
    tokens.push(*batch.targets.last().unwrap());
    let found = evaluator(&config).evaluate(&TextData::from_tokens(tokens).into()).unwrap();
    assert_eq!(found.tokens, config.seq);
    assert!((found.loss - expected).abs() < 1e-6 * expected, "{} and {expected}", found.loss);
}

#[test]
fn every_token_but_the_first_counts_once_for_any_window() {
    let data = Data::from(TextData::from_tokens(text().first(101)));
    let at = |batch| {
        let config = TrainingConfig { batch, ..config(LORA, 1) };
        evaluator(&config).evaluate(&data).unwrap()
    };
    let (one, three) = (at(1), at(3));
    assert_eq!((one.tokens, three.tokens), (100, 100));
    assert!((one.loss - three.loss).abs() < 1e-6 * one.loss, "{one:?} and {three:?}");
    // Bytes are predicted by a model that knows nothing.
    assert!((one.perplexity().log2() - 8.0).abs() < 1.0, "{one:?}");
}

#[test]
fn a_text_without_targets_is_refused() {
    let data = Data::from(TextData::from_bytes(b"x".to_vec()));
    let error = evaluator(&config(LORA, 1)).evaluate(&data).unwrap_err();
    assert!(matches!(error, Error::TextTooShort { needed: 2, .. }), "{error}");
}

#[test]
fn tokens_outside_the_vocabulary_and_a_loss_that_is_not_finite_are_errors() {
    let outside = Data::from(TextData::from_tokens((0..64).map(|at| at * 5).collect()));
    let error = evaluator(&config(LORA, 1)).evaluate(&outside).unwrap_err().to_string();
    assert!(error.starts_with("token 52 of the text is 260, but the vocabulary"), "{error}");

    let config = config_with_nan(config(LORA, 1));
    let values = &mut |parameter: &Parameter| Ok(values_with_nan(parameter));
    let mut evaluator = Evaluator::new(&device().modules(), &config, values).unwrap();
    evaluator.evaluate(&text().into()).unwrap();
    let data = Data::from(TextData::from_tokens(vec![1, NAN_TOKEN, 2, 3]));
    let error = evaluator.evaluate(&data).unwrap_err();
    assert!(matches!(error, Error::EvaluationNotFinite { loss } if loss.is_nan()), "{error}");
}

#[test]
fn a_part_of_a_rank_that_does_not_exist_is_refused() {
    let mut evaluator = evaluator(&config(LORA, 1));
    for (rank, count) in [(0, 0), (2, 2), (usize::MAX, 2)] {
        let error =
            evaluator.evaluate_part(&text().into(), Ranks { rank, world_size: count }).unwrap_err();
        assert!(matches!(error, Error::InvalidConfig { field: "rank", .. }), "{error}");
    }
}
