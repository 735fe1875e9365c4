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
    timeout: Option<Duration>,
}

/// PTX that could not be assembled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AssembleError {
    /// The assembler cannot be started, or waited for.
    #[error("{} cannot be run: {source}; name the ptxas of a CUDA toolkit", assembler.display())]
    Run {
        /// The assembler.
        assembler: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A temporary file of the assembler cannot be written or read.
    #[error(
        "the temporary file {} cannot be accessed: {source}; free space there, or set TMPDIR",
        path.display()
    )]
    File {
        /// The file, or the folder in which none can be created.
        path: PathBuf,
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
    /// The assembler exceeded its timeout and was killed.
    #[error(
        "{} was killed after {} s; raise its timeout",
        assembler.display(),
        timeout.as_secs_f64()
    )]
    TooSlow {
        /// The assembler.
        assembler: PathBuf,
        /// The timeout.
        timeout: Duration,
    },
}

impl Assembler {
    /// The assembler at `path`, without a timeout. Starts nothing.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), timeout: None }
    }

    /// Kills a process of the assembler that takes longer than `timeout`.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The last line of `ptxas --version`, which names the release and its build.
    ///
    /// # Errors
    /// [`AssembleError`].
    pub fn version(&self) -> Result<String, AssembleError> {
        let folder = folder()?;
        let [output, log] = ["output", "log"].map(|name| folder.path().join(name));
        let mut command = Command::new(&self.path);
        command.arg("--version").stdout(File::create(&output).map_err(failed(&output))?);
        self.run(&mut command, &log)?;
        let written = std::fs::read(&output).map_err(failed(&output))?;
        let text = String::from_utf8_lossy(&written);
        Ok(text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("ptxas").trim().to_owned())
    }

    /// The machine code of `ptx` for `target`.
    ///
    /// # Errors
    /// [`AssembleError`].
    pub fn assemble(&self, ptx: &str, target: SmTarget) -> Result<Vec<u8>, AssembleError> {
        let folder = folder()?;
        let [source, code, log] =
            ["image.ptx", "image.cubin", "log"].map(|name| folder.path().join(name));
        std::fs::write(&source, ptx).map_err(failed(&source))?;
        let mut command = Command::new(&self.path);
        command.arg(format!("-arch={target}")).arg(&source).arg("-o").arg(&code);
        self.run(command.stdout(Stdio::null()), &log)?;
        match std::fs::read(&code) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(AssembleError::NoCode { assembler: self.path.clone() })
            }
            read => read.map_err(failed(&code)),
        }
    }

    /// Runs `command`, with its messages in the file `log`. Its output must go to a file as well: a
    /// pipe could stay open after the assembler ends, held by its child processes.
    fn run(&self, command: &mut Command, log: &Path) -> Result<(), AssembleError> {
        let errors = File::create(log).map_err(failed(log))?;
        let child = command.stdin(Stdio::null()).stderr(errors).spawn();
        let child = child.map_err(|source| self.not_run(source))?;
        let status = self.end_of(child)?;
        if status.success() {
            return Ok(());
        }
        Err(self.refused(status, &std::fs::read(log).map_err(failed(log))?))
    }

    /// Waits for `child`, and kills it after the timeout. Polls, since the standard library has no
    /// wait with a timeout.
    fn end_of(&self, mut child: Child) -> Result<ExitStatus, AssembleError> {
        let not_run = |source| self.not_run(source);
        let Some(timeout) = self.timeout else { return child.wait().map_err(not_run) };
        let started = Instant::now();
        loop {
            if let Some(status) = child.try_wait().map_err(not_run)? {
                return Ok(status);
            }
            if started.elapsed() >= timeout {
                child.kill().map_err(not_run)?;
                child.wait().map_err(not_run)?;
                return Err(AssembleError::TooSlow { assembler: self.path.clone(), timeout });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn not_run(&self, source: io::Error) -> AssembleError {
        AssembleError::Run { assembler: self.path.clone(), source }
    }

    fn refused(&self, status: ExitStatus, log: &[u8]) -> AssembleError {
        let log = String::from_utf8_lossy(log).trim().to_owned();
        AssembleError::Refused { assembler: self.path.clone(), status, log }
    }
}

/// A folder for the files of one process.
fn folder() -> Result<tempfile::TempDir, AssembleError> {
    tempfile::tempdir().map_err(failed(&std::env::temp_dir()))
}

/// Names the file of an error.
fn failed(path: &Path) -> impl Fn(io::Error) -> AssembleError {
    |source| AssembleError::File { path: path.to_owned(), source }
}
