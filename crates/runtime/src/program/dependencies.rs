//! Dependency selection: the inferred edges, edges that limit concurrency, or a chain, whichever is
//! requested or predicted to be fastest.

use std::fmt;
use std::time::Duration;

use super::cost::H200;
use super::options::EdgeMode;
use super::sequence::Sequence;
use crate::pass::Edges;

/// Candidate widths: those of the record that the cost model is tested against.
const WIDTHS: [usize; 3] = [2, 4, 8];

/// The selected edges, and the prediction that led to them.
pub(super) struct DependencySelection {
    pub(super) edges: Edges,
    pub(super) prediction: Prediction,
}

/// Predicted times of a step: lower bounds by the cost model of an H200 (`program/cost.rs`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// The selected edges; never [`EdgeMode::Auto`].
    pub edges: EdgeMode,
    /// Device time for each choice of edges, fastest first.
    pub replays: Vec<(EdgeMode, Duration)>,
    /// Host time of an eager step.
    pub submission: Duration,
}

impl DependencySelection {
    /// Selects the edges that `mode` requests, or the fastest.
    pub(super) fn new(sequence: &Sequence, mode: EdgeMode) -> Self {
        let bytes: Vec<usize> = sequence.steps.iter().map(|step| step.moved_bytes).collect();
        let prediction = Prediction::new(&sequence.edges, &bytes, mode);
        Self { edges: edges_of(&sequence.edges, prediction.edges), prediction }
    }
}

/// The edges of `mode`, given the inferred ones.
fn edges_of(inferred: &Edges, mode: EdgeMode) -> Edges {
    match mode {
        EdgeMode::Chain => Edges::chain(inferred.operations()),
        EdgeMode::Width(width) => inferred.limited_to(width),
        EdgeMode::Inferred | EdgeMode::Auto => inferred.clone(),
    }
}

/// The fastest edges, or the inferred ones if the difference is within the model's error: kernels
/// take longer than their memory traffic, so the model undervalues concurrency.
fn fastest(replays: &[(EdgeMode, Duration)]) -> EdgeMode {
    let time_of = |mode| replays.iter().find(|(held, _)| *held == mode).map(|(_, time)| *time);
    let inferred = time_of(EdgeMode::Inferred).unwrap_or_default();
    match replays.iter().min_by_key(|(_, time)| *time) {
        Some((mode, time)) if *time < inferred.mul_f64(0.9) => *mode,
        _ => EdgeMode::Inferred,
    }
}

impl Prediction {
    /// Predicts a pass with these inferred edges and the bytes that each operation moves.
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

    /// Time of an eager step: device time of a chain, or host time if that is longer.
    pub fn eager(&self) -> Duration {
        self.replay(EdgeMode::Chain).unwrap_or_default().max(self.submission)
    }

    /// Device time with these edges.
    pub fn replay(&self, edges: EdgeMode) -> Option<Duration> {
        self.replays.iter().find(|(mode, _)| *mode == edges).map(|(_, time)| *time)
    }

    /// Whether the host limits an eager step.
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
