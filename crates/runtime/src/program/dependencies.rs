//! Which edges a graph gets: those of the pass, fewer side by side, or a chain, whichever is
//! predicted to be fastest or was asked for.

use std::fmt;
use std::time::Duration;

use super::cost::H200;
use super::options::EdgeMode;
use super::sequence::Sequence;
use crate::pass::Edges;

/// Widths that are weighed: the fork-joins of the record that the model is held to.
const WIDTHS: [usize; 3] = [2, 4, 8];

/// Edges with what led to them.
pub(super) struct DependencySelection {
    pub(super) edges: Edges,
    pub(super) prediction: Prediction,
}

/// What a step is predicted to cost, by the model in `program/cost.rs`: costs of an H200, and of
/// each kernel no more than the time that its bytes need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// The edges that the graph gets; never [`EdgeMode::Auto`].
    pub edges: EdgeMode,
    /// On the device, for each choice of edges, fastest first.
    pub replays: Vec<(EdgeMode, Duration)>,
    /// On the host, for an eager step.
    pub submission: Duration,
}

impl DependencySelection {
    /// The edges that `mode` asks for, or the fastest.
    pub(super) fn new(sequence: &Sequence, mode: EdgeMode) -> Self {
        let bytes: Vec<usize> = sequence.steps.iter().map(|step| step.moved_bytes).collect();
        let prediction = Prediction::new(&sequence.edges, &bytes, mode);
        Self { edges: edges_of(&sequence.edges, prediction.edges), prediction }
    }
}

/// What `mode` makes of the edges of a pass.
fn edges_of(inferred: &Edges, mode: EdgeMode) -> Edges {
    match mode {
        EdgeMode::Chain => Edges::chain(inferred.operations()),
        EdgeMode::Width(width) => inferred.limited_to(width),
        EdgeMode::Inferred | EdgeMode::Auto => inferred.clone(),
    }
}

/// The fastest edges. What differs by less than the model's error is no difference, and then the
/// inferred edges are taken, which leave the device most room: real kernels take longer than their
/// bytes alone, so that the model is apt to undervalue what runs side by side.
fn fastest(replays: &[(EdgeMode, Duration)]) -> EdgeMode {
    let time_of = |mode| replays.iter().find(|(held, _)| *held == mode).map(|(_, time)| *time);
    let inferred = time_of(EdgeMode::Inferred).unwrap_or_default();
    match replays.iter().min_by_key(|(_, time)| *time) {
        Some((mode, time)) if *time < inferred.mul_f64(0.9) => *mode,
        _ => EdgeMode::Inferred,
    }
}

impl Prediction {
    /// For a pass with these edges and the bytes that each operation moves, where `mode` is asked
    /// for.
    pub(crate) fn new(inferred: &Edges, bytes: &[usize], mode: EdgeMode) -> Self {
        let asked = Some(mode).filter(|mode| *mode != EdgeMode::Auto);
        let mut modes = vec![EdgeMode::Inferred, EdgeMode::Chain];
        modes.extend(WIDTHS.map(EdgeMode::Width));
        modes.extend(asked.filter(|asked| !modes.contains(asked)));
        let time = |mode| (mode, H200.replay(&edges_of(inferred, mode), bytes));
        let mut replays: Vec<_> = modes.into_iter().map(time).collect();
        // The sort is stable: among equals the inferred edges come first.
        replays.sort_by_key(|(_, time)| *time);
        let submission = H200.submission(bytes.len());
        let edges = asked.unwrap_or_else(|| fastest(&replays));
        Self { edges, replays, submission }
    }

    /// An eager step: on the device one operation after the other, and no faster than the host
    /// enqueues them.
    pub fn eager(&self) -> Duration {
        self.replay(EdgeMode::Chain).unwrap_or_default().max(self.submission)
    }

    /// On the device, with these edges.
    pub fn replay(&self, edges: EdgeMode) -> Option<Duration> {
        self.replays.iter().find(|(mode, _)| *mode == edges).map(|(_, time)| *time)
    }

    /// Whether an eager step keeps the host busy for longer than the device.
    pub fn host_bound(&self) -> bool {
        self.replay(EdgeMode::Chain).is_some_and(|device| self.submission > device)
    }
}

impl fmt::Display for Prediction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let microseconds = |time: &Duration| time.as_nanos() as f64 / 1e3;
        write!(f, "{} edges; at the least, by the costs of an H200: ", self.edges)?;
        for (mode, time) in &self.replays {
            write!(f, "{mode} {:.1} µs, ", microseconds(time))?;
        }
        write!(f, "eager submission {:.1} µs", microseconds(&self.submission))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inferred_edges_are_left_only_for_what_is_clearly_faster() {
        let times = |inferred, chain, width| {
            let micros = Duration::from_micros;
            [
                (EdgeMode::Inferred, micros(inferred)),
                (EdgeMode::Chain, micros(chain)),
                (EdgeMode::Width(4), micros(width)),
            ]
        };
        assert_eq!(fastest(&times(100, 100, 100)), EdgeMode::Inferred);
        assert_eq!(fastest(&times(100, 120, 91)), EdgeMode::Inferred, "within the model's error");
        assert_eq!(fastest(&times(100, 120, 89)), EdgeMode::Width(4));
        assert_eq!(fastest(&times(100, 70, 89)), EdgeMode::Chain);
        assert_eq!(fastest(&[(EdgeMode::Inferred, Duration::ZERO)]), EdgeMode::Inferred);
    }
}
