//! The SM target whose images a device runs.

use retrograph_driver::Context;
use retrograph_ptx::SmTarget;

/// A device that is older than every SM target for which kernels are generated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{device} has compute capability {major}.{minor}, but the oldest supported target is {}",
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
