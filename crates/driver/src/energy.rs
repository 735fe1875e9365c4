//! The energy consumption of a device, from NVML, the management library of the driver.

use std::ffi::{CStr, c_char, c_int, c_void};

use libloading::Library;

use crate::context::Context;
use crate::error::Result;

/// The library and its older name.
const NAMES: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];

type Init = unsafe extern "C" fn() -> c_int;
type ByPciBusId = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int;
type TotalEnergy = unsafe extern "C" fn(*mut c_void, *mut u64) -> c_int;

/// The functions of NVML that are used. They return 0 on success.
#[derive(Clone, Copy, Debug)]
struct Functions {
    init: Init,
    by_pci_bus_id: ByPciBusId,
    total_energy: TotalEnergy,
}

impl Functions {
    /// Loads the functions. The library is never unloaded.
    fn load() -> Option<Self> {
        NAMES.iter().find_map(|name| {
            // SAFETY: the name denotes a library of the driver, whose initializers do nothing
            // until `nvmlInit_v2`.
            let library = unsafe { Library::new(*name) }.ok()?;
            // SAFETY: these are the signatures of nvml.h since CUDA 10.
            let functions = unsafe {
                let init = *library.get::<Init>(b"nvmlInit_v2\0").ok()?;
                let name = b"nvmlDeviceGetHandleByPciBusId_v2\0";
                let by_pci_bus_id = *library.get::<ByPciBusId>(name).ok()?;
                let name = b"nvmlDeviceGetTotalEnergyConsumption\0";
                let total_energy = *library.get::<TotalEnergy>(name).ok()?;
                Self { init, by_pci_bus_id, total_energy }
            };
            std::mem::forget(library);
            Some(functions)
        })
    }

    /// The counter of the device at a PCI address, if it has one.
    fn counter(self, address: &CStr) -> Option<EnergyCounter> {
        let mut device = std::ptr::null_mut();
        // SAFETY: the call takes nothing, and may be repeated.
        let ready = unsafe { (self.init)() } == 0;
        // SAFETY: the text is zero-terminated, the out pointer is valid, and NVML is initialized.
        let found = ready && unsafe { (self.by_pci_bus_id)(address.as_ptr(), &mut device) } == 0;
        let counter = EnergyCounter { device, total_energy: self.total_energy };
        (found && counter.joules().is_some()).then_some(counter)
    }
}

/// The energy counter of a device. The device updates it several times per second.
#[derive(Debug)]
pub struct EnergyCounter {
    device: *mut c_void,
    total_energy: TotalEnergy,
}

impl EnergyCounter {
    /// The counter of the context's device. `None` if the driver is simulated, NVML is not
    /// installed, or the device has no counter.
    ///
    /// # Errors
    /// If the driver does not report the PCI address of the device.
    pub fn of(context: &Context) -> Result<Option<Self>> {
        let driver = context.driver();
        if driver.is_simulated() {
            return Ok(None);
        }
        let mut address = [0 as c_char; 32];
        // SAFETY: the buffer has this length, and the driver zero-terminates the text.
        let address = unsafe {
            call!(driver, cuDeviceGetPCIBusId(address.as_mut_ptr(), 32, context.device()))?;
            CStr::from_ptr(address.as_ptr())
        };
        let counter = Functions::load().and_then(|functions| functions.counter(address));
        if counter.is_none() {
            tracing::debug!(?address, "no energy counter was found");
        }
        Ok(counter)
    }

    /// Energy consumption of the whole device since the driver was loaded, in joules; `None` if the
    /// device no longer reports it.
    pub fn joules(&self) -> Option<f64> {
        let mut millijoules = 0;
        // SAFETY: NVML returned the device, and the out pointer is valid.
        let code = unsafe { (self.total_energy)(self.device, &mut millijoules) };
        (code == 0).then(|| millijoules as f64 / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `NVML_ERROR_NOT_FOUND`.
    const NOT_FOUND: c_int = 6;
    const DEVICE: *mut c_void = std::ptr::without_provenance_mut(1);

    unsafe extern "C" fn init() -> c_int {
        0
    }

    unsafe extern "C" fn by_pci_bus_id(address: *const c_char, device: *mut *mut c_void) -> c_int {
        // SAFETY: the test passes a zero-terminated text and a valid out pointer.
        let known = unsafe { CStr::from_ptr(address) } == c"0000:65:00.0";
        if known {
            // SAFETY: as above.
            unsafe { *device = DEVICE };
        }
        if known { 0 } else { NOT_FOUND }
    }

    unsafe extern "C" fn total_energy(device: *mut c_void, millijoules: *mut u64) -> c_int {
        assert_eq!(device, DEVICE);
        // SAFETY: the test passes a valid out pointer.
        unsafe { *millijoules = 2500 };
        0
    }

    #[test]
    fn the_counter_is_that_of_the_address() {
        let functions = Functions { init, by_pci_bus_id, total_energy };
        assert_eq!(functions.counter(c"0000:65:00.0").unwrap().joules(), Some(2.5));
        assert!(functions.counter(c"0000:66:00.0").is_none());
    }
}
