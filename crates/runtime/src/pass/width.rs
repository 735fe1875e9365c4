//! Edges beyond data dependencies: a chain, and a limit of concurrency.

use super::ancestors::Ancestors;
use super::edges::{Edge, Edges, Hazard, reduced};
use super::operation::OpId;

impl Edges {
    /// Each of `operations` operations waits for the one before it.
    pub fn chain(operations: usize) -> Self {
        let mut edges = Self { incoming: Vec::new(), levels: Vec::new() };
        for at in 0..operations as u32 {
            let before = at.checked_sub(1).map(|from| width_edge(from as usize, at as usize));
            edges.push(before.into_iter().collect());
        }
        edges
    }

    /// These edges, and additional ones so that at most `width` operations (at least one) run
    /// concurrently. Operations are assigned to `width` lanes, and each waits for its predecessor
    /// in the lane. An operation prefers a lane that ends with one of its dependencies, then an
    /// unused lane, then the lane whose last operation has the lowest level.
    pub fn limited_to(&self, width: usize) -> Self {
        let mut ancestors = Ancestors::new(self.incoming.len());
        let mut limited = Self { incoming: Vec::new(), levels: Vec::new() };
        let mut lanes: Vec<usize> = Vec::new();
        for (at, incoming) in self.incoming.iter().enumerate() {
            let waits_for = |last: usize| {
                incoming.iter().any(|edge| {
                    let from = edge.from.index();
                    from == last || ancestors.contains(from, last)
                })
            };
            let depth = |lane: &usize| limited.levels[lanes[*lane]];
            let dependent =
                (0..lanes.len()).filter(|&lane| waits_for(lanes[lane])).max_by_key(depth);
            let shallowest = (0..lanes.len()).min_by_key(depth);
            let mut found = incoming.clone();
            match dependent.or(shallowest.filter(|_| lanes.len() >= width)) {
                Some(lane) => {
                    if dependent.is_none() {
                        found.push(width_edge(lanes[lane], at));
                    }
                    lanes[lane] = at;
                }
                None => lanes.push(at),
            }
            limited.push(reduced(&mut found, &mut ancestors));
        }
        limited
    }
}

fn width_edge(from: usize, to: usize) -> Edge {
    Edge { from: OpId(from as u32), to: OpId(to as u32), hazard: Hazard::Width }
}
