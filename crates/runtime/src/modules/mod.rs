//! Images, modules and functions: compiled ahead of time, never in the middle of a step.
//!
//! The driver compiles PTX when a module is loaded, one image at a time whatever the number of
//! threads, and that takes from milliseconds to a quarter of a second each. [`ModuleCache`] does it
//! when it is asked to prewarm, and [`WarmModules`], the result, is the only source of
//! [`Function`]s: work that needs a function which is not warm gets [`JitAfterWarm`] with its name
//! and never a stall.
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
//! Absent on purpose: images other than PTX. The driver takes no length for a cubin, so that a
//! truncated file would crash the process; they need a loader that verifies them first.

mod cache;
mod function;
mod image;
mod load;
mod prewarm;
mod warm;

pub use cache::ModuleCache;
pub use function::Function;
pub(crate) use function::parameter_sizes;
pub use image::ImageKey;
pub use prewarm::{PrewarmError, Progress};
pub use warm::{ImageReport, JitAfterWarm, PrewarmReport, WarmModules};
