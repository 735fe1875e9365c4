//! Who compiles what is cold: this process, or several others at the same time.
//!
//! The driver compiles one image at a time, whatever the number of threads. Hence processes: those
//! of `ptxas`, where it is installed, or further ones of the program itself, see [`serve`].
//!
//! [`serve`]: super::worker::serve

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use retrograph_kernels::{Reach, SmTarget};

use super::worker::Worker;

/// Who compiles an image that neither a bundle nor the cache on disk has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Compiler {
    /// The driver, in this process: one image after the other.
    #[default]
    Driver,
    /// The assembler of the CUDA toolkit at this path, a process for each image.
    Ptxas(PathBuf),
    /// Further processes that call [`serve_compiler`](crate::modules::serve_compiler) on the same
    /// device. Each takes device memory for its context while it lives.
    Processes(WorkerCommand),
}

/// What starts a process that compiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments, which name the device.
    pub arguments: Vec<OsString>,
}

/// How cold images are compiled: by default by the driver, in this process and with one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warming {
    /// Who compiles.
    pub compiler: Compiler,
    /// The most processes at the same time, or threads of the driver for one image; 0 for as many
    /// as the machine has cores. The driver uses several threads from CUDA 13.0 on.
    pub workers: usize,
    /// The longest that another process may take to get ready, and over one image. Then it is
    /// ended, and the driver compiles in this one.
    pub limit: Duration,
}

impl Default for Warming {
    /// The largest image of the workspace takes a compiler less than a second.
    fn default() -> Self {
        Self { compiler: Compiler::Driver, workers: 1, limit: Duration::from_secs(60) }
    }
}

/// Why a process made no code.
#[derive(Debug)]
pub(super) enum Failure {
    /// It says so itself, or how it ended does.
    Told(String),
    /// It took longer than it may.
    TooSlow,
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self::Told(why)
    }
}

/// One image to compile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job<'a> {
    pub(super) ptx: &'a str,
    /// The target that names exactly the device.
    pub(super) device: SmTarget,
    /// Threads to use for it.
    pub(super) threads: usize,
    /// The longest that it may take.
    pub(super) limit: Duration,
}

impl Warming {
    /// The number of processes or threads.
    pub(super) fn width(&self) -> usize {
        match self.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            workers => workers,
        }
    }
}

/// One of several that compile at the same time.
pub(super) enum Hand<'a> {
    Ptxas(&'a Path),
    Process(Box<Worker>),
}

impl<'a> Hand<'a> {
    /// Gets ready within `limit`. `identity` is what a process must say of its driver and device.
    pub(super) fn new(
        compiler: &'a Compiler,
        identity: &str,
        limit: Duration,
    ) -> Result<Self, Failure> {
        match compiler {
            Compiler::Driver => Err("the driver compiles in this process".to_owned().into()),
            Compiler::Ptxas(path) => Ok(Self::Ptxas(path)),
            Compiler::Processes(command) => {
                Ok(Self::Process(Box::new(Worker::start(command, identity, limit)?)))
            }
        }
    }

    /// Compiles, or says why not.
    pub(super) fn compile(&mut self, job: Job<'_>) -> Result<Vec<u8>, Failure> {
        match self {
            Self::Ptxas(path) => ptxas(path, job),
            Self::Process(worker) => worker.compile(job),
        }
    }

    /// Whether it can compile another image after `failure`.
    pub(super) fn survives(&self, failure: &Failure) -> bool {
        matches!((self, failure), (Self::Ptxas(_), _) | (_, Failure::Told(_)))
    }
}

fn ptxas(program: &Path, job: Job<'_>) -> Result<Vec<u8>, Failure> {
    let told = |error: String| Failure::Told(format!("{}: {error}", program.display()));
    match assemble(program, job).map_err(told)? {
        Some(code) => Ok(code),
        None => Err(Failure::TooSlow),
    }
}

/// The code, or `None` when it took too long.
fn assemble(program: &Path, job: Job<'_>) -> Result<Option<Vec<u8>>, String> {
    let text = |error: std::io::Error| error.to_string();
    let folder = tempfile::tempdir().map_err(text)?;
    let [source, code, said] =
        ["image.ptx", "image.cubin", "said"].map(|name| folder.path().join(name));
    std::fs::write(&source, job.ptx).map_err(text)?;
    // A pipe would be kept open by whatever the assembler has started, after its own end as well.
    let errors = File::create(&said).map_err(text)?;
    // Code of a target with a letter is not made for the plain one.
    let named = SmTarget::named_in(job.ptx).filter(|target| target.reach != Reach::Forward);
    let mut command = Command::new(program);
    command.arg(format!("-arch={}", named.unwrap_or(job.device)));
    if job.threads > 1 {
        command.arg(format!("--split-compile={}", job.threads));
    }
    command.arg(&source).arg("-o").arg(&code).stdin(Stdio::null());
    let child = command.stdout(Stdio::null()).stderr(errors).spawn().map_err(text)?;
    let Some(status) = end_of(child, job.limit).map_err(text)? else { return Ok(None) };
    if !status.success() {
        let said = std::fs::read(&said).map_err(text)?;
        return Err(format!("{status}: {}", String::from_utf8_lossy(&said).trim()));
    }
    std::fs::read(&code).map(Some).map_err(text)
}

/// How `child` ends by itself, or `None` when it had to be ended. The standard library has no wait
/// with a limit, so that it is asked again and again.
fn end_of(mut child: Child, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if started.elapsed() >= limit {
            child.kill()?;
            return child.wait().map(|_| None);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
