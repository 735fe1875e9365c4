//! The report of a run, as JSON.

use retrograph_runtime::Collectives;
use serde::{Deserialize, Serialize};

use crate::checkpoint::HeldOutLoss;
use crate::data::Tally;
use crate::device::Device;
use crate::trainer::{MemoryUse, Trainer};

/// The report of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunReport {
    /// The name of the device.
    pub device: String,
    /// Whether the device is simulated.
    pub simulated: bool,
    /// Number of devices that trained together.
    #[serde(default = "one")]
    pub ranks: usize,
    /// The exchange between them in a step; absent for one device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collectives: Option<Collectives>,
    /// The execution strategy.
    pub strategy: String,
    /// The reason for the strategy.
    pub reason: String,
    /// Operations of the step.
    pub operations: usize,
    /// Nodes of the graph; 0 for an eager program.
    pub nodes: usize,
    /// Edges of the graph.
    pub edges: usize,
    /// Nodes on the longest path.
    pub depth: usize,
    /// Device bytes of transients.
    pub peak_bytes: usize,
    /// Device memory, planned and measured after the last step; absent if the measurement failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryUse>,
    /// Steps since the start of training.
    pub steps: u32,
    /// The loss of each step.
    pub losses: Vec<f32>,
    /// The losses on held-out data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_out: Vec<HeldOutLoss>,
    /// Counts of examples and tokens; absent if the data is one text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Tally>,
    /// Whether every step had the same bits as an eager step; absent without verification.
    pub verified_bitwise: Option<bool>,
    /// How often a step needed a kernel that was not warm.
    pub jit_after_warm: usize,
    /// Median device time of a step, in milliseconds. Absent on the simulated driver, whose times
    /// are meaningless.
    pub step_ms_median: Option<f32>,
}

impl RunReport {
    /// Returns the report of `trainer`; `step_ms` has the device time of each step.
    pub fn new(device: &Device, trainer: &Trainer, step_ms: &[f32]) -> Self {
        let built = trainer.report();
        Self {
            device: device.info.name.clone(),
            simulated: device.simulated,
            ranks: trainer.ranks().world_size,
            collectives: Some(built.collectives).filter(|found| found.operations > 0),
            strategy: built.strategy.to_string(),
            reason: built.reason.to_string(),
            operations: built.operations,
            nodes: built.nodes,
            edges: built.edges,
            depth: built.depth,
            peak_bytes: built.peak_bytes,
            memory: trainer.memory_use().ok(),
            steps: trainer.losses().len() as u32,
            losses: trainer.losses().to_vec(),
            held_out: trainer.held_out().to_vec(),
            data: None,
            verified_bitwise: (trainer.verified_steps() > 0).then_some(true),
            jit_after_warm: trainer.jit_after_warm(),
            step_ms_median: if device.simulated { None } else { median(step_ms) },
        }
    }
}

fn one() -> usize {
    1
}

/// Returns the median; `None` if there are no values.
pub fn median(values: &[f32]) -> Option<f32> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f32::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        len if len % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
