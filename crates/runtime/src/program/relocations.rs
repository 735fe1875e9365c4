//! Relocations: the locations that hold addresses of external buffers.
//!
//! Nodes and tables hold addresses, not buffers. With one relocation per location, rebinding a
//! buffer rewrites only these locations; it needs neither the pass nor its analysis.

use retrograph_kernel_abi::Argument;

use crate::pass::{BufferAccess, BufferId, BufferKind, Operation, OperationKind, Pass};

/// The position of an address in a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// The argument at this position of a launch.
    Argument(usize),
    /// The tensor map at this position of a launch.
    TensorMap(usize),
    /// The source of a copy.
    Source,
    /// The destination of a copy or fill.
    Target,
    /// The declared range at this position of a library call.
    Range(usize),
}

/// A location that holds the address of a buffer, with the offset into the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Relocation<P> {
    pub(super) location: P,
    pub(super) offset: u64,
}

/// The relocations of all external buffers, by buffer index.
pub(super) struct Relocations<P> {
    by_buffer: Vec<Vec<Relocation<P>>>,
    external: Vec<bool>,
}

/// An address in the command at a position.
#[derive(Clone, Copy, Debug)]
pub(super) struct InCommand {
    pub(super) position: usize,
    pub(super) slot: Slot,
}

impl<P: Copy> Relocations<P> {
    /// Returns empty relocations for the buffers of `pass`.
    pub(super) fn new(pass: &Pass) -> Self {
        let kinds = pass.buffers().map(|(_, buffer)| buffer.kind() == BufferKind::External);
        let external: Vec<bool> = kinds.collect();
        Self { by_buffer: vec![Vec::new(); external.len()], external }
    }

    /// Adds `location`, which holds the start address of `range`.
    pub(super) fn add(&mut self, range: &BufferAccess, location: P) {
        self.add_address(range.buffer, range.bytes.start, location);
    }

    /// Adds `location`, which holds the address of the byte `offset` of `buffer`.
    fn add_address(&mut self, buffer: BufferId, offset: usize, location: P) {
        let buffer = buffer.index();
        if self.external[buffer] {
            self.by_buffer[buffer].push(Relocation { location, offset: offset as u64 });
        }
    }

    /// The relocations of `buffer`.
    pub(super) fn of(&self, buffer: BufferId) -> &[Relocation<P>] {
        &self.by_buffer[buffer.index()]
    }
}

impl Relocations<InCommand> {
    /// Adds all addresses of the command of `operation` at `position`, except those in tables.
    pub(super) fn add_operation(&mut self, operation: &Operation, position: usize) {
        let at = |slot| InCommand { position, slot };
        match operation.kind() {
            OperationKind::Copy { source, target } => {
                self.add(source, at(Slot::Source));
                self.add(target, at(Slot::Target));
            }
            OperationKind::Fill { target, .. } => self.add(target, at(Slot::Target)),
            OperationKind::Library(call) => {
                for (index, range) in call.declared().iter().enumerate() {
                    self.add(range, at(Slot::Range(index)));
                }
            }
            // Controls never move.
            OperationKind::FetchStepParameters => {}
            // A launch.
            _ => {
                for (index, argument) in operation.arguments().iter().enumerate() {
                    match argument {
                        Argument::Buffer(range) => self.add(range, at(Slot::Argument(index))),
                        Argument::TensorMap(Some(map)) => {
                            let location = at(Slot::TensorMap(index));
                            self.add_address(map.buffer, map.bytes.start, location);
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}
