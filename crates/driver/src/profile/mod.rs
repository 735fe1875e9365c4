//! Profiles: device time by phase and by operation, measured by event records inside a graph.
//!
//! [`Graph::profile`](crate::Graph::profile) measures any graph; programs of the crate
//! `retrograph-runtime` measure their pass the same way. The same nodes are replayed in up to three
//! graphs:
//!
//! | Graph | Result |
//! |---|---|
//! | unchanged, between two events on the stream | [`Profile::step_ms`], the time of a step |
//! | with a record between phases | [`Profile::phases`]; nodes of one phase still overlap |
//! | with a record between every two nodes | [`Profile::operations`], each alone on the device |
//!
//! Records serialize nodes that would otherwise overlap. The phases therefore add up to more than
//! the step, and the operations to more than the phases; the differences show the gain from
//! overlap. A record itself takes time: back-to-back records are [`Profile::record_ms`] apart. That
//! time is part of every phase and operation and is not subtracted, so times of that order are not
//! meaningful.
//!
//! All times are medians over the replays. A profile of a simulated device is marked SIMULATED: its
//! times are simulated and not meaningful for a GPU.

mod show;
mod timed;

pub use timed::{Timed, median};

use serde::{Deserialize, Serialize};

use crate::context::Context;

/// The maximum number of replays of a profile.
pub const MAX_REPLAYS: usize = 10_000;

/// Device times of a step, in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Profile {
    /// The name of the measured pass, or `graph`.
    pub subject: String,
    /// The device.
    pub device: String,
    /// Whether the device is simulated; then its times are not meaningful for hardware.
    pub simulated: bool,
    /// How the step is submitted to the device.
    pub strategy: String,
    /// Number of measured replays.
    pub replays: usize,
    /// Time of one step, from fetching its parameters to its last node.
    pub step_ms: f32,
    /// Time between back-to-back records.
    pub record_ms: f32,
    /// Phases in the order of first appearance; empty for a graph without phases.
    pub phases: Vec<PhaseTime>,
    /// Operations that reach the device, in the order of the pass or graph.
    pub operations: Vec<OperationTime>,
}

/// Time of a phase: all operations of one scope.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseTime {
    /// The scope.
    pub name: String,
    /// Number of times that the pass enters the scope.
    pub entries: usize,
    /// Number of operations.
    pub operations: usize,
    /// Milliseconds, summed over the entries.
    pub ms: f32,
}

/// Time of one operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationTime {
    /// Its position in the pass or graph.
    pub operation: usize,
    /// Its name.
    pub name: String,
    /// The kernel, or the kind of any other operation.
    pub kernel: String,
    /// Milliseconds, alone on the device.
    pub ms: f32,
}

/// Time of all operations of one kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelTime {
    /// The kernel.
    pub kernel: String,
    /// Number of operations.
    pub count: usize,
    /// Milliseconds, summed.
    pub ms: f32,
}

impl Profile {
    /// Times by kernel, largest first.
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

    /// The milliseconds of each of `count` operations, by position; `None` for operations that do
    /// not reach the device.
    pub fn times(&self, count: usize) -> Vec<Option<f32>> {
        let mut times = vec![None; count];
        for measured in &self.operations {
            if let Some(time) = times.get_mut(measured.operation) {
                *time = Some(measured.ms);
            }
        }
        times
    }

    /// A profile of `subject` without times, to be filled in.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn of(subject: &str, context: &Context, replays: usize) -> crate::error::Result<Self> {
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

/// The scope of an operation: the part of its name before the last `/`.
pub fn scope_of(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(scope, _)| scope)
}

/// Replaces line breaks and other non-printable characters in a name, for a table.
pub fn printable(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for letter in name.chars() {
        match letter {
            '"' | '\'' | '\\' => text.push(letter),
            letter => text.extend(letter.escape_debug()),
        }
    }
    text
}

/// The family of a scope, with numbers replaced: `layer 3/q` belongs to `layer */q`.
pub fn family_of(scope: &str) -> String {
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
