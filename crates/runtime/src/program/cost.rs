//! A cost model of graph shapes, with measured constants.
//!
//! The constants are those of an NVIDIA H200 with driver 580
//! (`docs/hardware/2026-11-21-graph-costs`); the tests check the model against every row of that
//! record. Times differ on other devices, but the model only compares shapes of the same
//! operations, which depends on ratios.
//!
//! The model takes a kernel's time as that of its memory traffic, so predictions are lower bounds.
//! It ignores contention between concurrent kernels, which cost up to a third in that record.

use std::time::Duration;

use crate::pass::{Edges, OpId};

/// Costs in nanoseconds, with their sources in the record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Costs {
    /// A node on the longest path: `cost.jsonl`, N = 1000, `replay_dev_us` 764.64, kernels that
    /// load, add and store.
    pub(super) node: f64,
    /// Each edge beyond those of the longest path: `shape.jsonl`, empty kernels; a fork-join of 8
    /// takes 234.5 µs for 133 levels and 924 such edges, one of 2 takes 245.9 µs for 399 and 398.
    pub(super) extra_edge: f64,
    /// An eager launch on the host: `cost.jsonl`, N = 1000, `eager_submit_us` 4032.15.
    pub(super) eager_launch: f64,
    /// Memory bandwidth in bytes per nanosecond: `2026-11-21-lora-step`, "Floors".
    pub(super) bytes: f64,
}

/// The costs of the record.
pub(super) const H200: Costs =
    Costs { node: 765.0, extra_edge: 150.0, eager_launch: 4030.0, bytes: 4250.0 };

impl Costs {
    /// Device time of a step with these edges and the bytes that each operation moves.
    pub(super) fn replay(&self, edges: &Edges, bytes: &[usize]) -> Duration {
        let mut ends: Vec<f64> = Vec::with_capacity(bytes.len());
        for (at, &bytes) in bytes.iter().enumerate() {
            let incoming = edges.into_operation(OpId(at as u32)).iter();
            let start = incoming.map(|edge| ends[edge.from.index()]).fold(0.0, f64::max);
            ends.push(start + self.node + self.moving(bytes));
        }
        let path = ends.into_iter().fold(0.0, f64::max);
        // Concurrent operations share the memory bandwidth.
        let memory = self.moving(bytes.iter().sum());
        nanoseconds(path.max(memory) + self.extra_edge * extra_edges(edges) as f64)
    }

    /// Host time of an eager step of this many operations.
    pub(super) fn submission(&self, operations: usize) -> Duration {
        nanoseconds(self.eager_launch * operations as f64)
    }

    fn moving(&self, bytes: usize) -> f64 {
        bytes as f64 / self.bytes
    }
}

fn extra_edges(edges: &Edges) -> usize {
    (edges.len() + 1).saturating_sub(edges.depth().max(1))
}

fn nanoseconds(value: f64) -> Duration {
    Duration::from_nanos(value.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::Pass;

    const SHAPES: &str =
        include_str!("../../../../docs/hardware/2026-11-21-graph-costs/shape.jsonl");
    const COSTS: &str = include_str!("../../../../docs/hardware/2026-11-21-graph-costs/cost.jsonl");

    /// The number after `key` in a line of the record.
    fn number(line: &str, key: &str) -> f64 {
        let text = line.split_once(&format!("\"{key}\":")).unwrap().1;
        let end = text.find([',', '}']).unwrap();
        text[..end].parse().unwrap()
    }

    fn shape_of(line: &str) -> &str {
        let text = line.split_once("\"shape\":\"").unwrap().1;
        text.split_once('"').unwrap().0
    }

    /// The edges of a shape of the record.
    fn edges(shape: &str, nodes: usize) -> Edges {
        let width: usize = shape.trim_start_matches(char::is_alphabetic).parse().unwrap_or(1);
        let mut pass = Pass::new("shape");
        let words = pass.external::<u32>("words", 16);
        let (first, second) = (words.slice(0..8), words.slice(8..16));
        let own = |lane: usize| first.slice(lane..lane + 1);
        if shape == "chain" {
            for _ in 0..nodes {
                pass.fill(own(0), 0).unwrap();
            }
        } else if shape.starts_with("forkjoin") {
            pass.fill(first, 0).unwrap();
            for _ in 0..(nodes - 1) / (width + 1) {
                for lane in 0..width {
                    pass.copy(own(lane), second.slice(lane..lane + 1)).unwrap();
                }
                pass.copy(second.slice(0..width), first.slice(0..width)).unwrap();
            }
        } else {
            for lane in (0..nodes / width).flat_map(|_| 0..width) {
                pass.fill(own(lane), 0).unwrap();
            }
            pass.copy(first.slice(0..width), second.slice(0..width)).unwrap();
        }
        pass.edges()
    }

    #[test]
    fn the_model_agrees_with_every_shape_of_the_record() {
        let (mut errors, mut chain) = (Vec::new(), 0.0);
        for line in SHAPES.lines() {
            let (shape, nodes) = (shape_of(line), number(line, "N") as usize);
            if shape.starts_with("chain_") {
                continue;
            }
            let measured = number(line, "dev_us") * 1e3;
            if shape == "chain" {
                chain = measured / nodes as f64;
            }
            let edges = edges(shape, nodes);
            let costs = Costs { node: chain, ..H200 };
            let bytes = vec![0; edges.operations()];
            let predicted = costs.replay(&edges, &bytes).as_nanos() as f64;
            let error = (predicted / measured - 1.0).abs();
            // Eight concurrent kernels that each fill the device contend.
            let crowded = number(line, "grid") as u32 == 132 && shape == "forkjoin8";
            assert!(error < if crowded { 0.4 } else { 0.2 }, "{error}: {line}");
            errors.push(error);
        }
        assert_eq!(errors.len(), 63, "seven shapes of nine kernels");
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        assert!(mean < 0.06, "{mean}");
    }

    #[test]
    fn the_constants_are_those_of_the_record() {
        let line = COSTS.lines().find(|line| line.contains("\"N\":1000,\"eager")).unwrap();
        assert!((number(line, "replay_dev_us") - H200.node).abs() < 1.0, "per 1000 nodes");
        assert!((number(line, "eager_submit_us") - H200.eager_launch).abs() < 10.0);
    }

    #[test]
    fn bytes_bound_a_step_whatever_its_edges() {
        let independent = Pass::new("none").edges();
        assert_eq!(H200.replay(&independent, &[]), Duration::ZERO);
        let mut pass = Pass::new("two");
        let x = pass.external::<f32>("x", 2);
        pass.fill(x.slice(0..1), 0).unwrap();
        pass.fill(x.slice(1..2), 0).unwrap();
        let gigabyte = 1 << 30;
        let both = H200.replay(&pass.edges(), &[gigabyte, gigabyte]);
        let chained = H200.replay(&Edges::chain(2), &[gigabyte, gigabyte]);
        assert!(both > Duration::from_micros(500) && chained > both);
        assert!(chained - both < Duration::from_micros(2));
    }
}
