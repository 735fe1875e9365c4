//! A directory of checkpoints and its pointer to the newest.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::write::{UNFINISHED, persist};
use super::{Checkpoint, Header, StateReader, write_checkpoint};
use crate::error::{Error, Result};
use crate::parameters::Parameter;

/// The file that names the newest checkpoint.
const LATEST: &str = "latest";
/// What unfinished files are called that are to become `latest`.
const UNFINISHED_LATEST: &str = ".latest-";
/// How many checkpoints are kept: the newest, and one to return to.
const KEPT: usize = 2;

/// A directory that holds the checkpoints of one run.
#[derive(Clone, Debug)]
pub struct CheckpointDirectory {
    path: PathBuf,
}

impl CheckpointDirectory {
    /// Takes a directory, which is made when it does not exist.
    ///
    /// # Errors
    /// [`Error::WriteCheckpoint`] when it cannot be made.
    pub fn create(path: &Path) -> Result<Self> {
        std::fs::create_dir_all(path)
            .map_err(|source| Error::WriteCheckpoint { path: PathBuf::from(path), source })?;
        Ok(Self { path: PathBuf::from(path) })
    }

    /// Takes a directory as it is; one that does not exist holds no checkpoint.
    pub fn at(path: &Path) -> Self {
        Self { path: PathBuf::from(path) }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The newest checkpoint's file, if there is one.
    ///
    /// # Errors
    /// [`Error::ReadCheckpoint`] when the pointer is there but not readable, and
    /// [`Error::CheckpointDamaged`] when it names something outside the directory.
    pub fn latest(&self) -> Result<Option<PathBuf>> {
        let pointer = self.path.join(LATEST);
        let name = match std::fs::read_to_string(&pointer) {
            Ok(name) => name,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Error::ReadCheckpoint { path: pointer, source }),
        };
        let name = name.trim_end();
        if step_of(name).is_none() {
            let why = format!("it names `{name}`, which is not a checkpoint's file name");
            return Err(Error::CheckpointDamaged { path: pointer, why });
        }
        Ok(Some(self.path.join(name)))
    }

    /// Fails when the directory holds a checkpoint, so that a new run does not mix with another.
    ///
    /// # Errors
    /// [`Error::CheckpointExists`], and those of [`CheckpointDirectory::latest`].
    pub fn require_empty(&self) -> Result<()> {
        match self.latest()? {
            None => Ok(()),
            Some(_) => Err(Error::CheckpointExists { path: self.path.clone() }),
        }
    }

    /// Opens and verifies the newest checkpoint.
    ///
    /// # Errors
    /// [`Error::NoCheckpoint`] when there is none, and those of [`Checkpoint::open`].
    pub fn open_latest(&self) -> Result<Checkpoint> {
        let path = self.latest()?.ok_or_else(|| Error::NoCheckpoint { path: self.path.clone() })?;
        Checkpoint::open(&path)
    }

    /// Writes a checkpoint, makes it the newest, and removes all but the last two, with what a run
    /// that was killed left unfinished.
    ///
    /// # Errors
    /// [`Error::WriteCheckpoint`], or what `state` fails with; `latest` then still names the
    /// checkpoint that it named before.
    pub fn save(
        &self,
        header: &Header,
        parameters: &[&Parameter],
        state: &mut dyn StateReader,
    ) -> Result<PathBuf> {
        let name = file_name(header.next_step);
        let path = self.path.join(&name);
        write_checkpoint(&path, header, parameters, state)?;
        self.point_to(&name)
            .map_err(|source| Error::WriteCheckpoint { path: self.path.join(LATEST), source })?;
        self.prune(header.next_step);
        Ok(path)
    }

    fn point_to(&self, name: &str) -> std::io::Result<()> {
        let mut temporary =
            tempfile::Builder::new().prefix(UNFINISHED_LATEST).tempfile_in(&self.path)?;
        temporary.write_all(name.as_bytes())?;
        temporary.write_all(b"\n")?;
        persist(temporary, &self.path.join(LATEST))
    }

    /// Removes old checkpoints and unfinished files, of which there is none while nothing is being
    /// written. A file that cannot be removed is left: it does no harm.
    fn prune(&self, newest: u32) {
        let Ok(entries) = std::fs::read_dir(&self.path) else { return };
        let (mut older, mut useless) = (Vec::new(), Vec::new());
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            match step_of(name) {
                Some(step) if step != newest => older.push((step, entry.path())),
                None if [UNFINISHED, UNFINISHED_LATEST].iter().any(|p| name.starts_with(p)) => {
                    useless.push(entry.path());
                }
                _ => {}
            }
        }
        older.sort_unstable_by_key(|(step, _)| std::cmp::Reverse(*step));
        useless.extend(older.into_iter().skip(KEPT - 1).map(|(_, path)| path));
        for path in useless {
            if let Err(error) = std::fs::remove_file(&path) {
                tracing::warn!(path = %path.display(), %error, "a file that is not needed stays");
            }
        }
    }
}

fn file_name(step: u32) -> String {
    format!("step-{step:08}.safetensors")
}

/// The step in the name of a checkpoint file.
fn step_of(name: &str) -> Option<u32> {
    name.strip_prefix("step-")?.strip_suffix(".safetensors")?.parse().ok()
}
