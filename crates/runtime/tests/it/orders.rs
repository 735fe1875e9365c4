//! What edges promise, on random passes: whatever order they leave open, no two buffers that are in
//! use lie in the same bytes, and no more operations run side by side than was asked for.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use retrograph_runtime::{BufferId, Edges, MemoryPlan, Pass, Reuse};

use crate::described::described;

/// An order of operations that the edges allow, by `seed`: of those that may come next any one.
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

/// The first two transients of which one touches a word of the arena, then the other, and then the
/// first again: both were in use there at once.
fn trample(pass: &Pass, plan: &MemoryPlan, order: &[usize]) -> Option<[BufferId; 2]> {
    // Who uses each word now, and who did before.
    let mut users: HashMap<usize, (BufferId, HashSet<BufferId>)> = HashMap::new();
    for &at in order {
        for touch in pass.operations()[at].accesses() {
            let Some(offset) = plan.offset(touch.buffer) else { continue };
            for word in (touch.bytes.start / 4..touch.bytes.end / 4).map(|at| offset / 4 + at) {
                let (user, gone) = users.entry(word).or_insert((touch.buffer, HashSet::new()));
                if *user != touch.buffer {
                    gone.insert(std::mem::replace(user, touch.buffer));
                }
                if gone.contains(user) {
                    return gone.iter().find(|other| **other != *user).map(|at| [*user, *at]);
                }
            }
        }
    }
    None
}

/// The most operations of which none must come before another: by Dilworth's theorem as many as the
/// fewest chains that hold all of them, which is found by matching each with one behind it.
fn most_side_by_side(edges: &Edges) -> usize {
    let count = edges.operations();
    let mut behind = vec![vec![false; count]; count];
    for to in 0..count {
        for edge in edges.into_operation(edges.operation(to)) {
            let from = edge.from.index();
            (0..count).for_each(|at| behind[at][to] |= at == from || behind[at][from]);
        }
    }
    let mut matched: Vec<Option<usize>> = vec![None; count];
    let found =
        (0..count).filter(|&from| augment(from, &behind, &mut matched, &mut vec![false; count]));
    count - found.count()
}

fn augment(
    from: usize,
    behind: &[Vec<bool>],
    matched: &mut [Option<usize>],
    seen: &mut [bool],
) -> bool {
    for to in 0..behind.len() {
        if !behind[from][to] || std::mem::replace(&mut seen[to], true) {
            continue;
        }
        if matched[to].is_none_or(|other| augment(other, behind, matched, seen)) {
            matched[to] = Some(from);
            return true;
        }
    }
    false
}

/// Whether `edges` order all that `others` order.
fn orders_all_of(edges: &Edges, others: &Edges) -> bool {
    let reach = |edges: &Edges| {
        let count = edges.operations();
        let mut before = vec![vec![false; count]; count];
        for to in 0..count {
            for edge in edges.into_operation(edges.operation(to)) {
                let inherited = before[edge.from.index()].clone();
                before[to].iter_mut().zip(inherited).for_each(|(mine, theirs)| *mine |= theirs);
                before[to][edge.from.index()] = true;
            }
        }
        before
    };
    let (ours, theirs) = (reach(edges), reach(others));
    ours.iter().flatten().zip(theirs.iter().flatten()).all(|(ours, theirs)| *ours || !theirs)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_two_live_buffers_overlap_in_any_order_that_the_edges_allow(
        description in described(24),
        seed in any::<u64>(),
        width in 0usize..5,
    ) {
        let pass = description.pass();
        for reuse in [Reuse::WhenOrdered, Reuse::Full, Reuse::Never] {
            let plan = pass.plan_with(reuse);
            let inferred = pass.edges_with(&plan);
            for edges in [inferred.limited_to(width), inferred] {
                let trampled = trample(&pass, &plan, &some_order(&edges, seed));
                prop_assert_eq!(trampled, None, "{}", reuse);
            }
        }
    }

    #[test]
    fn limited_edges_keep_the_order_and_the_width(
        description in described(24),
        width in 0usize..6,
    ) {
        let edges = description.pass().edges();
        let limited = edges.limited_to(width);
        prop_assert!(orders_all_of(&limited, &edges));
        prop_assert!(most_side_by_side(&limited) <= width.max(1));
        prop_assert!(limited.depth() >= edges.depth());
        let chain = Edges::chain(edges.operations());
        prop_assert!(orders_all_of(&chain, &limited) && most_side_by_side(&chain) <= 1);
        // Nothing is added where the edges are that narrow already.
        if most_side_by_side(&edges) <= 1 {
            prop_assert_eq!(&limited, &edges);
        }
    }
}
