//! `--tensorboard`: event files for TensorBoard.
//!
//! A file is a sequence of records: the length of the data in 8 bytes, the masked CRC-32C of these
//! bytes, the data, and its masked CRC-32C, all little-endian (TensorFlow,
//! `tensorflow/core/lib/io/record_writer.h`). The data is an `Event` in the encoding of protocol
//! buffers (`tensorflow/core/util/event.proto`): wall time, step, and either the version of the
//! file or one scalar of a `Summary`.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use retrograph_finetune::{HeldOutLoss, StepMetrics, TrainingConfig};

use crate::error::CliError;

/// The name of this output in messages.
const WHAT: &str = "the TensorBoard events";
/// The first event of each file.
const VERSION: &[u8] = b"brain.Event:2";

/// An event file.
pub(crate) struct EventFile {
    file: File,
    path: PathBuf,
    failed: bool,
}

impl EventFile {
    /// Creates a new file in `folder`, which is created if it does not exist.
    pub(crate) fn create(folder: &Path) -> Result<Self, CliError> {
        std::fs::create_dir_all(folder).map_err(|error| CliError::write(WHAT, folder, error))?;
        let seconds = now() as u64;
        let name = |number: u32| match number {
            0 => format!("events.out.tfevents.{seconds:010}.retrograph"),
            number => format!("events.out.tfevents.{seconds:010}.retrograph.{number}"),
        };
        // Another run may have started in the same second.
        for number in 0.. {
            let path = folder.join(name(number));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(CliError::write(WHAT, &path, error)),
                Ok(file) => {
                    let mut events = Self { file, path, failed: false };
                    events.put(&event(0, |event| bytes(event, 3, VERSION)))?;
                    return Ok(events);
                }
            }
        }
        unreachable!("some number is free")
    }

    /// Writes a step's loss, gradient norm and learning rate, and on a real device its tokens per
    /// second.
    pub(crate) fn step(
        &mut self,
        metrics: &StepMetrics,
        config: &TrainingConfig,
        simulated: bool,
    ) -> Result<(), CliError> {
        let StepMetrics { step, loss, grad_norm, tokens, device_ms, preference } = *metrics;
        let lr = config.optimizer.learning_rate(step) as f32;
        self.scalar("train/loss", step, loss)?;
        self.scalar("train/grad_norm", step, grad_norm)?;
        self.scalar("train/learning_rate", step, lr)?;
        if let Some(found) = preference {
            self.scalar("rewards/chosen", step, found.chosen)?;
            self.scalar("rewards/rejected", step, found.rejected)?;
            self.scalar("rewards/margins", step, found.margin())?;
            self.scalar("rewards/accuracies", step, found.accuracy)?;
        }
        if !simulated && device_ms > 0.0 {
            self.scalar("train/tokens_per_second", step, tokens as f32 * 1e3 / device_ms)?;
        }
        Ok(())
    }

    /// Writes a held-out loss, at the last completed step.
    pub(crate) fn held_out(&mut self, found: &HeldOutLoss) -> Result<(), CliError> {
        self.scalar("eval/loss", found.steps.saturating_sub(1), found.loss)
    }

    fn scalar(&mut self, tag: &str, step: u32, value: f32) -> Result<(), CliError> {
        let mut named = Vec::new();
        bytes(&mut named, 1, tag.as_bytes());
        named.push(2 << 3 | 5);
        named.extend(value.to_le_bytes());
        let mut summary = Vec::new();
        bytes(&mut summary, 1, &named);
        self.put(&event(step, |event| bytes(event, 5, &summary)))
    }

    /// Writes a record. After a failure nothing more is written.
    fn put(&mut self, data: &[u8]) -> Result<(), CliError> {
        if self.failed {
            return Ok(());
        }
        let length = (data.len() as u64).to_le_bytes();
        let sums = [length.as_slice(), data].map(|part| masked(crc32c::crc32c(part)).to_le_bytes());
        let record = [&length, sums[0].as_slice(), data, &sums[1]].concat();
        let written = self.file.write_all(&record);
        self.failed = written.is_err();
        written.map_err(|error| CliError::write(WHAT, &self.path, error))
    }
}

/// Returns an event with the current time and further fields.
fn event(step: u32, fields: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut event = vec![1 << 3 | 1];
    event.extend(now().to_le_bytes());
    event.push(2 << 3);
    varint(&mut event, u64::from(step));
    fields(&mut event);
    event
}

/// Appends a length-delimited field.
fn bytes(to: &mut Vec<u8>, field: u8, data: &[u8]) {
    to.push(field << 3 | 2);
    varint(to, data.len() as u64);
    to.extend(data);
}

/// Appends a number as a varint.
fn varint(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// Returns the checksum as the format stores it: masked, since CRCs of data that contains CRCs are
/// weak.
fn masked(sum: u32) -> u32 {
    sum.rotate_right(15).wrapping_add(0xa282_ead8)
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data of the records, whose checksums hold.
    fn records(mut file: &[u8]) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        while !file.is_empty() {
            let (head, rest) = file.split_at(12);
            let length = u64::from_le_bytes(head[..8].try_into().unwrap()) as usize;
            let sum = |bytes: &[u8]| masked(crc32c::crc32c(bytes)).to_le_bytes();
            assert_eq!(head[8..], sum(&head[..8]));
            let (data, rest) = rest.split_at(length);
            assert_eq!(rest[..4], sum(data));
            found.push(data.to_vec());
            file = &rest[4..];
        }
        found
    }

    #[test]
    fn checksums_match_the_format() {
        // The check value of CRC-32C, and a mask of TensorFlow's own test.
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(masked(0), 0xa282_ead8);
        assert_eq!(masked(0xe306_9283), 0xe306_9283_u32.rotate_right(15).wrapping_add(0xa282_ead8));
    }

    #[test]
    fn a_scalar_is_an_event_with_a_summary() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("new/board");
        let mut events = EventFile::create(&place).unwrap();
        events.held_out(&HeldOutLoss { steps: 301, loss: 1.5, tokens: 9 }).unwrap();
        let found = records(&std::fs::read(&events.path).unwrap());
        assert_eq!(found.len(), 2);
        assert!(found[0].ends_with(b"brain.Event:2"));
        // Wall time, step 300 as a varint, then the summary.
        assert_eq!(found[1][9..12], [0x10, 0xac, 0x02]);
        let value = [&b"\x0a\x09eval/loss\x15"[..], &1.5f32.to_le_bytes()].concat();
        let expected = [&[0x2a, 18, 0x0a, 16][..], &value].concat();
        assert_eq!(found[1][12..], expected);
        // A second file of the same second is another one.
        EventFile::create(&place).unwrap();
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), 2);
    }
}
