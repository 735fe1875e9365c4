//! Damaged checkpoints are refused before any value is used, and a failed write loses no data.

use std::path::{Path, PathBuf};

use retrograph_finetune::checkpoint::{
    Checkpoint, CheckpointDirectory, CheckpointError, Header, StatePart, StateReader,
};
use retrograph_finetune::model::StepOptions;
use retrograph_finetune::parameters::{Parameter, inventory};
use retrograph_finetune::{Error, Mode, Result};

use crate::models::config;

/// State that needs no device.
struct Counted;

impl StateReader for Counted {
    fn read(&mut self, index: usize, part: StatePart) -> Result<Vec<f32>> {
        let len = parameters()[index].len();
        Ok((0..len).map(|at| (at * 3 + part as usize) as f32).collect())
    }
}

/// State that cannot be read to its end.
struct Failing;

impl StateReader for Failing {
    fn read(&mut self, index: usize, part: StatePart) -> Result<Vec<f32>> {
        if index == 2 { Err(Error::NoSimulator) } else { Counted.read(index, part) }
    }
}

fn parameters() -> Vec<Parameter> {
    inventory(&config(Mode::Full, 4).model, Mode::Full)
}

fn header(steps: usize) -> Header {
    Header::new(config(Mode::Full, 4), "of a text", vec![0.1; steps])
}

fn save(folder: &Path, steps: usize, state: &mut dyn StateReader) -> Result<PathBuf> {
    let parameters = parameters();
    let parameters: Vec<&Parameter> = parameters.iter().collect();
    CheckpointDirectory::create(folder)?.save(&header(steps), &parameters, state)
}

#[test]
fn a_header_without_micro_batches_means_none() {
    let mut json = serde_json::to_value(header(1)).unwrap();
    json.as_object_mut().unwrap().remove("interleave").unwrap();
    let header: Header = serde_json::from_value(json).unwrap();
    let config = config(Mode::Full, 4);
    let require = |interleave| {
        let mut options = StepOptions::default();
        options.interleave = interleave;
        header.require_micro_batches(&options, &config)
    };
    require(None).unwrap();
    require(Some(1)).unwrap();
    let error = require(Some(2)).unwrap_err();
    let Error::Checkpoint(CheckpointError::Mismatch { what, saved, asked }) = &error else {
        panic!("{error}");
    };
    let found = (*what, saved.as_str(), asked.as_str()) == ("interleave", "1", "2");
    assert!(found, "{error}");
}

#[test]
fn a_checkpoint_round_trips() {
    let folder = tempfile::tempdir().unwrap();
    let path = save(folder.path(), 3, &mut Counted).unwrap();
    let mut checkpoint = Checkpoint::open(&path).unwrap();
    let written = Header { digest: checkpoint.header().digest.clone(), ..header(3) };
    assert_eq!(*checkpoint.header(), written);
    let parameters = parameters();
    checkpoint.require(&parameters.iter().collect::<Vec<_>>()).unwrap();
    for (index, parameter) in parameters.iter().enumerate() {
        for &part in StatePart::ALL {
            let values = checkpoint.tensor(&part.tensor_name(&parameter.name)).unwrap();
            assert_eq!(values, Counted.read(index, part).unwrap());
        }
    }
}

/// The file is one that other programs can open.
#[test]
fn a_checkpoint_is_a_safetensors_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = save(folder.path(), 1, &mut Counted).unwrap();
    let bytes = std::fs::read(path).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(tensors.len(), parameters().len() * 3);
    let norm = tensors.tensor("model.norm.weight").unwrap();
    assert_eq!(norm.shape(), [16]);
}

fn refused(path: &Path) -> String {
    match Checkpoint::open(path) {
        Err(Error::Checkpoint(CheckpointError::Damaged { reason, .. })) => reason,
        other => panic!("it was not refused as damaged: {other:?}"),
    }
}

#[test]
fn a_truncated_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = save(folder.path(), 2, &mut Counted).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    for len in [0, 7, 8, 100, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..len]).unwrap();
        refused(&path);
    }
    std::fs::write(&path, [bytes.as_slice(), &[0]].concat()).unwrap();
    assert!(refused(&path).contains("bytes"));
}

#[test]
fn a_file_with_any_bit_changed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = save(folder.path(), 2, &mut Counted).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let stride = bytes.len() / 97;
    for position in (0..bytes.len()).step_by(stride).chain([bytes.len() - 1]) {
        let mut damaged = bytes.clone();
        damaged[position] ^= 0x04;
        std::fs::write(&path, damaged).unwrap();
        refused(&path);
    }
}

#[test]
fn files_that_are_no_checkpoints_are_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("step-00000001.safetensors");
    std::fs::write(&path, b"not a checkpoint at all, but long enough to have a header").unwrap();
    refused(&path);
    let json = br#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let file = [&(json.len() as u64).to_le_bytes(), json.as_slice(), &[0; 4]].concat();
    std::fs::write(&path, file).unwrap();
    assert!(refused(&path).contains("another program"));
    let missing = Checkpoint::open(&folder.path().join("absent"));
    assert!(matches!(missing, Err(Error::Checkpoint(CheckpointError::Read { .. }))));
}

#[test]
fn a_failed_write_leaves_the_last_checkpoint_and_no_temporary_file() {
    let folder = tempfile::tempdir().unwrap();
    let good = save(folder.path(), 1, &mut Counted).unwrap();
    assert!(matches!(save(folder.path(), 2, &mut Failing), Err(Error::NoSimulator)));
    let directory = CheckpointDirectory::at(folder.path());
    assert_eq!(directory.latest().unwrap(), Some(good));
    directory.open_latest().unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn the_last_two_checkpoints_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<_> =
        (1..=4).map(|steps| save(folder.path(), steps, &mut Counted).unwrap()).collect();
    let there: Vec<_> = paths.iter().map(|path| path.exists()).collect();
    assert_eq!(there, [false, false, true, true]);
}

#[test]
fn only_unfinished_files_of_a_killed_run_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    for name in [".checkpoint-Ab3", ".latest-x", "notes", ".hidden"] {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    save(folder.path(), 1, &mut Counted).unwrap();
    let names = std::fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, [".hidden", "latest", "notes", "step-00000001.safetensors"]);
}

#[test]
fn the_pointer_must_name_a_checkpoint_of_the_directory() {
    let folder = tempfile::tempdir().unwrap();
    let directory = CheckpointDirectory::at(folder.path());
    assert!(matches!(
        directory.open_latest(),
        Err(Error::Checkpoint(CheckpointError::Missing { .. }))
    ));
    std::fs::write(folder.path().join("latest"), "../../secret\n").unwrap();
    assert!(matches!(
        directory.open_latest(),
        Err(Error::Checkpoint(CheckpointError::Damaged { .. }))
    ));
    for pointer in ["latest", "best"] {
        std::fs::write(folder.path().join(pointer), "step-00000009.safetensors\n").unwrap();
    }
    let absent = || [directory.open_latest(), directory.open_best()].map(|one| one.unwrap_err());
    for (error, pointer) in absent().into_iter().zip(["latest", "best"]) {
        let text = error.to_string();
        assert!(text.contains(&format!("{pointer}` names `step-00000009.safetensors`")), "{text}");
        assert!(text.contains("give another directory"), "{text}");
    }
    std::fs::write(folder.path().join("step-00000003.safetensors"), "").unwrap();
    for (error, pointer) in absent().into_iter().zip(["latest", "best"]) {
        let text = error.to_string();
        let advice = format!("into `{pointer}`; the newest is `step-00000003.safetensors`");
        assert!(text.contains(&advice), "{text}");
    }
}

#[cfg(unix)]
#[test]
fn a_pipe_in_place_of_the_pointer_or_the_lock_does_not_block() {
    for name in ["latest", ".lock", "step-00000009.safetensors"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let directory = CheckpointDirectory::at(folder.path());
        let used = directory.lock().and_then(|_| directory.open_latest());
        let (found, reason) = match used.unwrap_err() {
            Error::Checkpoint(CheckpointError::Read { path, source })
            | Error::Checkpoint(CheckpointError::Write { path, source, .. }) => {
                (path, source.to_string())
            }
            error => panic!("{error}"),
        };
        assert_eq!((found, reason.as_str()), (path, "it is not a regular file"));
    }
}

#[test]
fn a_directory_is_locked_until_the_lock_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let directory = CheckpointDirectory::create(folder.path()).unwrap();
    let lock = directory.lock().unwrap();
    assert!(matches!(directory.lock(), Err(Error::Checkpoint(CheckpointError::InUse { .. }))));
    drop(lock);
    directory.lock().unwrap();
}

#[test]
fn a_file_is_no_directory_of_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, "").unwrap();
    let directory = CheckpointDirectory::at(&path);
    for found in [
        CheckpointDirectory::create(&path).map(drop),
        directory.require_empty(),
        directory.require_some(),
        directory.open_latest().map(drop),
    ] {
        assert!(
            matches!(found, Err(Error::Checkpoint(CheckpointError::NotADirectory { .. }))),
            "{found:?}"
        );
    }
}

#[test]
fn without_the_pointer_the_newest_whole_file_is_opened_and_a_new_run_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let directory = CheckpointDirectory::create(folder.path()).unwrap();
    assert!(matches!(
        directory.require_some(),
        Err(Error::Checkpoint(CheckpointError::Missing { .. }))
    ));
    directory.require_empty().unwrap();
    save(folder.path(), 1, &mut Counted).unwrap();
    let newest = save(folder.path(), 2, &mut Counted).unwrap();
    std::fs::remove_file(folder.path().join("latest")).unwrap();
    std::fs::write(folder.path().join("step-00000003.safetensors"), "cut short").unwrap();
    assert_eq!(directory.open_latest().unwrap().path(), newest);
    directory.require_some().unwrap();
    assert!(matches!(
        directory.require_empty(),
        Err(Error::Checkpoint(CheckpointError::Exists { .. }))
    ));
}

#[test]
fn only_checkpoints_of_the_same_run_are_removed_and_none_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let other_run = |steps: usize| {
        let other = tempfile::tempdir().unwrap();
        let mut header = header(steps);
        header.config.seed += 1;
        let parameters = parameters();
        let parameters: Vec<&Parameter> = parameters.iter().collect();
        let directory = CheckpointDirectory::at(other.path());
        let path = directory.save(&header, &parameters, &mut Counted).unwrap();
        std::fs::read(path).unwrap()
    };
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("step-1.safetensors"), "of somebody").unwrap();
    std::fs::write(path("step-00000002.safetensors"), other_run(2)).unwrap();
    std::fs::write(path("step-00000004.safetensors"), other_run(4)).unwrap();
    for steps in [3, 4, 5, 6] {
        save(folder.path(), steps, &mut Counted).unwrap();
    }
    assert_eq!(std::fs::read(path("step-1.safetensors")).unwrap(), b"of somebody");
    assert_eq!(std::fs::read(path("step-00000002.safetensors")).unwrap(), other_run(2));
    assert_eq!(std::fs::read(path("step-00000004.safetensors.old-1")).unwrap(), other_run(4));
    let own = [3, 4, 5, 6].map(|step| path(&format!("step-0000000{step}.safetensors")).exists());
    assert_eq!(own, [false, false, true, true]);
}

#[test]
fn the_pointer_returns_to_a_checkpoint_from_before_a_step() {
    let folder = tempfile::tempdir().unwrap();
    let paths = [3, 4].map(|steps| save(folder.path(), steps, &mut Counted).unwrap());
    let directory = CheckpointDirectory::at(folder.path());
    let found = |step| directory.return_before(step, &header(4)).unwrap();
    assert_eq!(found(5), Some(paths[1].clone()));
    assert_eq!(found(4), Some(paths[0].clone()));
    assert_eq!(directory.latest().unwrap(), Some(paths[0].clone()));
    assert_eq!(found(3), None);
    assert_eq!(directory.latest().unwrap(), Some(paths[0].clone()));
    // Nothing is removed on the way back.
    assert!(paths.iter().all(|path| path.exists()));
}

/// State with a value that no training continues from.
struct Exploded;

impl StateReader for Exploded {
    fn read(&mut self, index: usize, part: StatePart) -> Result<Vec<f32>> {
        let mut values = Counted.read(index, part)?;
        values[0] = if part == StatePart::ExpAvg { f32::INFINITY } else { values[0] };
        Ok(values)
    }
}

#[test]
fn state_that_is_not_finite_is_no_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let good = save(folder.path(), 1, &mut Counted).unwrap();
    let error = save(folder.path(), 2, &mut Exploded).unwrap_err();
    assert!(matches!(error, Error::StateNotFinite { steps: 2, .. }), "{error}");
    assert!(error.to_string().contains(&good.display().to_string()), "{error}");
    assert_eq!(CheckpointDirectory::at(folder.path()).latest().unwrap(), Some(good));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn a_failed_write_mentions_an_earlier_checkpoint_only_if_there_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = save(&file.join("below"), 1, &mut Counted).unwrap_err().to_string();
    assert!(error.contains("no checkpoint was written"), "{error}");
}

/// A loss that was not finite, as older versions wrote it.
#[test]
fn a_held_out_loss_of_null_is_read_as_nan() {
    let mut json = serde_json::to_value(header(1)).unwrap();
    json["held_out"] = serde_json::json!([{ "steps": 1, "loss": null, "tokens": 3 }]);
    let header: Header = serde_json::from_value(json).unwrap();
    assert!(header.held_out[0].loss.is_nan());
}
