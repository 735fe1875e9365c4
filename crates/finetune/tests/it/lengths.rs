//! Steps of several lengths: the programs of a run share the same state.

use std::collections::BTreeSet;

use retrograph_finetune::checkpoint::CheckpointDirectory;
use retrograph_finetune::data::{Example, Examples, Layout, Lengths};
use retrograph_finetune::model::StepOptions;
use retrograph_finetune::{
    Data, Mode, Plan, Source, Stage, Tokenizer, Trainer, TrainerOptions, TrainingConfig,
};
use retrograph_test_support::with;

use crate::device::{device, simulated};
use crate::models::{LORA, bits, config};

/// Examples of which some fill a sequence of 9 tokens and others a third of it.
fn examples(count: usize) -> Data {
    let tokenizer = Tokenizer::bytes();
    let one = |number: usize| {
        let length = [1, 1, 6, 1, 12][number % 5];
        Example::completion("a:", &"bc".repeat(9)[..length], &tokenizer).unwrap()
    };
    let layout = Layout { lengths: Lengths::new(9, count), packing: false, pad: 0 };
    Data::from(Examples::new((0..15).map(one).collect(), layout).unwrap())
}

fn options(lengths: usize) -> TrainerOptions {
    with(TrainerOptions::default(), |it| {
        it.lengths = lengths;
        it.verify = true;
    })
}

fn start(config: &TrainingConfig, lengths: usize, source: Source<'_>) -> Trainer {
    started(config, options(lengths), source)
}

fn started(config: &TrainingConfig, options: TrainerOptions, source: Source<'_>) -> Trainer {
    let plan = Plan::new(config, options).unwrap();
    plan.start(&device().modules(), source, &mut |_| ()).unwrap()
}

/// Trains up to `until`, and returns the lengths of the sequences.
fn train(trainer: &mut Trainer, data: &Data, until: u32) -> BTreeSet<usize> {
    let config = *trainer.config();
    let mut lengths = BTreeSet::new();
    while trainer.next_step() < until {
        let shape = [config.batch, config.seq];
        let batch = data.batch(shape, config.seed, trainer.next_step()).unwrap();
        lengths.insert(batch.tokens.len() / config.batch);
        let metrics = trainer.step(&batch).unwrap();
        assert_eq!(metrics.tokens, batch.tokens.len());
    }
    lengths
}

#[test]
fn shorter_steps_learn_the_same_as_padded_steps() {
    for mode in [Mode::Full, LORA] {
        let config = config(mode, 12);
        let mut filled = start(&config, 1, Source::Seed);
        let all = train(&mut filled, &examples(1), 12);
        assert_eq!(all.into_iter().collect::<Vec<_>>(), [9]);
        // With LoRA also with micro-batches, and with recomputed layers.
        let parts = config.mode == LORA;
        let mut step = StepOptions::default();
        step.micro_batch = parts.then_some(1);
        step.recompute = parts;
        let mut options = options(3);
        options.step = step;
        let mut shorter = started(&config, options, Source::Seed);
        let all = train(&mut shorter, &examples(3), 12);
        assert!(all.len() > 1 && all.iter().all(|length| [3, 6, 9].contains(length)), "{all:?}");
        // Each was compared with the eager step of its length.
        assert_eq!(shorter.verified_steps(), 12);
        for (found, expected) in shorter.losses().iter().zip(filled.losses()) {
            let error = (found - expected).abs() / expected;
            assert!(error < 1e-4, "{:?} and {:?}", shorter.losses(), filled.losses());
        }
        assert_eq!(shorter.jit_after_warm(), 0);
    }
}

#[test]
fn a_resumed_run_of_several_lengths_is_the_uninterrupted_one() {
    let (config, data) = (config(LORA, 10), examples(3));
    let mut whole = start(&config, 3, Source::Seed);
    train(&mut whole, &data, 10);
    let folder = tempfile::tempdir().unwrap();
    let directory = CheckpointDirectory::create(folder.path()).unwrap();
    let mut first = start(&config, 3, Source::Seed);
    train(&mut first, &data, 4);
    first.save(&directory, data.fingerprint()).unwrap();
    let mut checkpoint = directory.open_latest().unwrap();
    checkpoint.header().require(&config, data.fingerprint()).unwrap();
    // Other lengths change the order of sums.
    checkpoint.header().require(&config, examples(1).fingerprint()).unwrap_err();
    let mut second = start(&config, 3, Source::Checkpoint(&mut checkpoint));
    train(&mut second, &data, 10);
    assert_eq!(second.losses(), whole.losses());
    assert!(bits(&second) == bits(&whole));
}

#[test]
fn a_batch_of_another_length_is_refused() {
    let config = config(LORA, 2);
    let mut batch = examples(1).batch([config.batch, 9], config.seed, 0).unwrap();
    for lengths in [1, 3] {
        let mut trainer = start(&config, lengths, Source::Seed);
        batch.tokens.truncate(4 * config.batch);
        batch.targets.truncate(4 * config.batch);
        assert!(trainer.enqueue(&batch).is_err());
        assert_eq!(trainer.next_step(), 0);
    }
}

#[test]
fn the_memory_of_shorter_steps_is_planned() {
    let config = config(Mode::Full, 12);
    let mut options = TrainerOptions::default();
    options.lengths = 3;
    let plan = Plan::new(&config, options).unwrap();
    let planned = plan.memory().least();
    let device = simulated(retrograph_driver_sim::Config::default());
    let before = std::cell::Cell::new(0);
    let trainer = plan.start(&device.modules(), Source::Seed, &mut |stage| {
        if let Stage::Fits(_, free) = stage {
            before.set(free);
        }
    });
    let mut trainer = trainer.unwrap();
    let all = train(&mut trainer, &examples(3), 12);
    assert!(all.len() > 1, "{all:?}");
    let taken = before.get() - trainer.context().mem_get_info().unwrap().0;
    assert!(taken <= planned, "{taken} bytes were taken, and {planned} planned");
}
