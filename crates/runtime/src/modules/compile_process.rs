//! The compiler processes: one `ptxas` per image, workers for many images, or this process.

use std::path::Path;
use std::time::Duration;

use retrograph_bundle::{AssembleError, Assembler};
use retrograph_driver::{Context, compile_ptx};
use retrograph_ptx::{Reach, SmTarget};

use super::compiler::Compiler;
use super::disk::identity;
use super::job::{Failure, Job};
use super::report::Source;
use super::worker::Worker;

/// One of several compiler processes.
pub(super) enum CompileProcess<'a> {
    Ptxas(&'a Path),
    Worker(Box<Worker>),
    /// This process, whose driver is ready while workers still start theirs.
    This(&'a Context),
}

impl<'a> CompileProcess<'a> {
    /// Starts a process within `limit`. The first of several processes with a driver is this
    /// process. A worker must have the same driver and device.
    pub(super) fn new(
        compiler: &'a Compiler,
        context: &'a Context,
        is_first: bool,
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

    /// Returns the source to report for its images.
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
    // Architecture-specific code, such as for sm_90a, does not match the plain target.
    let named = SmTarget::named_in(job.ptx).filter(|target| target.reach != Reach::Forward);
    let assembler = Assembler::at(program).with_timeout(job.limit);
    assembler.assemble(job.ptx, named.unwrap_or(job.device)).map_err(|error| match error {
        AssembleError::TooSlow { .. } => Failure::TooSlow,
        error => Failure::Told(error.to_string()),
    })
}
