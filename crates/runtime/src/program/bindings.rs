//! Which memory stands behind the external buffers of a pass.

use std::collections::BTreeMap;

use retrograph_kernels::Element;

use crate::Owner;
use crate::context::Context;
use crate::memory::DeviceBuffer;
use crate::pass::{BufferId, BufferKind, Pass, Slice};

use super::error::BuildError;

/// Device memory for external buffers. Each buffer stays alive for as long as a program uses it.
#[derive(Clone, Default)]
pub struct Bindings {
    bound: BTreeMap<BufferId, Bound>,
}

#[derive(Clone)]
struct Bound {
    context: Context,
    address: u64,
    bytes: usize,
    starts_at: usize,
    owner: Owner,
}

impl Bindings {
    /// No bindings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts `buffer` behind the external buffer that `slice` names whole; an earlier binding of it
    /// is replaced. Lengths are checked when a program is built, where errors can name the buffer.
    pub fn bind<T: Element>(&mut self, slice: Slice<T>, buffer: &DeviceBuffer<T>) -> &mut Self {
        let bound = Bound {
            context: buffer.context().clone(),
            address: buffer.address(),
            bytes: buffer.len() * size_of::<T>(),
            starts_at: slice.byte_range().start,
            owner: buffer.owner(),
        };
        self.bound.insert(slice.buffer(), bound);
        self
    }

    /// The memory behind every external buffer of `pass` that an operation touches.
    pub(super) fn resolve(&self, pass: &Pass, context: &Context) -> Result<Resolved, BuildError> {
        self.check_foreign(pass)?;
        let mut resolved = Resolved::default();
        let mut touched = vec![None; pass.buffers().len()];
        for touch in pass.operations().iter().flat_map(|operation| operation.touches()) {
            let writes = touched[touch.buffer.index()].get_or_insert(false);
            *writes |= touch.access.writes();
        }
        for (id, buffer) in pass.buffers() {
            let (Some(written), BufferKind::External) = (touched[id.index()], buffer.kind()) else {
                continue;
            };
            let bound = self.bound_to(pass, id, context)?;
            resolved.owners.push(bound.owner.clone());
            let (address, bytes) = (bound.address, bound.bytes);
            let name = buffer.name().to_owned();
            resolved.externals.push(External { id, name, address, bytes, written });
        }
        resolved.check_overlap()?;
        Ok(resolved)
    }

    fn check_foreign(&self, pass: &Pass) -> Result<(), BuildError> {
        for &id in self.bound.keys() {
            match pass.buffer(id) {
                None => return Err(BuildError::ForeignBinding { pass: pass.name().to_owned() }),
                Some(buffer) if buffer.kind() != BufferKind::External => {
                    return Err(BuildError::NotExternal { buffer: buffer.name().to_owned() });
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn bound_to(&self, pass: &Pass, id: BufferId, on: &Context) -> Result<&Bound, BuildError> {
        let buffer = pass.buffer(id).expect("the identifier comes from this pass");
        let name = || buffer.name().to_owned();
        let bound = self.bound.get(&id).ok_or_else(|| BuildError::Unbound { buffer: name() })?;
        if bound.bytes != buffer.bytes() || bound.starts_at != 0 {
            let (expected, found) = (buffer.bytes(), bound.bytes);
            return Err(BuildError::BoundLength { buffer: name(), expected, found });
        }
        on.same(&bound.context, "a bound buffer")?;
        Ok(bound)
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
}

/// All externals that are touched, and what keeps their memory.
#[derive(Default)]
pub(super) struct Resolved {
    pub(super) externals: Vec<External>,
    pub(super) owners: Vec<Owner>,
}

impl Resolved {
    /// Edges are inferred by buffer. Two buffers over the same memory would hide hazards from
    /// them, unless both are only read.
    fn check_overlap(&self) -> Result<(), BuildError> {
        let mut sorted: Vec<_> = self.externals.iter().filter(|held| held.bytes > 0).collect();
        sorted.sort_by_key(|held| held.address);
        // The range that reaches furthest so far, among all and among those that are written.
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
}
