//! Instantiated graphs: making, launching and destroying them.

use std::sync::Arc;

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::{Refusal, invalid};
use crate::state::{Route, State};
use crate::work::{Exec, Operation, Plan, PlanWork, Work};

const SIMULATED_FLAGS: u64 = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
    | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD
    | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

impl State {
    /// Instantiates a graph. A failure names the node at fault, or null.
    fn instantiate(
        &mut self,
        exec: Out<CUgraphExec>,
        graph: CUgraph,
        flags: u64,
    ) -> Result<(), (Refusal, CUgraphNode)> {
        let no_node = |code| (code, CUgraphNode::NULL);
        let device = self.current().map_err(no_node)?;
        if flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH != 0 {
            return Err(no_node(self.unsupported("launches of graphs from kernels")));
        }
        if flags & !SIMULATED_FLAGS != 0 || exec.is_null() {
            return Err(no_node(invalid("exec.instantiate")));
        }
        let plan = Arc::new(self.plan(graph)?);
        let handle = self.handle();
        self.execs.insert(handle, Exec { device, plan, last: None });
        exec.put(handle).map_err(no_node)
    }

    pub(crate) fn cuGraphInstantiateWithFlags(
        &mut self,
        exec: Out<CUgraphExec>,
        graph: CUgraph,
        flags: u64,
    ) -> Call {
        self.instantiate(exec, graph, flags).map_err(|(code, _)| code)
    }

    pub(crate) fn cuGraphInstantiateWithParams(
        &mut self,
        exec: Out<CUgraphExec>,
        graph: CUgraph,
        parameters: Out<CUDA_GRAPH_INSTANTIATE_PARAMS>,
    ) -> Call {
        use CUgraphInstantiateResult as R;
        let given = parameters.get()?;
        let made = self.instantiate(exec, graph, given.flags);
        let (result_out, hErrNode_out) = match made {
            Ok(()) => (R::CUDA_GRAPH_INSTANTIATE_SUCCESS, CUgraphNode::NULL),
            Err((_, node)) if node.is_null() => (R::CUDA_GRAPH_INSTANTIATE_ERROR, node),
            Err((_, node)) => (R::CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE, node),
        };
        parameters.put(CUDA_GRAPH_INSTANTIATE_PARAMS { result_out, hErrNode_out, ..given })?;
        made.map_err(|(code, _)| code)
    }

    pub(crate) fn cuGraphUpload(&mut self, exec: CUgraphExec, stream: CUstream) -> Call {
        self.execs.get(exec)?;
        match self.route(stream)? {
            Route::Queue(_) => Ok(()),
            Route::Capture(_, capture) => {
                let reason = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
                Err(self.break_capture(capture, reason))
            }
        }
    }

    pub(crate) fn cuGraphLaunch(&mut self, exec: CUgraphExec, stream: CUstream) -> Call {
        self.current()?;
        let plan = Arc::clone(&self.execs.get(exec)?.plan);
        if let Some(kernel) = self.unloaded_kernel(&plan) {
            let message = format!("the graph launches `{kernel}`, whose module was unloaded");
            return Err(self.undefined(message));
        }
        match self.route(stream)? {
            Route::Capture(..) => {
                Err(self.unsupported("launches of graphs into a capture are not simulated"))
            }
            Route::Queue(stream) => {
                let previous = self.execs.get(exec)?.last;
                self.streams.get_mut(stream)?.waits.extend(previous);
                let task = self.enqueue(stream, Work::Graph(plan))?;
                self.execs.get_mut(exec)?.last = Some(task);
                Ok(())
            }
        }
    }

    /// The name of a kernel of a plan whose function does not exist any more.
    fn unloaded_kernel(&self, plan: &Plan) -> Option<String> {
        plan.nodes.iter().find_map(|node| match &node.work {
            PlanWork::Operation(Operation::Launch(launch)) => {
                let gone = !self.functions.contains(launch.function);
                gone.then(|| launch.program.name().to_owned())
            }
            PlanWork::Child(child) => self.unloaded_kernel(child),
            _ => None,
        })
    }

    pub(crate) fn cuGraphExecDestroy(&mut self, exec: CUgraphExec) -> Call {
        // Launches that are queued hold the plan, so that they still run.
        self.execs.remove(exec).map(|_| ())
    }
}
