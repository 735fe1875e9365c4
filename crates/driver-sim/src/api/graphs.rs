//! Graph templates: creation, cloning and destruction.

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{NodeKind, Owner, State};

impl State {
    pub(crate) fn cuGraphCreate(&mut self, graph: Out<CUgraph>, flags: u32) -> Call {
        if flags != 0 {
            return Err(invalid(Rule::GraphFlags));
        }
        graph.require()?;
        let handle = self.new_graph(Owner::Program);
        graph.write(handle)
    }

    pub(crate) fn cuGraphDestroy(&mut self, graph: CUgraph) -> Call {
        let graph = self.known_graph(graph)?;
        if self.is_captured_into(graph) {
            return Err(refuse(CUresult::CUDA_ERROR_ILLEGAL_STATE, Rule::CaptureGraphInUse));
        }
        match self.graphs.get(graph)?.is_owned() {
            true => Err(invalid(Rule::GraphOwned)),
            false => self.drop_graph(graph),
        }
    }

    pub(crate) fn cuGraphClone(&mut self, clone: Out<CUgraph>, graph: CUgraph) -> Call {
        clone.require()?;
        let graph = self.known_graph(graph)?;
        self.refuse_copy(graph)?;
        let copy = self.clone_graph(graph, Owner::Program)?;
        clone.write(copy)
    }

    /// Whether a graph or a nested graph has allocation or free nodes.
    pub(super) fn has_memory_nodes(&self, graph: CUgraph) -> Result<bool, Refusal> {
        self.any_node(graph, &NodeKind::is_memory)
    }

    /// Refuses to copy graphs that allocate, free or have conditional nodes.
    pub(super) fn refuse_copy(&self, graph: CUgraph) -> Call {
        let code = CUresult::CUDA_ERROR_NOT_SUPPORTED;
        if self.has_memory_nodes(graph)? {
            return Err(refuse(code, Rule::GraphMemoryCopy));
        }
        match self.is_conditional(graph)? {
            true => Err(refuse(code, Rule::GraphConditionalCopy)),
            false => Ok(()),
        }
    }

    pub(crate) fn cuGraphNodeFindInClone(
        &mut self,
        output: Out<CUgraphNode>,
        node: CUgraphNode,
        clone: CUgraph,
    ) -> Call {
        let node = self.known_node(node)?;
        let clone = self.known_graph(clone)?;
        let found = self.graphs.get(clone)?.clones.get(&node).copied();
        match found.filter(|found| self.nodes.contains(*found)) {
            Some(found) => output.write(found),
            None => {
                output.write(CUgraphNode::NULL)?;
                Err(invalid(Rule::GraphNotCloned))
            }
        }
    }
}
