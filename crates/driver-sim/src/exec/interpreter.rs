//! The interpreter: one warp, instruction after instruction.
//!
//! [`interpret`] is compiled several times, once for each set of vector instructions, and the best
//! one that the host has is chosen when a launch starts. All of them give the same bits: a fused
//! multiply-add is exact with or without an instruction for it, only slower without.

use super::access::{Memories, Trouble, load_any, store_any};
use super::atomics;
use super::cross::{Gathering, gather, match_all, match_any, reduce, shuffle, shuffle_in_range};
use super::fault::FaultKind;
use super::float::{self, canonical, d, f};
use super::lanes;
use super::matrix::{File, Operation, move_matrix, multiply};
use super::program::{LANES, Op, Program, ShuffleMode, Undefined};
use super::vector::{Slots, compare, map1, map2, map3, select};
use super::warp::Warp;
use super::words::{load_words, store_words};

/// Why a warp stopped running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// All lanes have exited.
    Done,
    /// The warp waits at a barrier, with the count of threads that it states or 0.
    Barrier {
        /// Which barrier.
        id: u32,
        /// The count.
        count: u32,
        /// Whether it only arrives and goes on.
        arrive: bool,
    },
    /// It has used up its turn.
    Turn,
    /// A lane faulted at `warp.pc`.
    Fault(FaultKind, u32),
}

/// What the warps of a block run on.
pub(super) struct Machine<'a> {
    /// The kernel.
    pub(super) program: &'a Program,
    /// The memories.
    pub(super) memories: Memories<'a>,
    /// Instructions of warps that were executed in this block so far.
    pub(super) executed: u64,
    /// What the threads contribute to barriers that reduce.
    pub(super) contributions: Contributions,
}

/// For each barrier how many threads and how many true predicates: of those that wait, and of those
/// that it let go the last time.
#[derive(Clone, Debug, Default)]
pub(super) struct Contributions {
    waiting: [(u32, u32); 17],
    released: [(u32, u32); 17],
}

impl Contributions {
    fn add(&mut self, id: u32, threads: u32, votes: u32) {
        if let Some((count, sum)) = self.waiting.get_mut(id as usize) {
            *count += threads.count_ones();
            *sum += votes.count_ones();
        }
    }

    fn released(&self, id: u32) -> (u32, u32) {
        self.released.get(id as usize).copied().unwrap_or_default()
    }

    /// The barrier lets its threads go.
    pub(super) fn release(&mut self, id: u32) {
        if let Some(waiting) = self.waiting.get_mut(id as usize) {
            self.released[id as usize] = std::mem::take(waiting);
        }
    }
}

/// Runs a warp until it pauses, at most `turn` instructions.
///
/// # Safety
///
/// `file` must be the file of a warp of the program, and the host must have the vector
/// instructions that the interpreter was compiled for.
pub(super) type Interpreter = unsafe fn(&mut Machine<'_>, &mut Warp, *mut u8, u64) -> Pause;

/// The interpreter that suits the host.
pub(super) fn best() -> Interpreter {
    #[cfg(target_arch = "x86_64")]
    {
        let wide = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq");
        let fused = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        if wide && fused {
            return with_avx512;
        }
        if fused {
            return with_avx2;
        }
    }
    portable
}

/// Every interpreter that the host can run, for tests that compare them.
#[cfg(test)]
pub(super) fn all() -> Vec<Interpreter> {
    let mut list: Vec<Interpreter> = vec![portable, best()];
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        list.push(with_avx2);
    }
    list
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,bmi1,bmi2,popcnt,lzcnt")]
unsafe fn with_avx512(
    machine: &mut Machine<'_>,
    warp: &mut Warp,
    file: *mut u8,
    turn: u64,
) -> Pause {
    // SAFETY: by the contract of `Interpreter`.
    unsafe { interpret(machine, warp, file, turn) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn with_avx2(machine: &mut Machine<'_>, warp: &mut Warp, file: *mut u8, turn: u64) -> Pause {
    // SAFETY: by the contract of `Interpreter`.
    unsafe { interpret(machine, warp, file, turn) }
}

unsafe fn portable(machine: &mut Machine<'_>, warp: &mut Warp, file: *mut u8, turn: u64) -> Pause {
    // SAFETY: by the contract of `Interpreter`.
    unsafe { interpret(machine, warp, file, turn) }
}

/// Shifts clamp their amount at the width.
#[inline(always)]
fn shl32(a: u32, b: u32) -> u32 {
    if b > 31 { 0 } else { a << (b & 31) }
}

#[inline(always)]
fn shr32(a: u32, b: u32) -> u32 {
    if b > 31 { 0 } else { a >> (b & 31) }
}

#[inline(always)]
fn sar32(a: u32, b: u32) -> u32 {
    ((a as i32) >> b.min(31)) as u32
}

/// # Safety
///
/// As for [`Interpreter`].
#[inline(always)]
unsafe fn interpret(machine: &mut Machine<'_>, warp: &mut Warp, file: *mut u8, turn: u64) -> Pause {
    let program = machine.program;
    let code = program.code.as_ptr();
    let mut left = turn;
    macro_rules! pause {
        ($pause:expr) => {{
            machine.executed += turn - left;
            return $pause;
        }};
    }
    macro_rules! attempt {
        ($result:expr) => {
            if let Err((kind, lane)) = $result {
                let trouble: Trouble = (kind, lane);
                pause!(Pause::Fault(trouble.0, trouble.1))
            }
        };
    }
    macro_rules! unless_stuck {
        ($result:expr) => {
            if $result.is_err() {
                let lane = warp.live.trailing_zeros() & 31;
                pause!(Pause::Fault(FaultKind::BarrierDivergence, lane))
            }
        };
    }
    loop {
        if warp.pc >= warp.stop {
            unless_stuck!(warp.regroup());
        }
        if left == 0 {
            pause!(Pause::Turn);
        }
        left -= 1;
        // SAFETY: decoding ends every program with an exit and checks every branch, so that the
        // next instruction exists; slots and indices were made for the file and the tables.
        unsafe {
            let instruction = &*code.add(warp.pc as usize);
            let guard = file.add(instruction.guard as usize).cast::<u32>().read();
            let mask = warp.active & (guard ^ i32::from(instruction.negated) as u32);
            let extra = instruction.extra;
            let s = Slots { file, offsets: instruction.slots };
            if mask == 0 {
                warp.pc += 1;
                continue;
            }
            macro_rules! load {
                ($shared:literal, $count:literal) => {
                    if !load_words::<$shared, $count>(
                        &mut machine.memories,
                        (s, mask),
                        (program, extra),
                    ) {
                        let access = program.accesses.get_unchecked(extra as usize);
                        attempt!(load_any(&mut machine.memories, (s, mask), access));
                    }
                };
            }
            macro_rules! store {
                ($shared:literal, $count:literal) => {
                    if !store_words::<$shared, $count>(
                        &mut machine.memories,
                        (s, mask),
                        (program, extra),
                    ) {
                        let access = program.accesses.get_unchecked(extra as usize);
                        attempt!(store_any(&mut machine.memories, (s, mask), access));
                    }
                };
            }
            macro_rules! gathered {
                ($operand:literal) => {
                    match gather(warp, (s, $operand), mask) {
                        Ok(Gathering::Complete) => {}
                        Ok(Gathering::Incomplete) => {
                            unless_stuck!(warp.wait());
                            continue;
                        }
                        Err((kind, lane)) => pause!(Pause::Fault(kind, lane)),
                    }
                };
            }
            match instruction.op {
                Op::Move32 => map1(s, mask, |a: u32| a),
                Op::Not32 => map1(s, mask, |a: u32| !a),
                Op::Neg32 => map1(s, mask, |a: u32| a.wrapping_neg()),
                Op::Add32 => map2(s, mask, |a: u32, b: u32| a.wrapping_add(b)),
                Op::Sub32 => map2(s, mask, |a: u32, b: u32| a.wrapping_sub(b)),
                Op::MulLow32 => map2(s, mask, |a: u32, b: u32| a.wrapping_mul(b)),
                Op::MulHighU32 => {
                    map2(s, mask, |a: u32, b: u32| ((u64::from(a) * u64::from(b)) >> 32) as u32);
                }
                Op::And32 => map2(s, mask, |a: u32, b: u32| a & b),
                Op::Or32 => map2(s, mask, |a: u32, b: u32| a | b),
                Op::Xor32 => map2(s, mask, |a: u32, b: u32| a ^ b),
                Op::Shl32 => map2(s, mask, shl32),
                Op::ShrU32 => map2(s, mask, shr32),
                Op::ShrS32 => map2(s, mask, sar32),
                Op::MinU32 => map2(s, mask, |a: u32, b: u32| a.min(b)),
                Op::MaxU32 => map2(s, mask, |a: u32, b: u32| a.max(b)),
                Op::MinS32 => map2(s, mask, |a: i32, b: i32| a.min(b)),
                Op::MaxS32 => map2(s, mask, |a: i32, b: i32| a.max(b)),
                Op::DivU32 => map2(s, mask, lanes::div_u32),
                Op::RemU32 => map2(s, mask, lanes::rem_u32),
                Op::MadLow32 => {
                    map3(s, mask, |a: u32, b: u32, c: u32| a.wrapping_mul(b).wrapping_add(c));
                }
                Op::Select32 => select::<u32>(s, mask),
                Op::Select64 => select::<u64>(s, mask),
                Op::Move64 => map1(s, mask, |a: u64| a),
                Op::Add64 => map2(s, mask, |a: u64, b: u64| a.wrapping_add(b)),
                Op::Sub64 => map2(s, mask, |a: u64, b: u64| a.wrapping_sub(b)),
                Op::MulLow64 => map2(s, mask, |a: u64, b: u64| a.wrapping_mul(b)),
                Op::And64 => map2(s, mask, |a: u64, b: u64| a & b),
                Op::Or64 => map2(s, mask, |a: u64, b: u64| a | b),
                Op::Xor64 => map2(s, mask, |a: u64, b: u64| a ^ b),
                Op::Shl64 => map2(s, mask, |a: u64, b: u32| if b > 63 { 0 } else { a << (b & 63) }),
                Op::ShrU64 => {
                    map2(s, mask, |a: u64, b: u32| if b > 63 { 0 } else { a >> (b & 63) })
                }
                Op::ShrS64 => map2(s, mask, |a: i64, b: u32| a >> b.min(63)),
                Op::MadLow64 => {
                    map3(s, mask, |a: u64, b: u64, c: u64| a.wrapping_mul(b).wrapping_add(c));
                }
                Op::MulWideU32 => map2(s, mask, |a: u32, b: u32| u64::from(a) * u64::from(b)),
                Op::MulWideS32 => map2(s, mask, |a: i32, b: i32| i64::from(a) * i64::from(b)),
                Op::MadWideU32 => map3(s, mask, |a: u32, b: u32, c: u64| {
                    (u64::from(a) * u64::from(b)).wrapping_add(c)
                }),
                Op::MadWideS32 => map3(s, mask, |a: i32, b: i32, c: i64| {
                    (i64::from(a) * i64::from(b)).wrapping_add(c)
                }),
                Op::AddF32 => map2(s, mask, |a: u32, b: u32| canonical(f(a) + f(b))),
                Op::SubF32 => map2(s, mask, |a: u32, b: u32| canonical(f(a) - f(b))),
                Op::MulF32 => map2(s, mask, |a: u32, b: u32| canonical(f(a) * f(b))),
                Op::FmaF32 => {
                    map3(s, mask, |a: u32, b: u32, c: u32| canonical(f(a).mul_add(f(b), f(c))));
                }
                Op::DivF32 => map2(s, mask, |a: u32, b: u32| canonical(f(a) / f(b))),
                Op::MinF32 => map2(s, mask, float::min),
                Op::MaxF32 => map2(s, mask, float::max),
                Op::NegF32 => map1(s, mask, |a: u32| canonical(-f(a))),
                Op::AbsF32 => map1(s, mask, |a: u32| canonical(f(a).abs())),
                Op::SqrtF32 => map1(s, mask, |a: u32| canonical(f(a).sqrt())),
                Op::RcpF32 => map1(s, mask, |a: u32| canonical(1.0 / f(a))),
                Op::RsqrtF32 => map1(s, mask, float::rsqrt),
                Op::Exp2F32 => map1(s, mask, float::exp2),
                Op::Log2F32 => map1(s, mask, float::log2),
                Op::AddF64 => map2(s, mask, |a: u64, b: u64| float::result64(d(a) + d(b), &[a, b])),
                Op::SubF64 => map2(s, mask, |a: u64, b: u64| float::result64(d(a) - d(b), &[a, b])),
                Op::MulF64 => map2(s, mask, |a: u64, b: u64| float::result64(d(a) * d(b), &[a, b])),
                Op::FmaF64 => {
                    map3(s, mask, |a: u64, b: u64, c: u64| {
                        float::result64(d(a).mul_add(d(b), d(c)), &[a, c, b])
                    });
                }
                Op::DivF64 => map2(s, mask, |a: u64, b: u64| float::result64(d(a) / d(b), &[b, a])),
                Op::SqrtF64 => map1(s, mask, |a: u64| float::result64(d(a).sqrt(), &[a])),
                Op::NegF64 => map1(s, mask, float::neg64),
                Op::U32ToF32 => map1(s, mask, |a: u32| (a as f32).to_bits()),
                Op::S32ToF32 => map1(s, mask, |a: i32| (a as f32).to_bits()),
                Op::U32To64 => map1(s, mask, |a: u32| u64::from(a)),
                Op::S32To64 => map1(s, mask, |a: i32| i64::from(a)),
                Op::Low32 => map1(s, mask, |a: u64| a as u32),
                Op::F32ToF64 => map1(s, mask, float::widen),
                Op::F64ToF32 => map1(s, mask, float::narrow),
                Op::Equal32 => compare(s, mask, extra, |a: u32, b: u32| a == b),
                Op::LessU32 => compare(s, mask, extra, |a: u32, b: u32| a < b),
                Op::LessS32 => compare(s, mask, extra, |a: i32, b: i32| a < b),
                Op::EqualF32 => compare(s, mask, extra, |a: u32, b: u32| f(a) == f(b)),
                Op::LessF32 => compare(s, mask, extra, |a: u32, b: u32| f(a) < f(b)),
                Op::LessEqualF32 => compare(s, mask, extra, |a: u32, b: u32| f(a) <= f(b)),
                Op::Equal64 => compare(s, mask, extra, |a: u64, b: u64| a == b),
                Op::LessU64 => compare(s, mask, extra, |a: u64, b: u64| a < b),
                Op::LessS64 => compare(s, mask, extra, |a: i64, b: i64| a < b),
                Op::EqualF64 => compare(s, mask, extra, |a: u64, b: u64| d(a) == d(b)),
                Op::LessF64 => compare(s, mask, extra, |a: u64, b: u64| d(a) < d(b)),
                Op::LessEqualF64 => compare(s, mask, extra, |a: u64, b: u64| d(a) <= d(b)),
                Op::PredicateAnd => {
                    s.set_predicate(0, mask, s.predicate(1) & s.predicate(2) ^ extra);
                }
                Op::PredicateOr => {
                    s.set_predicate(0, mask, (s.predicate(1) | s.predicate(2)) ^ extra);
                }
                Op::PredicateXor => {
                    s.set_predicate(0, mask, s.predicate(1) ^ s.predicate(2) ^ extra);
                }
                Op::LoadGlobal1 => load!(false, 1),
                Op::LoadGlobal2 => load!(false, 2),
                Op::LoadGlobal4 => load!(false, 4),
                Op::StoreGlobal1 => store!(false, 1),
                Op::StoreGlobal2 => store!(false, 2),
                Op::StoreGlobal4 => store!(false, 4),
                Op::LoadShared1 => load!(true, 1),
                Op::LoadShared2 => load!(true, 2),
                Op::LoadShared4 => load!(true, 4),
                Op::StoreShared1 => store!(true, 1),
                Op::StoreShared2 => store!(true, 2),
                Op::StoreShared4 => store!(true, 4),
                Op::Load => {
                    machine.memories.pc = warp.pc;
                    let access = program.accesses.get_unchecked(extra as usize);
                    attempt!(load_any(&mut machine.memories, (s, mask), access));
                }
                Op::Store => {
                    machine.memories.pc = warp.pc;
                    let access = program.accesses.get_unchecked(extra as usize);
                    attempt!(store_any(&mut machine.memories, (s, mask), access));
                }
                Op::StageCopy => {
                    machine.memories.pc = warp.pc;
                    let copy = program.copies.get_unchecked(extra as usize);
                    attempt!(warp.staged.issue(&mut machine.memories, (s, mask), copy));
                }
                Op::StageCommit => warp.staged.commit(mask),
                Op::StageWait | Op::StageWaitAll => {
                    machine.memories.pc = warp.pc;
                    let open = (instruction.op == Op::StageWait).then_some(extra);
                    attempt!(warp.staged.wait(&mut machine.memories, mask, open));
                }
                Op::Matrix => {
                    if mask == warp.active && !warp.is_converged() {
                        unless_stuck!(warp.wait());
                        continue;
                    }
                    if mask != u32::MAX {
                        let what = "a matrix instruction that not all lanes of a warp execute";
                        pause!(Pause::Fault(FaultKind::Undefined { what }, mask.trailing_zeros()));
                    }
                    machine.memories.pc = warp.pc;
                    let matrix = program.matrices.get_unchecked(extra as usize);
                    if let Operation::Product(product) = &matrix.operation {
                        multiply(File(file), matrix, product);
                    } else {
                        attempt!(move_matrix(&mut machine.memories, File(file), matrix));
                    }
                }
                Op::Warpgroup => {
                    if mask == warp.active && !warp.is_converged() {
                        unless_stuck!(warp.wait());
                        continue;
                    }
                    if mask != u32::MAX {
                        let what = "a warpgroup instruction that not all lanes of a warp execute";
                        pause!(Pause::Fault(FaultKind::Undefined { what }, mask.trailing_zeros()));
                    }
                    machine.memories.pc = warp.pc;
                    let what = program.warpgroups.get_unchecked(extra as usize);
                    attempt!(warp.products.execute(&mut machine.memories, File(file), what));
                }
                Op::FenceAsync => {
                    let this = machine.memories.warp;
                    machine.memories.unfenced.iter_mut().for_each(|seen| seen.fence(this));
                }
                Op::Atomic => {
                    machine.memories.pc = warp.pc;
                    let atomic = program.atomics.get_unchecked(extra as usize);
                    attempt!(atomics::execute(&mut machine.memories, (s, mask), atomic));
                }
                Op::Parameter32 => {
                    let from = machine.memories.parameters.as_ptr().add(extra as usize);
                    s.write(0, mask, &[from.cast::<u32>().read_unaligned(); LANES]);
                }
                Op::Parameter64 => {
                    let from = machine.memories.parameters.as_ptr().add(extra as usize);
                    s.write(0, mask, &[from.cast::<u64>().read_unaligned(); LANES]);
                }
                Op::Pack => lanes::pack(s, mask, extra),
                Op::Unpack => lanes::unpack(s, mask, extra),
                Op::Lanes => {
                    let operation = program.lanes.get_unchecked(extra as usize);
                    lanes::apply(s, mask, operation);
                }
                Op::Branch => {
                    warp.branch(mask, extra);
                    continue;
                }
                Op::Exit => {
                    machine.memories.pc = warp.pc;
                    attempt!(warp.staged.wait(&mut machine.memories, mask, None));
                    unless_stuck!(warp.exit(mask));
                    if warp.active == 0 {
                        pause!(Pause::Done);
                    }
                    continue;
                }
                Op::Trap => pause!(Pause::Fault(FaultKind::Trap, mask.trailing_zeros())),
                Op::Undefined => {
                    let what = Undefined::describe(extra);
                    pause!(Pause::Fault(FaultKind::Undefined { what }, mask.trailing_zeros()));
                }
                Op::Barrier => {
                    if mask != warp.active {
                        let lane = mask.trailing_zeros();
                        pause!(Pause::Fault(FaultKind::BarrierDivergence, lane));
                    }
                    if !warp.is_converged() {
                        unless_stuck!(warp.wait());
                        continue;
                    }
                    let lane = mask.trailing_zeros() as usize & 31;
                    let (id, count) = (s.read::<u32>(0)[lane], s.read::<u32>(1)[lane]);
                    warp.pc += 1;
                    pause!(Pause::Barrier { id, count, arrive: extra == 1 });
                }
                Op::WarpBarrier => {
                    gathered!(0);
                    if let Some(races) = &mut machine.memories.races {
                        races.warp_barrier(machine.memories.warp);
                    }
                }
                Op::ActiveMask => s.write(0, mask, &[mask; LANES]),
                Op::Shuffle => {
                    gathered!(4);
                    attempt!(shuffle(s, mask, ShuffleMode::of(extra)));
                }
                Op::ShuffleInRange => {
                    gathered!(3);
                    shuffle_in_range(s, mask, ShuffleMode::of(extra));
                }
                Op::VoteBallot => {
                    gathered!(2);
                    s.write(0, mask, &[s.predicate(1) & mask; LANES]);
                }
                Op::VoteAll => {
                    gathered!(2);
                    let all = s.predicate(1) & mask == mask;
                    s.set_predicate(0, mask, if all { mask } else { 0 });
                }
                Op::VoteAny => {
                    gathered!(2);
                    let any = s.predicate(1) & mask != 0;
                    s.set_predicate(0, mask, if any { mask } else { 0 });
                }
                Op::VoteUniform => {
                    gathered!(2);
                    let set = s.predicate(1) & mask;
                    s.set_predicate(0, mask, if set == 0 || set == mask { mask } else { 0 });
                }
                Op::MatchAny => {
                    gathered!(2);
                    match_any(s, mask, extra);
                }
                Op::MatchAll => {
                    gathered!(3);
                    match_all(s, mask, extra);
                }
                Op::Reduce => {
                    gathered!(2);
                    reduce(s, mask, extra);
                }
                Op::Elect => {
                    gathered!(2);
                    let leader = mask.trailing_zeros();
                    s.write(0, mask, &[leader; LANES]);
                    s.set_predicate(1, mask, 1 << leader);
                }
                Op::Contribute => {
                    let id = s.read::<u32>(0)[mask.trailing_zeros() as usize & 31];
                    machine.contributions.add(id, mask, s.predicate(1) & mask);
                }
                Op::ContributionCount => {
                    let id = s.read::<u32>(1)[mask.trailing_zeros() as usize & 31];
                    s.write(0, mask, &[machine.contributions.released(id).1; LANES]);
                }
                Op::ContributionAll => {
                    let id = s.read::<u32>(1)[mask.trailing_zeros() as usize & 31];
                    let (threads, votes) = machine.contributions.released(id);
                    s.set_predicate(0, mask, if threads == votes { mask } else { 0 });
                }
                Op::ContributionAny => {
                    let id = s.read::<u32>(1)[mask.trailing_zeros() as usize & 31];
                    let any = machine.contributions.released(id).1 != 0;
                    s.set_predicate(0, mask, if any { mask } else { 0 });
                }
                Op::Clock32 => {
                    let now = machine.executed + (turn - left);
                    s.write(0, mask, &[now as u32; LANES]);
                }
                Op::ClockHigh => {
                    let now = machine.executed + (turn - left);
                    s.write(0, mask, &[(now >> 32) as u32; LANES]);
                }
                Op::Clock64 => {
                    let now = machine.executed + (turn - left);
                    s.write(0, mask, &[now; LANES]);
                }
            }
        }
        warp.pc += 1;
    }
}

impl ShuffleMode {
    /// The mode that an instruction holds.
    fn of(extra: u32) -> Self {
        match extra {
            0 => Self::Up,
            1 => Self::Down,
            2 => Self::Butterfly,
            _ => Self::Index,
        }
    }
}
