//! Collectives as operations: results, order, strategies and failures.

use std::time::{Duration, Instant};

use half::bf16;
use retrograph_driver_sim::Config;
use retrograph_driver_sys::CUresult;
use retrograph_kernels::ops::{Add, Silu};
use retrograph_nccl_sim::{Fault, FaultKind, inject};
use retrograph_nccl_sys::{ncclResult_t, ncclUniqueId};
use retrograph_runtime::{
    Bindings, BuildError, BuildOptions, CollectiveGroup, Communicator, DeviceBuffer, Error, OpId,
    Pass, PassError, Policy, Program, Ranks, Slice, StepError, Strategy, UniqueId,
};

use crate::device::{device, device_of, simulated};
use crate::programs::build;
use crate::ranks::{self, Rank, simulated_ranks, two_ranks};

const LEN: usize = 96;
const TWO: Ranks = Ranks { rank: 0, world_size: 2 };

/// `y = silu(x)` and `z = x + x`, summed over all ranks in two collectives, then `w = y + z`, of
/// which the blocks are exchanged.
struct Summed {
    pass: Pass,
    x: Slice<f32>,
    w: Slice<f32>,
}

impl Summed {
    fn new(ranks: Ranks) -> Self {
        let mut pass = Pass::new("summed");
        let (x, w) = (pass.external("x", LEN), pass.external("w", LEN));
        let [y, z] = ["y", "z"].map(|name| pass.transient::<f32>(name, LEN));
        pass.launch(Silu { x, y }.launch().unwrap()).unwrap();
        let group = CollectiveGroup::new(ranks);
        pass.collectives(group.clone().all_reduce(y).unwrap()).unwrap();
        pass.launch(Add { a: x, b: x, out: z }.launch().unwrap()).unwrap();
        pass.collectives(group.clone().reduce_scatter(z).unwrap()).unwrap();
        pass.collectives(group.clone().all_gather(z).unwrap()).unwrap();
        pass.launch(Add { a: y, b: z, out: w }.launch().unwrap()).unwrap();
        pass.collectives(group.broadcast(w, 1).unwrap()).unwrap();
        Self { pass, x, w }
    }

    fn build(
        &self,
        rank: &Rank,
        options: impl Into<BuildOptions>,
    ) -> Result<(Program, DeviceBuffer<f32>), BuildError> {
        let stream = &rank.device.stream;
        let values: Vec<f32> =
            (0..LEN).map(|at| (at as f32 - 40.0) * 0.125 * (rank.number() + 1) as f32).collect();
        let x = DeviceBuffer::from_slice(stream, &values).unwrap();
        let w = DeviceBuffer::zeroed(&rank.device.context, LEN).unwrap();
        let mut bindings = Bindings::new();
        bindings.bind(self.x, &x).bind(self.w, &w).communicator(&rank.communicator);
        build(&rank.device, &self.pass, &bindings, options).map(|program| (program, w))
    }

    /// The bits after each of three steps.
    fn run(&self, rank: &Rank, policy: Policy) -> (Strategy, Vec<u32>) {
        let mut options = BuildOptions::default();
        options.policy = policy;
        options.nan_transients = true;
        let (mut program, w) = self.build(rank, options).unwrap();
        let mut bits = Vec::new();
        for _ in 0..3 {
            program.step(&rank.device.stream, &self.pass.controls()).unwrap();
            let values = w.download(&rank.device.stream).unwrap();
            bits.extend(values.iter().map(|value| value.to_bits()));
        }
        rank.communicator.require_healthy().unwrap();
        (program.report().strategy, bits)
    }
}

#[test]
fn every_strategy_gives_every_rank_the_same_bits() {
    for (policy, strategy) in [
        (Policy::Eager, Strategy::Eager),
        (Policy::Hybrid, Strategy::Hybrid),
        (Policy::Capture, Strategy::Capture),
        (Policy::Auto, Strategy::Hybrid),
    ] {
        let found = two_ranks(|rank| Summed::new(rank.communicator.ranks()).run(rank, policy));
        let silu = |x: f32| x / (1.0 + (-x).exp());
        for (used, bits) in &found {
            assert_eq!((*used, bits), (strategy, &found[0].1), "{policy:?}");
        }
        for (at, bits) in found[0].1.iter().enumerate() {
            let x = ((at % LEN) as f32 - 40.0) * 0.125;
            let expected = silu(x) + silu(2.0 * x) + 6.0 * x;
            let value = f32::from_bits(*bits);
            assert!((value - expected).abs() < 1e-4, "{policy:?} {at}: {value}, not {expected}");
        }
    }
}

#[test]
fn strategies_and_repetitions_have_the_same_bits_on_three_ranks() {
    let pass = |ranks| {
        let mut pass = Pass::new("sum");
        let x = pass.external::<f32>("x", LEN);
        pass.collectives(CollectiveGroup::new(ranks).all_reduce(x).unwrap()).unwrap();
        (pass, x)
    };
    let run = |policy| {
        let id = ranks::simulated().unique_id().unwrap();
        simulated_ranks(id, 3, |rank| {
            let (pass, x) = pass(rank.communicator.ranks());
            let values: Vec<f32> = (0..LEN).map(|at| 0.1 * (at + rank.number()) as f32).collect();
            let buffer = DeviceBuffer::from_slice(&rank.device.stream, &values).unwrap();
            let mut bindings = Bindings::new();
            bindings.bind(x, &buffer).communicator(&rank.communicator);
            let mut program = build(&rank.device, &pass, &bindings, policy).unwrap();
            program.step(&rank.device.stream, &pass.controls()).unwrap();
            let values = buffer.download(&rank.device.stream).unwrap();
            values.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        })
    };
    let eager = run(Policy::Eager);
    assert!(eager.iter().all(|bits| *bits == eager[0]));
    assert_eq!(run(Policy::Hybrid), eager);
    assert_eq!(run(Policy::Capture), eager);
}

#[test]
fn collectives_wait_for_each_other_and_overlap_with_the_rest() {
    let Summed { pass, .. } = Summed::new(TWO);
    let edges = pass.edges();
    let at: Vec<usize> = pass
        .operations()
        .iter()
        .enumerate()
        .filter(|(_, operation)| operation.collective_bytes().is_some())
        .map(|(at, _)| at)
        .collect();
    assert_eq!(at, [1, 3, 4, 6]);
    let waits = |later: usize, earlier: usize| {
        edges.into_operation(edges.operation(later)).iter().any(|edge| edge.from.index() == earlier)
    };
    assert!(waits(3, 1) && waits(4, 3), "a chain");
    assert!(!waits(2, 1), "the sum is computed during the first collective");
    let names: Vec<_> = at.iter().map(|&at| pass.operations()[at].name()).collect();
    assert_eq!(names, ["all_reduce", "reduce_scatter", "all_gather", "broadcast"]);
}

#[test]
fn two_collectives_over_other_buffers_keep_their_order() {
    let mut pass = Pass::new("independent");
    let [a, b] = ["a", "b"].map(|name| pass.external::<f32>(name, 8));
    let add = |pass: &mut Pass, slice| -> OpId {
        pass.collectives(CollectiveGroup::new(TWO).all_reduce(slice).unwrap()).unwrap()
    };
    let (first, second) = (add(&mut pass, a), add(&mut pass, b));
    let edges = pass.edges();
    assert_eq!(edges.into_operation(second)[0].from, first);
}

#[test]
fn an_operation_can_wait_for_one_that_shares_no_bytes_with_it() {
    let mut pass = Pass::new("independent");
    let [a, b, c] = ["a", "b", "c"].map(|name| pass.external::<f32>(name, 8));
    let mut add = |out| pass.launch(Add { a, b: a, out }.launch().unwrap()).unwrap();
    let (first, later) = (add(b), add(c));
    let waits = |pass: &Pass| {
        let edges = pass.edges();
        edges.into_operation(later).iter().any(|edge| edge.from == first)
    };
    assert!(!waits(&pass));
    let error = pass.order(later, first).unwrap_err();
    assert_eq!(error, PassError::NotInOrder { first: later, later: first });
    assert!(error.to_string().contains("operation #0 cannot wait for #1"), "{error}");
    let mut other = Pass::new("other");
    let x = other.external::<f32>("x", 8);
    let theirs = other.fill(x, 0).unwrap();
    for (first, later) in [(theirs, later), (first, theirs)] {
        let error = pass.order(first, later).unwrap_err();
        assert_eq!(error, PassError::OtherPass { operation: theirs, pass: "independent".into() });
    }
    assert!(!waits(&pass));
    pass.order(first, later).unwrap();
    assert!(waits(&pass));
    let device = device();
    let buffers = [1.0, 2.0, 3.0].map(|x| DeviceBuffer::from_slice(&device.stream, &[x; 8]));
    let [x, y, z] = buffers.map(Result::unwrap);
    let mut bindings = Bindings::new();
    bindings.bind(a, &x).bind(b, &y).bind(c, &z);
    for policy in [Policy::Eager, Policy::Capture, Policy::Manual] {
        let mut program = build(&device, &pass, &bindings, policy).unwrap();
        program.step(&device.stream, &pass.controls()).unwrap();
        assert_eq!(z.download(&device.stream).unwrap(), [2.0; 8], "{policy:?}");
    }
}

/// Gathers the blocks of a buffer in memory of the communicator.
fn gathered(rank: &Rank, policy: Policy) -> Vec<f32> {
    let ranks = rank.communicator.ranks();
    let mut pass = Pass::new("gather");
    let x = pass.external::<f32>("x", LEN);
    pass.collectives(CollectiveGroup::new(ranks).all_gather(x).unwrap()).unwrap();
    let buffer = rank.communicator.allocate::<f32>(LEN).unwrap();
    let values: Vec<f32> = (0..LEN).map(|at| (at + 1000 * rank.number()) as f32).collect();
    buffer.upload(&rank.device.stream, &values).unwrap();
    let mut bindings = Bindings::new();
    bindings.bind(x, &buffer).communicator(&rank.communicator);
    let mut program = build(&rank.device, &pass, &bindings, policy).unwrap();
    program.step(&rank.device.stream, &pass.controls()).unwrap();
    buffer.download(&rank.device.stream).unwrap()
}

#[test]
fn memory_of_a_communicator_is_gathered_as_other_memory() {
    let expected: Vec<f32> = (0..LEN).map(|at| (at + 1000 * (at / (LEN / 2))) as f32).collect();
    for policy in [Policy::Eager, Policy::Capture, Policy::Hybrid] {
        let found = two_ranks(|rank| gathered(rank, policy));
        assert_eq!(found, [expected.clone(), expected.clone()], "{policy:?}");
    }
}

#[test]
fn memory_of_a_communicator_is_freed_also_after_an_abort() {
    for aborts in [false, true] {
        two_ranks(|rank| {
            let context = &rank.device.context;
            // Free memory of the device would depend on other processes.
            let is_allocated = |address| {
                context.bind().unwrap();
                let (mut base, mut size) = (0, 0);
                // SAFETY: the places are valid, and any address may be asked for.
                let code = unsafe {
                    (context.table().cuMemGetAddressRange_v2)(&mut base, &mut size, address)
                };
                code == CUresult::CUDA_SUCCESS
            };
            let buffer = rank.communicator.allocate::<u8>(64 << 20).unwrap();
            let address = buffer.address();
            assert!(is_allocated(address));
            if aborts {
                rank.communicator.abort();
                let error = rank.communicator.allocate::<u8>(1).unwrap_err();
                assert!(matches!(error, Error::NotCalled { .. }), "{error}");
                assert!(error.to_string().contains("aborted"), "{error}");
            }
            drop(buffer);
            rank.device.stream.synchronize().unwrap();
            assert!(!is_allocated(address));
        });
    }
}

#[test]
fn memory_that_a_device_lacks_is_refused_before_other_ranks_know() {
    two_ranks(|rank| {
        let error = rank.communicator.allocate::<u8>(1 << 50).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { requested, .. } if requested == 1 << 50));
    });
}

#[test]
fn a_group_mixes_dtypes() {
    let found = two_ranks(|rank| {
        let ranks = rank.communicator.ranks();
        let mut pass = Pass::new("mixed dtypes");
        let (wide, narrow) = (pass.external::<f64>("wide", 2), pass.external::<bf16>("narrow", 4));
        let group = CollectiveGroup::new(ranks).all_reduce(wide).unwrap();
        pass.collectives(group.all_gather(narrow).unwrap()).unwrap();
        assert_eq!(pass.operations()[0].name(), "all_reduce_all_gather");
        assert_eq!(pass.operations()[0].collective_bytes(), Some(16 + 8));
        let (stream, number) = (&rank.device.stream, rank.number() as f32);
        let first = DeviceBuffer::from_slice(stream, &[1e300, f64::from(number)]).unwrap();
        let values = [number; 4].map(bf16::from_f32);
        let second = DeviceBuffer::from_slice(stream, &values).unwrap();
        let mut bindings = Bindings::new();
        bindings.bind(wide, &first).bind(narrow, &second).communicator(&rank.communicator);
        let mut program = build(&rank.device, &pass, &bindings, Policy::Auto).unwrap();
        program.step(stream, &pass.controls()).unwrap();
        let narrow = second.download(stream).unwrap().into_iter().map(f32::from).collect();
        (first.download(stream).unwrap(), narrow)
    });
    let expected: (Vec<f64>, Vec<f32>) = (vec![2e300, 1.0], vec![0.0, 0.0, 1.0, 1.0]);
    assert_eq!(found, [expected.clone(), expected]);
}

#[test]
fn the_report_counts_collectives_bytes_and_overlap() {
    two_ranks(|rank| {
        let (program, _) =
            Summed::new(rank.communicator.ranks()).build(rank, Policy::Auto).unwrap();
        let report = program.report();
        assert_eq!(report.collectives.operations, 4);
        assert_eq!(report.collectives.bytes, 4 * LEN * 4);
        assert_eq!(report.collectives.overlapping, 1, "z = x + x");
        assert!(report.library_nodes >= 4);
        let text = report.to_string();
        assert!(text.contains("collectives 4 of 1536 bytes, during which 1"), "{text}");
    });
}

#[test]
fn pictures_draw_collectives_in_their_own_colour() {
    let Summed { pass, .. } = Summed::new(TWO);
    let svg = pass.to_svg(None);
    let text = roxmltree::Document::parse(&svg).unwrap();
    let group = text
        .descendants()
        .find(|node| node.attribute("data-scope") == Some("collectives between devices"));
    let group = group.unwrap();
    assert_eq!(group.attribute("fill"), Some("#7a3fd1"));
    let drawn = group.children().filter(|node| node.attribute("data-op").is_some()).count();
    assert_eq!(drawn, 4);
    assert_eq!(svg.matches("#7a3fd1").count(), 2, "the group and its line in the legend");
    assert_eq!(pass.to_dot().matches("fillcolor").count(), 4);
}

#[test]
fn descriptions_that_cannot_work_are_refused() {
    let mut pass = Pass::new("refused");
    let (odd, even) = (pass.external::<f32>("odd", 7), pass.external::<f32>("even", 8));
    let group = CollectiveGroup::new(TWO);
    let uneven = PassError::NotDivisible { len: 7, count: 2 };
    assert_eq!(group.clone().reduce_scatter(odd).unwrap_err(), uneven);
    assert_eq!(group.clone().all_gather(odd).unwrap_err(), uneven);
    let missing = group.clone().broadcast(even, 2).unwrap_err();
    assert_eq!(missing, PassError::NoSuchRank { rank: 2, count: 2 });
    pass.collectives(group.clone().all_reduce(even).unwrap()).unwrap();
    let other = CollectiveGroup::new(Ranks { rank: 1, world_size: 2 }).all_reduce(even).unwrap();
    assert!(matches!(pass.collectives(other), Err(PassError::OtherRanks { .. })));
    let empty = pass.collectives(group.clone()).unwrap_err();
    assert_eq!(empty, PassError::NoCollectives);
    let twice = group.all_reduce(even).unwrap().all_reduce(even.slice(0..4)).unwrap();
    assert!(matches!(pass.collectives(twice), Err(PassError::Aliased { .. })));
}

#[test]
fn ranks_that_do_not_exist_are_refused() {
    let slice = Pass::new("ranks").external::<f32>("x", 8);
    for ranks in
        [(0, 0), (5, 2), (usize::MAX, 2)].map(|(rank, count)| Ranks { rank, world_size: count })
    {
        let Ranks { rank, world_size: count } = ranks;
        let group = CollectiveGroup::new(ranks);
        let refused = [
            group.clone().all_reduce(slice),
            group.clone().reduce_scatter(slice),
            group.clone().all_gather(slice),
        ];
        for refused in refused {
            assert_eq!(refused.unwrap_err(), PassError::NoSuchRank { rank, count });
        }
        assert!(group.broadcast(slice, 0).is_err());
        let (device, nccl) = (device_of(&simulated(Config::default())), ranks::simulated());
        let id = nccl.unique_id().unwrap();
        let error = Communicator::join(&nccl, &device.context, id, ranks).unwrap_err();
        let named = format!("no rank {rank} among {count}");
        assert!(matches!(error, Error::NotCalled { .. }), "{error}");
        assert!(error.to_string().contains(&named), "{error}");
    }
}

#[test]
fn a_refused_group_leaves_the_pass_unchanged() {
    let mut pass = Pass::new("unchanged");
    let wrong = Pass::new("other").external::<f32>("x", 8);
    let x = pass.external::<f32>("x", 8);
    let refused = pass.collectives(CollectiveGroup::new(TWO).all_reduce(wrong).unwrap());
    assert!(matches!(refused, Err(PassError::WrongPass { .. })));
    assert_eq!(pass.buffers().len(), 1);
    let four = CollectiveGroup::new(Ranks { rank: 0, world_size: 4 });
    pass.collectives(four.all_reduce(x).unwrap()).unwrap();
}

#[test]
fn a_program_needs_the_communicator_that_its_pass_was_described_for() {
    let device = device_of(&simulated(Config::default()));
    let Summed { pass, x, w } = Summed::new(TWO);
    let [first, second] =
        [0; 2].map(|_| DeviceBuffer::<f32>::zeroed(&device.context, LEN).unwrap());
    let mut bindings = Bindings::new();
    bindings.bind(x, &first).bind(w, &second);
    let error = build(&device, &pass, &bindings, Policy::Auto).unwrap_err();
    assert!(
        matches!(&error, BuildError::NoCommunicator { operation } if operation == "all_reduce")
    );
    let nccl = ranks::simulated();
    let alone = Communicator::join(&nccl, &device.context, nccl.unique_id().unwrap(), Ranks::ONE);
    bindings.communicator(&alone.unwrap());
    let error = build(&device, &pass, &bindings, Policy::Auto).unwrap_err();
    assert!(error.to_string().contains("rank 0 of 2, but the communicator is rank 0 of 1"));
    let elsewhere = crate::device::device_of(&simulated(Config::default()));
    let alone =
        Communicator::join(&nccl, &elsewhere.context, nccl.unique_id().unwrap(), Ranks::ONE);
    bindings.communicator(&alone.unwrap());
    let error = build(&device, &pass, &bindings, Policy::Auto).unwrap_err();
    assert!(matches!(error, BuildError::Device(Error::WrongContext { .. })), "{error}");
}

#[test]
fn a_missing_library_says_how_to_get_it() {
    let path = std::path::Path::new("no/such/libnccl.so.2");
    // SAFETY: there is no such library.
    let error = unsafe { retrograph_runtime::Nccl::load_from(path) }.unwrap_err();
    let named = |tried: &str| tried.contains("no/such/libnccl.so.2");
    assert!(matches!(&error, Error::NoLibrary { library: "NCCL", tried, .. } if named(tried)));
    assert!(error.to_string().contains("pip install nvidia-nccl-cu13"), "{error}");
}

/// The unique id of a communicator in which `rank` meets `fault`.
fn id_with(rank: i32, fault: Fault) -> UniqueId {
    let id = ranks::simulated().unique_id().unwrap();
    inject(&raw(id), rank, fault);
    id
}

fn raw(id: UniqueId) -> ncclUniqueId {
    ncclUniqueId { internal: id.bytes().map(|byte| byte as _) }
}

#[test]
fn a_collective_that_cannot_be_captured_makes_later_steps_eager() {
    // The first call is that of the capture; both ranks then run the same collectives eagerly.
    let code = ncclResult_t::ncclSystemError;
    let id = id_with(0, Fault { at: 0, kind: FaultKind::Refuse(code) });
    let found = simulated_ranks(id, 2, |rank| {
        let summed = Summed::new(rank.communicator.ranks());
        let (strategy, bits) = summed.run(rank, Policy::Auto);
        let expected = if rank.number() == 0 { Strategy::Eager } else { Strategy::Hybrid };
        assert_eq!(strategy, expected);
        bits
    });
    assert_eq!(found[0], found[1]);
}

#[test]
fn a_failure_of_an_eager_collective_names_call_and_operation() {
    let code = ncclResult_t::ncclSystemError;
    let id = id_with(0, Fault { at: 1, kind: FaultKind::Refuse(code) });
    simulated_ranks(id, 1, |rank| {
        let mut pass = Pass::new("two");
        let x = pass.external::<f32>("x", 4);
        let group = CollectiveGroup::new(Ranks::ONE).all_reduce(x).unwrap();
        pass.collectives(group.clone()).unwrap();
        pass.set_scope("second");
        pass.collectives(group).unwrap();
        let buffer = DeviceBuffer::<f32>::zeroed(&rank.device.context, 4).unwrap();
        let mut bindings = Bindings::new();
        bindings.bind(x, &buffer).communicator(&rank.communicator);
        let mut program = build(&rank.device, &pass, &bindings, Policy::Eager).unwrap();
        let error = program.step(&rank.device.stream, &pass.controls()).unwrap_err();
        let StepError::Incomplete { operation, enqueued: 1, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(operation, "second/all_reduce");
        let text = error.to_string();
        assert!(text.contains("ncclAllReduce returned 2 (ncclSystemError"), "{text}");
        assert!(text.contains("NCCL says: an injected error"), "{text}");
    });
}

#[test]
fn ranks_that_disagree_get_an_error_with_both_sizes() {
    let id = id_with(1, Fault { at: 2, kind: FaultKind::OtherCount });
    simulated_ranks(id, 2, |rank| {
        let summed = Summed::new(rank.communicator.ranks());
        let (mut program, _w) = summed.build(rank, Policy::Auto).unwrap();
        program.step(&rank.device.stream, &summed.pass.controls()).unwrap();
        rank.device.stream.synchronize().unwrap();
        let text = rank.communicator.require_healthy().unwrap_err().to_string();
        let both = ["rank 0 runs ncclAllGather of 48", "rank 1 runs ncclAllGather of 49"];
        assert!(both.iter().all(|part| text.contains(part)), "{text}");
    });
}

#[test]
fn an_abort_ends_a_step_that_waits_for_a_missing_rank() {
    let id = id_with(1, Fault { at: 1, kind: FaultKind::Hang });
    simulated_ranks(id, 2, |rank| {
        let summed = Summed::new(rank.communicator.ranks());
        let (mut program, _w) = summed.build(rank, Policy::Auto).unwrap();
        let controls = summed.pass.controls();
        let since = Instant::now();
        program.step(&rank.device.stream, &controls).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                rank.communicator.abort();
            });
            rank.device.stream.synchronize().unwrap();
        });
        assert!(since.elapsed() < Duration::from_secs(20));
        let error = rank.communicator.require_healthy().unwrap_err();
        assert!(error.to_string().contains("aborted"), "{error}");
        rank.communicator.abort();
    });
}

#[test]
fn graphs_are_destroyed_before_their_communicator() {
    let nccl = ranks::simulated();
    let id = nccl.unique_id().unwrap();
    let device = device_of(&simulated(Config::default()));
    let mut pass = Pass::new("sum");
    let x = pass.external::<f32>("x", 4);
    pass.collectives(CollectiveGroup::new(Ranks::ONE).all_reduce(x).unwrap()).unwrap();
    let buffer = DeviceBuffer::<f32>::zeroed(&device.context, 4).unwrap();
    let communicator = Communicator::join(&nccl, &device.context, id, Ranks::ONE).unwrap();
    let mut bindings = Bindings::new();
    bindings.bind(x, &buffer).communicator(&communicator);
    let mut program = build(&device, &pass, &bindings, Policy::Auto).unwrap();
    program.step(&device.stream, &pass.controls()).unwrap();
    drop((bindings, communicator));
    assert_eq!(retrograph_nccl_sim::ranks(&raw(id)).len(), 1, "the program keeps it");
    drop(program);
    assert_eq!(retrograph_nccl_sim::ranks(&raw(id)).len(), 0, "destroyed, after the graph");
}

#[test]
fn passes_without_collectives_need_no_communicator() {
    let device = device();
    let mut pass = Pass::new("alone");
    let (x, y) = (pass.external::<f32>("x", 4), pass.external::<f32>("y", 4));
    pass.copy(x, y).unwrap();
    pass.copy(y.slice(0..2), x.slice(2..4)).unwrap();
    let [first, second] = [0; 2].map(|_| DeviceBuffer::<f32>::zeroed(&device.context, 4).unwrap());
    let mut bindings = Bindings::new();
    bindings.bind(x, &first).bind(y, &second);
    let program = build(&device, &pass, &bindings, Policy::Auto).unwrap();
    assert_eq!(program.report().collectives, Default::default());
    assert!(!program.report().to_string().contains("collectives"));
}
