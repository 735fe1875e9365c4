//! Planned and measured device memory.

use retrograph_runtime::{Context, DriverOverhead, Reuse};
use serde::{Deserialize, Serialize};

use super::MemoryNeed;
use crate::error::Result;

/// The device bytes of a run, planned and measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MemoryUse {
    /// Planned bytes: allocations and the driver's own memory.
    pub planned_bytes: usize,
    /// Planned allocations.
    pub allocated_bytes: usize,
    /// Planned memory of the driver; 0 on the simulated driver.
    pub driver_bytes: DriverOverhead,
    /// Decrease of the free device memory since before the first kernel was loaded. Includes the
    /// memory of other programs on the device.
    pub measured_bytes: usize,
    /// `measured_bytes` minus `planned_bytes`, in percent of `planned_bytes`.
    pub difference_percent: f64,
}

impl MemoryUse {
    /// Measures a run with the plan `need` after its first steps. `free_before` is the free memory
    /// before the run.
    ///
    /// # Errors
    /// If the device fails.
    pub fn of(
        need: &MemoryNeed,
        reuse: Reuse,
        context: &Context,
        free_before: usize,
    ) -> Result<Self> {
        let measured = free_before.saturating_sub(context.mem_get_info()?.0);
        let driver = if context.driver().is_simulated() { Default::default() } else { need.driver };
        Ok(Self::new(need.allocated(reuse), driver, measured))
    }

    fn new(allocated_bytes: usize, driver_bytes: DriverOverhead, measured_bytes: usize) -> Self {
        let planned_bytes = allocated_bytes + driver_bytes.total();
        let ratio = measured_bytes as f64 / planned_bytes.max(1) as f64;
        let difference_percent = (ratio - 1.0) * 100.0;
        Self { planned_bytes, allocated_bytes, driver_bytes, measured_bytes, difference_percent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_is_that_of_what_was_taken() {
        let driver = DriverOverhead { graphs: 30, code: 15, rounding: 5 };
        let more = MemoryUse::new(950, driver, 1020);
        assert_eq!((more.planned_bytes, more.allocated_bytes), (1000, 950));
        assert!((more.difference_percent - 2.0).abs() < 1e-9, "{more:?}");
        let less = MemoryUse::new(950, driver, 900);
        assert!((less.difference_percent + 10.0).abs() < 1e-9, "{less:?}");
    }
}
