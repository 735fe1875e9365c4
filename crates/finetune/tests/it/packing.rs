//! Packed batches: each document has the same losses and gradients as alone.

use retrograph_finetune::data::{Example, Examples, Layout, Lengths};
use retrograph_finetune::model::{GradientOwner, LossPass, StepOptions};
use retrograph_finetune::parameters::Parameter;
use retrograph_finetune::{
    Batch, Data, DataError, Device, Error, Evaluator, IGNORED_TARGET, Mode, Plan, Precision,
    SlidingWindow, Source, Tokenizer, Trainer, TrainerOptions, TrainingConfig,
};
use retrograph_kernels::ops::rope_tables_from;
use retrograph_runtime::{Bindings, DeviceBuffer, Policy, Program};
use retrograph_test_support::numbers::{doubles, same_bits};
use retrograph_test_support::with;

use crate::device::device;
use crate::golden::{distance, weights};
use crate::models::{LORA, config};

/// Tokens of a sequence, more than a tile of attention.
const SEQ: usize = 40;

/// Texts and completions of 2 to 41 tokens. The longest fill a sequence.
fn examples(packing: bool) -> Data {
    let tokenizer = Tokenizer::bytes();
    let one = |number: usize| {
        let text = "the quick brown fox jumps over the lazy dog";
        let text = &text[number % 3..][..[41, 3, 2, 17, 9, 20, 33][number % 7]];
        let (prompt, completion) = text.split_at(number % 2);
        Example::completion(prompt, completion, &tokenizer).unwrap()
    };
    let layout = Layout { lengths: Lengths::new(SEQ, 1), packing, pad: 0 };
    Examples::new((0..14).map(one).collect(), layout).unwrap().into()
}

/// All examples in one batch, and the configuration of its step without clipping.
fn whole(config: TrainingConfig, packing: bool) -> (TrainingConfig, Batch) {
    let Data::Examples(examples) = examples(packing) else { panic!("examples are no text") };
    let batch = examples.tally().sequences.next_multiple_of(2);
    let mut config = TrainingConfig { batch, seq: SEQ, ..config };
    config.optimizer.max_norm = f32::MAX;
    let batch = examples.in_order([batch, SEQ], 0).unwrap().unwrap();
    (config, batch)
}

fn start(config: &TrainingConfig, step: StepOptions) -> Trainer {
    start_on(&device(), config, step)
}

fn start_on(device: &Device, config: &TrainingConfig, mut step: StepOptions) -> Trainer {
    step.gradients = GradientOwner::External;
    let mut options = TrainerOptions::default();
    options.step = step;
    options.verify = true;
    let mut values = |parameter: &Parameter| Ok(weights(parameter));
    let plan = Plan::new(config, options).unwrap();
    plan.start(&device.modules(), Source::Values(&mut values), &mut |_| ()).unwrap()
}

fn packed() -> StepOptions {
    with(StepOptions::default(), |it| it.packed = true)
}

/// Models with fused attention, attention that is not fused, and a window in one of two layers.
fn configs() -> Vec<TrainingConfig> {
    let mut unfused = config(Mode::Full, 1);
    unfused.model.head_dim = Some(6);
    let mut wide = config(LORA, 1);
    wide.model.head_dim = Some(132);
    let mut windowed = config(Mode::Full, 1);
    windowed.model.sliding_window = Some(SlidingWindow::new(5, 1));
    let mut narrow = unfused;
    narrow.model.sliding_window = windowed.model.sliding_window;
    vec![config(Mode::Full, 1), config(LORA, 1), unfused, wide, windowed, narrow]
}

#[test]
fn losses_and_gradients_match_padded_examples() {
    for (index, config) in configs().into_iter().enumerate() {
        let (alone, padded) = whole(config, false);
        let (together, batch) = whole(config, true);
        assert!(together.batch * 2 <= alone.batch, "{} and {}", together.batch, alone.batch);
        assert_eq!(batch.counted(), padded.counted());
        let mut expected = start(&alone, StepOptions::default());
        let loss = expected.step(&padded).unwrap().loss;
        let expected = expected.gradients().unwrap();
        let mut saving = packed();
        saving.micro_batch = Some(1);
        saving.recompute = true;
        let mut interleaved = packed();
        interleaved.interleave = Some(2);
        // Each of the other ways with every second model.
        for step in [packed(), if index % 2 == 0 { saving } else { interleaved }] {
            let mut trainer = start(&together, step);
            let found = trainer.step(&batch).unwrap().loss;
            assert!((found - loss).abs() <= 1e-6 * loss, "{found} and {loss}");
            for ((name, found), (_, expected)) in trainer.gradients().unwrap().iter().zip(&expected)
            {
                let expected = doubles(expected);
                let error = distance(found, &expected);
                assert!(error <= 1e-6, "the gradient of {name} is off by {error:.2e}");
            }
            assert_eq!(trainer.verified_steps(), 1);
        }
    }
}

#[test]
fn the_evaluation_loss_matches_padded_examples() {
    for config in configs() {
        let config = TrainingConfig { batch: 3, seq: SEQ, ..config };
        let mut values = |parameter: &Parameter| Ok(weights(parameter));
        let mut evaluator = Evaluator::new(&device().modules(), &config, &mut values).unwrap();
        let [packed, padded] =
            [true, false].map(|packing| evaluator.evaluate(&examples(packing)).unwrap());
        assert_eq!(packed.tokens, padded.tokens);
        let error = (packed.loss - padded.loss).abs() / padded.loss;
        assert!(error <= 1e-6, "{packed:?} and {padded:?}");
    }
}

/// A batch of two sequences with three documents each. Only the second one has targets.
fn documents(config: &TrainingConfig, others: u32) -> Batch {
    let (rows, lengths) = (config.rows() as u32, [11, 16, 13]);
    let positions: Vec<u32> = lengths.into_iter().cycle().take(6).flat_map(|len| 0..len).collect();
    let own = |row: u32| (11..27).contains(&(row % SEQ as u32));
    let token = |row: u32| row * row % 251;
    let tokens = (0..rows).map(|row| if own(row) { token(row) } else { token(row * 3 + others) });
    let target = |row| if own(row) { token(row + 1) } else { IGNORED_TARGET };
    let targets = (0..rows).map(target).collect();
    Batch { tokens: tokens.collect(), targets, positions: Some(positions) }
}

#[test]
fn changing_a_neighbour_changes_no_bit() {
    let precisions = [Precision::F32, Precision::BF16];
    let configs = configs().into_iter().flat_map(|config| precisions.map(|p| (config, p)));
    for (config, precision) in configs {
        let mut config = TrainingConfig { batch: 2, seq: SEQ, precision, ..config };
        config.optimizer.max_norm = f32::MAX;
        let step = |others| {
            let mut trainer = start(&config, packed());
            let metrics = trainer.step(&documents(&config, others)).unwrap();
            let gradients = trainer.gradients().unwrap();
            let bits = gradients.into_iter().flat_map(|(_, gradient)| gradient).map(f32::to_bits);
            (metrics.loss.to_bits(), metrics.grad_norm.to_bits(), bits.collect::<Vec<_>>())
        };
        let (first, second) = (step(5), step(77));
        assert_eq!((first.0, first.1), (second.0, second.1), "loss and norm, {precision}");
        assert!(first.2 == second.2, "the gradients differ, {precision}");
    }
}

/// The loss of each token of `batch`.
pub(crate) fn losses(config: &TrainingConfig, batch: &Batch) -> Vec<f32> {
    let (device, pass) = (device(), LossPass::new(config, None).unwrap());
    let trainer = start_on(&device, config, packed());
    let stream = trainer.stream();
    let modules = device.modules().prewarm(&pass.pass.requirements(), |_| ()).unwrap();
    let (cos, sin) = rope_tables_from(config.seq, &config.model.rope_frequencies(1));
    let [cos, sin] = [cos, sin].map(|table| DeviceBuffer::from_slice(stream, &table).unwrap());
    let out = DeviceBuffer::zeroed(stream.context(), config.rows()).unwrap();
    let mut bindings = Bindings::new();
    trainer.state().bind(&mut bindings, &pass.parameters);
    bindings.bind(pass.cos, &cos).bind(pass.sin, &sin).bind(pass.losses, &out);
    let mut program =
        Program::build(stream, &modules, &pass.pass, &bindings, Policy::Auto).unwrap();
    let mut controls = pass.pass.controls();
    controls.set_array(pass.tokens, &batch.tokens).unwrap();
    pass.targets.set(&mut controls, &batch.targets, batch.counted()).unwrap();
    pass.sequences.set(&mut controls, batch.positions.as_deref()).unwrap();
    program.step(stream, &controls).unwrap();
    out.download(stream).unwrap()
}

/// Continued positions would rotate the second document by other angles, which rounds
/// differently.
#[test]
fn a_document_has_the_bits_of_the_first_of_a_sequence_wherever_its_tiles_begin() {
    // A multiple of the tiles of every attention kernel.
    let document = 128;
    for config in configs() {
        let config = TrainingConfig { batch: 1, seq: 2 * document, ..config };
        let tokens: Vec<u32> = (0..document as u32).map(|i| i * i % 251).collect();
        let targets = [&tokens[1..], &[7]].concat();
        let positions: Vec<u32> = (0..document as u32).collect();
        let [tokens, targets, positions] = [tokens, targets, positions].map(|one| one.repeat(2));
        let batch = Batch { tokens, targets, positions: Some(positions) };
        let losses = losses(&config, &batch);
        let (first, second) = losses.split_at(document);
        assert!(first.iter().all(|loss| loss.is_finite() && *loss > 0.0));
        if config.fuses_attention() {
            same_bits(first, second, "two copies of a document");
        } else {
            // Sums over a whole row of the sequence.
            let pairs = first.iter().zip(second);
            pairs.for_each(|(one, other)| assert!((one - other).abs() < 1e-5, "{one}, {other}"));
        }
    }
}

#[test]
fn a_packed_batch_needs_a_step_that_is_described_for_it() {
    let (config, batch) = whole(config(LORA, 1), true);
    let mut trainer = start(&config, StepOptions::default());
    let error = trainer.step(&batch).unwrap_err();
    assert!(matches!(error, Error::Data(DataError::Packed)), "{error}");
    // A step for packed batches takes others, with the bits of a step for those alone.
    let plain = Batch { positions: None, ..batch };
    let [one, other] = [StepOptions::default(), packed()].map(|step| {
        let mut trainer = start(&config, step);
        let loss = trainer.step(&plain).unwrap().loss.to_bits();
        (loss, trainer.gradients().unwrap())
    });
    assert!(one == other);
    let short = Batch { positions: Some(vec![0; 3]), ..plain };
    assert!(start(&config, packed()).step(&short).is_err());
}
