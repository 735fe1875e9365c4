//! Checks of an operation before it enters a pass.

use retrograph_kernel_abi::{Access, Argument};

use super::access::{BufferAccess, joined};
use super::buffer::{Buffer, BufferKind};
use super::error::PassError;
use super::operation::{Operation, OperationKind, declared_accesses};
use super::{BufferId, Pass};

impl Pass {
    /// The operation with its merged accesses, or the first reason to refuse it.
    pub(super) fn checked(&self, kind: OperationKind) -> Result<Operation, PassError> {
        let name = String::new();
        let mut operation = Operation { name, kind, accesses: Vec::new() };
        operation.name = match self.scope.as_str() {
            "" => operation.verb().to_owned(),
            scope => format!("{scope}/{}", operation.verb()),
        };
        self.check_arguments(&operation)?;
        let accesses = declared_accesses(&operation.kind);
        for range in &accesses {
            self.check_bounds(&operation.name, range)?;
        }
        self.check_aliasing(&operation.name, &accesses)?;
        operation.accesses = joined(accesses);
        self.check_tensor_maps(&operation)?;
        self.check_initialized(&operation)?;
        Ok(operation)
    }

    fn check_arguments(&self, operation: &Operation) -> Result<(), PassError> {
        match &operation.kind {
            #[cfg(feature = "kernels")]
            OperationKind::Launch(launch) => self.check_parameters(operation, launch),
            OperationKind::Custom(_) => self.check_image(operation),
            OperationKind::Copy { .. }
            | OperationKind::Fill { .. }
            | OperationKind::Library(_)
            | OperationKind::FetchStepParameters => Ok(()),
        }
    }

    /// Checks that custom images of the same name have the same code.
    fn check_image(&self, operation: &Operation) -> Result<(), PassError> {
        let OperationKind::Custom(launch) = &operation.kind else { return Ok(()) };
        let clashes = |held: &Operation| match &held.kind {
            OperationKind::Custom(held) => {
                held.image.name == launch.image.name && held.image.code != launch.image.code
            }
            _ => false,
        };
        if self.operations.iter().any(clashes) {
            let (operation, image) = (operation.name.clone(), launch.image.name.clone());
            return Err(PassError::ImageName { operation, image });
        }
        Ok(())
    }

    /// Checks that the range belongs to this pass, is in its buffer, and does not write a control.
    fn check_bounds(&self, operation: &str, range: &BufferAccess) -> Result<(), PassError> {
        let Some(buffer) = self.buffer(range.buffer) else {
            let (operation, pass) = (operation.to_owned(), self.name.clone());
            return Err(PassError::WrongPass { operation, pass });
        };
        if range.bytes.end > buffer.bytes() {
            return Err(PassError::OutsideBuffer {
                operation: operation.to_owned(),
                buffer: buffer.name.clone(),
                bytes: range.bytes.clone(),
                buffer_bytes: buffer.bytes(),
            });
        }
        if buffer.kind == BufferKind::Control && range.access.writes() {
            let (operation, buffer) = (operation.to_owned(), buffer.name.clone());
            return Err(PassError::WritesControl { operation, buffer });
        }
        Ok(())
    }

    /// Checks that no two arguments write the same bytes, and that none reads bytes that another
    /// writes, unless the writer declares an update in place.
    fn check_aliasing(&self, operation: &str, accesses: &[BufferAccess]) -> Result<(), PassError> {
        let (mut writes, mut reads): (Vec<_>, Vec<_>) =
            accesses.iter().cloned().partition(|range| range.access.writes());
        // For overlaps, reading ahead is like any read.
        reads.iter_mut().for_each(|range| range.access = Access::Read);
        writes.sort_by_key(|range| (range.buffer, range.bytes.start));
        let twice = writes.windows(2).find_map(|pair| overlap(&pair[0], &pair[1]));
        let read_while_written = || overlap_of(&joined(reads), &writes);
        match twice.or_else(read_while_written) {
            None => Ok(()),
            Some((buffer, bytes)) => Err(PassError::Aliased {
                operation: operation.to_owned(),
                buffer: self.buffers[buffer.index()].name.clone(),
                bytes,
            }),
        }
    }

    /// Checks that tensors are inside of the bytes of their tensor maps, and that another argument
    /// accesses these bytes, since a map itself is not an access.
    fn check_tensor_maps(&self, operation: &Operation) -> Result<(), PassError> {
        for argument in operation.arguments() {
            let Argument::TensorMap(Some(map)) = argument else { continue };
            let (name, bytes) = (operation.name.clone(), map.bytes.clone());
            let Some(buffer) = self.buffer(map.buffer) else {
                return Err(PassError::WrongPass { operation: name, pass: self.name.clone() });
            };
            let (buffer, needed) = (buffer.name.clone(), map.layout.bytes());
            if (bytes.len() as u64) < needed {
                return Err(PassError::TensorMapBytes { operation: name, buffer, bytes, needed });
            }
            let covers = |access: &BufferAccess| {
                access.buffer == map.buffer
                    && access.bytes.start <= bytes.start
                    && bytes.end <= access.bytes.end
            };
            if !operation.accesses.iter().any(covers) {
                return Err(PassError::UndeclaredTensorMap { operation: name, buffer, bytes });
            }
        }
        Ok(())
    }

    /// Checks that all bytes that are read are initialized.
    fn check_initialized(&self, operation: &Operation) -> Result<(), PassError> {
        for range in operation.accesses.iter().filter(|range| range.access.reads()) {
            let buffer: &Buffer = &self.buffers[range.buffer.index()];
            if let Some(bytes) = self.initialized[range.buffer.index()].first_gap(&range.bytes) {
                return Err(PassError::ReadBeforeWrite {
                    operation: operation.name.clone(),
                    buffer: buffer.name.clone(),
                    bytes,
                });
            }
        }
        Ok(())
    }
}

type Overlap = (BufferId, std::ops::Range<usize>);

fn overlap(one: &BufferAccess, other: &BufferAccess) -> Option<Overlap> {
    let start = one.bytes.start.max(other.bytes.start);
    let end = one.bytes.end.min(other.bytes.end);
    (one.buffer == other.buffer && start < end).then_some((one.buffer, start..end))
}

/// Returns the first overlap of a read with a full write. Both lists are sorted and free of
/// overlaps, so one pass over both is enough.
fn overlap_of(reads: &[BufferAccess], writes: &[BufferAccess]) -> Option<Overlap> {
    let (mut read, mut write) = (0, 0);
    while let (Some(left), Some(right)) = (reads.get(read), writes.get(write)) {
        if right.access == Access::Write
            && let Some(found) = overlap(left, right)
        {
            return Some(found);
        }
        if (left.buffer, left.bytes.end) <= (right.buffer, right.bytes.end) {
            read += 1;
        } else {
            write += 1;
        }
    }
    None
}
