//! Passes: lists of operations over named buffers, described before any device exists.
//!
//! A [`Pass`] declares buffers, then lists operations in sequential order. Every operation is
//! checked in one place, which records the bytes that it reads and writes. From these accesses
//! follow the dependencies ([`Pass::edges`]), the sharing of transient memory ([`Pass::plan`]) and
//! the kernels to prewarm ([`Pass::requirements`]).
//!
//! ```
//! use retrograph_runtime::Pass;
//!
//! let mut pass = Pass::new("shift");
//! let input = pass.external::<f32>("input", 8);
//! let output = pass.external::<f32>("output", 8);
//! let scratch = pass.transient::<f32>("scratch", 8);
//! pass.copy(input, scratch)?;
//! pass.copy(scratch.slice(1..8), output.slice(0..7))?;
//! pass.fill(output.slice(7..8), 0)?;
//! assert_eq!(pass.edges().depth(), 2);
//! assert!(pass.copy(input, output.slice(0..7)).is_err(), "lengths differ");
//! # Ok::<(), retrograph_runtime::PassError>(())
//! ```
//!
//! Declare a control for a value that changes between steps. A pass has no control flow; build
//! several passes instead.

mod access;
mod ancestors;
mod buffer;
mod check;
mod collective;
mod controls;
mod custom;
mod declare;
mod derived;
mod dot;
mod edges;
mod error;
mod gemm;
#[cfg(feature = "kernels")]
mod kernel_requirements;
#[cfg(feature = "kernels")]
mod launch;
mod library;
mod lifetime;
mod location;
mod names;
mod operation;
mod plan;
mod ranges;
mod requirements;

use std::sync::Arc;

use retrograph_kernel_abi::{Access, BufferArgument};

/// The elements of a [`Slice`].
pub use retrograph_kernel_abi::Element;

pub use access::BufferAccess;
pub use buffer::{Buffer, BufferId, BufferKind, Slice};
pub use collective::CollectiveGroup;
pub use controls::{ControlError, Controls};
pub use custom::{CustomImage, CustomLaunch, ImageCode};
pub use edges::{Edge, Edges, Hazard};
pub use error::PassError;
pub use gemm::LibraryGemm;
pub use library::LibraryCall;
pub use operation::{OpId, Operation, OperationKind};
pub use plan::{MemoryPlan, Reuse};
pub use requirements::{CustomRequirement, Requirements};

pub(crate) use ancestors::Ancestors;
pub(crate) use buffer::PassId;
pub(crate) use controls::ControlLayout;
pub(crate) use edges::infer;
pub(crate) use library::LibraryWork;

use names::Names;
use ranges::RangeSet;

use crate::library::Ranks;

/// A list of operations over named buffers.
#[derive(Debug)]
pub struct Pass {
    id: PassId,
    name: String,
    scope: String,
    buffers: Vec<Buffer>,
    /// The bytes of all buffers, each rounded up to its alignment.
    declared_bytes: usize,
    names: Names,
    operations: Vec<Operation>,
    /// The initialized bytes of each buffer after the operations so far.
    initialized: Vec<RangeSet>,
    controls: Arc<ControlLayout>,
    /// The operation that fetches the controls.
    fetches_parameters: Option<OpId>,
    /// The ranks of all collectives, and the buffer that orders them.
    collective_order: Option<(Ranks, Slice<u32>)>,
}

impl Pass {
    /// A pass without operations.
    pub fn new(name: impl Into<String>) -> Self {
        let id = PassId::fresh();
        Self {
            id,
            name: name.into(),
            scope: String::new(),
            buffers: Vec::new(),
            declared_bytes: 0,
            names: Names::default(),
            operations: Vec::new(),
            initialized: Vec::new(),
            controls: Arc::new(ControlLayout::new(id)),
            fetches_parameters: None,
            collective_order: None,
        }
    }

    pub(crate) fn id(&self) -> PassId {
        self.id
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the scope of later operations, which are named `scope/kernel`. An empty scope ends it.
    pub fn set_scope(&mut self, scope: impl Into<String>) {
        self.scope = scope.into();
    }

    /// Appends a copy from `source` to `target` on the device.
    ///
    /// # Errors
    /// If the lengths differ, or a slice is refused: see [`PassError`].
    pub fn copy<T: Element>(
        &mut self,
        source: Slice<T>,
        target: Slice<T>,
    ) -> Result<OpId, PassError> {
        if source.len() != target.len() {
            return Err(PassError::LengthMismatch {
                source_name: self.name_of(source.buffer()),
                source_len: source.len(),
                target: self.name_of(target.buffer()),
                target_len: target.len(),
            });
        }
        let source = BufferArgument::new(source, Access::Read);
        let target = BufferArgument::new(target, Access::Write);
        self.append(OperationKind::Copy { source, target })
    }

    /// Appends a fill of `target` with the 32-bit `pattern`: `0`, or the bits of a float.
    ///
    /// # Errors
    /// If the slice is refused: see [`PassError`].
    pub fn fill<T: Element>(&mut self, target: Slice<T>, pattern: u32) -> Result<OpId, PassError> {
        const { assert!(size_of::<T>().is_multiple_of(4), "fills work on words of four bytes") };
        let target = BufferArgument::new(target, Access::Write);
        self.append(OperationKind::Fill { target, pattern })
    }

    /// Appends the launch of an entry point of the caller's own image.
    ///
    /// # Safety
    /// The entry point must take exactly these arguments, and must access only the byte ranges of
    /// its buffer arguments, each as declared. All arguments and attributes must be valid for every
    /// device on which a program of the pass is built.
    ///
    /// # Errors
    /// If a slice is refused, or another custom image has the same name: see [`PassError`].
    pub unsafe fn custom(&mut self, launch: CustomLaunch) -> Result<OpId, PassError> {
        self.append(OperationKind::Custom(launch))
    }

    /// Lets `later` wait for `first`, although they share no bytes: for example, so that operations
    /// that wait for `first` run concurrently with `later`.
    ///
    /// # Errors
    /// [`PassError::NotInOrder`] if `first` is not before `later`, or [`PassError::OtherPass`].
    pub fn order(&mut self, first: OpId, later: OpId) -> Result<(), PassError> {
        self.check_owns(first)?;
        self.check_owns(later)?;
        if first >= later {
            return Err(PassError::NotInOrder { first, later });
        }
        // The buffer stores no data; it only orders the two operations.
        let order = self.transient::<u32>(format!("order/{}", later.index()), 1);
        for (operation, access) in [(first, Access::Write), (later, Access::Read)] {
            let access = BufferArgument::new(order, access);
            self.operations[operation.index()].accesses.push(access);
        }
        self.initialized[order.buffer().index()].insert(order.byte_range());
        Ok(())
    }

    /// Appends a library call.
    ///
    /// # Safety
    /// The enqueued work must access only the declared ranges, each as declared, and must be
    /// ordered on the given stream: other streams must wait for an event of it, and it for events
    /// of theirs.
    ///
    /// # Errors
    /// If a slice is refused: see [`PassError`].
    pub unsafe fn library(&mut self, call: LibraryCall) -> Result<OpId, PassError> {
        self.append(OperationKind::Library(call))
    }

    /// Appends a matrix product by cuBLAS; the program needs
    /// [`Bindings::cublas`](crate::Bindings::cublas).
    ///
    /// # Errors
    /// If a length does not match the shape, or a slice is refused: see [`PassError`].
    pub fn library_gemm(&mut self, gemm: &LibraryGemm) -> Result<OpId, PassError> {
        self.append(OperationKind::Library(gemm.call()?))
    }

    /// Checks that `operation` is one of this pass. Operations are never removed.
    fn check_owns(&self, operation: OpId) -> Result<(), PassError> {
        if operation.pass == self.id {
            return Ok(());
        }
        Err(PassError::OtherPass { operation, pass: self.name.clone() })
    }

    /// Checks and appends an operation; every operation enters the pass here.
    fn append(&mut self, kind: OperationKind) -> Result<OpId, PassError> {
        let operation = self.checked(kind)?;
        for range in &operation.accesses {
            if range.access.writes() {
                self.initialized[range.buffer.index()].insert(range.bytes.clone());
            }
        }
        let id = OpId::new(self.id, self.operations.len());
        self.operations.push(operation);
        Ok(id)
    }

    pub(crate) fn name_of(&self, buffer: BufferId) -> String {
        self.buffer(buffer)
            .map_or_else(|| "a buffer of another pass".to_owned(), |held| held.name.clone())
    }

    /// The declaration of `buffer`, or `None` if it belongs to another pass.
    pub fn buffer(&self, buffer: BufferId) -> Option<&Buffer> {
        if buffer.pass == self.id { self.buffers.get(buffer.index()) } else { None }
    }

    /// Every buffer, in the order of declaration.
    pub fn buffers(&self) -> impl ExactSizeIterator<Item = (BufferId, &Buffer)> {
        self.buffers.iter().enumerate().map(|(index, buffer)| {
            let id = BufferId { pass: self.id, index: index as u32 };
            (id, buffer)
        })
    }

    /// Every operation, in order.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Host-side values for all controls, not set yet.
    pub fn controls(&self) -> Controls {
        Controls::new(Arc::clone(&self.controls))
    }

    pub(crate) fn control_layout(&self) -> &Arc<ControlLayout> {
        &self.controls
    }
}
