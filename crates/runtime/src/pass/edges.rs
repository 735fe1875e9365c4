//! Dependencies between operations, inferred from the bytes that they access.
//!
//! Operations are visited in order. For every range of bytes, the last writer and all readers since
//! then are tracked; a reader waits for the writer, a writer for both. Edges that other edges imply
//! are omitted (transitive reduction), since every edge costs instantiation and launch time.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::access::BufferAccess;
use super::ancestors::Ancestors;
use super::buffer::PassId;
use super::location::{Location, Space};
use super::operation::OpId;

/// Why one operation waits for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hazard {
    /// Read after write.
    ReadAfterWrite,
    /// Write after read.
    WriteAfterRead,
    /// Write after write.
    WriteAfterWrite,
}

/// One operation waits for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The operation that comes first.
    pub from: OpId,
    /// The operation that waits.
    pub to: OpId,
    /// Why.
    pub hazard: Hazard,
}

/// The edges of a pass, transitively reduced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edges {
    pass: PassId,
    incoming: Vec<Vec<Edge>>,
    /// The level of each operation: the length of the longest path that ends there.
    levels: Vec<u32>,
}

impl Edges {
    /// Number of operations.
    pub fn operations(&self) -> usize {
        self.levels.len()
    }

    /// The operation at a position.
    ///
    /// # Panics
    /// If there is none.
    pub fn operation(&self, at: usize) -> OpId {
        assert!(at < self.operations(), "there is no operation {at}");
        OpId::new(self.pass, at)
    }

    /// Number of edges.
    pub fn len(&self) -> usize {
        self.incoming.iter().map(Vec::len).sum()
    }

    /// Whether no operation waits for another.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The edges that end at `operation`.
    ///
    /// # Panics
    /// If the operation belongs to another pass.
    pub fn into_operation(&self, operation: OpId) -> &[Edge] {
        assert_eq!(operation.pass, self.pass, "operation {operation} belongs to another pass");
        &self.incoming[operation.index()]
    }

    /// Every edge, ordered by the operation at which it ends.
    pub fn iter(&self) -> impl Iterator<Item = &Edge> {
        self.incoming.iter().flatten()
    }

    /// Number of operations on the longest path; 0 for a pass without operations.
    pub fn depth(&self) -> usize {
        self.levels.iter().max().map_or(0, |&level| level as usize)
    }

    /// All operations level by level, a topological order. Within a level, those with the longest
    /// path to the end come first.
    pub(crate) fn by_level(&self) -> Vec<OpId> {
        let remaining = self.remaining();
        let all = 0..self.operations();
        let mut order: Vec<OpId> = all.map(|at| OpId::new(self.pass, at)).collect();
        let reverse = std::cmp::Reverse;
        order.sort_by_key(|at| {
            (self.levels[at.index()], reverse(remaining[at.index()]), at.index())
        });
        order
    }

    /// The slack of each operation: how many levels later it could run without lengthening the
    /// longest path.
    pub(crate) fn slack(&self) -> Vec<u32> {
        let depth = self.depth() as u32;
        let pairs = self.levels.iter().zip(self.remaining());
        pairs.map(|(level, remaining)| depth - level - remaining).collect()
    }

    /// The number of operations on the longest path after each one.
    fn remaining(&self) -> Vec<u32> {
        let mut remaining = vec![0_u32; self.operations()];
        for edge in self.incoming.iter().rev().flatten() {
            let (from, to) = (edge.from.index(), edge.to.index());
            remaining[from] = remaining[from].max(remaining[to] + 1);
        }
        remaining
    }

    /// Appends an operation with the edges that end at it.
    fn push(&mut self, incoming: Vec<Edge>) {
        let below = incoming.iter().map(|edge| self.levels[edge.from.index()]).max();
        self.levels.push(below.unwrap_or(0) + 1);
        self.incoming.push(incoming);
    }

    /// The operations of one longest path, in order.
    pub fn longest_path(&self) -> Vec<OpId> {
        let end = (0..self.levels.len()).max_by_key(|&at| (self.levels[at], usize::MAX - at));
        let mut path: Vec<OpId> = end.map(|at| OpId::new(self.pass, at)).into_iter().collect();
        while let Some(&last) = path.last() {
            let edges = self.into_operation(last);
            match edges.iter().max_by_key(|edge| self.levels[edge.from.index()]) {
                Some(edge) => path.push(edge.from),
                None => break,
            }
        }
        path.reverse();
        path
    }
}

/// Infers the edges between operations of `pass` with these accesses, located by `location`, and
/// the ancestor relation.
pub(crate) fn infer<'a, O>(
    pass: PassId,
    operations: O,
    location: impl Fn(&BufferAccess) -> Location,
) -> (Edges, Ancestors)
where
    O: ExactSizeIterator<Item = &'a [BufferAccess]>,
{
    let mut ancestors = Ancestors::new(operations.len());
    let mut edges = Edges { pass, incoming: Vec::new(), levels: Vec::new() };
    let mut spaces: HashMap<Space, Segments> = HashMap::new();
    let mut found = Vec::new();
    for (at, accesses) in operations.enumerate() {
        let id = OpId::new(pass, at);
        for range in accesses {
            let location = location(range);
            let segments = spaces.entry(location.space).or_default();
            segments.waits(location.bytes, range.access.writes(), &mut |from, hazard| {
                found.push(Edge { from, to: id, hazard });
            });
        }
        for range in accesses {
            let location = location(range);
            let segments = spaces.entry(location.space).or_default();
            segments.note_access(location.bytes, range.access.writes(), id);
        }
        edges.push(reduced(&mut found, &mut ancestors));
    }
    (edges, ancestors)
}

/// Keeps the edges of `found` that no other edges imply. Visits later parents first: a parent that
/// is an ancestor of another parent has a lower number.
fn reduced(found: &mut Vec<Edge>, ancestors: &mut Ancestors) -> Vec<Edge> {
    found.sort_by_key(|edge| (std::cmp::Reverse(edge.from), edge.hazard as u8));
    found.dedup_by_key(|edge| edge.from);
    let mut kept = Vec::new();
    for edge in found.drain(..) {
        let (from, to) = (edge.from.index(), edge.to.index());
        if !ancestors.contains(to, from) {
            ancestors.add(from, to);
            kept.push(edge);
        }
    }
    kept.reverse();
    kept
}

/// The last writer of a range of bytes, and the readers since.
#[derive(Clone, Debug)]
struct Segment {
    end: usize,
    writer: Option<OpId>,
    readers: Vec<OpId>,
}

/// Accessed ranges of one space, by start.
#[derive(Default)]
struct Segments {
    by_start: BTreeMap<usize, Segment>,
}

impl Segments {
    /// Reports the operations that an access to `bytes` waits for.
    fn waits(&self, bytes: Range<usize>, writes: bool, report: &mut impl FnMut(OpId, Hazard)) {
        let before = self.by_start.range(..=bytes.start).next_back();
        let first = before.map_or(bytes.start, |(&start, _)| start);
        for (_, segment) in self.by_start.range(first..bytes.end.max(first)) {
            if segment.end <= bytes.start {
                continue;
            }
            if writes {
                segment.readers.iter().for_each(|&at| report(at, Hazard::WriteAfterRead));
            }
            let hazard = if writes { Hazard::WriteAfterWrite } else { Hazard::ReadAfterWrite };
            segment.writer.into_iter().for_each(|at| report(at, hazard));
        }
    }

    /// Records that `by` accessed `bytes`.
    fn note_access(&mut self, bytes: Range<usize>, writes: bool, by: OpId) {
        self.split(bytes.start);
        self.split(bytes.end);
        if writes {
            let held: Vec<usize> = self.by_start.range(bytes.clone()).map(|(&at, _)| at).collect();
            held.iter().for_each(|at| drop(self.by_start.remove(at)));
            let segment = Segment { end: bytes.end, writer: Some(by), readers: Vec::new() };
            self.by_start.insert(bytes.start, segment);
        } else {
            self.read(bytes, by);
        }
    }

    fn read(&mut self, bytes: Range<usize>, by: OpId) {
        let mut gaps = Vec::new();
        let mut start = bytes.start;
        for (&at, segment) in self.by_start.range_mut(bytes.clone()) {
            if at > start {
                gaps.push(start..at);
            }
            if segment.writer != Some(by) && segment.readers.last() != Some(&by) {
                segment.readers.push(by);
            }
            start = segment.end;
        }
        if start < bytes.end {
            gaps.push(start..bytes.end);
        }
        for gap in gaps {
            let segment = Segment { end: gap.end, writer: None, readers: vec![by] };
            self.by_start.insert(gap.start, segment);
        }
    }

    /// Splits the segment that spans `at`.
    fn split(&mut self, at: usize) {
        let Some((_, segment)) = self.by_start.range_mut(..at).next_back() else { return };
        if segment.end > at {
            let tail = segment.clone();
            segment.end = at;
            self.by_start.insert(at, tail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(pairs: &[(u32, u32)], operations: u32) -> Edges {
        let pass = PassId::fresh();
        let mut edges = Edges { pass, incoming: Vec::new(), levels: Vec::new() };
        for to in 0..operations {
            let into = pairs.iter().filter(|pair| pair.1 == to);
            let edge = |pair: &(u32, u32)| Edge {
                from: OpId::new(pass, pair.0 as usize),
                to: OpId::new(pass, to as usize),
                hazard: Hazard::ReadAfterWrite,
            };
            edges.push(into.map(edge).collect());
        }
        edges
    }

    #[test]
    fn levels_come_in_order_and_in_each_the_longest_path_first() {
        // Two branches after operation 0: 1, and 2, 3, 4; both end in 5.
        let edges = edges(&[(0, 1), (0, 2), (2, 3), (3, 4), (1, 5), (4, 5)], 6);
        let order: Vec<_> = edges.by_level().into_iter().map(OpId::index).collect();
        assert_eq!(order, [0, 2, 1, 3, 4, 5]);
    }

    #[test]
    fn slack_is_measured_against_the_longest_path() {
        let edges = edges(&[(0, 1), (0, 2), (2, 3), (3, 4), (1, 5), (4, 5)], 7);
        assert_eq!(edges.slack(), [0, 2, 0, 0, 0, 0, 4]);
    }
}
