//! The header of a recording: machine and date.

use std::ffi::CStr;
use std::time::{SystemTime, UNIX_EPOCH};

use retrograph_driver_sys::DriverTable;

/// Lines that name the driver, the GPU and the date.
pub fn describe(table: &DriverTable) -> Vec<String> {
    let mut version = 0;
    let mut device = 0;
    let mut name = [0; 256];
    // SAFETY: every pointer is valid during its call, and the call gets the length of the name.
    unsafe {
        let _ = (table.cuInit)(0);
        let _ = (table.cuDriverGetVersion)(&mut version);
        let _ = (table.cuDeviceGet)(&mut device, 0);
        let _ = (table.cuDeviceGetName)(name.as_mut_ptr(), 256, device);
    }
    // SAFETY: the array was zero before, and the driver writes a final zero within its length.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
    let cuda = format!("CUDA {}.{}", version / 1000, version % 1000 / 10);
    let mut lines = vec![
        format!("driver: {} ({cuda})", driver_release().unwrap_or_else(|| "unknown".to_owned())),
        format!("gpu: {name}"),
        format!("date: {}", date()),
    ];
    let devices = super::devices::count(table);
    if devices > 1 {
        lines.push(format!("devices: {devices}"));
    }
    lines
}

/// The release of the kernel driver, if the system reports it.
fn driver_release() -> Option<String> {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    let is_release =
        |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.lines().next()?.split_whitespace().find(is_release).map(str::to_owned)
}

/// Today in UTC, as `2026-01-31`.
fn date() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    // Counts days from 1 March of year 0, so leap days are the last ones of a year.
    let days = seconds / 86400 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}
