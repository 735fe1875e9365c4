//! The devices of the recording machine, and the ones that a scenario sees.

use std::env;

use retrograph_driver_sys::DriverTable;

/// The variable by which the driver selects devices.
pub(super) const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// Number of devices, which initializes the driver. 0 if that fails.
pub(super) fn count(table: &DriverTable) -> usize {
    let mut count = 0;
    // SAFETY: the pointer is valid during its call.
    let code = unsafe {
        let _ = (table.cuInit)(0);
        (table.cuDeviceGetCount)(&mut count)
    };
    if code.0 == 0 { usize::try_from(count).unwrap_or(0) } else { 0 }
}

/// The value of [`VISIBLE`] that leaves the first `count` devices of this process.
pub(super) fn visible(count: usize) -> String {
    first(env::var(VISIBLE).ok().as_deref(), count)
}

fn first(selected: Option<&str>, count: usize) -> String {
    let all = (0..count).map(|device| device.to_string());
    let devices: Vec<String> = match selected {
        Some(selected) => selected.split(',').take(count).map(str::to_owned).collect(),
        None => all.collect(),
    };
    devices.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_sees_the_first_of_the_selected_devices() {
        assert_eq!(first(None, 2), "0,1");
        assert_eq!(first(Some("5,3,1"), 2), "5,3");
        assert_eq!(first(Some("GPU-1"), 2), "GPU-1");
        assert_eq!(first(None, 0), "");
    }
}
