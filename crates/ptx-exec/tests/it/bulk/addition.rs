//! Bulk stores that add f32 elements to global memory.

use super::*;

/// Words that threads add.
const WORDS: u32 = 64;

/// Thread i writes `value + i` to word i of the tile, before a bulk store reads it.
fn write_words<'k>(k: &Kernel<'k>, given: Given<'k>, value: f32) {
    let tile = given.tiles.reinterpret::<f32>();
    tile.store(k.tid_x(), k.tid_x().cast::<f32>() + value);
    k.fence_proxy_async();
    k.barrier();
}

/// Starts to add the tile to the target.
fn add<'k>(k: &Kernel<'k>, given: Given<'k>, bytes: u32) {
    k.cp_reduce_async_bulk_add(given.target.reinterpret(), given.tiles.reinterpret(), bytes);
    k.cp_async_bulk_commit_group();
}

/// Zeroes the target.
fn clear<'k>(k: &Kernel<'k>, given: Given<'k>) {
    given.target.store(k.tid_x(), 0u32);
    k.barrier();
}

fn floats(words: &[u32]) -> Vec<f32> {
    words[..WORDS as usize].iter().map(|bits| f32::from_bits(*bits)).collect()
}

#[test]
fn elements_are_added_to_those_in_memory() {
    let program = entry(|k, given| {
        clear(k, given);
        for value in [1.5, 100.0] {
            write_words(k, given, value);
            k.when(k.tid_x().eq(0), || {
                add(k, given, WORDS * 2);
                add(k, given, WORDS * 4);
                k.cp_async_bulk_wait_group(0);
            });
            k.barrier();
        }
    });
    let sums = floats(&run(&program, WORDS));
    for (index, &sum) in sums.iter().enumerate() {
        let times = if index < WORDS as usize / 2 { 2.0 } else { 1.0 };
        assert_eq!(sum, times * (101.5 + 2.0 * index as f32), "{index}");
    }
}

#[test]
fn a_sum_is_visible_after_the_wait_for_its_group() {
    let seen = |waits: bool, read: bool| {
        let program = entry(move |k, given| {
            clear(k, given);
            write_words(k, given, 1.0);
            k.when(k.tid_x().eq(0), || {
                add(k, given, WORDS * 4);
                if waits {
                    k.cp_async_bulk_wait_group(0);
                } else if read {
                    k.cp_async_bulk_wait_group_read(0);
                }
                given.target.store(WORDS, given.target.load(3));
            });
        });
        f32::from_bits(run(&program, WORDS)[WORDS as usize])
    };
    assert_eq!([seen(true, false), seen(false, true), seen(false, false)], [4.0, 0.0, 0.0]);
}

#[test]
fn the_source_may_change_after_the_wait_for_reads() {
    let program = |waits: bool| {
        entry(move |k, given| {
            clear(k, given);
            write_words(k, given, 1.0);
            k.when(k.tid_x().eq(0), || {
                add(k, given, WORDS * 4);
                if waits {
                    k.cp_async_bulk_wait_group_read(0);
                }
                given.tiles.store(5, 0u32);
            });
        })
    };
    assert_eq!(floats(&run(&program(true), WORDS))[5], 6.0);
    assert!(matches!(misuse(&program(false), WORDS), ProxyMisuse::SourceInFlight { .. }));
}

#[test]
fn whole_pieces_that_were_fenced_are_added() {
    let program = |bytes: u32, fences: bool| {
        entry(move |k, given| {
            given.tiles.store(k.tid_x(), 0u32);
            if fences {
                k.fence_proxy_async();
            }
            k.barrier();
            k.when(k.tid_x().eq(0), || add(k, given, bytes));
        })
    };
    run(&program(48, true), WORDS);
    assert!(matches!(misuse(&program(24, true), WORDS), ProxyMisuse::CopyAlignment { .. }));
    assert!(matches!(misuse(&program(48, false), WORDS), ProxyMisuse::UnfencedSource { .. }));
}

/// Blocks take turns: each adds after the block before it, whatever the order in which they start.
#[test]
fn blocks_add_in_turns() {
    const BLOCKS: u32 = 5;
    let program = entry(|k, given| {
        let (turn, first) = (given.target.offset(i64::from(WORDS)), k.tid_x().eq(0));
        // The target begins with 7.
        let block = k.ctaid_x();
        write_words(k, given, 1.0);
        k.when(first, || {
            k.while_loop(|| turn.load_volatile(0).ne(block + 7), || {});
            k.fence_acq_rel_gpu();
            k.fence_proxy_async_global();
            k.when_else(
                block.eq(0),
                || k.cp_async_bulk_store(given.target, given.tiles, WORDS * 4),
                || {
                    let sums = given.target.reinterpret();
                    k.cp_reduce_async_bulk_add(sums, given.tiles.reinterpret(), WORDS * 4);
                },
            );
            k.cp_async_bulk_commit_group();
            k.cp_async_bulk_wait_group(0);
            k.fence_acq_rel_gpu();
            turn.atom_add(0, k.constant(1));
        });
    });
    for seed in 0..8 {
        let grid = [BLOCKS, 1, 1];
        let request = Launch { grid, block: [WORDS, 1, 1], seed, ..Launch::default() };
        let out = run_launch(&program, TensorMapSwizzle::None, request);
        let sums = floats(&out.unwrap_or_else(|fault| panic!("seed {seed}: {fault}")));
        let expected = (0..WORDS).map(|index| BLOCKS as f32 * (1.0 + index as f32));
        assert!(sums.into_iter().eq(expected), "seed {seed}");
    }
}
