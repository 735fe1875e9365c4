//! How images are compiled: by the driver in this process, or in several other processes.
//!
//! The driver compiles one image at a time, whatever the number of threads. To compile
//! concurrently, use `ptxas` processes, or worker processes of the program itself; see [`serve`].
//!
//! [`serve`]: super::worker::serve

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The compiler of images that neither a bundle nor the cache on disk has.
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

/// The command that starts a worker process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments, which name the device.
    pub arguments: Vec<OsString>,
}

/// How images are compiled: by default by the driver, in this process and with one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warming {
    /// The compiler.
    pub compiler: Compiler,
    /// Maximum number of processes, or of driver threads for one image; 0 for the number of cores.
    /// The driver uses several threads from CUDA 13.0 on.
    pub workers: usize,
    /// Time limit of another process for starting, and for one image. It is then killed, and the
    /// driver compiles in this process.
    pub limit: Duration,
}

impl Default for Warming {
    /// The largest image of the workspace takes a compiler less than a second.
    fn default() -> Self {
        Self { compiler: Compiler::Driver, workers: 1, limit: Duration::from_secs(60) }
    }
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
