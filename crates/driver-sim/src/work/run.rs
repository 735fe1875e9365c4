//! Execution of work: only the awaited work and its dependencies run.

use std::collections::BTreeMap;
use std::time::Instant;

use retrograph_driver_sys::{CUevent, CUresult};

use super::{Copy, End, Launch, Operation, Plan, PlanWork, Task, TaskId, Work};
use crate::argument::Call;
use crate::diagnostic::Finding;
use crate::kernel;
use crate::memory::MemoryError;
use crate::refusal::{Rule, refuse};
use crate::state::{Mark, State};

/// Why queued work failed.
pub(crate) enum Failure {
    /// The code with which the context is lost, and the cause.
    Fault(CUresult, Finding),
    /// Something for which hardware promises nothing.
    Undefined(Finding),
}

impl State {
    /// Completes tasks and everything that they depend on, in an order chosen among the legal ones.
    pub(crate) fn complete(&mut self, targets: Vec<TaskId>) -> Call {
        let ids = self.needed(targets);
        let index_of: BTreeMap<_, _> = ids.iter().enumerate().map(|(at, id)| (*id, at)).collect();
        let indices = |id: &TaskId| {
            let dependencies = self.tasks[id].dependencies.iter();
            dependencies.filter_map(|id| index_of.get(id).copied()).collect()
        };
        let dependencies: Vec<Vec<usize>> = ids.iter().map(indices).collect();
        // Tasks depend on earlier ones only, so that there is always an order.
        let order = self.random.order(&dependencies).unwrap_or_default();
        for index in order {
            if let Some(task) = self.tasks.remove(&ids[index]) {
                self.run_task(ids[index], task)?;
            }
        }
        self.release_completed();
        Ok(())
    }

    /// Completes all queued work, as a call with the prompt order does before it returns. The next
    /// call returns the code of a fault, as on hardware.
    pub(crate) fn complete_promptly(&mut self) {
        let all = self.tasks.keys().copied().collect();
        if let Err(refusal) = self.advance(all)
            && refusal.rule != Rule::Fault
        {
            let _ = self.conclude(refusal);
        }
    }

    /// Completes all work of a device.
    pub(crate) fn complete_device(&mut self, device: usize) -> Call {
        let all = self.tasks.iter().filter(|(_, task)| task.device == device);
        let all = all.map(|(id, _)| *id).collect();
        self.complete(all)?;
        self.check_alive(device)
    }

    /// The targets and all queued tasks that they depend on.
    pub(super) fn needed(&self, mut unvisited: Vec<TaskId>) -> Vec<TaskId> {
        let mut needed = std::collections::BTreeSet::new();
        while let Some(id) = unvisited.pop() {
            if let (Some(task), true) = (self.tasks.get(&id), !needed.contains(&id)) {
                needed.insert(id);
                unvisited.extend(&task.dependencies);
            }
        }
        needed.into_iter().collect()
    }

    fn run_task(&mut self, id: TaskId, task: Task) -> Call {
        let device = task.device;
        let result = match task.work {
            Work::Operation(operation) => self.run_operation(device, &operation),
            Work::PeerCopy(copy) => copy.run().map_err(|error| failed_copy(&error)),
            Work::Graph(plan) => self.run_plan(device, &plan, id),
            Work::Free(address) => self.run_free(device, address),
            Work::Hosting(run) => {
                Self::end_host(&run).map_err(|said| Failure::Undefined(said.into()))
            }
            Work::Stamp(event) => {
                self.stamp(event, id);
                Ok(())
            }
        };
        result.map_err(|failure| match failure {
            Failure::Fault(code, finding) => {
                self.lose(device, code, finding);
                refuse(code, Rule::Fault)
            }
            Failure::Undefined(finding) => self.undefined(finding),
        })
    }

    /// Records the time of an event if the task completes it.
    fn stamp(&mut self, event: CUevent, task: TaskId) {
        if let Ok(event) = self.events.get_mut(event)
            && matches!(event.mark, Mark::Task(marked) if marked == task)
        {
            event.timestamp = Some(Instant::now());
        }
    }

    /// Runs the nodes of a graph in an order chosen among those that its edges allow.
    fn run_plan(&mut self, device: usize, plan: &Plan, task: TaskId) -> Result<(), Failure> {
        let order = self.random.order(&plan.dependencies()).unwrap_or_default();
        for node in order.into_iter().map(|index| &plan.nodes[index]) {
            if !node.is_enabled {
                continue;
            }
            match &node.work {
                PlanWork::Operation(operation) => self.run_operation(device, operation)?,
                PlanWork::Child(child) => self.run_plan(device, child, task)?,
                PlanWork::Record(event) => self.stamp(*event, task),
                PlanWork::Alloc(address) => self.run_alloc(device, *address)?,
                PlanWork::Free(address) => self.run_free(device, *address)?,
                // The launch as a whole waits for events.
                PlanWork::Wait(_) | PlanWork::Empty => {}
            }
        }
        Ok(())
    }

    fn run_alloc(&mut self, device: usize, address: u64) -> Result<(), Failure> {
        let bytes = self.graph_memory.get(&address).map_or(0, |found| found.bytes);
        let made = self.devices[device].memory.alloc_at(Some(address), bytes);
        made.map(|_| ()).map_err(|error| {
            let message = "memory of a graph could not be had when it was launched";
            Failure::Undefined(format!("{message}: {error}").into())
        })
    }

    fn run_operation(&mut self, device: usize, operation: &Operation) -> Result<(), Failure> {
        if let Operation::Launch(launch) = operation {
            self.count_launch(launch)?;
        }
        let memory = &self.devices[device].memory;
        let result = match operation {
            Operation::Launch(launch) => {
                return kernel::run(launch, memory, &self.config, self.random.seed(), &self.output);
            }
            Operation::Copy(copy) if !self.pinned_ends_live(copy) => return Err(pinned_freed()),
            Operation::Copy(copy) => copy.run(memory),
            Operation::Fill(fill) => fill.run(memory),
            Operation::Host(call) => {
                return self.run_host(call).map_err(|said| Failure::Undefined(said.into()));
            }
        };
        result.map_err(|error| match operation {
            // Hardware tells a fill that fails by another code than a copy.
            Operation::Fill(_) => {
                let message = format!("a queued fill failed: {error}");
                Failure::Fault(CUresult::CUDA_ERROR_LAUNCH_FAILED, message.into())
            }
            _ => failed_copy(&error),
        })
    }

    /// Counts a launch by its kernel, whose module must be loaded.
    fn count_launch(&mut self, launch: &Launch) -> Result<(), Failure> {
        let name = launch.program.name();
        if !self.functions.contains(launch.function) {
            return Err(unloaded(name));
        }
        match self.launches.get_mut(name) {
            Some(count) => *count += 1,
            None => drop(self.launches.insert(name.to_owned(), 1)),
        }
        Ok(())
    }

    fn pinned_ends_live(&self, copy: &Copy) -> bool {
        let Some((source, target)) = Copy::extent(&copy.given) else {
            return false;
        };
        let live = |end: &End, bytes| match end {
            End::Host(address) => self.pinned_at(*address, bytes).is_some(),
            _ => true,
        };
        live(&copy.source, source) && live(&copy.target, target)
    }

    fn run_free(&mut self, device: usize, address: u64) -> Result<(), Failure> {
        self.return_to_pool(address);
        self.allocations.remove(&address);
        let freed = self.devices[device].memory.free(address);
        freed
            .map(|_| ())
            .map_err(|error| Failure::Undefined(format!("a queued free failed: {error}").into()))
    }
}

fn failed_copy(error: &MemoryError) -> Failure {
    let message = format!("a queued copy failed: {error}");
    Failure::Fault(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, message.into())
}

fn unloaded(kernel: &str) -> Failure {
    Failure::Undefined(format!("the module of kernel `{kernel}` was unloaded before it ran").into())
}

fn pinned_freed() -> Failure {
    let message = "a copy names pinned host memory that was freed before the copy ran";
    Failure::Undefined(message.into())
}
