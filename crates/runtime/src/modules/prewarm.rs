//! Loading everything that a pass needs, before its first step.

use std::time::Duration;

use retrograph_driver::{Error, nvtx};
use retrograph_kernels::{CannotRun, SmTarget};

use super::bundle::BundleError;
use super::cache::ModuleCache;
use super::image::Wanted;
use super::report::{PrewarmReport, Source};
use super::session::Session;
use super::target::{UnsupportedDevice, image_target};
use super::warm::WarmModules;
use crate::pass::Requirements;

/// How far prewarming is, told after each image.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    /// Images that are warm.
    pub done: usize,
    /// Images in all.
    pub total: usize,
    /// The name of the image.
    pub image: &'a str,
    /// Where it came from.
    pub source: Source,
    /// How long it took; next to nothing when it was warm before.
    pub elapsed: Duration,
}

/// Why a pass could not be warmed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrewarmError {
    /// There is no image of this name for the device.
    #[error("there is no image `{image}` for {target}")]
    NoImage {
        /// The image.
        image: String,
        /// The SM target of the device.
        target: SmTarget,
    },
    /// The image is for other devices. The driver was not asked.
    #[error("the image `{image}` cannot be used: {source}")]
    WrongTarget {
        /// The image.
        image: String,
        /// Both targets and the way out.
        #[source]
        source: CannotRun,
    },
    /// A bundle is damaged.
    #[error("the image `{image}` cannot be taken from its bundle: {source}")]
    Bundle {
        /// The image.
        image: String,
        /// What is wrong with the bundle.
        #[source]
        source: BundleError,
    },
    /// The driver refused an image.
    #[error("the image `{image}` could not be loaded: {error}\n{log}")]
    Load {
        /// The image.
        image: String,
        /// What the driver returned.
        #[source]
        error: Error,
        /// What its compiler said.
        log: String,
    },
    /// An image lacks an entry point.
    #[error("the image `{image}` gives no function `{entry}`: {error}")]
    Entry {
        /// The image.
        image: String,
        /// The entry point.
        entry: String,
        /// What the driver returned.
        #[source]
        error: Error,
    },
    /// The device is older than every generated image.
    #[error(transparent)]
    UnsupportedDevice(#[from] UnsupportedDevice),
    /// The driver failed.
    #[error(transparent)]
    Device(#[from] Error),
}

impl ModuleCache {
    /// Loads every image that `requirements` name and looks up the entry points that are launched
    /// on this device, so that no later launch compiles anything. Images that are loaded stay as
    /// they are. The others are taken from bundles, from disk, or compiled, as the options of the
    /// cache say.
    ///
    /// Call this before weights fill the memory: the driver needs device memory for code, and
    /// [`WarmModules::report`] says how much is left.
    ///
    /// # Errors
    /// [`PrewarmError`] names the image, and has the compiler's log. What is wrong with the cache
    /// on disk, or with processes that compile, is a warning in the report.
    pub fn prewarm<F>(
        &self,
        requirements: &Requirements,
        mut progress: F,
    ) -> Result<WarmModules, PrewarmError>
    where
        F: FnMut(&Progress<'_>),
    {
        let _range = nvtx::range(c"retrograph: prewarm");
        self.context().bind_outside_capture("prewarming")?;
        let (free_before, _) = self.context().memory()?;
        let wanted = Wanted::all(requirements, self.context())?;
        let mut session = Session::new(self, wanted.len(), &mut progress);
        self.flights().settle(wanted.iter().collect(), &mut session)?;
        let (functions, images, warnings) = session.into_parts();
        let (free_after, total_bytes) = self.context().memory()?;
        let report = PrewarmReport { images, warnings, free_before, free_after, total_bytes };
        let target = image_target(self.context())?;
        Ok(WarmModules::new(self, target, (functions, report)))
    }
}
