//! Chooses a strategy, falls back to eager steps under [`Policy::Auto`], and retries the graph.

use std::sync::Arc;

use retrograph_driver::Stream;

use super::Program;
use super::error::BuildError;
use super::policy::{Choice, Facts, Policy, Strategy, choose};
use super::reason::{GraphFailure, Reason};

impl Program {
    fn choice(&self) -> Choice {
        let driver = self.context.driver();
        let facts = Facts {
            operations: self.sequence.steps.len(),
            library_operations: self.sequence.library_calls().count(),
            driver: driver.version(),
            captures_into_graphs: driver.table().cuStreamBeginCaptureToGraph.is_some(),
            profiled: self.options.profiled,
        };
        choose(self.options.policy, &facts)
    }

    /// Chooses the strategy, and builds its graph if it has one.
    pub(super) fn prepare(&mut self, stream: &Stream) -> Result<(), BuildError> {
        let choice = self.choice();
        if choice.strategy == Strategy::Eager {
            self.report.reason = choice.reason;
            return Ok(());
        }
        match self.attempt_graph(stream) {
            Err(error) if self.options.policy == Policy::Auto && !error.is_fatal() => {
                self.fall_back(GraphFailure::Build { cause: Arc::new(error) });
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Builds the graph of the chosen strategy for later steps.
    fn attempt_graph(&mut self, stream: &Stream) -> Result<(), BuildError> {
        let choice = self.choice();
        self.report.attempts += 1;
        let replay = self.build_replay(choice.strategy, stream)?;
        self.report.graph(&replay);
        self.report.reason = choice.reason;
        self.replay = Some(replay);
        self.retries.waited = None;
        Ok(())
    }

    /// Retries the graph. In either case the next step can run, as a graph or eagerly. A lost
    /// context is reported by the calls of that step.
    pub(super) fn retry_graph(&mut self, stream: &Stream) {
        self.retries.used += 1;
        match self.attempt_graph(stream) {
            Ok(()) => tracing::info!(attempts = self.report.attempts, "steps are graphs again"),
            Err(error) => self.fall_back(GraphFailure::Build { cause: Arc::new(error) }),
        }
    }

    /// Makes later steps eager because of `failure`.
    pub(super) fn fall_back(&mut self, failure: GraphFailure) {
        tracing::warn!(%failure, "steps are eager");
        self.replay = None;
        self.retries.waited = Some(0);
        self.report.graph_gone(&self.sequence);
        self.report.last_failure = Some(failure.clone());
        self.report.reason = Reason::GraphFailed { failure, retry_after: self.retries.next() };
    }
}
