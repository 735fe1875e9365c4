//! Profiles: where the device time of a graph goes, measured by events inside of a graph.
//!
//! [`Program::profile`](crate::Program::profile) measures a pass, and
//! [`Graph::profile`](crate::Graph::profile) a graph of one's own. Both replay three graphs of the
//! same nodes over the same memory:
//!
//! | Graph | What it tells |
//! |---|---|
//! | as it is, between two events on the stream | [`Profile::step_ms`], the time that counts |
//! | with a record between phases | [`Profile::phases`]; one phase still runs side by side |
//! | with a record between every two nodes | [`Profile::operations`], each alone on the device |
//!
//! Records stand in the way of what would otherwise overlap. The sum over phases is therefore more
//! than the step, and the sum over operations is more again; the differences are what running
//! side by side is worth. A record takes time itself: two with nothing between them are
//! [`Profile::record_ms`] apart, which is part of every figure of a phase or operation and is not
//! subtracted. Where figures are of that size they say that the operation is small, and no more.
//!
//! All figures are medians over the replays. Profiles of a simulated device say SIMULATED: times
//! there are those of the CPU which executes the kernels, and say nothing about a GPU.

mod show;
mod timed;

pub(crate) use timed::{Timed, median};

use serde::Serialize;

use crate::context::Context;

/// Where the device time of a step goes. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Profile {
    /// What was measured: the name of the pass, or `graph`.
    pub subject: String,
    /// The device.
    pub device: String,
    /// Whether the device is simulated, so that no time says anything about hardware.
    pub simulated: bool,
    /// How the measured step reaches the device.
    pub strategy: String,
    /// Replays over which medians were taken.
    pub replays: usize,
    /// One step as it is, from the host's values on their way to the device to the last node.
    pub step_ms: f32,
    /// The time between two records with nothing between them.
    pub record_ms: f32,
    /// Every phase, in the order of first appearance; empty for a graph without phases.
    pub phases: Vec<PhaseTime>,
    /// Every operation that reaches the device, in the order of the pass or graph.
    pub operations: Vec<OperationTime>,
}

/// The time of a phase: the operations of one scope.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseTime {
    /// The scope.
    pub name: String,
    /// How often the pass enters the scope.
    pub entries: usize,
    /// Operations in it.
    pub operations: usize,
    /// Milliseconds, summed over the entries.
    pub ms: f32,
}

/// The time of one operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperationTime {
    /// Its position in the pass or graph.
    pub operation: usize,
    /// Its name.
    pub name: String,
    /// The kernel, or what else it does.
    pub kernel: String,
    /// Milliseconds, alone on the device.
    pub ms: f32,
}

/// The time of all operations of one kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelTime {
    /// The kernel.
    pub kernel: String,
    /// Its operations.
    pub count: usize,
    /// Milliseconds, summed.
    pub ms: f32,
}

impl Profile {
    /// The kernels, those with the most time first.
    pub fn kernels(&self) -> Vec<KernelTime> {
        let mut kernels: Vec<KernelTime> = Vec::new();
        for operation in &self.operations {
            match kernels.iter_mut().find(|held| held.kernel == operation.kernel) {
                Some(held) => {
                    held.count += 1;
                    held.ms += operation.ms;
                }
                None => {
                    let (kernel, ms) = (operation.kernel.clone(), operation.ms);
                    kernels.push(KernelTime { kernel, count: 1, ms });
                }
            }
        }
        kernels.sort_by(|one, other| other.ms.total_cmp(&one.ms));
        kernels
    }

    /// The milliseconds of each of `count` operations; `None` for those that do not reach the
    /// device.
    pub(crate) fn times(&self, count: usize) -> Vec<Option<f32>> {
        let mut times = vec![None; count];
        for measured in &self.operations {
            if let Some(time) = times.get_mut(measured.operation) {
                *time = Some(measured.ms);
            }
        }
        times
    }

    /// A profile without figures yet.
    pub(crate) fn of(
        subject: &str,
        context: &Context,
        replays: usize,
    ) -> crate::error::Result<Self> {
        Ok(Self {
            subject: subject.to_owned(),
            device: context.info()?.name,
            simulated: context.driver().is_simulated(),
            strategy: String::new(),
            replays,
            step_ms: 0.0,
            record_ms: 0.0,
            phases: Vec::new(),
            operations: Vec::new(),
        })
    }
}

/// What is before the last `/`: the scope of an operation.
pub(crate) fn scope_of(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(scope, _)| scope)
}

/// Scopes that differ only in numbers are one family: `layer 3/q` belongs to `layer */q`.
pub(crate) fn family_of(scope: &str) -> String {
    let mut family = String::with_capacity(scope.len());
    for letter in scope.chars() {
        match letter {
            '0'..='9' if family.ends_with('*') => {}
            '0'..='9' => family.push('*'),
            other => family.push(other),
        }
    }
    family
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_leave_numbers_out() {
        assert_eq!(family_of("layer 12/q backward"), "layer */q backward");
        assert_eq!(family_of(scope_of("layer 3/mlp 2/gemm")), "layer */mlp *");
        assert_eq!(scope_of("copy"), "");
    }
}
