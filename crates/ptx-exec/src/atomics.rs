//! `atom` and `red`.
//!
//! Lanes execute in ascending order, and a launch with atomics on global memory runs its blocks one
//! after another, so results are reproducible. Hardware leaves the order open.

use retrograph_ptx::ast::StateSpace;

use super::access::{LaneFault, Memories, is_shared_address, read_element};
use super::float::{canonical, d, f, flush, result64};
use super::program::{Atomic, AtomicOperation};
use super::races::AccessKind;
use super::registers::{ActiveLanes, Offset};
use super::words::addresses;

impl AtomicOperation {
    /// Computes the new value from the old value and the operands.
    fn apply(self, old: u64, b: u64, c: u64) -> u64 {
        match self {
            Self::Function(function) => function.apply([old, b, 0]),
            Self::AddF32 => u64::from(canonical(f(old as u32) + f(b as u32))),
            // A NaN operand is the result, unchanged.
            Self::AddF64 if d(b).is_nan() => b,
            Self::AddF64 => result64(d(old) + d(b), &[old]),
            Self::Exchange => b,
            Self::CompareAndSwap => {
                if old == b {
                    c
                } else {
                    old
                }
            }
            Self::Increment => {
                if old >= b {
                    0
                } else {
                    old + 1
                }
            }
            Self::Decrement => {
                if old == 0 || old > b {
                    b
                } else {
                    old - 1
                }
            }
        }
    }
}

/// Whether subnormals are flushed: in additions of `f32` outside shared memory.
fn flushes(atomic: &Atomic, address: u64) -> bool {
    let is_shared = match atomic.access.space {
        Some(space) => space == StateSpace::Shared,
        None => is_shared_address(address),
    };
    matches!(atomic.operation, AtomicOperation::AddF32) && !is_shared
}

fn flushed(bits: u64) -> u64 {
    u64::from(flush(bits as u32))
}

/// The registers of an atomic.
#[derive(Clone, Copy)]
pub(super) struct Operands {
    pub(super) d: Offset,
    pub(super) address: Offset,
    pub(super) b: Offset,
    pub(super) c: Offset,
}

/// Executes the atomic in the active lanes.
///
/// # Safety
///
/// Operands and atomic must come from decoding the same instruction, and no other thread may run a
/// kernel on the same bytes.
#[inline(never)]
pub(super) unsafe fn execute(
    memories: &mut Memories<'_>,
    lanes: ActiveLanes,
    operands: Operands,
    atomic: &Atomic,
) -> Result<(), LaneFault> {
    let Operands { d, address, b, c } = operands;
    let access = &atomic.access;
    let bytes = access.bytes as usize;
    // SAFETY: the registers come from decoding; `resolve` proved the bytes.
    unsafe {
        let all = addresses::<u64>(lanes, address, access);
        for lane in lanes.iter() {
            let at = memories.resolve(access, lane, all[lane]);
            let at = at.map_err(|kind| (kind, lane as u32))?;
            let seen = memories.watch(access, lane, all[lane], access.bytes, AccessKind::Atomic);
            seen.map_err(|kind| (kind, lane as u32))?;
            let old = read_element(at, bytes, false);
            // A register may be wider than the operand type.
            let used = u64::MAX >> (64 - 8 * bytes);
            let b = lanes.file.lane(b, access.value, lane) & used;
            let c = lanes.file.lane(c, access.value, lane) & used;
            let new = if flushes(atomic, all[lane]) {
                let sum = atomic.operation.apply(flushed(old), flushed(b), c);
                flushed(sum).to_le_bytes()
            } else {
                atomic.operation.apply(old, b, c).to_le_bytes()
            };
            if read_element(new.as_ptr(), bytes, false) != old {
                memories.has_changed_global.set(true);
            }
            std::ptr::copy_nonoverlapping(new.as_ptr(), at, bytes);
            lanes.file.set_lane(d, access.value, lane, old);
        }
    }
    Ok(())
}
