//! A directory of checkpoints. The file `latest` names the newest checkpoint; the file `best` names
//! the checkpoint with the lowest held-out loss.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use retrograph_runtime::open_regular;

use super::error::{CheckpointError, Kept};
use super::read::read_header;
use super::write::{UNFINISHED, persist};
use super::{Checkpoint, Header, HeldOutLoss, StateReader, write_checkpoint};
use crate::error::{Error, Result};
use crate::files::{builder, resolve_links};
use crate::parameters::Parameter;

/// The file that names the newest checkpoint.
const LATEST: &str = "latest";
/// The file that names the checkpoint with the lowest held-out loss.
const BEST: &str = "best";
/// Maximum bytes read from `latest` or `best`. A file name is shorter.
const NAME_BYTES: u64 = 4096;
/// Prefix of temporary files that become `latest` or `best`.
const UNFINISHED_NAME: &str = ".latest-";
/// The file that a run keeps locked. The lock ends with the process.
const LOCK: &str = ".lock";
/// Number of checkpoints that are kept: the newest, and an older one to return to.
const KEPT: usize = 2;

/// A directory that holds the checkpoints of one run.
#[derive(Clone, Debug)]
pub struct CheckpointDirectory {
    path: PathBuf,
}

/// Keeps other runs out of a [`CheckpointDirectory`] until it is dropped or its process ends.
#[derive(Debug)]
pub struct DirectoryLock(#[expect(dead_code, reason = "an open file holds the lock")] File);

impl CheckpointDirectory {
    /// Returns the directory at `path`; creates it if it does not exist.
    ///
    /// # Errors
    /// [`CheckpointError::NotADirectory`] if `path` is a file, [`CheckpointError::Write`] if the
    /// directory cannot be created.
    pub fn create(path: &Path) -> Result<Self> {
        let directory = Self::at(path);
        directory.require_directory()?;
        directory.create_folder().map_err(directory.unwritable(path))?;
        Ok(directory)
    }

    /// Returns the directory at `path` without creating it. A missing directory has no checkpoint.
    pub fn at(path: &Path) -> Self {
        Self { path: PathBuf::from(path) }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Locks the directory, so that only one run writes to it. A killed run leaves no lock. On file
    /// systems without locks, this does nothing.
    ///
    /// # Errors
    /// [`CheckpointError::InUse`] while another run holds the lock, [`CheckpointError::Write`] if
    /// the directory is not writable.
    pub fn lock(&self) -> Result<DirectoryLock> {
        let path = self.path.join(LOCK);
        if std::fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
            // Opening a pipe would wait for a reader.
            let reason = "it is not a regular file";
            return Err(self.unwritable(&path)(std::io::Error::other(reason)));
        }
        let open = File::options().write(true).create(true).truncate(false).open(&path);
        let file = open.map_err(self.unwritable(&path))?;
        match file.try_lock() {
            Err(std::fs::TryLockError::WouldBlock) => {
                Err(CheckpointError::InUse { path: self.path.clone() }.into())
            }
            Err(std::fs::TryLockError::Error(error)) if error.kind() != ErrorKind::Unsupported => {
                Err(self.unwritable(&path)(error))
            }
            _ => Ok(DirectoryLock(file)),
        }
    }

    /// Returns the file of the newest checkpoint, if there is one.
    ///
    /// # Errors
    /// [`CheckpointError::Read`] if `latest` exists but cannot be read, and
    /// [`CheckpointError::Damaged`] if it does not name a checkpoint.
    pub fn latest(&self) -> Result<Option<PathBuf>> {
        self.named_by(LATEST)
    }

    /// Returns the file of the checkpoint with the lowest held-out loss, if a run kept it.
    ///
    /// # Errors
    /// As [`CheckpointDirectory::latest`], for the file `best`.
    pub fn best(&self) -> Result<Option<PathBuf>> {
        self.named_by(BEST)
    }

    fn named_by(&self, file: &str) -> Result<Option<PathBuf>> {
        let pointer = self.path.join(file);
        let text =
            open_regular(&pointer).and_then(|file| std::io::read_to_string(file.take(NAME_BYTES)));
        let name = match text {
            Ok(name) => name,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(CheckpointError::Read { path: pointer, source }.into()),
        };
        let name = name.trim_end();
        if step_of(name).is_none() {
            let reason = format!("it names `{name}`, which is not the file name of a checkpoint");
            return Err(CheckpointError::Damaged { path: pointer, reason }.into());
        }
        Ok(Some(self.path.join(name)))
    }

    /// Checks that the directory holds neither a checkpoint nor a file with the name of one, so
    /// that a new run does not mix with another.
    ///
    /// # Errors
    /// [`CheckpointError::Exists`], and the errors of [`CheckpointDirectory::latest`].
    pub fn require_empty(&self) -> Result<()> {
        self.require_directory()?;
        let first = self.latest()?.or_else(|| self.files().into_iter().next().map(|one| one.1));
        match first {
            None => Ok(()),
            Some(file) => Err(CheckpointError::Exists { path: self.path.clone(), file }.into()),
        }
    }

    /// Checks that the directory holds a checkpoint or a file with the name of one.
    ///
    /// # Errors
    /// [`CheckpointError::Missing`], and the errors of [`CheckpointDirectory::latest`].
    pub fn require_some(&self) -> Result<()> {
        self.require_directory()?;
        if self.latest()?.is_some() || !self.files().is_empty() {
            return Ok(());
        }
        Err(CheckpointError::Missing { path: self.path.clone() }.into())
    }

    /// Opens and verifies the checkpoint that `latest` names. Without `latest`, opens the newest
    /// file that is a complete checkpoint.
    ///
    /// # Errors
    /// [`CheckpointError::Missing`] if there is none, [`CheckpointError::Absent`] if the named one
    /// does not exist, and the errors of [`Checkpoint::open`].
    pub fn open_latest(&self) -> Result<Checkpoint> {
        self.require_directory()?;
        if let Some(path) = self.latest()? {
            return self.open_named(LATEST, &path);
        }
        let mut newest = None;
        for (_, path) in self.files() {
            match Checkpoint::open(&path) {
                Ok(checkpoint) => return Ok(checkpoint),
                Err(error) => newest = newest.or(Some(error)),
            }
        }
        Err(newest.unwrap_or_else(|| CheckpointError::Missing { path: self.path.clone() }.into()))
    }

    /// Opens and verifies the checkpoint that `best` names.
    ///
    /// # Errors
    /// [`CheckpointError::NoBest`] if there is none, [`CheckpointError::Absent`] if the named one
    /// does not exist, and the errors of [`Checkpoint::open`].
    pub fn open_best(&self) -> Result<Checkpoint> {
        self.require_directory()?;
        match self.best()? {
            Some(path) => self.open_named(BEST, &path),
            None => Err(CheckpointError::NoBest { path: self.path.clone() }.into()),
        }
    }

    /// Returns the held-out loss of the best checkpoint, if it is of the run of `header`.
    pub(crate) fn best_loss(&self, header: &Header) -> Option<HeldOutLoss> {
        let best = read_header(&self.best().ok()??).ok()?;
        best.held_out_loss().filter(|_| best.is_of_run_of(header))
    }

    /// Opens the checkpoint at `path`, which the file `pointer` names.
    fn open_named(&self, pointer: &str, path: &Path) -> Result<Checkpoint> {
        if std::fs::symlink_metadata(path).is_err_and(|reason| reason.kind() == ErrorKind::NotFound)
        {
            let name = path.file_name().unwrap_or_default().display().to_string();
            let (pointer, newest) = (self.path.join(pointer), self.files().into_iter().next());
            let newest = newest.map(|(_, path)| path);
            return Err(CheckpointError::Absent { pointer, name, newest }.into());
        }
        Checkpoint::open(path)
    }

    /// Writes a checkpoint and makes it the newest. Removes older checkpoints of its run, except
    /// the previous one and the best one, and temporary files of killed runs. Keeps files of other
    /// runs.
    ///
    /// # Errors
    /// [`CheckpointError::Write`], [`Error::StateNotFinite`], or the error of `state`. `latest`
    /// then still names the previous checkpoint.
    pub fn save(
        &self,
        header: &Header,
        parameters: &[&Parameter],
        state: &mut dyn StateReader,
    ) -> Result<PathBuf> {
        let name = file_name(header.next_step);
        let path = self.path.join(&name);
        let written = (|| {
            self.create_folder().map_err(self.unwritable(&path))?;
            self.set_aside(&path, header).map_err(self.unwritable(&path))?;
            write_checkpoint(&path, header, parameters, state)?;
            self.point_to(&name).map_err(self.unwritable(&self.path.join(LATEST)))
        })();
        written.map_err(|error: Error| error.with_kept(self.newest()))?;
        self.prune(header);
        Ok(path)
    }

    /// Points `latest` to the newest checkpoint of the run of `header` that was written before
    /// `step`, and returns its path. If there is none, `latest` is unchanged.
    ///
    /// A step after such a checkpoint had a finite loss, so its weights are finite.
    ///
    /// # Errors
    /// [`CheckpointError::Write`] if `latest` cannot be written.
    pub fn return_before(&self, step: u32, header: &Header) -> Result<Option<PathBuf>> {
        let earlier = self.files().into_iter().filter(|(of, _)| *of < step);
        let mut ours = earlier.filter(|(_, path)| is_of_run(path, header));
        let Some((of, path)) = ours.find(|(_, path)| Checkpoint::open(path).is_ok()) else {
            return Ok(None);
        };
        if self.newest().as_ref() != Some(&path) {
            self.point_to(&file_name(of)).map_err(self.unwritable(&self.path.join(LATEST)))?;
        }
        Ok(Some(path))
    }

    /// Makes `path`, a checkpoint of this directory, the best one. Later checkpoints do not remove
    /// it.
    ///
    /// # Errors
    /// [`CheckpointError::Write`] if `best` cannot be written. It then names the previous one.
    pub(crate) fn name_best(&self, path: &Path) -> Result<()> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        self.point(BEST, name).map_err(self.unwritable(&self.path.join(BEST)))
    }

    fn newest(&self) -> Option<PathBuf> {
        self.latest().ok().flatten()
    }

    fn unwritable(&self, path: &Path) -> impl Fn(std::io::Error) -> Error + use<> {
        let path = PathBuf::from(path);
        move |source| {
            CheckpointError::Write { path: path.clone(), source, kept: Kept::Nothing }.into()
        }
    }

    /// Creates the directory, or the directory to which the path is a link.
    fn create_folder(&self) -> std::io::Result<()> {
        std::fs::create_dir_all(resolve_links(&self.path)?)
    }

    fn require_directory(&self) -> Result<()> {
        match std::fs::metadata(&self.path) {
            Ok(found) if !found.is_dir() => {
                Err(CheckpointError::NotADirectory { path: self.path.clone() }.into())
            }
            _ => Ok(()),
        }
    }

    fn point_to(&self, name: &str) -> std::io::Result<()> {
        self.point(LATEST, name)
    }

    fn point(&self, file: &str, name: &str) -> std::io::Result<()> {
        let mut temporary = builder(0o666).prefix(UNFINISHED_NAME).tempfile_in(&self.path)?;
        temporary.write_all(name.as_bytes())?;
        temporary.write_all(b"\n")?;
        persist(temporary, &self.path.join(file))
    }

    /// Renames the file at `path`, unless the run of `header` wrote it.
    fn set_aside(&self, path: &Path, header: &Header) -> std::io::Result<()> {
        if !path.exists() || is_of_run(path, header) {
            return Ok(());
        }
        let name = |number: u32| path.with_extension(format!("safetensors.old-{number}"));
        let free = (1..).map(name).find(|path| !path.exists());
        let free = free.expect("some number is free");
        tracing::warn!(path = %free.display(), "renamed a checkpoint of another run");
        std::fs::rename(path, free)
    }

    /// Removes old checkpoints of the run of `newest` except the best, and temporary files. The run
    /// holds the lock and writes nothing now, so all temporary files are left over from killed
    /// runs. A file that cannot be removed is harmless and stays.
    fn prune(&self, newest: &Header) {
        let Ok(entries) = std::fs::read_dir(&self.path) else { return };
        let unfinished = entries.flatten().filter(|entry| {
            let name = entry.file_name();
            let begins =
                |prefix: &&str| name.to_str().is_some_and(|name| name.starts_with(*prefix));
            [UNFINISHED, UNFINISHED_NAME].iter().any(begins)
        });
        let unfinished = unfinished.map(|entry| entry.path());
        let older = self.files().into_iter().filter(|(step, _)| *step < newest.next_step);
        let ours = older.map(|(_, path)| path).filter(|path| is_of_run(path, newest));
        let best = self.best().ok().flatten();
        let ours = ours.skip(KEPT - 1).filter(|path| Some(path) != best.as_ref());
        for path in unfinished.chain(ours) {
            if let Err(error) = std::fs::remove_file(&path) {
                tracing::warn!(path = %path.display(), %error, "cannot remove an old checkpoint");
            }
        }
    }

    /// Returns the files with names of checkpoints, and their steps, the newest first.
    fn files(&self) -> Vec<(u32, PathBuf)> {
        let Ok(entries) = std::fs::read_dir(&self.path) else { return Vec::new() };
        let step =
            |entry: std::fs::DirEntry| Some((step_of(entry.file_name().to_str()?)?, entry.path()));
        let mut files: Vec<_> = entries.flatten().filter_map(step).collect();
        files.sort_unstable_by(|left, right| right.cmp(left));
        files
    }
}

/// Returns whether the run of `header` wrote the checkpoint at `path`.
fn is_of_run(path: &Path, header: &Header) -> bool {
    read_header(path).is_ok_and(|found| found.is_of_run_of(header))
}

fn file_name(step: u32) -> String {
    format!("step-{step:08}.safetensors")
}

/// Returns the step in the name of a checkpoint file.
fn step_of(name: &str) -> Option<u32> {
    name.strip_prefix("step-")?.strip_suffix(".safetensors")?.parse().ok()
}
