//! Who compiles what is cold: this process, or several others at the same time.
//!
//! The driver compiles one image at a time, whatever the number of threads. Hence processes: those
//! of `ptxas`, where it is installed, or further ones of the program itself, see [`serve`].
//!
//! [`serve`]: super::worker::serve

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
}

impl Default for Warming {
    fn default() -> Self {
        Self { compiler: Compiler::Driver, workers: 1 }
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
    /// Gets ready. `identity` is what a process must say of its driver and device.
    pub(super) fn new(compiler: &'a Compiler, identity: &str) -> Result<Self, String> {
        match compiler {
            Compiler::Driver => Err("the driver compiles in this process".to_owned()),
            Compiler::Ptxas(path) => Ok(Self::Ptxas(path)),
            Compiler::Processes(command) => {
                Ok(Self::Process(Box::new(Worker::start(command, identity)?)))
            }
        }
    }

    /// Compiles, or says why not.
    pub(super) fn compile(&mut self, job: Job<'_>) -> Result<Vec<u8>, String> {
        match self {
            Self::Ptxas(path) => {
                ptxas(path, job).map_err(|error| format!("{}: {error}", path.display()))
            }
            Self::Process(worker) => worker.compile(job),
        }
    }
}

fn ptxas(program: &Path, job: Job<'_>) -> Result<Vec<u8>, String> {
    let text = |error: std::io::Error| error.to_string();
    let folder = tempfile::tempdir().map_err(text)?;
    let [source, code] = ["image.ptx", "image.cubin"].map(|name| folder.path().join(name));
    std::fs::write(&source, job.ptx).map_err(text)?;
    // Code of a target with a letter is not made for the plain one.
    let named = SmTarget::named_in(job.ptx).filter(|target| target.reach != Reach::Forward);
    let mut command = Command::new(program);
    command.arg(format!("-arch={}", named.unwrap_or(job.device)));
    if job.threads > 1 {
        command.arg(format!("--split-compile={}", job.threads));
    }
    command.arg(&source).arg("-o").arg(&code).stdin(Stdio::null());
    let output = command.output().map_err(text)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}", output.status, said.trim()));
    }
    std::fs::read(&code).map_err(text)
}
