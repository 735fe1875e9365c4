//! Where the addresses of external buffers went: what has to change when a buffer moves.
//!
//! Nodes and tables hold addresses, not buffers. With one link for each place that holds the
//! address of an external, rebinding costs as much as there are such places, and neither the pass
//! nor its analysis is needed again.

use retrograph_kernels::Argument;

use crate::pass::{BufferAccess, BufferId, BufferKind, Operation, OperationKind, Pass};

/// Which address of a command a buffer provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// The argument of this position of a launch.
    Argument(usize),
    /// Where a copy reads.
    Source,
    /// Where a copy or a fill writes.
    Target,
    /// The declared range of this position of a library call.
    Range(usize),
}

/// A place that holds the address of a buffer, with the offset into the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Relocation<P> {
    pub(super) place: P,
    pub(super) offset: u64,
}

/// The places of all external buffers, by the index of the buffer.
pub(super) struct Relocations<P> {
    by_buffer: Vec<Vec<Relocation<P>>>,
    external: Vec<bool>,
}

/// A slot of the command of this position.
pub(super) type InCommand = (usize, Slot);

impl<P: Copy> Relocations<P> {
    /// None yet, for the buffers of `pass`.
    pub(super) fn new(pass: &Pass) -> Self {
        let kinds = pass.buffers().map(|(_, buffer)| buffer.kind() == BufferKind::External);
        let external: Vec<bool> = kinds.collect();
        Self { by_buffer: vec![Vec::new(); external.len()], external }
    }

    /// Notes that `place` holds the address of the first byte of `touch`.
    pub(super) fn add(&mut self, range: &BufferAccess, place: P) {
        let buffer = range.buffer.index();
        if self.external[buffer] {
            self.by_buffer[buffer].push(Relocation { place, offset: range.bytes.start as u64 });
        }
    }

    /// The places that hold an address in `buffer`.
    pub(super) fn of(&self, buffer: BufferId) -> &[Relocation<P>] {
        &self.by_buffer[buffer.index()]
    }
}

impl Relocations<InCommand> {
    /// Notes all addresses of the command at `position`, which does `operation`. Tables have links
    /// of their own.
    pub(super) fn add_operation(&mut self, operation: &Operation, position: usize) {
        match operation.kind() {
            OperationKind::Copy { source, target } => {
                self.add(source, (position, Slot::Source));
                self.add(target, (position, Slot::Target));
            }
            OperationKind::Fill { target, .. } => self.add(target, (position, Slot::Target)),
            OperationKind::Library(call) => {
                for (at, range) in call.declared().iter().enumerate() {
                    self.add(range, (position, Slot::Range(at)));
                }
            }
            // What the host writes moves nowhere.
            OperationKind::FetchStepParameters => {}
            OperationKind::Launch(_) | OperationKind::Custom(_) => {
                for (at, argument) in operation.arguments().iter().enumerate() {
                    if let Argument::Buffer(range) = argument {
                        self.add(range, (position, Slot::Argument(at)));
                    }
                }
            }
        }
    }
}
