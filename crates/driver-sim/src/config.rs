//! The configuration of a simulator, and errors of creating one.

use std::fmt;

use retrograph_ptx_exec::memory::ADDRESSES;

/// The maximum number of devices; each has its own address range.
const MAX_DEVICES: usize = 64;

/// Driver versions, each with the PTX ISA version that it introduced, in ascending order.
///
/// Source: the release history in the PTX ISA manual; for versions after 9.0, the copy of that
/// table in `cuda.bindings.utils` 13.5.
const ISA_VERSIONS: [(i32, u32, u32); 15] = [
    (12000, 8, 0),
    (12010, 8, 1),
    (12020, 8, 2),
    (12030, 8, 3),
    (12040, 8, 4),
    (12050, 8, 5),
    (12070, 8, 6),
    (12080, 8, 7),
    (12090, 8, 8),
    (13000, 9, 0),
    (13010, 9, 1),
    (13020, 9, 2),
    (13030, 9, 3),
    (13040, 9, 4),
    NEWEST_DRIVER,
];
/// The newest driver version whose PTX ISA version is known, and that version.
const NEWEST_DRIVER: (i32, u32, u32) = (13050, 9, 5);

/// The time and order in which queued work runs, within the rules of CUDA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// Work runs as late as CUDA allows, in an order that [`Config::seed`] chooses. This exposes
    /// missing waits and edges.
    #[default]
    Adversarial,
    /// Work runs before the call that queues it returns, and the nodes of a graph, blocks and warps
    /// run in ascending order. The seed is not used. A program that is correct only in this order
    /// has a race.
    Prompt,
}

/// The configuration of a simulated machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Number of devices, all alike.
    pub devices: usize,
    /// Memory of each device in bytes, at most 2^38. Only allocated bytes take host memory.
    pub memory_bytes: u64,
    /// Compute capability, as `(9, 0)`: the major number is at most 99, the minor one at most 9.
    pub compute_capability: (u32, u32),
    /// The CUDA version that the driver reports, as 1000 × major + 10 × minor, from 12000 to 13050.
    /// It determines the available functions and the newest PTX ISA version. Functions and
    /// instructions that are newer than CUDA 13.0 are missing.
    pub driver_version: i32,
    /// Host threads that execute the blocks of a kernel.
    pub threads: usize,
    /// The time and order in which queued work runs.
    pub order: Order,
    /// The seed of every order that CUDA leaves open, if the order is adversarial.
    pub seed: u64,
    /// Whether to detect data races between threads of a kernel. A race is undefined behaviour and
    /// stops the kernel. Kernels then run many times slower, on one host thread.
    pub detect_races: bool,
    /// Whether attributes of devices and pointers have the values of an H200, and pools support
    /// shareable handles. Otherwise attributes of features that are not simulated, such as virtual
    /// memory management, are 0.
    pub recorded_attributes: bool,
    /// Whether a call that fails with an error that no recorded trace attests returns
    /// `CUDA_ERROR_NOT_SUPPORTED` instead.
    pub attested_only: bool,
}

impl Default for Config {
    /// One device of compute capability 9.0 with 1 GiB under driver 13.0.
    fn default() -> Self {
        Self {
            devices: 1,
            memory_bytes: 1 << 30,
            compute_capability: (9, 0),
            driver_version: 13000,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            order: Order::Adversarial,
            seed: 0,
            detect_races: false,
            recorded_attributes: false,
            attested_only: true,
        }
    }
}

/// An error of a simulator's configuration or control methods.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// Too many simulators exist in this process, and none was dropped during the wait.
    #[error(
        "all {slots} simulators of this process are in use, and none was dropped within a minute; \
         drop one first"
    )]
    TooManySimulators {
        /// The maximum number of simulators.
        slots: usize,
    },
    /// The table has no function of this name.
    #[error("the driver has no function `{name}`")]
    UnknownCall {
        /// The requested name.
        name: String,
    },
    /// A value of the configuration is invalid.
    #[error("a simulated machine cannot have {field} = {value}; it must be {rule}")]
    InvalidConfig {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// The condition that the value must satisfy.
        rule: String,
    },
}

impl Config {
    /// Checks the values, as `Simulator::new` does.
    ///
    /// # Errors
    /// [`SimError::InvalidConfig`] with the first invalid value.
    pub fn check(&self) -> Result<(), SimError> {
        let (major, minor) = self.compute_capability;
        let require = |field, value: &dyn fmt::Display, holds, rule: &str| match holds {
            true => Ok(()),
            false => {
                let (value, rule) = (value.to_string(), rule.to_owned());
                Err(SimError::InvalidConfig { field, value, rule })
            }
        };
        require("threads", &self.threads, self.threads > 0, "at least 1")?;
        require("devices", &self.devices, self.devices <= MAX_DEVICES, "at most 64")?;
        let version = self.driver_version;
        let (oldest, newest) = (ISA_VERSIONS[0].0, NEWEST_DRIVER.0);
        let rule = format!("from {oldest} to {newest}, the newest version whose PTX ISA is known");
        require("driver_version", &version, (oldest..=newest).contains(&version), &rule)?;
        let bytes = self.memory_bytes;
        require("memory_bytes", &bytes, bytes <= ADDRESSES, &format!("at most {ADDRESSES}"))?;
        let capability = format!("{major}.{minor}");
        let rule = "at most 99.9, with a minor number of at most 9";
        require("compute_capability", &capability, major <= 99 && minor <= 9, rule)
    }

    /// The newest PTX ISA version that the driver supports.
    pub(crate) fn newest_isa(&self) -> retrograph_ptx::IsaVersion {
        let known = ISA_VERSIONS.iter().rev().find(|(version, ..)| *version <= self.driver_version);
        let (_, major, minor) = *known.unwrap_or(&ISA_VERSIONS[0]);
        retrograph_ptx::IsaVersion::new(major, minor)
    }
}
