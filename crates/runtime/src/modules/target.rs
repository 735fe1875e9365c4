//! The SM target whose images a device runs.

use retrograph_driver::Context;
use retrograph_ptx::SmTarget;

/// The oldest SM target that drivers for CUDA 12 support.
const OLDEST: SmTarget = SmTarget::portable(50);

/// A device that is older than every SM target for which `retrograph-kernels` has kernels.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{device} has compute capability {major}.{minor}, but the kernels of retrograph-kernels need \
     {} or newer; use a newer device, or launch only your own PTX",
    SmTarget::GENERATED[0]
)]
pub struct UnsupportedDevice {
    /// The name of the device.
    pub device: String,
    /// Major compute capability.
    pub major: u32,
    /// Minor compute capability.
    pub minor: u32,
}

/// The newest generated SM target whose images run on the device of `context`.
///
/// # Errors
/// [`UnsupportedDevice`] if there is no such target.
pub fn image_target(context: &Context) -> Result<SmTarget, UnsupportedDevice> {
    let (major, minor) = context.compute_capability();
    let unsupported =
        || UnsupportedDevice { device: context.device_name().to_owned(), major, minor };
    SmTarget::for_device(major, minor).ok_or_else(unsupported)
}

/// The SM target for which the runtime generates code on the device of `context`: its
/// [`image_target`], or [`OLDEST`] on an older device, which runs only images of the caller.
pub(super) fn code_target(context: &Context) -> SmTarget {
    image_target(context).unwrap_or(OLDEST)
}
