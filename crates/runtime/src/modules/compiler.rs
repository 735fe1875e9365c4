//! How images are compiled: by the driver in this process, or in several other processes.
//!
//! A driver compiles one image at a time per process, whatever the number of threads. To compile
//! concurrently, use `ptxas` processes, or worker processes of the program itself; see [`serve`].
//!
//! [`serve`]: super::worker::serve

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The compiler of images that neither a bundle nor the cache on disk has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compiler {
    /// The driver, in this process: one image after another.
    #[default]
    Driver,
    /// `ptxas` at this path, with one process per image.
    Ptxas(PathBuf),
    /// The driver, in this process and in worker processes that call
    /// [`serve_compiler`](crate::modules::serve_compiler) on the same device. Each worker takes
    /// device memory for its context while it lives. A small amount of PTX is compiled only in this
    /// process, because starting a worker would take longer.
    Processes(WorkerCommand),
}

/// The command that starts a worker process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments, which name the device.
    pub arguments: Vec<OsString>,
}

/// How images are compiled: by default by the driver, in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompileOptions {
    /// The compiler.
    pub compiler: Compiler,
    /// Maximum number of compiler processes, including this one; 0 for the number of cores, but at
    /// most four with [`Compiler::Processes`].
    pub workers: usize,
    /// Time limit for starting another process, and for one image. After it, that process is killed
    /// and the driver compiles in this process.
    pub timeout: Duration,
}

impl Default for CompileOptions {
    /// The largest entry point of the workspace takes a compiler about a second.
    fn default() -> Self {
        Self { compiler: Compiler::Driver, workers: 0, timeout: Duration::from_secs(60) }
    }
}

impl CompileOptions {
    /// The number of processes.
    pub(super) fn width(&self) -> usize {
        match self.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            workers => workers,
        }
    }
}
