//! What prewarming took and gave: where each image came from, how long that took, what the compiler
//! made of its entry points, and what went wrong on the way.

use std::fmt;
use std::time::Duration;

use retrograph_driver::{Error, Function};
use retrograph_kernels::SmTarget;

use super::disk::DiskError;

/// Where a loaded image came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// It was loaded before.
    Memory,
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
            Self::Bundle => "bundle",
            Self::Disk => "disk",
            Self::Jit => "jit",
            Self::Worker => "worker",
        })
    }
}

/// Something that made prewarming slower, and no worse.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// The cache on disk was not used.
    #[error("the cache on disk was not used: {0}")]
    Disk(DiskError),
    /// The driver did not take compiled code, and the PTX is compiled instead.
    #[error("`{image}` from {origin} was refused ({error}), so that its PTX is compiled")]
    Refused {
        /// The image.
        image: String,
        /// Where its code came from.
        origin: Source,
        /// What the driver returned, or why it was not asked.
        error: Error,
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
    /// The driver loads an image and does not give its code away.
    #[error("the driver did not link `{image}` ({error}), so that its code is not kept")]
    NotLinked {
        /// The image.
        image: String,
        /// What the driver returned.
        error: Error,
    },
    /// A process that was to compile did not, and the driver compiles here instead.
    #[error(
        "a compiling process failed{}, so that the driver compiles in this one: {why}",
        image.as_ref().map(|image| format!(" at `{image}`")).unwrap_or_default()
    )]
    Compiler {
        /// The image, or `None` when the process did not start.
        image: Option<String>,
        /// What it said.
        why: String,
    },
    /// A process that was to compile took too long and was ended; the driver compiles here instead.
    #[error(
        "a compiling process took longer than {limit:?}{} and was ended, so that the driver \
         compiles in this one; see `Warming::limit`",
        image.as_ref().map_or(" to get ready".to_owned(), |image| format!(" over `{image}`"))
    )]
    TooSlow {
        /// The image, or `None` when the process did not get ready.
        image: Option<String>,
        /// The longest that it may take.
        limit: Duration,
    },
}

/// What the compiler made of one entry point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelReport {
    /// The entry point.
    pub entry: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Local memory of a thread in bytes; more than 0 mostly means spilled registers.
    pub local_bytes: u32,
    /// Static shared memory of a block in bytes.
    pub shared_bytes: u32,
}

/// What prewarming an image took and gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageReport {
    /// The name of the image.
    pub image: String,
    /// Where it came from.
    pub source: Source,
    /// How long it took, compiling in another process included.
    pub elapsed: Duration,
    /// Its entry points, by name.
    pub kernels: Vec<KernelReport>,
}

impl ImageReport {
    pub(super) fn of<'a>(
        image: &str,
        (source, elapsed): (Source, Duration),
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

/// What prewarming took and left.
#[derive(Debug)]
pub struct PrewarmReport {
    /// Each image in the order of loading.
    pub images: Vec<ImageReport>,
    /// What made it slower than it should be.
    pub warnings: Vec<Warning>,
    /// Free bytes of device memory before.
    pub free_before: usize,
    /// Free bytes of device memory after.
    pub free_after: usize,
    /// All bytes of device memory.
    pub total_bytes: usize,
}

impl PrewarmReport {
    /// Number of images that came from `source`.
    pub fn count(&self, source: Source) -> usize {
        self.images.iter().filter(|image| image.source == source).count()
    }

    /// Where the images came from, such as `20 bundle, 1 jit`.
    pub fn sources(&self) -> String {
        use Source::*;
        let counts = [Memory, Bundle, Disk, Jit, Worker].map(|source| (source, self.count(source)));
        let counts = counts.iter().filter(|(_, count)| *count > 0);
        counts.map(|(source, count)| format!("{count} {source}")).collect::<Vec<_>>().join(", ")
    }
}
