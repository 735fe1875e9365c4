//! Instantiated graphs: instantiation, launch, upload and destruction.

use std::sync::Arc;

use retrograph_driver_sys::*;

use super::conditional::check_conditionals;
use crate::argument::{Call, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{Mark, PendingRelease, State};
use crate::work::{Exec, Operation, Plan, PlanWork, Work};

const AUTO_FREE: u64 = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
const UPLOAD: u64 = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
const DEVICE_LAUNCH: u64 = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
const KNOWN_FLAGS: u64 =
    AUTO_FREE | UPLOAD | DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

impl State {
    /// The instantiated graph of a handle that the program passed.
    pub(super) fn known_exec(&mut self, exec: CUgraphExec) -> Result<CUgraphExec, Refusal> {
        match self.execs.contains(exec) {
            true => Ok(exec),
            false if exec.is_null() => Err(invalid(Rule::GraphNullExec)),
            false => Err(self.undefined("the instantiated graph was destroyed, or never made")),
        }
    }

    /// Instantiates a graph. A failure returns the offending node, or null.
    fn instantiate(
        &mut self,
        exec: Out<CUgraphExec>,
        graph: CUgraph,
        flags: u64,
    ) -> Result<(), (Refusal, CUgraphNode)> {
        let no_node = |refusal| (refusal, CUgraphNode::NULL);
        let graph = self.known_graph(graph).map_err(no_node)?;
        let both = AUTO_FREE | DEVICE_LAUNCH;
        if flags & !KNOWN_FLAGS != 0 || flags & both == both {
            return Err(no_node(invalid(Rule::GraphInstantiateFlags)));
        }
        self.refuse_unsafe().map_err(no_node)?;
        if self.graphs.get(graph).map_err(no_node)?.is_owned() {
            let code = CUresult::CUDA_ERROR_NOT_SUPPORTED;
            return Err(no_node(refuse(code, Rule::GraphOwned)));
        }
        let device = self.current().map_err(no_node)?;
        let plan = Arc::new(self.plan(graph)?);
        check_conditionals(&plan)?;
        if let Some(kernel) = self.unloaded_kernel(&plan) {
            let message = format!("the graph has a launch of `{kernel}`, whose module is unloaded");
            return Err(no_node(self.undefined(message)));
        }
        self.check_fill_access(&plan)?;
        if flags & DEVICE_LAUNCH != 0 {
            self.check_device_launch(&plan)?;
        }
        if self.execs.values().any(|exec| exec.plan.graph == graph) {
            let code = CUresult::CUDA_ERROR_NOT_SUPPORTED;
            if self.has_memory_nodes(graph).map_err(no_node)? {
                return Err(no_node(refuse(code, Rule::GraphMemorySecondExec)));
            }
            if self.is_conditional(graph).map_err(no_node)? {
                return Err(no_node(refuse(code, Rule::GraphConditionalSecondExec)));
            }
        }
        let objects = self.graphs.get(graph).map_err(no_node)?.objects.clone();
        let handle = self.handle();
        exec.write(handle).map_err(no_node)?;
        self.retain_objects(&objects);
        self.execs.insert(handle, Exec { device, flags, plan, last: None, objects });
        Ok(())
    }

    /// Refuses fills of memory of another device without access to it. Copies need none, and other
    /// nodes are not checked.
    fn check_fill_access(&self, plan: &Plan) -> Result<(), (Refusal, CUgraphNode)> {
        for node in &plan.nodes {
            if let PlanWork::Operation(Operation::Fill(fill)) = &node.work {
                let is_remote = self.is_remote(fill.device, &[fill.given.dst]);
                if is_remote && self.check_fill(fill).is_err() {
                    return Err((invalid(Rule::GraphNoAccess), node.source));
                }
            }
            node.work.plans().iter().try_for_each(|plan| self.check_fill_access(plan))?;
        }
        Ok(())
    }

    /// Refuses nodes that are not allowed in a device-launched graph. The host launches such graphs
    /// like others; launches from kernels are not simulated.
    fn check_device_launch(&mut self, plan: &Plan) -> Result<(), (Refusal, CUgraphNode)> {
        for node in &plan.nodes {
            match &node.work {
                PlanWork::Operation(Operation::Host(_)) => {
                    return Err((invalid(Rule::GraphNotForDevices), node.source));
                }
                PlanWork::Operation(_) => {}
                PlanWork::Child(child) => self.check_device_launch(child)?,
                _ => return Err((invalid(Rule::GraphNotForDevices), node.source)),
            }
        }
        Ok(())
    }

    pub(crate) fn cuGraphInstantiateWithFlags(
        &mut self,
        exec: Out<CUgraphExec>,
        graph: CUgraph,
        flags: u64,
    ) -> Call {
        // This call has no stream to upload on.
        if flags & UPLOAD != 0 {
            return Err(invalid(Rule::GraphInstantiateFlags));
        }
        self.instantiate(exec, graph, flags).map_err(|(refusal, _)| refusal)
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
            Err((refusal, node)) => match refusal.rule {
                Rule::GraphNotForDevices | Rule::GraphConditionalBody => {
                    (R::CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED, node)
                }
                Rule::GraphConditionalPageable => {
                    (R::CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED, node)
                }
                Rule::GraphConditionalUnused => {
                    (R::CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED, node)
                }
                _ if node.is_null() => (R::CUDA_GRAPH_INSTANTIATE_ERROR, node),
                _ => (R::CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE, node),
            },
        };
        parameters.write(CUDA_GRAPH_INSTANTIATE_PARAMS { result_out, hErrNode_out, ..given })?;
        made.map_err(|(refusal, _)| refusal)
    }

    pub(crate) fn cuGraphExecGetFlags(&mut self, exec: CUgraphExec, flags: Out<u64>) -> Call {
        let exec = self.known_exec(exec)?;
        flags.write(self.execs.get(exec)?.flags & (AUTO_FREE | DEVICE_LAUNCH))
    }

    pub(crate) fn cuGraphUpload(&mut self, exec: CUgraphExec, stream: CUstream) -> Call {
        self.known_exec(exec)?;
        let stream = self.resolve(stream)?;
        self.refuse_captured(stream)?;
        self.route(stream).map(|_| ())
    }

    pub(crate) fn cuGraphLaunch(&mut self, exec: CUgraphExec, stream: CUstream) -> Call {
        let exec = self.known_exec(exec)?;
        let plan = Arc::clone(&self.execs.get(exec)?.plan);
        if let Some(kernel) = self.unloaded_kernel(&plan) {
            let message = format!("the graph launches `{kernel}`, whose module was unloaded");
            return Err(self.undefined(message));
        }
        let stream = self.resolve(stream)?;
        self.refuse_captured(stream)?;
        self.route(stream)?;
        self.queue_launch(exec, &plan, stream)
    }

    fn queue_launch(&mut self, exec: CUgraphExec, plan: &Arc<Plan>, stream: CUstream) -> Call {
        self.launch_memory(exec, plan, stream)?;
        let mut waits: Vec<_> = self.execs.get(exec)?.last.into_iter().collect();
        let events = plan.works().into_iter().filter_map(|work| match work {
            PlanWork::Wait(event) | PlanWork::Record(event) => Some(*event),
            _ => None,
        });
        if let Some(gone) = events.into_iter().find(|event| !self.events.contains(*event)) {
            return Err(self.undefined(format!("the graph uses {gone:?}, which was destroyed")));
        }
        for work in plan.works() {
            if let PlanWork::Wait(event) = work
                && let Mark::Task(task) = self.events.get(*event)?.mark
            {
                waits.push(task);
            }
        }
        self.streams.get_mut(stream)?.waits.extend(waits);
        let launched = plan.with_sources_read().map_or_else(|| Arc::clone(plan), Arc::new);
        let task = self.enqueue(stream, Work::Graph(launched))?;
        self.execs.get_mut(exec)?.last = Some(task);
        for work in plan.works() {
            if let PlanWork::Record(event) = work {
                let event = self.events.get_mut(*event)?;
                (event.mark, event.timestamp) = (Mark::Task(task), None);
            }
        }
        Ok(())
    }

    /// Records the effect of a launch on graph memory. Fails if it allocates memory that is still
    /// allocated, unless the graph was instantiated with `AUTO_FREE_ON_LAUNCH`.
    fn launch_memory(&mut self, exec: CUgraphExec, plan: &Plan, stream: CUstream) -> Call {
        let works = plan.works();
        let is_live = |state: &Self, address| {
            state.graph_memory.get(&address).is_some_and(|found| found.is_live)
        };
        for work in &works {
            if let PlanWork::Alloc(address) = work
                && is_live(self, *address)
            {
                if self.execs.get(exec)?.flags & AUTO_FREE == 0 {
                    return Err(invalid(Rule::GraphMemoryLaunchedAgain));
                }
                self.record_graph_memory(*address, false)?;
                self.enqueue(stream, Work::Free(*address))?;
            }
        }
        for work in &works {
            match work {
                PlanWork::Alloc(address) => self.record_graph_memory(*address, true)?,
                PlanWork::Free(address) => self.record_graph_memory(*address, false)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The name of a kernel of a plan whose module was unloaded.
    fn unloaded_kernel(&self, plan: &Plan) -> Option<String> {
        plan.nodes.iter().find_map(|node| match &node.work {
            PlanWork::Operation(Operation::Launch(launch)) => {
                let gone = !self.functions.contains(launch.function);
                gone.then(|| launch.program.name().to_owned())
            }
            work => work.plans().iter().find_map(|plan| self.unloaded_kernel(plan)),
        })
    }

    pub(crate) fn cuGraphExecDestroy(&mut self, exec: CUgraphExec) -> Call {
        self.refuse_unsafe()?;
        let exec = self.known_exec(exec)?;
        // Queued launches hold the plan and still run.
        let Exec { objects, last, .. } = self.execs.remove(exec)?;
        match last.filter(|task| self.tasks.contains_key(task)) {
            Some(after) => self.pending_releases.push(PendingRelease { after, objects }),
            None => self.release_objects(objects),
        }
        Ok(())
    }
}
