//! Edges of random passes: in every order that they allow, no two live buffers share bytes.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use retrograph_runtime::{BufferId, Edges, MemoryPlan, Pass, Reuse};

use crate::described::described;

/// A random order of operations that the edges allow, by `seed`.
fn some_order(edges: &Edges, mut seed: u64) -> Vec<usize> {
    let mut left: Vec<usize> = (0..edges.operations()).collect();
    let (mut done, mut order) = (vec![false; left.len()], Vec::new());
    while !left.is_empty() {
        let ready = |at: &usize| {
            let incoming = edges.into_operation(edges.operation(*at));
            incoming.iter().all(|edge| done[edge.from.index()])
        };
        let ready: Vec<usize> = left.iter().copied().filter(ready).collect();
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let next = ready[(seed >> 33) as usize % ready.len()];
        done[next] = true;
        order.push(next);
        left.retain(|at| *at != next);
    }
    order
}

/// The first two transients of which one accesses a word of the arena, then the other, and then the
/// first again: both were live there at the same time.
fn trample(pass: &Pass, plan: &MemoryPlan, order: &[usize]) -> Option<[BufferId; 2]> {
    // The current and the earlier users of each word.
    let mut users: HashMap<usize, (BufferId, HashSet<BufferId>)> = HashMap::new();
    for &at in order {
        for access in pass.operations()[at].accesses() {
            let Some(offset) = plan.offset(access.buffer) else { continue };
            for word in (access.bytes.start / 4..access.bytes.end / 4).map(|at| offset / 4 + at) {
                let (user, gone) = users.entry(word).or_insert((access.buffer, HashSet::new()));
                if *user != access.buffer {
                    gone.insert(std::mem::replace(user, access.buffer));
                }
                if gone.contains(user) {
                    return gone.iter().find(|other| **other != *user).map(|at| [*user, *at]);
                }
            }
        }
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_two_live_buffers_overlap_in_any_order_that_the_edges_allow(
        description in described(24),
        seed in any::<u64>(),
    ) {
        let pass = description.pass();
        for reuse in [Reuse::WhenOrdered, Reuse::Full, Reuse::Never] {
            let plan = pass.plan_with(reuse);
            let order = some_order(&pass.edges_with(&plan), seed);
            prop_assert_eq!(trample(&pass, &plan, &order), None, "{}", reuse);
        }
    }
}
