//! Prewarming: images are compiled and loaded ahead of time, never during a step.
//!
//! The driver compiles PTX when a module is loaded, one image at a time, which takes from
//! milliseconds to a quarter of a second each. [`ModuleCache`] compiles and loads images when it
//! prewarms. The resulting [`WarmModules`] are the only source of [`Function`]s for programs: a
//! request for another function fails with [`JitAfterWarm`] and its name, instead of stalling.
//!
//! ```
//! # #[cfg(feature = "sim")] {
//! use retrograph_runtime::{Context, DeviceIndex, Driver, ModuleCache, Pass};
//!
//! let context = Context::new(&Driver::simulated(Default::default())?, DeviceIndex(0))?;
//! let pass = Pass::new("empty");
//! let modules = ModuleCache::new(&context);
//! let warm = modules.prewarm(&pass.requirements(), |progress| {
//!     println!("{}/{}: {}", progress.done, progress.total, progress.image);
//! })?;
//! assert!(warm.function("softmax", "softmax_forward").is_err());
//! assert_eq!(modules.jit_after_warm(), 1);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Compiled images come from [bundles](Bundle) shipped by a deployment, from a
//! [directory](CacheDir) shared by the processes of a user, or from the [compiler](Compiler).

mod cache;
mod compile_process;
mod compile_workers;
mod compiler;
mod disk;
mod error;
mod flight;
mod image;
mod job;
#[cfg(feature = "kernels")]
mod kernel_images;
#[cfg(feature = "kernels")]
mod kernel_text;
mod prewarm;
mod progress;
mod report;
mod required;
mod session;
mod stored;
mod sync;
mod target;
mod warm;
mod worker;

pub use cache::{CacheOptions, ModuleCache};
pub use compiler::{CompileOptions, Compiler, WorkerCommand};
pub use disk::{CacheDir, DiskError};
pub use error::PrewarmError;
pub use image::ImageKey;
pub use progress::Progress;
pub use report::{ImageReport, KernelReport, PrewarmReport, Source, Warning};
pub use retrograph_bundle::{
    AssembleError, Assembler, Bundle, BundleBuildError, BundleEntry, BundleError, BundleImage,
    Digest,
};
pub use retrograph_driver::module::{CodeError, Function};
pub use target::{UnsupportedDevice, image_target};
pub use warm::{JitAfterWarm, WarmModules};
pub use worker::serve as serve_compiler;
