//! mbarriers, bulk copies and tensor maps, and the detected mistakes with them.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Type;
use retrograph_ptx::build::{Kernel, ModuleBuilder, NamedBarrier, Ptr, Shared, TensorMapParam};
use retrograph_ptx_exec::memory::Memory;
use retrograph_ptx_exec::tensor_map::{TensorMap, TensorMapError, TensorMapSwizzle};
use retrograph_ptx_exec::{Fault, FaultKind, Launch, Program, ProxyMisuse, Undefined, launch};

use super::words;

mod addition;
mod boxes;
mod cluster;
mod fences;

/// Rows and columns of both matrices of 32-bit words.
const ROWS: u32 = 40;
const COLUMNS: u32 = 48;
/// Rows and columns of a tile, and its bytes.
const TILE_ROWS: u32 = 8;
const TILE_COLUMNS: u32 = 32;
const TILE_BYTES: u32 = TILE_ROWS * TILE_COLUMNS * 4;

/// The operands of a kernel: two tensor maps, two pointers to the same matrices, shared memory.
#[derive(Clone, Copy)]
struct Given<'k> {
    from: TensorMapParam<'k>,
    to: TensorMapParam<'k>,
    source: Ptr<'k, u32>,
    target: Ptr<'k, u32>,
    tiles: Shared<'k, u32>,
    full: Shared<'k, u64>,
    empty: Shared<'k, u64>,
}

fn entry(describe: impl for<'k> FnOnce(&Kernel<'k>, Given<'k>)) -> Program {
    let entry = Kernel::build("k", |k| {
        k.max_threads(256);
        let (from, to) = (k.tensor_map("from"), k.tensor_map("to"));
        let (source, target) = (k.pointer::<u32>("source"), k.pointer::<u32>("target"));
        let tiles = k.dynamic_shared_aligned::<u32>(1024);
        let (full, empty) = (k.shared::<u64>("full", 4), k.shared::<u64>("empty", 4));
        describe(k, Given { from, to, source, target, tiles, full, empty });
    });
    let module = ModuleBuilder::new(SmTarget::arch_specific(90)).entry(entry).build();
    Program::decode(&module, "k", &|_| None).unwrap_or_else(|error| panic!("{error}\n{module}"))
}

fn map_of(address: u64, swizzle: TensorMapSwizzle) -> TensorMap {
    TensorMap {
        element: Type::U32,
        address,
        dimensions: vec![COLUMNS.into(), ROWS.into()],
        strides: vec![u64::from(COLUMNS) * 4],
        extent: vec![TILE_COLUMNS, TILE_ROWS],
        swizzle,
    }
}

fn number(row: u32, column: u32) -> u32 {
    row * 1000 + column + 1
}

/// Runs one block and returns the target matrix, whose elements are initially 7.
fn run_with(
    program: &Program,
    threads: u32,
    seed: u64,
    swizzle: TensorMapSwizzle,
) -> Result<Vec<u32>, Fault> {
    run_launch(program, swizzle, Launch { block: [threads, 1, 1], seed, ..Launch::default() })
}

/// Runs a launch with operands and returns the target matrix.
fn run_launch(
    program: &Program,
    swizzle: TensorMapSwizzle,
    request: Launch<'_>,
) -> Result<Vec<u32>, Fault> {
    let memory = Memory::new(1 << 24);
    let bytes = u64::from(ROWS * COLUMNS * 4);
    let (source, target) = (memory.alloc(bytes).unwrap(), memory.alloc(bytes).unwrap());
    let numbers = (0..ROWS).flat_map(|row| (0..COLUMNS).map(move |column| number(row, column)));
    let numbers: Vec<u8> = numbers.flat_map(u32::to_le_bytes).collect();
    memory.write(source, &numbers).unwrap();
    memory.fill(target, &7u32.to_le_bytes(), u64::from(ROWS * COLUMNS)).unwrap();
    let mut parameters = map_of(source, swizzle).encode().to_vec();
    parameters.extend(map_of(target, swizzle).encode());
    parameters.extend(source.to_le_bytes());
    parameters.extend(target.to_le_bytes());
    let request = Launch {
        shared_bytes: 4 * TILE_BYTES,
        parameters: &parameters,
        step_limit: 1 << 22,
        ..request
    };
    launch(program, &request, &memory)?;
    let mut out = vec![0; bytes as usize];
    memory.read(target, &mut out).unwrap();
    Ok(words(&out))
}

fn run(program: &Program, threads: u32) -> Vec<u32> {
    let outputs: Vec<Vec<u32>> = (0..8)
        .map(|seed| {
            let out = run_with(program, threads, seed, TensorMapSwizzle::None);
            out.unwrap_or_else(|fault| panic!("seed {seed}: {fault}"))
        })
        .collect();
    assert!(outputs.windows(2).all(|pair| pair[0] == pair[1]), "the seed changes the result");
    outputs.into_iter().next().unwrap()
}

/// Returns the message of the fault of a kernel.
fn message(program: &Program, threads: u32) -> String {
    let fault = run_with(program, threads, 0, TensorMapSwizzle::None).err();
    fault.expect("the kernel has a fault").to_string()
}

/// Returns the undefined behaviour at which a kernel stops.
fn misuse(program: &Program, threads: u32) -> ProxyMisuse {
    match run_with(program, threads, 0, TensorMapSwizzle::None).map_err(|fault| fault.kind) {
        Err(FaultKind::AsyncProxy(misuse)) => *misuse,
        other => panic!("{other:?}"),
    }
}

/// Initializes the mbarriers: `full` for one arrival, `empty` for all lanes of a warp.
fn init<'k>(k: &Kernel<'k>, given: Given<'k>) {
    k.when(k.tid_x().eq(0), || {
        for stage in 0..4 {
            k.mbarrier_init(given.full.at(stage), 1);
            k.mbarrier_init(given.empty.at(stage), 32);
        }
        k.fence_mbarrier_init();
    });
    k.barrier();
}

fn tile<'k>(given: Given<'k>, stage: u32) -> Shared<'k, u32> {
    given.tiles.offset(i64::from(stage * TILE_BYTES / 4))
}

/// Thread 0 loads the tile at `(x, y)`.
fn load_first<'k>(k: &Kernel<'k>, given: Given<'k>, x: u32, y: u32) {
    k.when(k.tid_x().eq(0), || {
        k.mbarrier_arrive_expect_tx(given.full, TILE_BYTES);
        k.cp_async_bulk_tensor_2d_load(given.tiles, given.from, [x, y], given.full);
    });
}

/// Every thread of the first warp writes its column of the tile to the target.
fn write_tile<'k>(k: &Kernel<'k>, given: Given<'k>) {
    k.when(k.tid_x().lt(TILE_COLUMNS), || {
        for row in 0..TILE_ROWS {
            let value = given.tiles.at(k.tid_x()).load(row * TILE_COLUMNS);
            given.target.at(k.tid_x()).store(row * COLUMNS, value);
        }
    });
}

#[test]
fn a_tile_arrives_with_its_phase() {
    let program = entry(|k, given| {
        init(k, given);
        load_first(k, given, 5, 3);
        k.mbarrier_wait_parity(given.full, 0);
        write_tile(k, given);
    });
    let out = run(&program, 64);
    for row in 0..TILE_ROWS {
        for column in 0..TILE_COLUMNS {
            assert_eq!(out[(row * COLUMNS + column) as usize], number(row + 3, column + 5));
        }
    }
}

#[test]
fn elements_outside_the_tensor_are_zero_and_are_not_stored() {
    let program = entry(|k, given| {
        init(k, given);
        load_first(k, given, COLUMNS - 4, ROWS - 2);
        k.mbarrier_wait_parity(given.full, 0);
        write_tile(k, given);
    });
    let out = run(&program, 32);
    for row in 0..TILE_ROWS {
        for column in 0..TILE_COLUMNS {
            let inside = row < 2 && column < 4;
            let want = if inside { number(row + ROWS - 2, column + COLUMNS - 4) } else { 0 };
            assert_eq!(out[(row * COLUMNS + column) as usize], want, "{row} {column}");
        }
    }
    let program = entry(|k, given| {
        init(k, given);
        k.when(k.warp().eq(0), || {
            for row in 0..TILE_ROWS {
                given.tiles.at(k.tid_x()).store(row * TILE_COLUMNS, 9);
            }
            k.fence_proxy_async();
        });
        k.barrier();
        k.when(k.tid_x().eq(0), || {
            let (x, y) = (COLUMNS - 4, ROWS - 2);
            k.cp_async_bulk_tensor_2d_store(given.to, [x, y], given.tiles);
            k.cp_async_bulk_tensor_2d_store(given.to, [-28i32 as u32, -6i32 as u32], given.tiles);
            k.cp_async_bulk_commit_group();
            k.cp_async_bulk_wait_group(0);
        });
    });
    let out = run(&program, 64);
    let is_nine = |index: usize| {
        let (row, column) = (index as u32 / COLUMNS, index as u32 % COLUMNS);
        (row >= ROWS - 2 && column >= COLUMNS - 4) || (row < 2 && column < 4)
    };
    for (index, &word) in out.iter().enumerate() {
        assert_eq!(word, if is_nine(index) { 9 } else { 7 }, "{index}");
    }
}

#[test]
fn loads_swizzle_rows_and_stores_undo_it() {
    let program = |through: bool| {
        entry(move |k, given| {
            init(k, given);
            load_first(k, given, 0, 0);
            k.mbarrier_wait_parity(given.full, 0);
            if through {
                k.barrier();
                k.when(k.tid_x().eq(0), || {
                    k.cp_async_bulk_tensor_2d_store(given.to, [0, 0], given.tiles);
                    k.cp_async_bulk_commit_group();
                    k.cp_async_bulk_wait_group(0);
                });
            } else {
                write_tile(k, given);
            }
        })
    };
    let run = |through, swizzle| run_with(&program(through), 32, 0, swizzle).unwrap();
    let mixed = run(false, TensorMapSwizzle::Bytes128);
    for row in 0..TILE_ROWS {
        for column in 0..TILE_COLUMNS {
            let from = ((column / 4) ^ row) * 4 + column % 4;
            assert_eq!(mixed[(row * COLUMNS + column) as usize], number(row, from));
        }
    }
    assert_eq!(run(true, TensorMapSwizzle::Bytes128), run(true, TensorMapSwizzle::None));
}

/// A producer warp and a consumer warp with four stages, and the body of each loop.
fn pipeline(wrong: Mistake) -> Program {
    entry(move |k, given| {
        init(k, given);
        let rounds = 5 * 2;
        let place = |i: u32| [(i % 2) * (COLUMNS - TILE_COLUMNS), i / 2 * TILE_ROWS];
        k.when_else(
            k.warp().eq(0),
            || {
                k.when(k.elect_sync(), || {
                    for i in 0..rounds {
                        let (stage, turn) = (i % 2, i / 2);
                        if wrong != Mistake::NoEmptyWait {
                            k.mbarrier_wait_parity(given.empty.at(stage), (turn & 1) ^ 1);
                        }
                        let bytes = match wrong {
                            Mistake::FewBytes => TILE_BYTES / 2,
                            Mistake::ManyBytes => TILE_BYTES + 16,
                            _ => TILE_BYTES,
                        };
                        k.mbarrier_arrive_expect_tx(given.full.at(stage), bytes);
                        let full = given.full.at(stage);
                        let to = tile(given, stage);
                        k.cp_async_bulk_tensor_2d_load(to, given.from, place(i), full);
                    }
                });
            },
            || {
                for i in 0..rounds {
                    let (stage, turn) = (i % 2, i / 2);
                    if wrong != Mistake::NoFullWait {
                        k.mbarrier_wait_parity(given.full.at(stage), turn & 1);
                    }
                    let release = || k.mbarrier_arrive(given.empty.at(stage));
                    if wrong == Mistake::EarlyRelease {
                        release();
                    }
                    let [x, y] = place(i);
                    for row in 0..TILE_ROWS {
                        let value = tile(given, stage).at(k.lane()).load(row * TILE_COLUMNS);
                        given.target.at(k.lane()).store((y + row) * COLUMNS + x, value);
                    }
                    match wrong {
                        Mistake::EarlyRelease => {}
                        Mistake::DroppedPhase if i == 3 => {}
                        Mistake::TwoArrivals if i == 3 => {
                            release();
                            release();
                        }
                        _ => release(),
                    }
                }
            },
        );
    })
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    None,
    NoEmptyWait,
    NoFullWait,
    EarlyRelease,
    DroppedPhase,
    TwoArrivals,
    FewBytes,
    ManyBytes,
}

#[test]
fn producer_and_consumer_warps_pass_tiles_through_stages() {
    let out = run(&pipeline(Mistake::None), 64);
    for (index, &word) in out.iter().enumerate() {
        let (row, column) = (index as u32 / COLUMNS, index as u32 % COLUMNS);
        assert_eq!(word, number(row, column));
    }
}

#[test]
fn races_are_detected_across_phases() {
    let program = pipeline(Mistake::None);
    let memory = Memory::new(1 << 24);
    let bytes = u64::from(ROWS * COLUMNS * 4);
    let (source, target) = (memory.alloc(bytes).unwrap(), memory.alloc(bytes).unwrap());
    let mut parameters = map_of(source, TensorMapSwizzle::None).encode().to_vec();
    parameters.extend(map_of(target, TensorMapSwizzle::None).encode());
    parameters.extend([source.to_le_bytes(), target.to_le_bytes()].concat());
    let request = Launch {
        block: [64, 1, 1],
        shared_bytes: 4 * TILE_BYTES,
        parameters: &parameters,
        races: true,
        ..Launch::default()
    };
    launch(&program, &request, &memory).unwrap_or_else(|fault| panic!("{fault}"));
}

#[test]
fn mistakes_with_stages_are_detected() {
    let again = misuse(&pipeline(Mistake::NoEmptyWait), 64);
    assert!(matches!(again, ProxyMisuse::TooManyArrivals { .. }), "{again}");
    for mistake in [Mistake::NoFullWait, Mistake::EarlyRelease] {
        let early = misuse(&pipeline(mistake), 64);
        assert!(matches!(early, ProxyMisuse::TargetInFlight { .. }), "{early}");
    }
    assert!(message(&pipeline(Mistake::FewBytes), 64).contains("bytes"));
    let twice = run_with(&pipeline(Mistake::TwoArrivals), 64, 0, TensorMapSwizzle::None);
    let twice = twice.map_err(|fault| fault.kind);
    assert!(
        matches!(twice, Err(FaultKind::AsyncProxy(_) | FaultKind::Deadlock { .. })),
        "{twice:?}"
    );
    let many = message(&pipeline(Mistake::ManyBytes), 64);
    assert!(many.contains("no warp of the block can make progress"), "{many}");
    assert!(many.contains("warp 1 waits for the phase of parity 0"), "{many}");
    assert!(many.contains("0 of 1 arrivals and 16 bytes"), "{many}");
    let dropped = message(&pipeline(Mistake::DroppedPhase), 64);
    assert!(dropped.contains("warp 0 waits for the phase of parity"), "{dropped}");
    assert!(dropped.contains("32 of 32 arrivals"), "{dropped}");
}

#[test]
fn mbarriers_are_initialized_once_and_before_use() {
    let misuse = |describe: for<'k> fn(&Kernel<'k>, Given<'k>)| misuse(&entry(describe), 32);
    let unmade = misuse(|k, given| k.mbarrier_arrive(given.full));
    assert!(matches!(unmade, ProxyMisuse::NoBarrier { .. }), "{unmade}");
    let again = misuse(|k, given| k.mbarrier_init(given.full, 32));
    assert!(matches!(again, ProxyMisuse::BarrierExists { .. }), "{again}");
    let none = misuse(|k, given| k.when(k.tid_x().eq(0), || k.mbarrier_init(given.full, 0)));
    assert!(matches!(none, ProxyMisuse::BarrierCount { count: 0, .. }), "{none}");
    let overwritten = misuse(|k, given| {
        init(k, given);
        given.full.reinterpret::<u32>().store(0, 1);
        k.mbarrier_arrive(given.full);
    });
    assert!(matches!(overwritten, ProxyMisuse::BarrierOverwritten { .. }), "{overwritten}");
    let unfenced = misuse(|k, given| {
        k.when(k.tid_x().eq(0), || k.mbarrier_init(given.full, 1));
        k.barrier();
        load_first(k, given, 0, 0);
        k.mbarrier_wait_parity(given.full, 0);
    });
    assert!(matches!(unfenced, ProxyMisuse::UnfencedBarrier { .. }), "{unfenced}");
    let parity = misuse(|k, given| {
        init(k, given);
        k.mbarrier_wait_parity(given.full, k.tid_x() + 2);
    });
    assert!(matches!(parity, ProxyMisuse::Parity { parity: 2, .. }), "{parity}");
    let bytes = misuse(|k, given| {
        init(k, given);
        k.mbarrier_expect_tx(given.full, 1 << 20);
    });
    assert!(matches!(bytes, ProxyMisuse::TransactionBytes { bytes: 0x10_0000, .. }), "{bytes}");
}

#[test]
fn an_invalidated_mbarrier_can_be_initialized_again() {
    let program = entry(|k, given| {
        k.when(k.tid_x().eq(0), || {
            k.mbarrier_init(given.full, 1);
            k.mbarrier_arrive(given.full);
            k.mbarrier_inval(given.full);
            k.mbarrier_init(given.full, 2);
        });
        k.barrier();
        k.when(k.tid_x().lt(2), || k.mbarrier_arrive(given.full));
        k.mbarrier_wait_parity(given.full, 0);
        let done = k.mbarrier_test_wait_parity(given.full, 1);
        given.target.store(k.tid_x(), done.select(1u32, 2u32));
    });
    assert_eq!(run(&program, 64)[..64], [2; 64]);
}

#[test]
fn addresses_of_copies_are_checked() {
    let misuse = |describe: for<'k> fn(&Kernel<'k>, Given<'k>)| {
        let program = entry(move |k, given| {
            init(k, given);
            k.when(k.tid_x().eq(0), || {
                k.mbarrier_arrive_expect_tx(given.full, TILE_BYTES);
                describe(k, given);
            });
            k.mbarrier_wait_parity(given.full, 0);
        });
        run_with(&program, 32, 0, TensorMapSwizzle::None).unwrap_err()
    };
    let tilted = misuse(|k, given| {
        k.cp_async_bulk_tensor_2d_load(given.tiles.offset(4), given.from, [0, 0], given.full);
    });
    assert!(matches!(tilted.kind, FaultKind::Misaligned { bytes: 128, .. }), "{tilted}");
    let far = misuse(|k, given| {
        let to = given.tiles.offset(i64::from(TILE_BYTES));
        k.cp_async_bulk_tensor_2d_load(to, given.from, [0, 0], given.full);
    });
    assert!(matches!(far.kind, FaultKind::OutOfBounds { .. }), "{far}");
    let short = misuse(|k, given| {
        k.cp_async_bulk_load(given.tiles, given.source, 20, given.full);
    });
    assert!(matches!(short.kind, FaultKind::AsyncProxy(misuse)
        if matches!(*misuse, ProxyMisuse::CopyAlignment { bytes: 20, .. })));
    let past = misuse(|k, given| {
        let from = given.source.offset(i64::from(ROWS * COLUMNS));
        k.cp_async_bulk_load(given.tiles, from, 16, given.full);
    });
    assert!(matches!(past.kind, FaultKind::OutOfBounds { .. }), "{past}");
}

#[test]
fn invalid_tensor_map_bytes_are_refused() {
    let program = entry(|k, given| {
        init(k, given);
        load_first(k, given, 0, 0);
        k.mbarrier_wait_parity(given.full, 0);
    });
    let memory = Memory::new(1 << 20);
    let request = Launch { block: [32, 1, 1], shared_bytes: TILE_BYTES, ..Launch::default() };
    let fault = launch(&program, &request, &memory).unwrap_err();
    let not_encoded = matches!(&fault.kind, FaultKind::AsyncProxy(misuse)
        if matches!(**misuse, ProxyMisuse::Map { error: TensorMapError::NotEncoded, .. }));
    assert!(not_encoded, "{fault}");
}

/// The first warp fills the tile with the index of the thread, and thread 0 stores it.
fn store(wrong: &'static str) -> Program {
    entry(move |k, given| {
        init(k, given);
        let fill = |value: u32| {
            for row in 0..TILE_ROWS {
                given.tiles.at(k.tid_x()).store(row * TILE_COLUMNS, k.tid_x() + value);
            }
        };
        k.when(k.warp().eq(0), || {
            fill(100);
            if wrong != "no fence" {
                k.fence_proxy_async();
            }
        });
        k.barrier();
        k.when(k.tid_x().eq(0), || {
            k.cp_async_bulk_tensor_2d_store(given.to, [0, 0], given.tiles);
            k.cp_async_bulk_commit_group();
            if wrong != "no wait" {
                k.cp_async_bulk_wait_group_read(if wrong == "one open" { 1 } else { 0 });
            }
        });
        k.barrier();
        k.when(k.warp().eq(0), || fill(200));
    })
}

#[test]
fn a_store_reads_its_source_before_it_may_be_used_again() {
    let out = run(&store("nothing"), 64);
    assert!((0..TILE_COLUMNS).all(|column| out[column as usize] == column + 100));
    assert!(matches!(misuse(&store("no fence"), 64), ProxyMisuse::UnfencedSource { .. }));
    for wrong in ["no wait", "one open"] {
        assert!(matches!(misuse(&store(wrong), 64), ProxyMisuse::SourceInFlight { .. }), "{wrong}");
    }
}

#[test]
fn contiguous_bytes_are_copied_both_ways() {
    let program = entry(|k, given| {
        init(k, given);
        k.when(k.tid_x().eq(0), || {
            k.mbarrier_arrive_expect_tx(given.full, 64);
            k.cp_async_bulk_load(given.tiles.offset(4), given.source.offset(8), 64, given.full);
            k.mbarrier_wait_parity(given.full, 0);
            k.cp_async_bulk_store(given.target.offset(12), given.tiles.offset(4), 48);
            k.cp_async_bulk_commit_group();
            k.cp_async_bulk_wait_group(0);
        });
    });
    let out = run(&program, 32);
    let want: Vec<u32> = (8..20).map(|column| number(0, column)).collect();
    assert_eq!((out[11], &out[12..24], out[24]), (7, &want[..], 7));
}

#[test]
fn a_block_may_not_end_while_its_shared_memory_is_written() {
    let program = entry(|k, given| {
        init(k, given);
        load_first(k, given, 0, 0);
    });
    let fault = run_with(&program, 64, 0, TensorMapSwizzle::None).unwrap_err();
    assert!(fault.to_string().contains("the block ended while"), "{fault}");
    assert!(fault.site.text.contains("cp.async.bulk.tensor.2d"), "{fault}");
}

#[test]
fn setmaxnreg_moves_registers_between_warps() {
    let program = |more: u32| {
        entry(move |k, given| {
            k.when_else(
                k.warp().lt(4),
                || k.setmaxnreg_dec(40),
                || {
                    k.setmaxnreg_inc(more);
                    given.target.store(k.tid_x() - 128, k.tid_x());
                },
            );
        })
    };
    // 256 threads start with 255 registers each: 65536 ÷ 256, at most 255.
    assert_eq!(run(&program(256), 256)[5], 133);
    let more = entry(|k, _| {
        k.max_registers(168);
        k.when_else(k.warp().lt(4), || k.setmaxnreg_dec(120), || k.setmaxnreg_inc(232));
    });
    let waits = message(&more, 256);
    assert!(waits.contains("232 registers per thread"), "{waits}");
}

#[test]
fn named_barriers_and_mbarriers_work_in_one_block() {
    let program = entry(|k, given| {
        init(k, given);
        let group = NamedBarrier { id: k.constant(1), threads: 64 };
        k.when_else(
            k.warp().lt(2),
            || {
                k.when(k.warp().eq(1), || {
                    given.tiles.store(k.tid_x(), k.tid_x());
                });
                k.bar_sync(group, None);
                k.when(k.tid_x().eq(0), || k.mbarrier_arrive(given.full));
            },
            || k.mbarrier_wait_parity(given.full, 0),
        );
        given.target.store(k.tid_x(), given.tiles.load((k.tid_x() & 31) + 32));
    });
    let want: Vec<u32> = (0..96).map(|thread| thread % 32 + 32).collect();
    assert_eq!(run(&program, 96)[..96], want);
    let alone = entry(|k, given| {
        init(k, given);
        let group = NamedBarrier { id: k.constant(1), threads: 64 };
        k.when_else(
            k.warp().eq(0),
            || k.bar_sync(group, None),
            || k.mbarrier_wait_parity(given.full, 0),
        );
    });
    let waits = message(&alone, 64);
    assert!(waits.contains("warp 0 waits at barrier 1 for 64 threads"), "{waits}");
    assert!(waits.contains("warp 1 waits for the phase of parity 0"), "{waits}");
}
