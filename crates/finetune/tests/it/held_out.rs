//! The held-out loss is measured during training and does not change training.

use std::sync::atomic::AtomicBool;

use retrograph_finetune::checkpoint::{CheckpointDirectory, StatePart};
use retrograph_finetune::data::{Example, Examples, Layout, Lengths};
use retrograph_finetune::parameters::Parameter;
use retrograph_finetune::{
    Data, Ending, Evaluator, Event, HeldOut, HeldOutLoss, LrSchedule, Mode, Plan, Run, Source,
    Tokenizer, Trainer, TrainerOptions, TrainingConfig,
};

use crate::device::{device, simulated};
use crate::models::{LORA, bits, config};

/// Prompts with completions of several lengths, of which the even ones are for training.
fn examples(part: usize) -> Data {
    let tokenizer = Tokenizer::bytes();
    let one = |number: usize| {
        let completion = "ab".repeat(1 + number % 4);
        Example::completion(&format!("{number}:"), &completion, &tokenizer).unwrap()
    };
    let examples = (0..14).filter(|number| number % 2 == part).map(one).collect();
    Data::from(
        Examples::new(examples, Layout { lengths: Lengths::new(9, 1), packing: false, pad: 0 })
            .unwrap(),
    )
}

fn planned(config: &TrainingConfig) -> Plan {
    Plan::new(config, TrainerOptions::default()).unwrap().with_held_out().unwrap()
}

fn start(config: &TrainingConfig) -> Trainer {
    planned(config).start(&device().modules(), Source::Seed, &mut |_| ()).unwrap()
}

/// Trains with held-out data up to `until`, and returns the held-out losses.
fn run(run: &mut Run<'_>, until: u32) -> Vec<HeldOutLoss> {
    let mut found = Vec::new();
    let ending = run.train(until, &AtomicBool::new(false), &mut |event| {
        if let Event::HeldOut(one) = event {
            found.push(one);
        }
    });
    assert_eq!(ending.unwrap(), Ending::Done);
    found
}

fn with_held_out<'a>(trainer: Trainer, data: [&'a Data; 2], every: u32) -> Run<'a> {
    let held_out = HeldOut::new(data[1], Evaluator::of(&trainer).unwrap(), every);
    Run { held_out: Some(held_out), ..Run::new(trainer, data[0]) }
}

#[test]
fn the_loss_of_what_is_held_out_is_that_of_the_weights_of_that_time() {
    for mode in [Mode::Full, LORA] {
        let config = config(mode, 7);
        let [training, held_out] = [examples(0), examples(1)];
        let mut measured = with_held_out(start(&config), [&training, &held_out], 3);
        let found = run(&mut measured, 7);
        assert_eq!(found.iter().map(|one| one.steps).collect::<Vec<_>>(), [3, 6, 7]);
        assert_eq!(measured.trainer.held_out(), found);

        // Steps are the same without.
        let mut plain = Run::new(start(&config), &training);
        assert_eq!(run(&mut plain, 7), []);
        assert_eq!(plain.trainer.losses(), measured.trainer.losses());
        assert!(bits(&plain.trainer) == bits(&measured.trainer));

        // A model with the same weights, apart from the run.
        let (state, stream) = (plain.trainer.state(), plain.trainer.stream());
        let values = &mut |parameter: &Parameter| {
            Ok(state.values(stream, &parameter.name)?.expect("the model has it"))
        };
        let mut apart = Evaluator::new(&device().modules(), &config, values).unwrap();
        let expected = apart.evaluate(&held_out).unwrap();
        let last = found.last().unwrap();
        assert_eq!((last.loss, last.tokens), (expected.loss as f32, expected.tokens));
        assert!(found[0].loss > last.loss, "{found:?}");
    }
}

/// Across the end of an epoch, with examples and held-out losses.
#[test]
fn a_resumed_run_sees_and_measures_what_an_uninterrupted_one_does() {
    let config = config(LORA, 10);
    let data = [&examples(0), &examples(1)];
    let mut whole = with_held_out(start(&config), data, 2);
    run(&mut whole, 10);

    let folder = tempfile::tempdir().unwrap();
    let directory = CheckpointDirectory::create(folder.path()).unwrap();
    let mut first = with_held_out(start(&config), data, 2);
    first.checkpoints = Some(directory.clone());
    first.checkpoint_every = 2;
    run(&mut first, 4);
    drop(first);
    let mut checkpoint = directory.open_latest().unwrap();
    checkpoint.header().require(&config, data[0].fingerprint()).unwrap();
    checkpoint.header().require(&config, data[1].fingerprint()).unwrap_err();
    let source = Source::Checkpoint(&mut checkpoint);
    let trainer = planned(&config).start(&device().modules(), source, &mut |_| ()).unwrap();
    let mut second = with_held_out(trainer, data, 2);
    assert_eq!(run(&mut second, 10).len(), 3);

    assert_eq!(second.trainer.losses(), whole.trainer.losses());
    assert_eq!(second.trainer.held_out(), whole.trainer.held_out());
    assert!(bits(&second.trainer) == bits(&whole.trainer));
}

/// A run that learns and then diverges, as its learning rate jumps after the warm-up.
fn diverging() -> TrainingConfig {
    let mut config = config(Mode::Full, 40);
    config.optimizer.schedule = LrSchedule::Constant;
    (config.optimizer.peak_lr, config.optimizer.warmup_steps) = (0.3, 30);
    config
}

#[test]
fn a_run_ends_after_measurements_without_a_new_minimum() {
    let config = diverging();
    let [training, held_out] = [examples(0), examples(1)];
    let folder = tempfile::tempdir().unwrap();
    let mut early = with_held_out(start(&config), [&training, &held_out], 2);
    early.held_out.as_mut().unwrap().patience = Some(3);
    early.held_out.as_mut().unwrap().keep_best = true;
    early.checkpoints = Some(CheckpointDirectory::create(folder.path()).unwrap());
    let ending = early.train(40, &AtomicBool::new(false), &mut |_| ()).unwrap();
    assert_eq!(ending, Ending::EarlyStopped);
    let losses = early.trainer.held_out().to_vec();
    let best = HeldOutLoss::best(&losses).unwrap();
    assert!(losses.iter().all(|found| found.loss >= best.loss));
    assert_eq!(best.steps + 3 * 2, early.trainer.next_step(), "{losses:?}");
    assert!(early.trainer.next_step() < 40);

    // The best checkpoint outlives the last two, and has the weights of its step.
    let directory = CheckpointDirectory::at(folder.path());
    let (found, latest) = (directory.open_best().unwrap(), directory.open_latest().unwrap());
    assert_eq!(found.header().next_step, best.steps);
    assert_eq!(latest.header().next_step, early.trainer.next_step());
    let mut alone = Run::new(start(&config), &training);
    let stop = AtomicBool::new(false);
    alone.train(best.steps, &stop, &mut |_| ()).unwrap();
    let mut found = found;
    for parameter in alone.trainer.state().trained_parameters() {
        let name = StatePart::Parameter.tensor_name(&parameter.name);
        let saved = found.tensor(&name).unwrap();
        let values = alone.trainer.state().values(alone.trainer.stream(), &parameter.name);
        assert!(saved == values.unwrap().unwrap(), "{name}");
    }
    // Without it there is nothing to open.
    std::fs::remove_file(folder.path().join("best")).unwrap();
    let error = directory.open_best().unwrap_err().to_string();
    assert!(error.contains("no run has kept its best"), "{error}");
}

/// A lower loss of an earlier part of the run has no checkpoint.
#[test]
fn the_best_checkpoint_is_the_best_of_those_that_were_kept() {
    let config = diverging();
    let data = [&examples(0), &examples(1)];
    let mut whole = with_held_out(start(&config), data, 2);
    let losses = run(&mut whole, 38);
    // The two losses after the first part are above its best one.
    let best_of = |losses: &[HeldOutLoss]| HeldOutLoss::best(losses).unwrap();
    let is_end = |&end: &usize| best_of(&losses[end..end + 2]).loss > best_of(&losses[..end]).loss;
    let end = (1..losses.len() - 1).find(is_end).expect("the loss rises");
    let (best, steps) = (best_of(&losses[..end]), losses[end - 1].steps);
    let folder = tempfile::tempdir().unwrap();
    let directory = CheckpointDirectory::create(folder.path()).unwrap();
    let mut first = with_held_out(start(&config), data, 2);
    first.checkpoints = Some(directory.clone());
    run(&mut first, steps);
    drop(first);
    assert_eq!(directory.best().unwrap(), None);
    let mut lowest: Option<HeldOutLoss> = None;
    for found in losses[end..end + 2].iter().copied() {
        let mut checkpoint = directory.open_latest().unwrap();
        let source = Source::Checkpoint(&mut checkpoint);
        let trainer = planned(&config).start(&device().modules(), source, &mut |_| ()).unwrap();
        let mut resumed = with_held_out(trainer, data, 2);
        resumed.checkpoints = Some(directory.clone());
        resumed.held_out.as_mut().unwrap().keep_best = true;
        run(&mut resumed, found.steps);
        assert!(found.loss > best.loss, "{losses:?}");
        if lowest.is_none_or(|lowest| found.loss < lowest.loss) {
            lowest = Some(found);
        }
        assert_eq!(directory.open_best().unwrap().header().held_out_loss(), lowest);
    }
}

#[test]
fn the_memory_for_it_is_planned() {
    let config = config(Mode::Full, 2);
    let plain = Plan::new(&config, TrainerOptions::default()).unwrap().memory().least();
    let plan = planned(&config);
    let planned = plan.memory().least();
    assert_eq!(planned - plain, plan.memory().held_out);
    let device = simulated(retrograph_driver_sim::Config::default());
    let before = std::cell::Cell::new(0);
    let trainer = plan.start(&device.modules(), Source::Seed, &mut |stage| {
        if let retrograph_finetune::Stage::Fits(_, free) = stage {
            before.set(free);
        }
    });
    let trainer = trainer.unwrap();
    let _evaluator = Evaluator::of(&trainer).unwrap();
    let taken = before.get() - trainer.context().mem_get_info().unwrap().0;
    assert!(taken <= planned, "{taken} bytes were taken, and {planned} planned");
    assert!(planned <= taken + (6 << 20), "{taken} bytes were taken, and {planned} planned");
}
