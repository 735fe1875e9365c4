//! Buffers and controls of a pass.

use std::sync::Arc;

use buffer::{ALIGNMENT, Buffer, BufferId, BufferKind, Slice};
use operation::{OpId, Operation, OperationKind};
use retrograph_kernel_abi::step_parameters::FETCH_STEP_PARAMETERS;
use retrograph_kernel_abi::{Access, BufferArgument, Element};

use super::access::BufferAccess;
use super::ranges::RangeSet;
use super::{Pass, buffer, operation};

impl Pass {
    /// Maximum bytes of all controls of a pass. A program holds 16 copies in pinned memory.
    pub const MAX_CONTROL_BYTES: usize = 1 << 28;

    /// Declares a buffer that is bound when a program is built, and keeps its contents between
    /// steps.
    ///
    /// # Panics
    /// If the buffers of the pass have more bytes than the address space, as for every
    /// declaration.
    pub fn external<T: Element>(&mut self, name: impl Into<String>, len: usize) -> Slice<T> {
        let slice = self.declare(name.into(), BufferKind::External, len);
        let held = &mut self.initialized[slice.buffer().index()];
        held.insert(slice.byte_range());
        slice
    }

    /// Declares a buffer that lives from its first write to its last use within one step.
    pub fn transient<T: Element>(&mut self, name: impl Into<String>, len: usize) -> Slice<T> {
        self.declare(name.into(), BufferKind::Transient, len)
    }

    /// Declares a single value that the host sets before each step. The first control of a pass
    /// also appends the operation that fetches all controls.
    ///
    /// # Panics
    /// As [`Pass::control_array`].
    pub fn control<T: Element>(&mut self, name: impl Into<String>) -> Slice<T> {
        self.control_array(name, 1)
    }

    /// Declares `len` values that the host sets before each step, for example tokens.
    ///
    /// # Panics
    /// If the controls of the pass have more than [`Pass::MAX_CONTROL_BYTES`] bytes.
    pub fn control_array<T: Element>(&mut self, name: impl Into<String>, len: usize) -> Slice<T> {
        let slice = self.declare(name.into(), BufferKind::Control, len);
        let index = slice.buffer().index();
        self.initialized[index].insert(slice.byte_range());
        let (name, bytes) = (self.buffers[index].name().to_owned(), self.buffers[index].bytes());
        Arc::make_mut(&mut self.controls).push(index, name, bytes);
        self.fetch(BufferArgument::new(slice, Access::Write));
        slice
    }

    /// Adds `control` to the operation that fetches controls. That operation is at the position of
    /// the first declared control, before any operation that reads one.
    fn fetch(&mut self, control: BufferAccess) {
        if control.bytes.is_empty() {
            return;
        }
        let at = *self.fetches_parameters.get_or_insert_with(|| {
            let (kind, accesses) = (OperationKind::FetchStepParameters, Vec::new());
            let name = format!("controls/{}", FETCH_STEP_PARAMETERS.entry());
            self.operations.push(Operation { name, kind, accesses });
            OpId::new(self.id, self.operations.len() - 1)
        });
        self.operations[at.index()].accesses.push(control);
    }

    fn declare<T: Element>(&mut self, name: String, kind: BufferKind, len: usize) -> Slice<T> {
        let id = BufferId { pass: self.id, index: self.buffers.len() as u32 };
        self.declared_bytes = self.declared_bytes_with::<T>(&name, kind, len);
        let name = self.names.unique(name);
        self.buffers.push(Buffer {
            name,
            kind,
            element: T::DTYPE.name(),
            element_bytes: size_of::<T>(),
            len,
        });
        self.initialized.push(RangeSet::default());
        Slice::new(id, len)
    }

    /// Returns the aligned bytes of all buffers including a new one. No sum of sizes and no offset
    /// in an arena or in the control block exceeds it, so later sums cannot overflow.
    fn declared_bytes_with<T: Element>(&self, name: &str, kind: BufferKind, len: usize) -> usize {
        let aligned = len
            .checked_mul(size_of::<T>())
            .and_then(|bytes| bytes.checked_next_multiple_of(ALIGNMENT));
        let all = aligned.and_then(|bytes| bytes.checked_add(self.declared_bytes));
        let Some(all) = all.filter(|&bytes| isize::try_from(bytes).is_ok()) else {
            panic!(
                "the pass has no more bytes than there are addresses: `{name}` has {len} {}",
                T::DTYPE.name()
            )
        };
        let controls = self.controls.bytes() + aligned.unwrap_or(0);
        assert!(
            kind != BufferKind::Control || controls <= Self::MAX_CONTROL_BYTES,
            "the control `{name}` has {len} elements; the controls of a pass have at most {} \
             bytes, so make it an external buffer",
            Self::MAX_CONTROL_BYTES
        );
        all
    }
}
