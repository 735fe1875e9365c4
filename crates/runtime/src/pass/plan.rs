//! The memory plan: the offsets of transients in one arena, some of which share bytes.
//!
//! Sharing memory adds dependencies: if a buffer reuses the bytes of an earlier one, its first
//! write must wait for the last use of the earlier one, even if the two are otherwise independent.
//! Such edges prevent concurrency. [`Reuse`] selects the trade-off:
//!
//! - [`Reuse::WhenOrdered`] shares bytes only if every use of the earlier buffer already precedes
//!   every use of the later one. It adds no edges but needs more memory: in a transformer's
//!   backward pass, mostly for the inputs of weight-gradient products, which no operation waits
//!   for until clipping.
//! - [`Reuse::Full`] shares bytes wherever the sequential order allows it. It needs the least
//!   memory, but serializes parallel branches.
//!
//! [`Reuse::WhenOrdered`] is the default. A program falls back to [`Reuse::Full`] if the device
//! memory is too small, and its report says so.

use super::Pass;
use super::access::BufferAccess;
use super::ancestors::Ancestors;
use super::buffer::BufferId;
use super::lifetime::{Lifetime, largest_live_sum, lifetimes};
use super::location::{Location, Space};
use super::operation::Operation;

/// Which transients may share bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reuse {
    /// Transients whose uses are already ordered by edges, so no edge is added.
    #[default]
    WhenOrdered,
    /// Transients whose uses do not interleave in sequential order.
    Full,
    /// No transients, to inspect every buffer after a step.
    Never,
}

impl std::fmt::Display for Reuse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::WhenOrdered => "where the edges already order it",
            Self::Full => "wherever the order of the list allows it",
            Self::Never => "nowhere",
        })
    }
}

/// The offsets of all transients of a pass in one arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    reuse: Reuse,
    peak_bytes: usize,
    live_bytes: usize,
    unshared_bytes: usize,
    offsets: Vec<Option<usize>>,
}

impl MemoryPlan {
    pub(super) fn new(pass: &Pass, reuse: Reuse) -> Self {
        let lifetimes = lifetimes(pass);
        let ordered = (reuse == Reuse::WhenOrdered).then(|| Order::new(pass, &lifetimes));
        let conflict = |one: usize, other: usize| match reuse {
            Reuse::Never => true,
            Reuse::Full => lifetimes[one].overlaps(&lifetimes[other]),
            Reuse::WhenOrdered => !ordered.as_ref().is_some_and(|order| order.of(one, other)),
        };
        let (packed, peak_bytes) = pack_best(&lifetimes, conflict);
        let mut offsets = vec![None; pass.buffers.len()];
        for (lifetime, offset) in lifetimes.iter().zip(packed) {
            offsets[lifetime.buffer] = Some(offset);
        }
        Self {
            reuse,
            peak_bytes,
            live_bytes: largest_live_sum(&lifetimes, pass.operations.len()),
            unshared_bytes: lifetimes.iter().map(|lifetime| lifetime.bytes).sum(),
            offsets,
        }
    }

    /// Which transients may share bytes.
    pub fn reuse(&self) -> Reuse {
        self.reuse
    }

    /// The size of the arena.
    pub fn peak_bytes(&self) -> usize {
        self.peak_bytes
    }

    /// The largest sum of transients that are alive at once in sequential order: a lower bound for
    /// any plan.
    pub fn live_bytes(&self) -> usize {
        self.live_bytes
    }

    /// The sum of all transients without sharing.
    pub fn unshared_bytes(&self) -> usize {
        self.unshared_bytes
    }

    /// The offset of `buffer` in the arena, or `None` if it is not a transient or unused.
    pub fn offset(&self, buffer: BufferId) -> Option<usize> {
        self.offsets.get(buffer.index()).copied().flatten()
    }

    pub(crate) fn location(&self, range: &BufferAccess) -> Location {
        match self.offset(range.buffer) {
            None => Location::unshared(range),
            Some(at) => Location {
                space: Space::Arena,
                bytes: at + range.bytes.start..at + range.bytes.end,
            },
        }
    }
}

/// The order of lifetimes by the edges of the pass without sharing.
struct Order(Vec<Ends>);

/// The uses of a lifetime that decide its order with others.
struct Ends {
    first: usize,
    last: usize,
    /// Operations that come before every use, as a bit set.
    before: Vec<u64>,
    /// Uses that precede no other use: when these have finished, all have.
    final_uses: Vec<usize>,
}

impl Order {
    fn new(pass: &Pass, lifetimes: &[Lifetime]) -> Self {
        let accesses = pass.operations.iter().map(Operation::accesses);
        let (_, ancestors) = super::infer(pass.id, accesses, Location::unshared);
        Self(lifetimes.iter().map(|lifetime| Ends::new(lifetime, &ancestors)).collect())
    }

    /// Whether one of the two ends before the other begins.
    fn of(&self, one: usize, other: usize) -> bool {
        let (one, other) = (&self.0[one], &self.0[other]);
        let (former, latter) = if one.last < other.first { (one, other) } else { (other, one) };
        former.last < latter.first
            && former.final_uses.iter().all(|&at| latter.before[at / 64] >> (at % 64) & 1 == 1)
    }
}

impl Ends {
    fn new(lifetime: &Lifetime, ancestors: &Ancestors) -> Self {
        let mut before = ancestors.row(lifetime.first()).to_vec();
        for &at in &lifetime.uses[1..] {
            let row = ancestors.row(at).iter();
            before.iter_mut().zip(row).for_each(|(before, row)| *before &= row);
        }
        let uses = lifetime.uses.iter().enumerate();
        let final_uses = uses.filter(|&(position, &at)| {
            let later = &lifetime.uses[position + 1..];
            !later.iter().any(|&later| ancestors.contains(later, at))
        });
        Self {
            first: lifetime.first(),
            last: lifetime.last(),
            before,
            final_uses: final_uses.map(|(_, &at)| at).collect(),
        }
    }
}

/// For each lifetime, those that it cannot share bytes with, as a bit set.
struct Conflicts {
    words: usize,
    bits: Vec<u64>,
}

impl Conflicts {
    /// Asks `conflict` once for each pair.
    fn new(count: usize, conflict: impl Fn(usize, usize) -> bool) -> Self {
        let words = count.div_ceil(64);
        let mut bits = vec![0; words * count];
        for one in 0..count {
            for other in 0..one {
                if conflict(one, other) {
                    bits[one * words + other / 64] |= 1 << (other % 64);
                    bits[other * words + one / 64] |= 1 << (one % 64);
                }
            }
        }
        Self { words, bits }
    }

    /// Those that conflict with `at`.
    fn of(&self, at: usize) -> &[u64] {
        &self.bits[at * self.words..][..self.words]
    }
}

/// A lifetime with its bytes in the arena.
struct Placed {
    lifetime: usize,
    start: usize,
    end: usize,
}

/// Returns offsets and size of the better of two placement orders. Largest first is almost always
/// better; the order of first use is better for some chains.
fn pack_best(
    lifetimes: &[Lifetime],
    conflict: impl Fn(usize, usize) -> bool,
) -> (Vec<usize>, usize) {
    let conflicts = Conflicts::new(lifetimes.len(), conflict);
    let mut by_size: Vec<usize> = (0..lifetimes.len()).collect();
    by_size.sort_by_key(|&at| (std::cmp::Reverse(lifetimes[at].bytes), lifetimes[at].first()));
    let mut by_use = by_size.clone();
    by_use.sort_by_key(|&at| lifetimes[at].first());
    let packed = [by_size, by_use].map(|order| pack(lifetimes, &order, &conflicts));
    packed.into_iter().min_by_key(|(_, peak)| *peak).expect("two orders are tried")
}

/// Places buffers in `order`, each in the tightest gap between the buffers that it conflicts with.
fn pack(lifetimes: &[Lifetime], order: &[usize], conflicts: &Conflicts) -> (Vec<usize>, usize) {
    let mut offsets = vec![0; lifetimes.len()];
    let mut placed: Vec<Placed> = Vec::new();
    let mut peak = 0;
    for &at in order {
        let bytes = lifetimes[at].bytes;
        let start = tightest_gap(&placed, conflicts.of(at), bytes);
        offsets[at] = start;
        peak = peak.max(start + bytes);
        let position = placed.partition_point(|other| other.start <= start);
        placed.insert(position, Placed { lifetime: at, start, end: start + bytes });
    }
    (offsets, peak)
}

/// The start of the smallest gap of at least `bytes` between the conflicting lifetimes, or their
/// end. `placed` is sorted by start; `conflicts` is a bit set of lifetimes.
fn tightest_gap(placed: &[Placed], conflicts: &[u64], bytes: usize) -> usize {
    let mut best: Option<(usize, usize)> = None;
    let mut end = 0;
    for &Placed { lifetime, start, end: stop } in placed {
        if conflicts[lifetime / 64] >> (lifetime % 64) & 1 == 0 {
            continue;
        }
        if start >= end + bytes && best.is_none_or(|(size, _)| start - end < size) {
            best = Some((start - end, end));
        }
        end = end.max(stop);
    }
    best.map_or(end, |(_, at)| at)
}
