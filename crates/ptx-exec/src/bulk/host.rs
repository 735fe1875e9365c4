//! Host addresses of the bytes that bulk copies access.

use retrograph_ptx::ast::StateSpace;

use super::extent::Extent;
use super::undefined;
use crate::access::{Memories, locate};
use crate::fault::FaultKind;
use crate::program::Access;
use crate::races::AccessKind;
use crate::tensor_map::{MAX_DIMENSIONS, TENSOR_MAP_BYTES, TensorMap};
use crate::undefined::ProxyMisuse;

impl Memories<'_> {
    /// The host address of bytes of shared memory.
    #[inline(always)]
    pub(crate) fn shared_bytes(&self, address: u64, bytes: u64) -> Result<*mut u8, FaultKind> {
        let inside = address.checked_sub(self.shared.base);
        let end = address.checked_add(bytes).filter(|&end| end <= self.shared.end);
        match inside.zip(end) {
            // SAFETY: the bytes are inside shared memory.
            Some((inside, _)) => Ok(unsafe { self.shared.host.add(inside as usize) }),
            None => {
                let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                Err(FaultKind::OutOfBounds { address, bytes, space: StateSpace::Shared })
            }
        }
    }

    /// The host address of bytes of global memory.
    pub(super) fn global_bytes(&self, address: u64, bytes: u64) -> Result<*mut u8, FaultKind> {
        let span = self.global_span(address).filter(|span| bytes <= span.end - address);
        match span {
            // SAFETY: the bytes are inside the allocation.
            Some(span) => Ok(unsafe { span.host.add((address - span.base) as usize) }),
            None => {
                let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                Err(FaultKind::OutOfBounds { address, bytes, space: StateSpace::Global })
            }
        }
    }

    /// Checks a thread's access to shared memory, in programs with bulk copies.
    pub(crate) fn check_async(
        &self,
        space: Option<StateSpace>,
        address: u64,
        bytes: u64,
        kind: AccessKind,
    ) -> Result<(), FaultKind> {
        let Some(proxy) = &self.proxy else { return Ok(()) };
        match locate(space, address) {
            (StateSpace::Shared, address) => {
                proxy.check(&(address..address + bytes), kind != AccessKind::Read)
            }
            _ => Ok(()),
        }
    }
}

/// The coordinates of a box.
pub(super) fn first_of(values: impl Iterator<Item = u64>) -> [i32; MAX_DIMENSIONS] {
    let mut first = [0; MAX_DIMENSIONS];
    first.iter_mut().zip(values).for_each(|(to, value)| *to = value as u32 as i32);
    first
}

/// The box of the tensor map at a generic address.
pub(super) fn box_of(
    memories: &Memories<'_>,
    address: u64,
    rank: usize,
    first: [i32; MAX_DIMENSIONS],
) -> Result<Extent, FaultKind> {
    if !address.is_multiple_of(64) {
        return undefined(ProxyMisuse::MapAlignment { address });
    }
    let access = Access::generic(64);
    let mut raw = [0; TENSOR_MAP_BYTES];
    for half in 0..2 {
        let from = memories.resolve(&access, 0, address + 64 * half)?;
        // SAFETY: `resolve` proved 64 bytes.
        unsafe {
            let to = raw.as_mut_ptr().add(64 * half as usize);
            std::ptr::copy_nonoverlapping(from, to, 64);
        }
    }
    let map =
        TensorMap::decode(&raw).or_else(|error| undefined(ProxyMisuse::Map { address, error }))?;
    if map.dimensions.len() != rank {
        return undefined(ProxyMisuse::Rank { rank, dimensions: map.dimensions.len() });
    }
    Ok(Extent::Tensor { map: Box::new(map), first })
}
