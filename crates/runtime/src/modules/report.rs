//! The report of prewarming: sources, times, resources of entry points, and warnings.

use std::fmt;
use std::time::Duration;

use retrograph_driver::{Error, Function};
use retrograph_ptx::SmTarget;

use super::disk::DiskError;

/// The source of a loaded image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// Loaded before.
    Memory,
    /// The caller's own machine code.
    MachineCode,
    /// A bundle.
    Bundle,
    /// The cache on disk.
    Disk,
    /// The driver compiled it in this process.
    Jit,
    /// Another process compiled it.
    Worker,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::MachineCode => "machine code",
            Self::Bundle => "bundle",
            Self::Disk => "disk",
            Self::Jit => "jit",
            Self::Worker => "worker",
        })
    }
}

/// A problem that only made prewarming slower.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// The cache on disk was not used.
    #[error("the cache on disk was not used: {0}")]
    Disk(DiskError),
    /// The driver refused compiled code; the next source was tried instead, and the PTX last.
    #[error(
        "`{image}` from {origin} was refused ({error}{}), so the next source is tried",
        log.lines().next().map(|line| format!("; {line}")).unwrap_or_default()
    )]
    Refused {
        /// The image.
        image: String,
        /// The source of the code.
        origin: Source,
        /// The error of the driver, or of the preceding check.
        error: Error,
        /// The driver's messages.
        log: String,
    },
    /// The bundles have no code of an image for this device.
    #[error(
        "no bundle has `{image}` for a device of {device}; make one from the same kernel sources, \
         with `Bundle::write`"
    )]
    NotInBundle {
        /// The image.
        image: String,
        /// The target that names the device.
        device: SmTarget,
    },
    /// The driver cannot return the compiled code of an image.
    #[error("the driver did not link `{image}` ({error}), so its code is not cached")]
    NotLinked {
        /// The image.
        image: String,
        /// The driver's error.
        error: Error,
    },
    /// A worker process failed; the driver compiled in this process.
    #[error(
        "a compiler process failed{}, so the driver compiles in this process: {reason}",
        image.as_ref().map(|image| format!(" at `{image}`")).unwrap_or_default()
    )]
    Compiler {
        /// The image, or `None` if the process did not start.
        image: Option<String>,
        /// Its message.
        reason: String,
    },
    /// A worker process exceeded its timeout and was killed; the driver compiled in this process.
    #[error(
        "a compiler process took longer than {timeout:?}{} and was killed, so the driver compiles \
         in this process; see `CompileOptions::timeout`",
        image.as_ref().map_or(" to get ready".to_owned(), |image| format!(" over `{image}`"))
    )]
    TooSlow {
        /// The image, or `None` if the process did not start in time.
        image: Option<String>,
        /// The timeout.
        timeout: Duration,
    },
}

/// Resources of a compiled entry point.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelReport {
    /// The entry point.
    pub entry: String,
    /// Registers per thread.
    pub registers: u32,
    /// Local memory per thread in bytes; more than 0 usually means register spills.
    pub local_bytes: u32,
    /// Static shared memory per block in bytes.
    pub shared_bytes: u32,
}

/// The report of one module: an image, or an image that is cut to one entry point.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageReport {
    /// The name of the image, or of the entry point to which it is cut.
    pub image: String,
    /// Its source.
    pub source: Source,
    /// Time, including compilation in another process.
    pub elapsed: Duration,
    /// Its entry points, by name.
    pub kernels: Vec<KernelReport>,
}

impl ImageReport {
    pub(super) fn of<'a>(
        image: &str,
        source: Source,
        elapsed: Duration,
        functions: impl Iterator<Item = &'a Function>,
    ) -> Self {
        let kernel = |function: &Function| KernelReport {
            entry: function.name().to_owned(),
            registers: function.registers(),
            local_bytes: function.local_bytes(),
            shared_bytes: function.shared_bytes(),
        };
        let mut kernels: Vec<_> = functions.map(kernel).collect();
        kernels.sort_by(|a, b| a.entry.cmp(&b.entry));
        Self { image: image.to_owned(), source, elapsed, kernels }
    }
}

/// The report of prewarming.
#[derive(Debug)]
#[non_exhaustive]
pub struct PrewarmReport {
    /// Each module in the order of loading.
    pub images: Vec<ImageReport>,
    /// Problems that made prewarming slower.
    pub warnings: Vec<Warning>,
    /// Free bytes of device memory before prewarming.
    pub free_before: usize,
    /// Free bytes of device memory after prewarming.
    pub free_after: usize,
    /// Total bytes of device memory.
    pub total_bytes: usize,
}

impl PrewarmReport {
    /// Number of modules that came from `source`.
    pub fn count(&self, source: Source) -> usize {
        self.images.iter().filter(|image| image.source == source).count()
    }

    /// The sources of the modules, such as `20 bundle, 1 jit`.
    pub fn sources(&self) -> String {
        use Source::*;
        let counts = [Memory, MachineCode, Bundle, Disk, Jit, Worker];
        let counts = counts.map(|source| (source, self.count(source)));
        let counts = counts.iter().filter(|(_, count)| *count > 0);
        counts.map(|(source, count)| format!("{count} {source}")).collect::<Vec<_>>().join(", ")
    }
}
