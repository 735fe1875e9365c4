//! `ptxas`, the assembler of the CUDA toolkit, run as one process per image.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use retrograph_ptx::SmTarget;

/// The assembler at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembler {
    path: PathBuf,
    limit: Option<Duration>,
}

/// PTX that could not be assembled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AssembleError {
    /// The assembler cannot be started, or its files cannot be written or read.
    #[error("{}: {source}", assembler.display())]
    Io {
        /// The assembler.
        assembler: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The assembler refused the PTX.
    #[error("{}: {status}: {log}", assembler.display())]
    Refused {
        /// The assembler.
        assembler: PathBuf,
        /// Its exit status.
        status: ExitStatus,
        /// Its messages.
        log: String,
    },
    /// The assembler reported success, but wrote no code.
    #[error("{} wrote no code; name the ptxas of a CUDA toolkit", assembler.display())]
    NoCode {
        /// The assembler.
        assembler: PathBuf,
    },
    /// The assembler exceeded its time limit and was killed.
    #[error(
        "{} was killed after {} s; raise its timeout",
        assembler.display(),
        timeout.as_secs_f64()
    )]
    TooSlow {
        /// The assembler.
        assembler: PathBuf,
        /// The limit.
        timeout: Duration,
    },
}

impl Assembler {
    /// The assembler at `path`, without a time limit. Starts nothing.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), limit: None }
    }

    /// Kills the process of an image that takes longer than `limit`.
    #[must_use]
    pub fn with_timeout(self, limit: Duration) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The last line of `ptxas --version`, which names the release and its build.
    ///
    /// # Errors
    /// [`AssembleError::Io`] or [`AssembleError::Refused`].
    pub fn version(&self) -> Result<String, AssembleError> {
        let mut command = Command::new(&self.path);
        let output = command.arg("--version").stdin(Stdio::null()).output();
        let output = output.map_err(|source| self.io(source))?;
        if !output.status.success() {
            return Err(self.refused(output.status, &output.stderr));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("ptxas").trim().to_owned())
    }

    /// The machine code of `ptx` for `target`.
    ///
    /// # Errors
    /// [`AssembleError`].
    pub fn assemble(&self, ptx: &str, target: SmTarget) -> Result<Vec<u8>, AssembleError> {
        let failed = |source| self.io(source);
        let folder = tempfile::tempdir().map_err(failed)?;
        let [source, code, log] =
            ["image.ptx", "image.cubin", "log"].map(|name| folder.path().join(name));
        std::fs::write(&source, ptx).map_err(failed)?;
        // A pipe could stay open after the assembler ends, held by its child processes.
        let errors = File::create(&log).map_err(failed)?;
        let mut command = Command::new(&self.path);
        command.arg(format!("-arch={target}")).arg(&source).arg("-o").arg(&code);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        let child = command.spawn().map_err(failed)?;
        let status = self.end_of(child)?;
        if !status.success() {
            return Err(self.refused(status, &std::fs::read(&log).map_err(failed)?));
        }
        match std::fs::read(&code) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(AssembleError::NoCode { assembler: self.path.clone() })
            }
            read => read.map_err(failed),
        }
    }

    /// Waits for `child`, and kills it after the limit. Polls, since the standard library has no
    /// wait with a timeout.
    fn end_of(&self, mut child: Child) -> Result<ExitStatus, AssembleError> {
        let io = |source| self.io(source);
        let Some(limit) = self.limit else { return child.wait().map_err(io) };
        let started = Instant::now();
        loop {
            if let Some(status) = child.try_wait().map_err(io)? {
                return Ok(status);
            }
            if started.elapsed() >= limit {
                child.kill().map_err(io)?;
                child.wait().map_err(io)?;
                return Err(AssembleError::TooSlow {
                    assembler: self.path.clone(),
                    timeout: limit,
                });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn io(&self, source: io::Error) -> AssembleError {
        AssembleError::Io { assembler: self.path.clone(), source }
    }

    fn refused(&self, status: ExitStatus, log: &[u8]) -> AssembleError {
        let log = String::from_utf8_lossy(log).trim().to_owned();
        AssembleError::Refused { assembler: self.path.clone(), status, log }
    }
}
