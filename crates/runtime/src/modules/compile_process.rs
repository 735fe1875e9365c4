//! The processes that compile: `ptxas` for each image, or a worker for many.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use retrograph_kernels::{Reach, SmTarget};

use super::compiler::Compiler;
use super::job::{Failure, Job};
use super::worker::Worker;

/// A process that compiles, among several.
pub(super) enum CompileProcess<'a> {
    Ptxas(&'a Path),
    Process(Box<Worker>),
}

impl<'a> CompileProcess<'a> {
    /// Starts within `limit`. A worker must report `identity` for its driver and device.
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

    /// Compiles one image.
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

/// Runs `ptxas`. Returns `None` if it took too long.
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

/// Waits for `child`, and kills it after `limit` (`None`). Polls, since the standard library has no
/// wait with a timeout.
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
