//! The layout of a picture: nodes from left to right by earliest start, in lanes without overlap.

/// The positions of nodes with given lengths.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layout {
    /// The earliest start of each node: the end of its last dependency.
    pub(super) starts: Vec<f32>,
    /// The lane of each node.
    pub(super) lanes: Vec<usize>,
    /// Number of lanes.
    pub(super) lane_count: usize,
    /// The end of the last node.
    pub(super) length: f32,
    /// The nodes of one critical path, in order: no schedule can be shorter.
    pub(super) critical: Vec<usize>,
}

impl Layout {
    /// Places nodes of `lengths`. Every edge leads from a node to a later one.
    pub(super) fn new(lengths: &[f32], edges: &[(usize, usize)]) -> Self {
        let mut incoming = vec![Vec::new(); lengths.len()];
        edges.iter().for_each(|&(from, to)| incoming[to].push(from));
        let mut starts = vec![0.0f32; lengths.len()];
        for at in 0..lengths.len() {
            let ends = incoming[at].iter().map(|&from| starts[from] + lengths[from]);
            starts[at] = ends.fold(0.0, f32::max);
        }
        let ends: Vec<f32> = starts.iter().zip(lengths).map(|(start, len)| start + len).collect();
        let critical = critical(&ends, &incoming);
        let (lanes, lane_count) = lanes(&starts, &ends, &incoming, &critical);
        let length = ends.iter().copied().fold(0.0, f32::max);
        Self { starts, lanes, lane_count, length, critical }
    }
}

/// The critical path; of several, the one of `Edges::longest_path`.
fn critical(ends: &[f32], incoming: &[Vec<usize>]) -> Vec<usize> {
    let last = |one: &usize, other: &usize| ends[*one].total_cmp(&ends[*other]);
    let mut path: Vec<usize> = (0..ends.len()).rev().max_by(last).into_iter().collect();
    while let Some(&before) =
        path.last().and_then(|&at| incoming[at].iter().max_by(|a, b| last(a, b)))
    {
        path.push(before);
    }
    path.reverse();
    path
}

/// The critical path has the first lane. Every other node, in the order of starts, gets the
/// lane of its predecessor if that is free, so that chains are straight, else the first
/// free one.
fn lanes(
    starts: &[f32],
    ends: &[f32],
    incoming: &[Vec<usize>],
    critical: &[usize],
) -> (Vec<usize>, usize) {
    let mut lanes = vec![None; starts.len()];
    critical.iter().for_each(|&at| lanes[at] = Some(0));
    let mut order: Vec<usize> = (0..starts.len()).filter(|&at| lanes[at].is_none()).collect();
    order.sort_by(|&one, &other| starts[one].total_cmp(&starts[other]));
    let mut free_from = vec![f32::INFINITY; usize::from(!critical.is_empty())];
    for at in order {
        let is_free = |lane: &usize| free_from[*lane] <= starts[at];
        let reused = incoming[at].iter().filter_map(|&from| lanes[from]).find(is_free);
        let lane = reused.or_else(|| (0..free_from.len()).find(is_free));
        let lane = lane.unwrap_or(free_from.len());
        if lane == free_from.len() {
            free_from.push(0.0);
        }
        free_from[lane] = ends[at];
        lanes[at] = Some(lane);
    }
    (lanes.into_iter().map(Option::unwrap_or_default).collect(), free_from.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_heavier_branch_is_critical() {
        // 0 forks into 1 (short) and 2 (long), which join in 3.
        let layout = Layout::new(&[1.0, 2.0, 5.0, 1.0], &[(0, 1), (0, 2), (1, 3), (2, 3)]);
        assert_eq!(layout.starts, [0.0, 1.0, 1.0, 6.0]);
        assert_eq!((layout.length, layout.critical), (7.0, vec![0, 2, 3]));
        assert_eq!((layout.lanes, layout.lane_count), (vec![0, 1, 0, 0], 2));
        let nothing = Layout::new(&[], &[]);
        assert_eq!((nothing.length, nothing.lane_count), (0.0, 0));
    }

    proptest! {
        #[test]
        fn nodes_wait_and_lanes_never_overlap(
            lengths in prop::collection::vec(0u8..6, 1..40),
            pairs in prop::collection::vec((0usize..40, 0usize..40), 0..80),
        ) {
            let lengths: Vec<f32> = lengths.into_iter().map(f32::from).collect();
            let nodes = lengths.len();
            let edges: Vec<(usize, usize)> =
                pairs.into_iter().filter(|&(from, to)| from < to && to < nodes).collect();
            let layout = Layout::new(&lengths, &edges);
            let span = |at: usize| (layout.starts[at], layout.starts[at] + lengths[at]);
            for &(from, to) in &edges {
                prop_assert!(span(from).1 <= span(to).0);
            }
            for one in 0..nodes {
                for other in 0..one {
                    let (a, b) = (span(one), span(other));
                    let apart = a.1 <= b.0 || b.1 <= a.0;
                    prop_assert!(layout.lanes[one] != layout.lanes[other] || apart);
                }
            }
            let along: f32 = layout.critical.iter().map(|&at| lengths[at]).sum();
            prop_assert_eq!(along, layout.length);
            let mut steps = layout.critical.windows(2);
            prop_assert!(steps.all(|pair| edges.contains(&(pair[0], pair[1]))));
        }
    }
}
