//! What a run was and what came of it, as JSON.

use serde::{Deserialize, Serialize};

use crate::checkpoint::HeldOutLoss;
use crate::data::Tally;
use crate::device::Device;
use crate::trainer::{MemoryUse, Trainer};

/// The report of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// The device's name.
    pub device: String,
    /// Whether the device is simulated.
    pub simulated: bool,
    /// How operations reached the device.
    pub strategy: String,
    /// Why this strategy.
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
    /// Device memory, planned and measured behind the last step; absent when the device could not
    /// be asked. The simulated driver takes nothing for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryUse>,
    /// Steps since the start of training.
    pub steps: u32,
    /// The loss of each step.
    pub losses: Vec<f32>,
    /// What was measured on held-out data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_out: Vec<HeldOutLoss>,
    /// What became of the examples; absent where the data is one text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Tally>,
    /// Whether replay and eager step were equal bit for bit at every step of this run; absent when
    /// they were not compared.
    pub verified_bitwise: Option<bool>,
    /// How often a kernel was needed that was not warm.
    pub jit_after_warm: usize,
    /// The median of the steps' times on the device, in milliseconds. Absent on the simulated
    /// driver, whose times say nothing about hardware.
    pub step_ms_median: Option<f32>,
}

impl RunReport {
    /// The report of `trainer` after steps that took `step_ms` each.
    pub fn new(device: &Device, trainer: &Trainer, step_ms: &[f32]) -> Self {
        let built = trainer.report();
        Self {
            device: device.info.name.clone(),
            simulated: device.simulated,
            strategy: built.strategy.to_string(),
            reason: built.reason.clone(),
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

/// The middle value, or the mean of the two middle ones; `None` of nothing.
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
