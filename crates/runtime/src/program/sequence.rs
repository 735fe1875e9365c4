//! The commands of a program in pass order. Eager launches, hand-built graphs and captures all use
//! this sequence, so none of them can miss an operation.

use retrograph_driver::{Driver, Owner, Result};
use serde::{Deserialize, Serialize};

use super::bindings::External;
use super::command::{Command, Pdl};
use super::error::BuildError;
use super::library_call::BoundLibraryCall;
use super::relocations::{InCommand, Relocations, Slot};
use super::resolver::{Resolver, count_tables};
use crate::library::Cublas;
use crate::pass::{Ancestors, Edges, OpId, Operation, OperationKind, Pass, infer};

/// A command with the name of its operation.
pub(super) struct Step {
    /// The position of the operation in the pass.
    pub(super) operation: OpId,
    pub(super) name: String,
    pub(super) command: Command,
    pub(super) pdl: Pdl,
}

impl Step {
    /// Whether the command is a library call.
    pub(super) fn is_library_call(&self) -> bool {
        matches!(self.command, Command::Library(_))
    }

    /// Whether the command is a group of collectives.
    pub(super) fn is_collective(&self) -> bool {
        matches!(&self.command, Command::Library(call) if call.is_collective())
    }
}

/// Facts about the collectives of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collectives {
    /// Operations that are groups of collectives.
    pub operations: usize,
    /// Bytes of the elements that they exchange.
    pub bytes: usize,
    /// Other operations that no edge orders before or after some collective, so that they can run
    /// during it.
    pub overlapping: usize,
}

impl Collectives {
    fn of(operations: &[&Operation], ancestors: &Ancestors) -> Self {
        let bytes_of = |at: usize| operations[at].collective_bytes();
        let (is, others): (Vec<usize>, Vec<usize>) =
            (0..operations.len()).partition(|&at| bytes_of(at).is_some());
        let apart = |one: usize, other: usize| !ancestors.contains(one.max(other), one.min(other));
        let overlapping = others.iter().filter(|&&at| is.iter().any(|&one| apart(one, at)));
        Self {
            operations: is.len(),
            bytes: is.iter().filter_map(|&at| bytes_of(at)).sum(),
            overlapping: overlapping.count(),
        }
    }
}

/// All commands in the order of the pass, without empty operations.
pub(super) struct Sequence {
    pub(super) steps: Vec<Step>,
    pub(super) edges: Edges,
    /// Number of empty operations.
    pub(super) skipped: usize,
    /// The position of the command that fetches the controls.
    pub(super) fetches_parameters: Option<usize>,
    /// The collectives.
    pub(super) collectives: Collectives,
    /// The locations that hold addresses of external buffers.
    relocations: Relocations<InCommand>,
}

impl Sequence {
    pub(super) fn new(pass: &Pass, resolver: &Resolver<'_>) -> Result<Self, BuildError> {
        let (memory, target) = (resolver.memory, resolver.target());
        let (mut steps, mut active, mut tables) = (Vec::new(), Vec::new(), 0);
        let mut fetches_parameters = None;
        let mut relocations = Relocations::new(pass);
        for (at, operation) in pass.operations().iter().enumerate() {
            let first_table = tables;
            tables += count_tables(operation);
            if operation.is_empty(target) {
                continue;
            }
            relocations.add_operation(operation, steps.len());
            let command = resolver.command(operation, first_table)?;
            let name = operation.name().to_owned();
            let requested =
                matches!(&command, Command::Launch(launch) if launch.attributes.is_programmatic());
            let pdl = match requested {
                _ if !pass.never_writes_read_ahead(operation) => Pdl::Unsupported,
                true => Pdl::Requested,
                false if operation.supports_pdl(target) => Pdl::Supported,
                false => Pdl::Unsupported,
            };
            if operation.kind == OperationKind::FetchStepParameters {
                fetches_parameters = Some(steps.len());
            }
            let at = OpId::new(pass.id(), at);
            steps.push(Step { operation: at, name, command, pdl });
            active.push(operation);
        }
        let accesses = active.iter().map(|operation| operation.accesses());
        let (edges, ancestors) = infer(pass.id(), accesses, |range| memory.plan().location(range));
        let collectives = Collectives::of(&active, &ancestors);
        let skipped = pass.operations().len() - steps.len();
        Ok(Self { steps, edges, skipped, fetches_parameters, collectives, relocations })
    }

    /// Patches the address of an external buffer in all commands that use it. Returns their
    /// positions, and the first failure to patch a tensor map.
    pub(super) fn move_external(
        &mut self,
        driver: &Driver,
        to: &External,
    ) -> (Vec<usize>, Result<()>) {
        let (relocations, mut outcome) = (self.relocations.of(to.id), Ok(()));
        for relocation in relocations {
            let InCommand { position, slot } = relocation.location;
            let address = to.address + relocation.offset;
            match (&mut self.steps[position].command, slot) {
                (Command::Launch(launch), Slot::Argument(at)) => {
                    launch.arguments.set_address(at, address);
                }
                (Command::Launch(launch), Slot::TensorMap(at)) => {
                    let map =
                        launch.arguments.tensor_map_mut(at).expect("the relocation is of a map");
                    match map.at(driver, address) {
                        Ok(moved) => *map = moved,
                        Err(error) => outcome = outcome.and(Err(error)),
                    }
                }
                (Command::Copy { source, .. }, Slot::Source) => *source = address,
                (Command::Library(call), Slot::Range(at)) => call.move_range(at, address),
                (Command::Copy { target, .. } | Command::Fill { target, .. }, Slot::Target) => {
                    *target = address;
                }
                _ => unreachable!("relocations are made from the commands that they patch"),
            }
        }
        (relocations.iter().map(|relocation| relocation.location.position).collect(), outcome)
    }

    /// Replaces the cuBLAS handle of all products. Returns the previous one and the positions of
    /// the products, unless there are none or the handle is the same.
    pub(super) fn use_handle(&mut self, cublas: &Cublas) -> Option<(Cublas, Vec<usize>)> {
        let change = |(at, step): (usize, &mut Step)| match &mut step.command {
            Command::Library(call) => Some((call.use_handle(cublas)?, at)),
            _ => None,
        };
        // All products of a program use one handle.
        let (mut before, products): (Vec<_>, Vec<_>) =
            self.steps.iter_mut().enumerate().filter_map(change).unzip();
        Some((before.pop()?, products))
    }

    /// Keeps functions and libraries alive.
    pub(super) fn owners(&self) -> Vec<Owner> {
        let owners = self.steps.iter().filter_map(|step| match &step.command {
            Command::Launch(launch) => Some(launch.function.owner()),
            Command::Library(call) => call.owner(),
            Command::Copy { .. } | Command::Fill { .. } => None,
        });
        owners.collect()
    }

    /// As [`Self::owners`], with the code of library calls, which may own memory as well.
    pub(super) fn all_owners(&self) -> impl Iterator<Item = Owner> {
        let code = self.library_calls().filter_map(|(_, call)| call.code_owner());
        self.owners().into_iter().chain(code)
    }

    /// The library calls, with their operation names.
    pub(super) fn library_calls(&self) -> impl Iterator<Item = (&str, &BoundLibraryCall)> {
        self.steps.iter().filter_map(|step| match &step.command {
            Command::Library(call) => Some((step.name.as_str(), call)),
            _ => None,
        })
    }
}
