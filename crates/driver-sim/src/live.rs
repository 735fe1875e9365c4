//! Counts of live objects.

use std::fmt;

/// Counts of the objects that a program created and has not destroyed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveObjects {
    /// References to primary contexts, and contexts that were created.
    pub contexts: usize,
    /// Device and managed allocations, and arrays. Global variables of modules do not count.
    pub allocations: usize,
    /// Bytes of these allocations.
    pub allocated_bytes: u64,
    /// Allocated or registered ranges of host memory.
    pub pinned: usize,
    /// Streams.
    pub streams: usize,
    /// Events.
    pub events: usize,
    /// Modules.
    pub modules: usize,
    /// Graph templates.
    pub graphs: usize,
    /// Instantiated graphs.
    pub graph_execs: usize,
    /// Open captures.
    pub captures: usize,
}

impl LiveObjects {
    /// Whether no object exists.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for LiveObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.contexts, "context references"),
            (self.allocations, "allocations"),
            (self.pinned, "pinned allocations"),
            (self.streams, "streams"),
            (self.events, "events"),
            (self.modules, "modules"),
            (self.graphs, "graphs"),
            (self.graph_execs, "instantiated graphs"),
            (self.captures, "open captures"),
        ];
        let present = counts.iter().filter(|(count, _)| *count > 0);
        let texts: Vec<_> = present.map(|(count, name)| format!("{count} {name}")).collect();
        match texts.as_slice() {
            [] => f.write_str("nothing is live"),
            some => {
                write!(f, "{} ({} bytes of device memory)", some.join(", "), self.allocated_bytes)
            }
        }
    }
}
