//! The error of prewarming.

use retrograph_bundle::BundleError;
use retrograph_driver::Error;
use retrograph_ptx::{CannotRun, SmTarget};

use super::target::UnsupportedDevice;

/// Requirements that could not be prewarmed.
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
    /// The image is for other devices; the driver was not called.
    #[error("the image `{image}` cannot be used: {source}")]
    WrongTarget {
        /// The image.
        image: String,
        /// Both targets and the remedy.
        #[source]
        source: CannotRun,
    },
    /// A bundle is damaged.
    #[error("the image `{image}` cannot be taken from its bundle: {source}")]
    Bundle {
        /// The image.
        image: String,
        /// The problem with the bundle.
        #[source]
        source: BundleError,
    },
    /// The driver refused an image.
    #[error("the image `{image}` could not be loaded: {error}\n{log}")]
    Load {
        /// The image.
        image: String,
        /// The driver's error.
        #[source]
        error: Error,
        /// The compiler's messages.
        log: String,
    },
    /// An entry point of an image cannot be looked up.
    #[error("the function `{entry}` of the image `{image}` cannot be used: {error}")]
    Entry {
        /// The image.
        image: String,
        /// The entry point.
        entry: String,
        /// The driver's error.
        #[source]
        error: Error,
    },
    /// A kernel of `retrograph-kernels` is required, and the device is older than all its images.
    #[error(transparent)]
    UnsupportedDevice(#[from] UnsupportedDevice),
    /// The driver failed.
    #[error(transparent)]
    Device(#[from] Error),
}
