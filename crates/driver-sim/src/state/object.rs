//! Tables of objects by handle.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use crate::refusal::{Refusal, Rule, refuse};
use retrograph_driver_sys::*;

/// A handle that wraps a number.
pub(crate) trait Handle: Copy {
    /// The handle of a number.
    fn from_number(number: u64) -> Self;
    /// The number of a handle.
    fn number(self) -> u64;
}

/// Handles look like addresses but point nowhere. They are far from special values such as
/// `CU_STREAM_LEGACY`, and far enough apart that arithmetic on handles yields no other handle.
const FIRST: u64 = 0x5100_0000_0000;
const DISTANCE: u64 = 0x40;

/// Whether the handle has the form of one with a number up to `last`.
pub(super) fn is_numbered(handle: impl Handle, last: u64) -> bool {
    let number = handle.number();
    (FIRST + DISTANCE..=FIRST + last * DISTANCE).contains(&number)
        && number.is_multiple_of(DISTANCE)
}

/// The refusal of a handle without an object.
const UNKNOWN: Refusal = refuse(CUresult::CUDA_ERROR_INVALID_HANDLE, Rule::ObjectUnknown);

macro_rules! handles {
    ($($handle:ident),*) => {$(
        impl Handle for $handle {
            fn from_number(number: u64) -> Self {
                Self(std::ptr::without_provenance_mut((FIRST + number * DISTANCE) as usize))
            }

            fn number(self) -> u64 {
                self.0.addr() as u64
            }
        }
    )*};
}

handles!(
    CUcontext,
    CUmodule,
    CUfunction,
    CUstream,
    CUevent,
    CUgraph,
    CUgraphNode,
    CUgraphExec,
    CUuserObject,
    CUlibrary,
    CUkernel,
    CUlinkState,
    CUmemoryPool,
    CUarray
);

/// Objects by handle. Handles are never reused, so use after destruction is detected; on hardware
/// it may hit another object.
pub(crate) struct Table<H, T> {
    objects: BTreeMap<u64, T>,
    handle: PhantomData<fn(H)>,
}

impl<H, T> Default for Table<H, T> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), handle: PhantomData }
    }
}

impl<H: Handle, T> Table<H, T> {
    pub(crate) fn insert(&mut self, handle: H, object: T) {
        self.objects.insert(handle.number(), object);
    }

    pub(crate) fn get(&self, handle: H) -> Result<&T, Refusal> {
        self.objects.get(&handle.number()).ok_or(UNKNOWN)
    }

    pub(crate) fn get_mut(&mut self, handle: H) -> Result<&mut T, Refusal> {
        self.objects.get_mut(&handle.number()).ok_or(UNKNOWN)
    }

    pub(crate) fn remove(&mut self, handle: H) -> Result<T, Refusal> {
        self.objects.remove(&handle.number()).ok_or(UNKNOWN)
    }

    pub(crate) fn contains(&self, handle: H) -> bool {
        self.objects.contains_key(&handle.number())
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.objects.retain(|_, object| keep(object));
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.objects.values()
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.objects.values_mut()
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_not_special_values_and_round_trip() {
        let stream = CUstream::from_number(1);
        assert!(!stream.is_legacy() && stream != CUstream::PER_THREAD);
        let mut table = Table::default();
        table.insert(stream, "object");
        assert_eq!(table.get(stream), Ok(&"object"));
        assert_eq!(table.remove(stream), Ok("object"));
        let code = table.get(stream).map_err(|refusal| refusal.code);
        assert_eq!(code, Err(CUresult::CUDA_ERROR_INVALID_HANDLE));
    }
}
