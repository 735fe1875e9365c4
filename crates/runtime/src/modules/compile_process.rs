//! The processes that compile: `ptxas` for each image, a worker for many, or this process.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use retrograph_driver::{Context, compile_ptx};
use retrograph_kernels::{Reach, SmTarget};

use super::compiler::Compiler;
use super::disk::identity;
use super::job::{Failure, Job};
use super::report::Source;
use super::worker::Worker;

/// A process that compiles, among several.
pub(super) enum CompileProcess<'a> {
    Ptxas(&'a Path),
    Worker(Box<Worker>),
    /// This process, which has the driver ready while workers start theirs.
    This(&'a Context),
}

impl<'a> CompileProcess<'a> {
    /// Starts within `limit`. Of several processes with a driver, the first one is this process. A
    /// worker must have the same driver and device.
    pub(super) fn new(
        compiler: &'a Compiler,
        (context, is_first): (&'a Context, bool),
        limit: Duration,
    ) -> Result<Self, Failure> {
        match compiler {
            Compiler::Ptxas(path) => Ok(Self::Ptxas(path)),
            Compiler::Processes(command) if !is_first => {
                Ok(Self::Worker(Box::new(Worker::start(command, &identity(context), limit)?)))
            }
            Compiler::Processes(_) | Compiler::Driver => Ok(Self::This(context)),
        }
    }

    /// The source of what it compiles.
    pub(super) fn source(&self) -> Source {
        match self {
            Self::Ptxas(_) | Self::Worker(_) => Source::Worker,
            Self::This(_) => Source::Jit,
        }
    }

    /// Compiles one image.
    pub(super) fn compile(&mut self, job: Job<'_>) -> Result<Vec<u8>, Failure> {
        match self {
            Self::Ptxas(path) => ptxas(path, job),
            Self::Worker(worker) => worker.compile(job),
            Self::This(context) => compile_ptx(context, job.ptx).map_err(|_| Failure::Here),
        }
    }

    /// Whether it can compile another image after `failure`.
    pub(super) fn survives(&self, failure: &Failure) -> bool {
        matches!((self, failure), (Self::Ptxas(_), _) | (_, Failure::Told(_) | Failure::Here))
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
