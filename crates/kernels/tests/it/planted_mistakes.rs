//! Mistakes planted in the warp-specialized GEMM and in attention: the simulator must name each.
//!
//! A mistake edits one place of the generated PTX. The edit fails if it does not find that place.

use half::bf16;
use retrograph_driver_sim::{Config, Diagnostic};
use retrograph_kernels::ops::{AttentionShape, DType, FusedAttention};
use retrograph_kernels::{Dispatch, Launch, SmTarget, images};

use crate::fused_attention_case;
use crate::gemm_case::{
    Case, Format, Op, cluster_split_k_tiles, geometry, multistage_tiles, shape,
};
use crate::harness::Device;
use crate::support::numbers::Data;

/// One block computes both tiles. Each fills the six stages of the pipeline once.
const PRODUCT: Subject = Subject {
    entry: "gemm_bf16_nt_multistage_tma_128x128",
    problem: Problem::Product { shape: [256, 384, 128], grid: [1, 1, 1] },
    detect_races: false,
};
/// The blocks of a cluster compute all three tiles, each with a quarter of K. Each tile fills the
/// twelve stages of a pipeline once.
const CLUSTER_SPLIT_K: Subject = Subject {
    entry: "gemm_bf16_nt_multistage_tma_64x64_cluster_k4",
    problem: Problem::Product { shape: [64, 3072, 192], grid: [4, 1, 1] },
    detect_races: true,
};
/// The forward pass of attention: one block computes the tiles of two heads, each with one tile of
/// keys, so that the warpgroups take no turns.
const ATTENTION: Subject = Subject {
    entry: "flash_attention_bf16_wgmma_hd64",
    problem: Problem::Attention,
    detect_races: false,
};
/// The orders of warps in which a mistake is looked for. Few mistakes have an effect in all.
const SEEDS: u64 = 32;

fn target() -> SmTarget {
    SmTarget::arch_specific(90)
}

/// An entry in which mistakes are planted, and a problem that it solves.
#[derive(Clone, Copy)]
struct Subject {
    entry: &'static str,
    problem: Problem,
    detect_races: bool,
}

#[derive(Clone, Copy)]
enum Problem {
    /// Rows, inputs and outputs of a product.
    Product {
        shape: [usize; 3],
        grid: [u32; 3],
    },
    Attention,
}

impl Subject {
    fn image(self) -> &'static str {
        match self.problem {
            Problem::Product { .. } => "gemm_bf16_nt_multistage",
            Problem::Attention => "flash_attention_bf16",
        }
    }
}

/// The lines of the image, and the range of the entry in them.
struct Edited {
    subject: Subject,
    lines: Vec<String>,
    entry: std::ops::Range<usize>,
}

impl Edited {
    fn new(subject: Subject) -> Self {
        let text = images::ptx(subject.image(), target()).unwrap();
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        let is_start = |line: &String| line.contains(&format!(".entry {}(", subject.entry));
        let start = lines.iter().position(is_start).expect("the image has the entry");
        let end = start + lines[start..].iter().position(|line| line == "}").unwrap();
        Self { subject, lines, entry: start..end }
    }

    /// The line at the end of a path: the first line of the entry that starts with the first part,
    /// the next line after it that starts with the second part, and so on.
    fn find(&self, path: &[&str]) -> usize {
        let mut at = self.entry.start;
        for part in path {
            let is_part = |line: &String| line.trim_start().starts_with(part);
            let next = self.lines[at + 1..self.entry.end].iter().position(is_part);
            at += 1 + next
                .unwrap_or_else(|| panic!("{} has no {part} in {path:?}", self.subject.entry));
        }
        at
    }

    fn remove(&mut self, path: &[&str]) {
        let at = self.find(path);
        self.lines.remove(at);
        self.entry.end -= 1;
    }

    /// Replaces text that the line has once.
    fn replace(&mut self, path: &[&str], old: &str, new: &str) {
        let at = self.find(path);
        assert_eq!(self.lines[at].matches(old).count(), 1, "{old} in {}", self.lines[at]);
        self.lines[at] = self.lines[at].replace(old, new);
    }

    /// Moves a line after a later one.
    fn shift(&mut self, path: &[&str], target: &[&str]) {
        let (from, to) = (self.find(path), self.find(target));
        assert!(from < to, "{path:?} comes after {target:?}");
        let line = self.lines.remove(from);
        self.lines.insert(to, line);
    }

    fn run(&self, seed: u64) -> Option<Diagnostic> {
        let (text, mut config) = (self.lines.join("\n"), Config::default());
        (config.seed, config.detect_races) = (seed, self.subject.detect_races);
        let device = Device::with_edited_image(self.subject.image(), target(), &text, config);
        let (launch, dispatch) = match self.subject.problem {
            Problem::Product { shape, grid } => self.product(&device, shape, grid),
            Problem::Attention => self.attention(&device),
        };
        device.run_edited(&launch, dispatch)
    }

    fn product(
        &self,
        device: &Device,
        sizes: [usize; 3],
        grid: [u32; 3],
    ) -> (Launch<u64>, Dispatch) {
        let (shape, mut data) = (shape(sizes), Data::new("planted mistakes"));
        let ([a, b, len], _) = Op::Fprop.lens(shape);
        let (a, b) = (data.uniform(a, 2.0), data.uniform(b, 2.0));
        let case = Case::new(Op::Fprop, shape, &a, &b);
        let (compute, left, format) = (DType::Bf16, Format::Bf16, Format::Bf16);
        let case = Case { compute, left, format, ..case };
        let result = device.upload(&vec![bf16::MAX; len]);
        let launch = case.launch_rounded(device, result).unwrap();
        let split_k = cluster_split_k_tiles(target());
        let tiles = multistage_tiles(target()).iter().chain(split_k);
        let mut candidates = tiles.map(|tile| geometry(&launch, target(), *tile));
        let dispatch = candidates.find(|dispatch| dispatch.entry == self.subject.entry).unwrap();
        assert_eq!(dispatch.grid, grid);
        (launch, dispatch)
    }

    fn attention(&self, device: &Device) -> (Launch<u64>, Dispatch) {
        let shape = AttentionShape { batch: 1, seq: 128, heads: 2, kv_heads: 1, head_dim: 64 };
        let mut data = Data::new("planted mistakes in attention");
        let mut upload = |heads| {
            let len = shape.seq * heads * shape.head_dim;
            fused_attention_case::upload(device, DType::Bf16, &data.uniform(len, 2.0))
        };
        let (q, k, v) = (upload(shape.heads), upload(shape.kv_heads), upload(shape.kv_heads));
        let out = device.unwritten(q.len());
        let lse = device.unwritten(shape.heads * shape.seq);
        let (split_f16, bounds, scale, softcap) = (None, None, 0.1, None);
        let attention =
            FusedAttention { q, k, v, out, lse, split_f16, bounds, shape, scale, softcap };
        let launch = attention.launch().unwrap();
        let dispatch = launch.dispatch(target());
        assert_eq!((dispatch.entry, dispatch.grid), (self.subject.entry, [2, 1, 1]));
        (launch, Dispatch { grid: [1, 1, 1], ..dispatch })
    }
}

/// The fault that must be found.
#[derive(Clone, Copy)]
struct Expected {
    /// A part of its message.
    says: &'static str,
    /// The start of the instruction that it names.
    at: &'static str,
}

/// Runs the product with an edit and checks the fault.
#[track_caller]
fn check(expected: Expected, edit: impl Fn(&mut Edited)) {
    check_in(PRODUCT, expected, edit);
}

/// Runs an entry with an edit, in several orders of its warps, until the fault is found.
#[track_caller]
fn check_in(subject: Subject, expected: Expected, edit: impl Fn(&mut Edited)) {
    let mut edited = Edited::new(subject);
    edit(&mut edited);
    let mut others = Vec::new();
    let is_expected = |found: &Diagnostic| {
        let site = found.site.as_ref().expect("a fault of the kernel");
        assert_eq!(site.kernel, subject.entry, "{found}");
        found.message.contains(expected.says) && site.text.starts_with(expected.at)
    };
    for found in (0..SEEDS).filter_map(|seed| edited.run(seed)) {
        if is_expected(&found) {
            return;
        }
        others.push(found.to_string());
    }
    panic!("not found: {}; found: {others:?}", expected.says);
}

const FULL: &[&str] = &["wgmma.commit_group", "mbarrier.try_wait"];
const PRODUCER: &str = "fence.mbarrier_init";
const PREVIOUS_READ: &str = "wgmma.wait_group.sync.aligned 1";
const ALL_READ: &str = "wgmma.wait_group.sync.aligned 0";
const ARRIVE: &str = "mbarrier.arrive";
const TRY_WAIT: &str = "mbarrier.try_wait.parity";

const IN_FLIGHT: &str = "a read of shared memory at";
const ACCUMULATOR: &str = "an accumulator was written while its wgmma is in flight";

#[test]
fn kernels_without_mistakes_pass() {
    for subject in [PRODUCT, CLUSTER_SPLIT_K, ATTENTION] {
        for seed in 0..8 {
            assert_eq!(Edited::new(subject).run(seed), None, "{}", subject.entry);
        }
    }
}

#[test]
fn an_early_copy_of_the_next_queries_is_found() {
    // The producer does not wait until both warpgroups have read the queries: a late warp then
    // waits for a phase that has passed.
    let released = [&["wgmma.commit_group"; 4][..], &["mbarrier.arrive"]].concat();
    let stuck = Expected { says: "no warp of the block can make progress", at: TRY_WAIT };
    check_in(ATTENTION, stuck, |edited| {
        edited.remove(&[&released[..], &[TRY_WAIT]].concat());
        edited.remove(&[&released[..], &["$mbarrier", "@!"]].concat());
    });
}

#[test]
fn a_dropped_phase_is_found() {
    // The consumers do not release a stage, so the producer never fills it again.
    let stuck = Expected { says: "of parity 0 of the mbarrier", at: TRY_WAIT };
    let says = "no warp of the block can make progress";
    check(Expected { says, ..stuck }, |edited| edited.remove(&[PREVIOUS_READ, ARRIVE]));
    // The producer waits for the wrong phase of an empty stage.
    check(stuck, |edited| edited.replace(&[PRODUCER, "xor.b32"], ", 1;", ", 0;"));
    // The parity of the consumers does not change after the last stage.
    let early = Expected { says: IN_FLIGHT, at: PREVIOUS_READ };
    let parity = [FULL, &["selp.u32", "selp.u32"]].concat();
    check(early, |edited| edited.replace(&parity, "1, 0", "0, 0"));
    // The consumers do not wait for a full stage.
    check(early, |edited| {
        edited.remove(FULL);
        // The branch back to it.
        edited.remove(&["wgmma.commit_group", "$mbarrier", "@!"]);
    });
}

#[test]
fn a_wrong_transaction_count_is_found() {
    // A stage expects the bytes of a and 16384 bytes of b.
    let bytes = [PRODUCER, "min.u32", "add.u32"];
    let early = Expected { says: IN_FLIGHT, at: PREVIOUS_READ };
    check(early, |edited| edited.replace(&bytes, " 16384;", " 8192;"));
    let late = Expected { says: "needs 0 of 1 arrivals and 16 bytes", at: TRY_WAIT };
    check(late, |edited| edited.replace(&bytes, " 16384;", " 16400;"));
}

#[test]
fn a_missing_fence_is_found() {
    let says = "a bulk store reads shared memory at";
    let at = "cp.async.bulk.tensor.3d.global";
    check(Expected { says, at }, |edited| edited.remove(&["stmatrix", "fence.proxy.async"]));
    let says = "accumulators are used without wgmma.fence";
    check(Expected { says, at: "wgmma.mma_async" }, |edited| edited.remove(&["wgmma.fence"]));
}

#[test]
fn an_early_overwrite_of_a_stage_is_found() {
    // The consumers release stages that `wgmma` still reads.
    let early = Expected { says: IN_FLIGHT, at: PREVIOUS_READ };
    check(early, |edited| edited.shift(&[PREVIOUS_READ], &[PREVIOUS_READ, ARRIVE, "$"]));
    let early = Expected { says: IN_FLIGHT, at: ALL_READ };
    check(early, |edited| edited.shift(&[ALL_READ], &[ALL_READ, ARRIVE, "$"]));
    check(early, |edited| edited.remove(&[PREVIOUS_READ]));
    // The next tile is written to a buffer that a bulk store still reads.
    let says = "wait with cp.async.bulk.wait_group.read";
    let read = [ALL_READ, "cp.async.bulk.wait_group.read 0"];
    check(Expected { says, at: "stmatrix" }, |edited| edited.remove(&read));
}

#[test]
fn an_order_that_reads_unwritten_memory_is_found() {
    // A bulk store before the barrier of the threads that write its source.
    let fence = ["stmatrix", "fence.proxy.async"];
    let barrier = [&fence[..], &["bar.sync"]].concat();
    let store = [&fence[..], &["cp.async.bulk.commit_group", "$"]].concat();
    let says = "wait with cp.async.bulk.wait_group.read";
    check(Expected { says, at: "stmatrix" }, |edited| edited.shift(&barrier, &store));
    // Consumers start with the second stage.
    let says = "no warp of the block can make progress";
    let first_stage = [PRODUCER, "$when3_else", "mov.u32"];
    let start = Expected { says, at: TRY_WAIT };
    check(start, |edited| edited.replace(&first_stage, ", 0;", ", 1;"));
    // Consumers read every second stage.
    let stage_offset = [FULL, &["mul.lo.u32"]].concat();
    let skipped = Expected { says: IN_FLIGHT, at: "wgmma.wait_group" };
    check(skipped, |edited| edited.replace(&stage_offset, ", 8192;", ", 16384;"));
    // Accumulators are scaled before the products have ended, in the last tile of the block, too.
    let unfinished = Expected { says: ACCUMULATOR, at: "wgmma.mma_async" };
    check(unfinished, |edited| edited.remove(&[ALL_READ]));
    let one_tile = |edited: &mut Edited| {
        edited.remove(&[ALL_READ]);
        let (shape, grid) = ([128, 384, 128], [1, 1, 1]);
        edited.subject.problem = Problem::Product { shape, grid };
    };
    check(Expected { at: "", ..unfinished }, one_tile);
}

/// Barriers of split-K in a cluster, in the consumers and in the producer.
#[test]
fn a_missing_barrier_of_a_cluster_is_found() {
    const RELAXED: &str = "barrier.cluster.arrive.relaxed";
    const ARRIVE: &str = "barrier.cluster.arrive.aligned";
    const WAIT: &str = "barrier.cluster.wait";
    let check = |says, at, edit: &dyn Fn(&mut Edited)| {
        check_in(CLUSTER_SPLIT_K, Expected { says, at }, edit);
    };
    let remove_barrier = |edited: &mut Edited, path: &[&str]| {
        edited.remove(&[path, &[WAIT]].concat());
        edited.remove(path);
    };
    // Accumulators are stored before the first block has read its stages.
    let says = "of shared memory is not ordered with a read of it";
    check(says, "st.shared::cluster", &|edited| {
        remove_barrier(edited, &[ALL_READ, RELAXED]);
        remove_barrier(edited, &[PRODUCER, RELAXED]);
    });
    // Accumulators are added before they are stored.
    let says = "of shared memory is not ordered with a write of it";
    check(says, "ld.shared.v4", &|edited| {
        remove_barrier(edited, &[ALL_READ, ARRIVE]);
        remove_barrier(edited, &[PRODUCER, RELAXED]);
    });
    // The next tile is loaded before the accumulators are added.
    check("a bulk copy to 0x0..0x2000 is in flight", "ld.shared.v4", &|edited| {
        edited.remove(&[ALL_READ, ARRIVE, "bar.sync"]);
        edited.remove(&[PRODUCER, RELAXED, "bar.sync"]);
    });
    // The producer does not arrive.
    check("waits at the barrier of the cluster", "", &|edited| {
        remove_barrier(edited, &[PRODUCER, RELAXED]);
    });
}
