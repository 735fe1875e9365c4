//! A graph with an event record between groups of its nodes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::error::Result;
use crate::event::Event;
use crate::graph::{Graph, GraphExec, Node};
use crate::stream::Stream;

/// Number of back-to-back records before the first group; their distance is the cost of a record.
const IDLE: usize = 8;

/// An instantiated graph with event records between groups of nodes.
pub struct Timed {
    exec: GraphExec,
    /// The back-to-back records, then one after each group.
    marks: Vec<Arc<Event>>,
}

/// Milliseconds of one launch.
struct Laps {
    /// Between back-to-back records.
    idle: Vec<f32>,
    /// Of each group, from the record before it to the record after it.
    groups: Vec<f32>,
}

impl Timed {
    /// Adds a record before each group of `graph` and after the last, and instantiates the graph. A
    /// group starts when the previous one has ended; edges within a group stay as they are. Every
    /// node must be in one group, and no edge may lead to an earlier group; otherwise instantiation
    /// fails because of the cycle.
    ///
    /// # Errors
    /// If a node belongs to another graph, the groups form a cycle, or the driver fails.
    pub fn new(mut graph: Graph, groups: &[Vec<Node>]) -> Result<Self> {
        let inner = cut(&mut graph, groups)?;
        let mut marks = Vec::with_capacity(IDLE + groups.len());
        let mut record = |graph: &mut Graph, after: &[Node]| {
            let event = Arc::new(Event::new(graph.context())?);
            marks.push(Arc::clone(&event));
            graph.add_event_record(&event, after)
        };
        let mut mark = record(&mut graph, &[])?;
        for _ in 1..IDLE {
            mark = record(&mut graph, &[mark])?;
        }
        for group in groups {
            let firsts = group.iter().filter(|node| !inner.waiting.contains(node));
            firsts.into_iter().try_for_each(|node| graph.add_edge(mark, *node))?;
            let lasts = group.iter().filter(|node| !inner.awaited.contains(node)).copied();
            let lasts: Vec<Node> = lasts.collect();
            mark = record(
                &mut graph,
                if lasts.is_empty() { std::slice::from_ref(&mark) } else { &lasts },
            )?;
        }
        Ok(Self { exec: graph.instantiate()?, marks })
    }

    /// Launches the graph `replays` times after a warm-up launch. Returns the median milliseconds
    /// between back-to-back records, and of each group.
    ///
    /// # Errors
    /// As [`GraphExec::launch`].
    pub fn measure(&mut self, stream: &Stream, replays: usize) -> Result<(f32, Vec<f32>)> {
        self.launch(stream)?;
        let (mut idle, mut groups) = (Vec::new(), Vec::new());
        for _ in 0..replays {
            let laps = self.launch(stream)?;
            idle.extend(laps.idle);
            groups.push(laps.groups);
        }
        Ok((median(idle), medians(&groups)))
    }

    /// Launches the graph once and waits for it.
    fn launch(&mut self, stream: &Stream) -> Result<Laps> {
        self.exec.launch(stream)?;
        stream.synchronize()?;
        let between = self.marks.windows(2).map(|pair| pair[1].elapsed_ms(&pair[0]));
        let mut idle = between.collect::<Result<Vec<_>>>()?;
        let groups = idle.split_off(IDLE - 1);
        Ok(Laps { idle, groups })
    }
}

/// The nodes at which an edge within their group ends (waiting) or starts (awaited).
struct Inner {
    waiting: HashSet<Node>,
    awaited: HashSet<Node>,
}

/// Removes the edges from a group to a later one; the record between them implies these edges.
fn cut(graph: &mut Graph, groups: &[Vec<Node>]) -> Result<Inner> {
    let mut inner = Inner { waiting: HashSet::new(), awaited: HashSet::new() };
    let numbered = groups.iter().enumerate();
    let group_of: HashMap<Node, usize> =
        numbered.flat_map(|(at, group)| group.iter().map(move |node| (*node, at))).collect();
    let mut implied = Vec::new();
    for (from, to) in graph.edges()? {
        match (group_of.get(&from), group_of.get(&to)) {
            (Some(earlier), Some(later)) if earlier < later => implied.push((from, to)),
            _ => {
                inner.awaited.insert(from);
                inner.waiting.insert(to);
            }
        }
    }
    graph.remove_edges(&implied)?;
    Ok(inner)
}

/// The median of each position over several launches of equal length.
fn medians(launches: &[Vec<f32>]) -> Vec<f32> {
    let count = launches.first().map_or(0, Vec::len);
    (0..count).map(|at| median(launches.iter().map(|laps| laps[at]).collect())).collect()
}

/// The median; 0 for no values.
pub fn median(mut values: Vec<f32>) -> f32 {
    values.sort_unstable_by(f32::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_taken_launch_by_launch() {
        let launches = [vec![1.0, 9.0], vec![5.0, 7.0], vec![3.0, 8.0]];
        assert_eq!(medians(&launches), [3.0, 8.0]);
        assert_eq!(medians(&launches[..2]), [3.0, 8.0]);
        assert_eq!(medians(&[]), Vec::<f32>::new());
        assert_eq!(median(Vec::new()), 0.0);
    }
}
