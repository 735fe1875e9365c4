//! A graph with an event between groups of its nodes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::error::Result;
use crate::event::Event;
use crate::graph::{Graph, GraphExec, Node};
use crate::stream::Stream;

/// Records in front of the first group with nothing between them, whose distance is what recording
/// itself takes.
const IDLE: usize = 8;

/// The graph, ready to be launched.
pub(crate) struct Timed {
    exec: GraphExec,
    /// The idle ones, then one behind each group.
    marks: Vec<Arc<Event>>,
}

/// Milliseconds of one launch.
struct Laps {
    /// Between two records with nothing between them.
    idle: Vec<f32>,
    /// Of each group: from the record in front of it to the record behind it.
    groups: Vec<f32>,
}

impl Timed {
    /// Puts a record in front of each group of `graph` and behind the last. A group begins when the
    /// one before it has ended; within a group the edges stay as they are. Every node must be in
    /// one group, and no edge may lead back to an earlier one: the graph would have a cycle then,
    /// and instantiating it fails.
    pub(crate) fn new(mut graph: Graph, groups: &[Vec<Node>]) -> Result<Self> {
        let inner = cut(&mut graph, groups)?;
        let mut marks = Vec::with_capacity(IDLE + groups.len());
        let mut record = |graph: &mut Graph, after: &[Node]| {
            let event = Arc::new(Event::new(graph.context())?);
            marks.push(Arc::clone(&event));
            graph.add_record(&event, after)
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

    /// Launches the graph `replays` times, and once before that to set up. The medians of the time
    /// between idle records, and of each group.
    pub(crate) fn measure(&mut self, stream: &Stream, replays: usize) -> Result<(f32, Vec<f32>)> {
        self.launch(stream)?;
        let (mut idle, mut groups) = (Vec::new(), Vec::with_capacity(replays));
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

/// The nodes that an edge within their group ends at, or begins at.
struct Inner {
    waiting: HashSet<Node>,
    awaited: HashSet<Node>,
}

/// Removes the edges from a group to a later one, which the record between them implies.
fn cut(graph: &mut Graph, groups: &[Vec<Node>]) -> Result<Inner> {
    let mut inner = Inner { waiting: HashSet::new(), awaited: HashSet::new() };
    let numbered = groups.iter().enumerate();
    let group_of: HashMap<Node, usize> =
        numbered.flat_map(|(at, group)| group.iter().map(move |node| (*node, at))).collect();
    let mut implied = Vec::new();
    for (from, to) in graph.edges()? {
        match (group_of.get(&from), group_of.get(&to)) {
            (Some(before), Some(behind)) if before < behind => implied.push((from, to)),
            _ => {
                inner.awaited.insert(from);
                inner.waiting.insert(to);
            }
        }
    }
    graph.remove_edges(&implied)?;
    Ok(inner)
}

/// The median of each place over several launches; each launch has as many places.
fn medians(launches: &[Vec<f32>]) -> Vec<f32> {
    let places = launches.first().map_or(0, Vec::len);
    (0..places).map(|at| median(launches.iter().map(|laps| laps[at]).collect())).collect()
}

/// The middle value, or the mean of the two middle ones; 0 of nothing.
pub(crate) fn median(mut values: Vec<f32>) -> f32 {
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
    fn medians_are_taken_place_by_place() {
        let launches = [vec![1.0, 9.0], vec![5.0, 7.0], vec![3.0, 8.0]];
        assert_eq!(medians(&launches), [3.0, 8.0]);
        assert_eq!(medians(&launches[..2]), [3.0, 8.0]);
        assert_eq!(medians(&[]), Vec::<f32>::new());
        assert_eq!(median(Vec::new()), 0.0);
    }
}
