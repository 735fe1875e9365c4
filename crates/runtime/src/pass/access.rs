//! The byte ranges that an operation accesses.

use retrograph_kernel_abi::{Access, BufferArgument};

use super::buffer::BufferId;

/// A range of bytes of a buffer, and how an operation accesses it.
pub type BufferAccess = BufferArgument<BufferId>;

/// Merges adjacent and overlapping ranges of the same buffer and access. Lists of tensors declare
/// one range per chunk, which analyses do not need.
pub(crate) fn joined(mut accesses: Vec<BufferAccess>) -> Vec<BufferAccess> {
    accesses.sort_by_key(|range| (range.buffer, access_rank(range.access), range.bytes.start));
    accesses.dedup_by(|next, kept| {
        let same = kept.buffer == next.buffer && kept.access == next.access;
        let adjacent = same && next.bytes.start <= kept.bytes.end;
        if adjacent {
            kept.bytes.end = kept.bytes.end.max(next.bytes.end);
        }
        adjacent
    });
    accesses
}

fn access_rank(access: Access) -> u8 {
    match access {
        Access::Read => 0,
        Access::Write => 1,
        Access::ReadWrite => 2,
        Access::ReadBeforeWait => 3,
    }
}
