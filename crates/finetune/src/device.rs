//! The device of a run.

use std::fmt;
use std::str::FromStr;

use retrograph_runtime::modules::image_target;
use retrograph_runtime::{
    Context, DeviceIndex, DeviceInfo, Driver, Error as DeviceError, ModuleCache,
};

use crate::config::UnknownChoice;
use crate::error::{Error, Result};

/// The choice of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceChoice {
    /// The first device of the driver, or the simulated driver if there is none.
    #[default]
    Auto,
    /// This device of the driver.
    Cuda(u32),
    /// The simulated driver.
    Simulated,
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
            Self::Simulated => f.write_str("sim"),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = UnknownChoice;

    fn from_str(text: &str) -> Result<Self, UnknownChoice> {
        let index = text.strip_prefix("cuda:").and_then(|index| index.parse().ok());
        match (text, index) {
            ("auto", _) => Ok(Self::Auto),
            ("sim", _) => Ok(Self::Simulated),
            (_, Some(index)) => Ok(Self::Cuda(index)),
            _ => Err(UnknownChoice::new(text, "a device", "auto, sim, or cuda:0")),
        }
    }
}

/// A device that is ready for use.
#[derive(Clone, Debug)]
pub struct Device {
    /// The context.
    pub context: Context,
    /// Name, compute capability and memory.
    pub info: DeviceInfo,
    /// Whether the driver is simulated; its times are then meaningless.
    pub simulated: bool,
    /// Why [`DeviceChoice::Auto`] chose the simulated driver, if it did.
    pub fallback_reason: Option<String>,
}

impl Device {
    /// Opens the device of `choice`.
    ///
    /// # Errors
    /// If there is no driver, the driver is too old, or there is no such device.
    /// [`DeviceChoice::Auto`] then opens the simulated driver instead.
    pub fn open(choice: DeviceChoice) -> Result<Self> {
        match choice {
            DeviceChoice::Simulated => Self::simulated(None),
            DeviceChoice::Cuda(index) => Self::cuda(index),
            DeviceChoice::Auto => Self::or_simulated(Self::cuda(0)),
        }
    }

    /// Returns a simulated device if there is no usable one.
    fn or_simulated(found: Result<Self>) -> Result<Self> {
        match found {
            Err(Error::Device(error)) if is_absence(&error) => {
                Self::simulated(Some(error.to_string()))
            }
            Err(Error::UnsupportedDevice(error)) => Self::simulated(Some(error.to_string())),
            found => found,
        }
    }

    fn cuda(index: u32) -> Result<Self> {
        Self::on(&Driver::load()?, index, None)
    }

    #[cfg(feature = "sim")]
    fn simulated(reason: Option<String>) -> Result<Self> {
        Self::on(&Driver::simulated(Default::default())?, 0, reason)
    }

    #[cfg(not(feature = "sim"))]
    fn simulated(_why: Option<String>) -> Result<Self> {
        Err(Error::NoSimulator)
    }

    /// Returns an empty module cache of the device.
    pub fn modules(&self) -> ModuleCache {
        ModuleCache::new(&self.context)
    }

    /// Opens device `index` of a driver.
    ///
    /// # Errors
    /// If there is no such device, it is older than all generated kernels, or it fails.
    pub fn on(driver: &Driver, index: u32, reason: Option<String>) -> Result<Self> {
        let context = Context::new(driver, DeviceIndex(index))?;
        image_target(&context)?;
        let info = context.info()?;
        Ok(Self { context, info, simulated: driver.is_simulated(), fallback_reason: reason })
    }
}

/// Returns whether an error means that there is no usable device.
fn is_absence(error: &DeviceError) -> bool {
    let no_device = |code: u32| matches!(code, 100 | 999 | 35 | 34);
    match error {
        DeviceError::NoDriver { .. }
        | DeviceError::DriverTooOld { .. }
        | DeviceError::NoSuchDevice { .. } => true,
        DeviceError::Call(call) => no_device(call.code.0),
        _ => false,
    }
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use retrograph_driver_sim::Config;
    use retrograph_runtime::DriverVersion;

    use super::*;

    fn driver(major: u32, minor: u32) -> Driver {
        let compute_capability = (major, minor);
        let mut config = Config::default();
        config.compute_capability = compute_capability;
        Driver::simulated(config).unwrap()
    }

    #[test]
    fn auto_takes_the_simulated_driver_if_no_device_can_be_used() {
        let (found, needed) = (DriverVersion::from_number(11080), DriverVersion::MIN);
        let too_old = Err(Error::Device(DeviceError::DriverTooOld { found, needed }));
        let missing = Err(Error::Device(DeviceError::NoDriver { tried: "libcuda.so.1".into() }));
        let no_device = Device::on(&driver(9, 0), 3, None);
        let unsupported = Device::on(&driver(7, 0), 0, None);
        for refused in [too_old, missing, no_device, unsupported] {
            let error = refused.as_ref().unwrap_err().to_string();
            let device = Device::or_simulated(refused).unwrap();
            assert!(device.simulated, "{error}");
            assert_eq!(device.fallback_reason, Some(error));
        }
    }

    #[test]
    fn auto_reports_any_other_failure() {
        let reason = "the library is damaged".to_owned();
        let broken = Err(Error::Device(DeviceError::UnusableDriver { reason }));
        assert!(matches!(Device::or_simulated(broken), Err(Error::Device(_))));
    }
}
