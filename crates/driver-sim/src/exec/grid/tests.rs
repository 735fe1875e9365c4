//! Orders of blocks.

use super::*;

#[test]
fn every_order_visits_every_block_once() {
    for blocks in [1, 2, 12, 97, 1000] {
        for seed in 0..20 {
            let order = Order::new(blocks, seed);
            let mut seen: Vec<u64> = (0..blocks).map(|position| order.cluster(position)).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..blocks), "{blocks} {seed}");
        }
    }
}
