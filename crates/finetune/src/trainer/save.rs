//! Checkpoints of a trainer: written by the first rank, with the blocks of all ranks.

use std::path::PathBuf;

use retrograph_runtime::DeviceBuffer;

use super::Trainer;
use crate::checkpoint::{CheckpointDirectory, StatePart, StateReader, state_order};
use crate::error::Result;
use crate::state::DeviceReader;

impl Trainer {
    /// Writes a checkpoint. No step may be in flight. With several ranks, the first rank calls it,
    /// and all others call [`Trainer::send_blocks`].
    ///
    /// # Errors
    /// If the checkpoint cannot be written, or a rank or the device fails.
    pub fn save(&self, directory: &CheckpointDirectory, text: &str) -> Result<PathBuf> {
        let parameters = self.state().trained_parameters();
        let mut reader = self.reader();
        let header = self.header(text);
        let written = header.and_then(|header| directory.save(&header, &parameters, &mut reader));
        // The other ranks send all their blocks even if the file cannot be written.
        for (index, part) in state_order(parameters.len()).skip(reader.read) {
            reader.gather(index, part)?;
        }
        written
    }

    /// Sends the blocks of this rank to the first rank, which [saves](Trainer::save).
    ///
    /// # Errors
    /// If a rank or the device fails.
    pub fn send_blocks(&self) -> Result<()> {
        let mut reader = self.reader();
        for (index, part) in state_order(self.state().trained_parameters().len()) {
            reader.gather(index, part)?;
        }
        Ok(())
    }

    fn reader(&self) -> RankReader<'_> {
        RankReader { trainer: self, reader: self.state().reader(&self.stream), read: 0 }
    }
}

/// Reads state whose blocks are on several ranks.
struct RankReader<'a> {
    trainer: &'a Trainer,
    reader: DeviceReader<'a>,
    /// Tensors read so far.
    read: usize,
}

impl RankReader<'_> {
    /// Gathers the blocks of a sharded tensor; `None` if this rank has all of it.
    fn gather(&mut self, index: usize, part: StatePart) -> Result<Option<DeviceBuffer<f32>>> {
        let Some((block, len)) = self.reader.block(index) else { return Ok(None) };
        let stream = &self.trainer.stream;
        let held = self.reader.buffer(index, part);
        let whole = match part {
            // Every rank has all elements of a parameter, but other ranks update some of them.
            StatePart::Parameter => held.clone(),
            StatePart::ExpAvg | StatePart::ExpAvgSq => {
                let whole = DeviceBuffer::zeroed(stream.context(), len)?;
                whole.upload_at(stream, block.start, &held.download(stream)?)?;
                whole
            }
        };
        self.trainer.gather(&whole)?;
        Ok(Some(whole))
    }
}

impl StateReader for RankReader<'_> {
    fn read(&mut self, index: usize, part: StatePart) -> Result<Vec<f32>> {
        self.read += 1;
        match self.gather(index, part)? {
            Some(whole) => Ok(whole.download(&self.trainer.stream)?),
            None => self.reader.read(index, part),
        }
    }
}
