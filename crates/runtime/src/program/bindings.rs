//! Binding device memory to the external buffers of a pass.

use std::collections::BTreeMap;
use std::ops::Range;

use retrograph_driver::{Context, DeviceBuffer, Owner};
use retrograph_kernel_abi::Element;

use crate::library::{Communicator, Cublas};
use crate::pass::{Buffer, BufferId, BufferKind, Pass, Slice};

use super::error::BuildError;

/// Device memory for external buffers. Each buffer stays alive while a program uses it.
#[derive(Clone, Default)]
pub struct Bindings {
    bound: BTreeMap<BufferId, Bound>,
    cublas: Option<Cublas>,
    communicator: Option<Communicator>,
}

#[derive(Clone)]
struct Bound {
    context: Context,
    address: u64,
    bytes: usize,
    /// The bytes of the external buffer that were named.
    slice: Range<usize>,
    owner: Owner,
}

/// The alignment of bound memory: kernels load vectors, and tensor maps need it.
const ALIGNMENT: u64 = 16;

impl Bindings {
    /// No bindings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Binds `buffer` to the external buffer of which `slice` is the whole, replacing an earlier
    /// binding. Lengths and addresses are checked when a program is built: memory starts at a
    /// multiple of 16 bytes.
    pub fn bind<T: Element>(&mut self, slice: Slice<T>, buffer: &DeviceBuffer<T>) -> &mut Self {
        let bound = Bound {
            context: buffer.context().clone(),
            address: buffer.address(),
            bytes: buffer.len() * size_of::<T>(),
            slice: slice.byte_range(),
            owner: buffer.owner(),
        };
        self.bound.insert(slice.buffer(), bound);
        self
    }

    /// Runs the matrix products of [`Pass::library_gemm`] with `cublas`. Programs may share a
    /// handle.
    pub fn cublas(&mut self, cublas: &Cublas) -> &mut Self {
        self.cublas = Some(cublas.clone());
        self
    }

    /// Runs the collectives of [`Pass::collectives`] with `communicator`, which has the same ranks.
    /// Rebinding does not change it.
    pub fn communicator(&mut self, communicator: &Communicator) -> &mut Self {
        self.communicator = Some(communicator.clone());
        self
    }

    /// The communicator for collectives.
    pub(super) fn held_communicator(&self) -> Option<&Communicator> {
        self.communicator.as_ref()
    }

    /// The handle for library products.
    pub(super) fn cublas_handle(&self) -> Option<&Cublas> {
        self.cublas.as_ref()
    }

    /// The memory of every external buffer that operations access, in the order of declaration.
    /// Buffers without a binding keep the memory that they have in `held`.
    pub(super) fn resolve(
        &self,
        wanted: &Wanted,
        held: &[External],
        context: &Context,
    ) -> Result<Vec<External>, BuildError> {
        self.check_names(wanted)?;
        let accessed = wanted.buffers.iter().filter_map(|buffer| Some((buffer, buffer.written?)));
        let externals = accessed.map(|(buffer, written)| {
            let before = || find(held, buffer.id).cloned();
            let Some(bound) = self.bound.get(&buffer.id) else {
                let unbound = || BuildError::Unbound { buffer: buffer.name.clone() };
                return before().ok_or_else(unbound);
            };
            bound.check(buffer, context)?;
            let (address, bytes, owner) = (bound.address, bound.bytes, bound.owner.clone());
            let (id, name) = (buffer.id, buffer.name.clone());
            Ok(External { id, name, address, bytes, written, owner })
        });
        let externals = externals.collect::<Result<Vec<_>, _>>()?;
        check_overlap(&externals)?;
        Ok(externals)
    }

    fn check_names(&self, wanted: &Wanted) -> Result<(), BuildError> {
        for &id in self.bound.keys() {
            match wanted.buffers.get(id.index()).filter(|buffer| buffer.id == id) {
                None => return Err(BuildError::WrongPass { pass: wanted.pass.clone() }),
                Some(buffer) if buffer.kind != BufferKind::External => {
                    return Err(BuildError::NotExternal { buffer: buffer.name.clone() });
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

impl Bound {
    fn check(&self, buffer: &Declared, context: &Context) -> Result<(), BuildError> {
        let (expected, found) = (buffer.bytes, self.bytes);
        if self.slice != (0..expected) {
            let (buffer, slice) = (buffer.name.clone(), self.slice.clone());
            return Err(BuildError::BoundSlice { buffer, slice, expected });
        }
        if found != expected {
            return Err(BuildError::BoundLength { buffer: buffer.name.clone(), expected, found });
        }
        if found > 0 && !self.address.is_multiple_of(ALIGNMENT) {
            let (buffer, address) = (buffer.name.clone(), self.address);
            return Err(BuildError::Misaligned { buffer, address, alignment: ALIGNMENT });
        }
        Ok(context.same(&self.context, "a bound buffer")?)
    }
}

/// The buffers that a pass needs bound.
pub(super) struct Wanted {
    pass: String,
    buffers: Vec<Declared>,
}

struct Declared {
    id: BufferId,
    name: String,
    kind: BufferKind,
    bytes: usize,
    /// For an external buffer that operations access: whether one of them writes it.
    written: Option<bool>,
}

impl Wanted {
    pub(super) fn by(pass: &Pass) -> Self {
        let declared = |(id, buffer): (BufferId, &Buffer)| {
            let (name, kind, bytes) = (buffer.name().to_owned(), buffer.kind(), buffer.bytes());
            Declared { id, name, kind, bytes, written: None }
        };
        let mut buffers: Vec<Declared> = pass.buffers().map(declared).collect();
        for range in pass.operations().iter().flat_map(|operation| operation.accesses()) {
            let buffer = &mut buffers[range.buffer.index()];
            if buffer.kind == BufferKind::External {
                *buffer.written.get_or_insert(false) |= range.access.writes();
            }
        }
        Self { pass: pass.name().to_owned(), buffers }
    }
}

impl std::fmt::Debug for Bindings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bound = self.bound.iter().map(|(id, bound)| (id, (bound.address, bound.bytes)));
        f.debug_map().entries(bound).finish()
    }
}

/// An external buffer with its memory.
#[derive(Clone, Debug)]
pub(super) struct External {
    pub(super) id: BufferId,
    pub(super) name: String,
    pub(super) address: u64,
    pub(super) bytes: usize,
    pub(super) written: bool,
    /// Keeps the memory alive.
    pub(super) owner: Owner,
}

/// The external buffer `id` among `externals`, which are in the order of declaration.
pub(super) fn find(externals: &[External], id: BufferId) -> Option<&External> {
    let at = externals.binary_search_by_key(&id, |external| external.id).ok()?;
    externals.get(at)
}

/// Checks that written buffers share no memory with others: edges are inferred per buffer, so
/// hazards between buffers would be missed.
fn check_overlap(externals: &[External]) -> Result<(), BuildError> {
    let mut sorted: Vec<_> = externals.iter().filter(|held| held.bytes > 0).collect();
    sorted.sort_by_key(|held| held.address);
    // The ranges that reach furthest so far: among all ranges, and among written ranges.
    let (mut any, mut written): (Option<&External>, Option<&External>) = (None, None);
    let end = |held: &External| held.address + held.bytes as u64;
    for held in sorted {
        let before = if held.written { any } else { written };
        if let Some(before) = before.filter(|before| end(before) > held.address) {
            let (one, other) = (before.name.clone(), held.name.clone());
            return Err(BuildError::SharedMemory { one, other });
        }
        let furthest = |best: Option<&External>| best.is_none_or(|best| end(held) > end(best));
        if furthest(any) {
            any = Some(held);
        }
        if held.written && furthest(written) {
            written = Some(held);
        }
    }
    Ok(())
}
