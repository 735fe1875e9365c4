//! A resumed run continues bit for bit.

use std::sync::atomic::{AtomicBool, Ordering};

use retrograph_finetune::checkpoint::{CheckpointDirectory, CheckpointError};
use retrograph_finetune::{
    Data, Ending, Error, Event, Mode, Plan, Precision, Run, Source, Trainer, TrainerOptions,
    TrainingConfig,
};

use crate::device::device;
use crate::dora::DORA;
use crate::models::{LORA, bits, config, text, train, trainer};

fn resumed(config: &TrainingConfig, directory: &CheckpointDirectory) -> Trainer {
    let mut checkpoint = directory.open_latest().unwrap();
    checkpoint.header().require(config, text().fingerprint()).unwrap();
    let plan = Plan::new(&checkpoint.header().config, TrainerOptions::default()).unwrap();
    let source = Source::Checkpoint(&mut checkpoint);
    plan.start(&device().modules(), source, &mut |_| ()).unwrap()
}

fn a_resumed_run_is_the_uninterrupted_one(mode: Mode, precision: Precision) {
    let config = TrainingConfig { precision, ..config(mode, 14) };
    let mut whole = trainer(&device(), &config, TrainerOptions::default());
    train(&mut whole, 14);

    let folder = tempfile::tempdir().unwrap();
    let directory = CheckpointDirectory::create(folder.path()).unwrap();
    let mut first = trainer(&device(), &config, TrainerOptions::default());
    train(&mut first, 6);
    first.save(&directory, text().fingerprint()).unwrap();
    drop(first);
    let mut second = resumed(&config, &directory);
    assert_eq!(second.next_step(), 6);
    train(&mut second, 14);

    assert_eq!(second.losses(), whole.losses());
    assert!(bits(&second) == bits(&whole));
}

#[test]
fn a_resumed_run_of_all_weights_is_the_uninterrupted_one() {
    a_resumed_run_is_the_uninterrupted_one(Mode::Full, Precision::F32);
}

#[test]
fn a_resumed_run_of_lora_is_the_uninterrupted_one() {
    a_resumed_run_is_the_uninterrupted_one(LORA, Precision::F32);
}

#[test]
fn a_resumed_run_of_dora_is_the_uninterrupted_one() {
    a_resumed_run_is_the_uninterrupted_one(Mode::Lora(DORA), Precision::F32);
}

/// The bf16 copies of the weights are not in the checkpoint.
#[test]
fn a_resumed_run_of_all_weights_in_bf16_is_the_uninterrupted_one() {
    a_resumed_run_is_the_uninterrupted_one(Mode::Full, Precision::BF16);
}

/// A run that is asked to stop loses no steps.
#[test]
fn a_stopped_run_has_written_a_checkpoint_of_its_last_step() {
    let (config, data) = (config(Mode::Full, 10), Data::from(text()));
    let folder = tempfile::tempdir().unwrap();
    let directory = CheckpointDirectory::create(folder.path()).unwrap();
    let trainer = trainer(&device(), &config, TrainerOptions::default());
    let checkpoints = Some(directory.clone());
    let mut run = Run { checkpoints, ..Run::new(trainer, &data) };
    let stop = AtomicBool::new(false);
    let mut seen = 0;
    let ending = run.train(10, &stop, &mut |event| {
        let Event::Step(metrics) = event else { return };
        seen = metrics.step + 1;
        stop.store(metrics.step >= 3, Ordering::Relaxed);
    });
    assert_eq!(ending.unwrap(), Ending::Stopped);
    let checkpoint = directory.open_latest().unwrap();
    assert_eq!(checkpoint.header().next_step, seen);
    assert_eq!(checkpoint.header().losses, run.trainer.losses());
    assert!(seen < 10);
}

#[test]
fn a_checkpoint_of_another_run_is_named() {
    let config = config(Mode::Full, 4);
    let folder = tempfile::tempdir().unwrap();
    let directory = CheckpointDirectory::create(folder.path()).unwrap();
    let mut one = trainer(&device(), &config, TrainerOptions::default());
    train(&mut one, 1);
    one.save(&directory, text().fingerprint()).unwrap();
    let header = directory.open_latest().unwrap().header().clone();

    let differs = |change: &dyn Fn(&mut TrainingConfig)| {
        let mut other = config;
        change(&mut other);
        match header.require(&other, text().fingerprint()) {
            Err(Error::Checkpoint(CheckpointError::Mismatch { what, .. })) => what,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(differs(&|other| other.model.hidden = 32), "model");
    assert_eq!(differs(&|other| other.mode = LORA), "mode");
    assert_eq!(differs(&|other| other.seed = 1), "seed");
    assert_eq!(differs(&|other| other.seq = 10), "seq");
    let error = header.require(&config, "of another text").unwrap_err();
    assert!(error.to_string().contains("data"), "{error}");
    assert!(matches!(
        directory.require_empty(),
        Err(Error::Checkpoint(CheckpointError::Exists { .. }))
    ));
}

/// A full disk, or a folder that is temporarily missing, does not stop training.
#[test]
fn a_run_goes_on_when_a_checkpoint_between_two_steps_cannot_be_written() {
    let (config, data) = (config(Mode::Full, 6), Data::from(text()));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoints");
    let directory = CheckpointDirectory::create(&path).unwrap();
    let trainer = trainer(&device(), &config, TrainerOptions::default());
    let checkpoints = Some(directory.clone());
    let mut run = Run { checkpoints, checkpoint_every: 2, ..Run::new(trainer, &data) };
    let mut failed = Vec::new();
    let ending = run.train(6, &AtomicBool::new(false), &mut |event| match event {
        Event::Step(metrics) if metrics.step == 1 => {
            std::fs::remove_dir(&path).unwrap();
            std::fs::write(&path, "in the way").unwrap();
        }
        Event::NotSaved(error) => {
            failed.push(error.to_string());
            std::fs::remove_file(&path).unwrap();
        }
        _ => {}
    });
    assert_eq!(ending.unwrap(), Ending::Done);
    assert!(failed.len() == 1 && failed[0].contains("no checkpoint was written"), "{failed:?}");
    assert_eq!(directory.open_latest().unwrap().header().next_step, 6);
}
