//! Lifetimes of transients: from the first to the last operation that uses them.

use super::Pass;
use super::buffer::{ALIGNMENT, BufferKind};

/// A transient, with the operations that use it in order.
pub(super) struct Lifetime {
    pub(super) buffer: usize,
    pub(super) bytes: usize,
    pub(super) uses: Vec<usize>,
}

impl Lifetime {
    pub(super) fn first(&self) -> usize {
        self.uses[0]
    }

    pub(super) fn last(&self) -> usize {
        self.uses[self.uses.len() - 1]
    }

    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.first() <= other.last() && other.first() <= self.last()
    }
}

/// The lifetimes of all used transients.
pub(super) fn lifetimes(pass: &Pass) -> Vec<Lifetime> {
    let mut uses = vec![Vec::new(); pass.buffers.len()];
    for (at, operation) in pass.operations.iter().enumerate() {
        for range in &operation.accesses {
            let uses = &mut uses[range.buffer.index()];
            if uses.last() != Some(&at) {
                uses.push(at);
            }
        }
    }
    let used = pass.buffers.iter().zip(uses).enumerate();
    used.filter(|(_, (buffer, uses))| buffer.kind == BufferKind::Transient && !uses.is_empty())
        .map(|(index, (buffer, uses))| Lifetime {
            buffer: index,
            bytes: buffer.bytes().next_multiple_of(ALIGNMENT),
            uses,
        })
        .collect()
}

pub(super) fn largest_live_sum(lifetimes: &[Lifetime], operations: usize) -> usize {
    let mut change = vec![0isize; operations + 1];
    for lifetime in lifetimes {
        change[lifetime.first()] += lifetime.bytes as isize;
        change[lifetime.last() + 1] -= lifetime.bytes as isize;
    }
    let mut live = 0;
    let sums = change.into_iter().map(|change| {
        live += change;
        live
    });
    sums.max().map_or(0, |most| most as usize)
}
