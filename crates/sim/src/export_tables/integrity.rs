//! The table by which the CUDA runtime recognises its driver.
//!
//! The runtime passes a version and a time. Its version 13.0 does not start unless the answer is an
//! HMAC-MD2 over both, the process, the addresses of the tables and the devices. The order of the
//! bytes comes from ZLUDA. The key is NVIDIA's and not part of this project: a setting holds it.

use std::ffi::c_void;

use retrograph_driver_sys::{CUdevice, CUdevice_attribute, CUresult, CUuuid};

use super::{Table, code_of, cudart, md2, own_machine, sized};
use crate::Machine;

pub(super) const ID: [u8; 16] = 0xd4082055_bde6_704b_8d34_ba123c66e1f2_u128.to_be_bytes();

pub(super) static TABLE: Table = {
    let mut table = sized::<5>(3);
    table[1] = check as *const c_void;
    Table(table)
};

/// Writes the answer.
///
/// # Safety
/// `result` is null or valid.
unsafe extern "C" fn check(version: u32, time: u64, result: *mut [u8; 16]) -> CUresult {
    code_of(own_machine().and_then(|machine| {
        let Some(key) = machine.settings.runtime_key else {
            let help = "set RETROGRAPH_SIM_RUNTIME_KEY, see docs/sim-libcuda.md";
            return Err(machine.report_missing("integrity check of the CUDA runtime", help));
        };
        // SAFETY: passed on from the caller.
        let place = unsafe { result.as_mut() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        *place = md2::hmac(key, &message(machine, version, time)?);
        Ok(())
    }))
}

/// The number of this thread; 0 on systems that have no CUDA runtime with this table.
fn thread() -> usize {
    #[cfg(target_os = "linux")]
    {
        unsafe extern "C" {
            safe fn pthread_self() -> usize;
        }
        pthread_self()
    }
    #[cfg(not(target_os = "linux"))]
    0
}

/// The bytes that are authenticated.
fn message(machine: &Machine, version: u32, time: u64) -> Result<Vec<u8>, CUresult> {
    let driver = machine.settings.config.driver_version.cast_unsigned();
    let mut message = Vec::new();
    for word in [driver, version, std::process::id(), thread() as u32] {
        message.extend(word.to_ne_bytes());
    }
    let tables = [&raw const cudart::TABLE, &raw const TABLE].map(<*const Table>::addr);
    for word in [tables[0], tables[1], TABLE.0[1].addr()] {
        message.extend(word.to_ne_bytes());
    }
    message.extend(time.to_ne_bytes());
    let devices = machine.settings.config.devices;
    for device in (0..).take(devices) {
        message.extend(identity(machine, device)?);
    }
    Ok(message)
}

/// The UUID of a device and its place on the PCI bus.
fn identity(machine: &Machine, device: CUdevice) -> Result<Vec<u8>, CUresult> {
    use CUdevice_attribute as A;
    let table = machine.simulator.table();
    let mut uuid = CUuuid { bytes: [0; 16] };
    // SAFETY: the place is valid during the call.
    unsafe { (table.cuDeviceGetUuid_v2)(&mut uuid, device) }.ok()?;
    let mut identity = uuid.bytes.to_vec();
    let place = [
        A::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
        A::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
        A::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID,
    ];
    for attribute in place {
        let mut number = 0;
        // SAFETY: the place is valid during the call.
        unsafe { (table.cuDeviceGetAttribute)(&mut number, attribute, device) }.ok()?;
        identity.extend(number.to_ne_bytes());
    }
    Ok(identity)
}
