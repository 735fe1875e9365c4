//! Captures into a graph of the program (`cuStreamBeginCaptureToGraph`) and updates of a capture's
//! dependencies.

use retrograph_driver_sys::*;

use crate::argument::{Call, In, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{CaptureTarget, State};

/// The highest edge type.
const PROGRAMMATIC: u8 = 1;

impl State {
    pub(crate) fn cuStreamBeginCaptureToGraph(
        &mut self,
        stream: CUstream,
        graph: CUgraph,
        dependencies: In<CUgraphNode>,
        edges: In<CUgraphEdgeData>,
        count: usize,
        mode: CUstreamCaptureMode,
    ) -> Call {
        let stream = self.capturable(stream, mode)?;
        let graph = self.known_graph(graph)?;
        if self.is_captured_into(graph) {
            return Err(refuse(CUresult::CUDA_ERROR_ILLEGAL_STATE, Rule::CaptureGraphInUse));
        }
        let given = dependencies.list(count)?;
        self.check_nodes(graph, &given)?;
        self.plain_edges(edges, count)?;
        let mut dependencies = Vec::new();
        for node in given {
            if !dependencies.contains(&node) {
                dependencies.push(node);
            }
        }
        self.begin_capture(
            stream,
            mode,
            CaptureTarget { graph, is_program_graph: true, dependencies },
        )
    }

    pub(crate) fn cuStreamUpdateCaptureDependencies(
        &mut self,
        stream: CUstream,
        dependencies: Out<CUgraphNode>,
        count: usize,
        flags: u32,
    ) -> Call {
        let stream = self.resolve(stream)?;
        if self.is_legacy(stream) {
            self.refuse_legacy_stream(stream)?;
        }
        if flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES {
            return Err(invalid(Rule::CaptureUpdateFlags));
        }
        let none = refuse(CUresult::CUDA_ERROR_ILLEGAL_STATE, Rule::CaptureNone);
        let capture = self.capture_of(stream)?.ok_or(none)?;
        let given = dependencies.input().list(count)?;
        self.check_nodes(self.captures[&capture].graph, &given)?;
        let Some(member) = &mut self.streams.get_mut(stream)?.member else {
            return Err(none);
        };
        if flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES {
            member.dependencies.clear();
        }
        for node in given {
            if !member.dependencies.contains(&node) {
                member.dependencies.push(node);
            }
        }
        Ok(())
    }

    pub(crate) fn cuStreamUpdateCaptureDependencies_v2(
        &mut self,
        stream: CUstream,
        dependencies: Out<CUgraphNode>,
        edges: In<CUgraphEdgeData>,
        count: usize,
        flags: u32,
    ) -> Call {
        self.plain_edges(edges, count)?;
        self.cuStreamUpdateCaptureDependencies(stream, dependencies, count, flags)
    }

    /// Refuses nodes of another graph.
    fn check_nodes(&self, graph: CUgraph, nodes: &[CUgraphNode]) -> Call {
        let of_graph = |node| self.nodes.get(node).is_ok_and(|found| found.graph == graph);
        match nodes.iter().all(|node| of_graph(*node)) {
            true => Ok(()),
            false => Err(invalid(Rule::CaptureNodeOfOtherGraph)),
        }
    }

    /// Reports edges that are not full dependencies as unsupported.
    fn plain_edges(&mut self, edges: In<CUgraphEdgeData>, count: usize) -> Result<(), Refusal> {
        if edges.is_null() {
            return Ok(());
        }
        let edges = edges.list(count)?;
        if edges.iter().any(|edge| edge.r#type > PROGRAMMATIC) {
            return Err(invalid(Rule::CaptureEdgeType));
        }
        match edges.iter().all(|edge| *edge == CUgraphEdgeData::default()) {
            true => Ok(()),
            false => Err(self.unsupported("captured edges of other types are not simulated")),
        }
    }
}
