//! The interpreter, which runs one warp.
//!
//! [`interpret`] is compiled once per vector instruction set; a launch selects the best version for
//! the host. All versions return the same bits: without a hardware instruction, a fused
//! multiply-add is only slower.

use std::sync::{Mutex, PoisonError};

use super::access::Memories;
use super::bulk;
use super::conditional::ConditionalValues;
use super::cross::Arrival;
use super::fault::FaultKind;
use super::operation::{Next, Operation, Outcome};
use super::program::Program;
use super::registers::{ActiveLanes, RegisterFile};
use super::warp::{Deadlock, Warp};

/// Why a warp stopped running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// All lanes have exited.
    Done,
    /// The warp has reached a barrier of the block.
    Barrier {
        /// The barrier.
        id: u32,
        /// Threads that the barrier waits for; 0 means all.
        count: u32,
        /// Whether the warp arrives without waiting.
        arrives: bool,
    },
    /// The warp has executed all instructions of its turn.
    Turn,
    /// No lane can continue until an mbarrier changes.
    Stalled,
    /// A lane faulted at `warp.pc`.
    Fault(FaultKind, u32),
}

/// The program and the state that the warps of a block share.
pub(super) struct Machine<'a> {
    /// The kernel.
    pub(super) program: &'a Program,
    /// The handle of the grid, or 0 if the launch is not cooperative.
    pub(super) grid_handle: u64,
    /// The memories.
    pub(super) memories: Memories<'a>,
    /// Instructions that the warps of this block have executed.
    pub(super) executed: u64,
    /// Contributions to reducing barriers.
    pub(super) contributions: Contributions,
    /// The buffer for printed text.
    pub(super) output: Option<&'a Mutex<String>>,
    /// The values of the conditional handles of the graph.
    pub(super) conditions: Option<&'a ConditionalValues>,
}

impl Machine<'_> {
    /// Appends a text to the buffer, if there is one.
    pub(super) fn print(&self, text: &str) {
        if let Some(output) = self.output {
            output.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
        }
    }
}

/// Counts of threads and true predicates at each reducing barrier, for the waiting threads and for
/// the last released threads.
#[derive(Clone, Debug, Default)]
pub(super) struct Contributions {
    waiting: [(u32, u32); 17],
    released: [(u32, u32); 17],
}

impl Contributions {
    /// Adds the threads and votes of a warp to barrier `id`.
    pub(super) fn add(&mut self, id: u32, threads: u32, votes: u32) {
        if let Some((count, sum)) = self.waiting.get_mut(id as usize) {
            *count += threads.count_ones();
            *sum += votes.count_ones();
        }
    }

    /// Threads and true predicates when barrier `id` last released its threads.
    pub(super) fn released(&self, id: u32) -> (u32, u32) {
        self.released.get(id as usize).copied().unwrap_or_default()
    }

    /// Releases the threads of barrier `id`.
    pub(super) fn release(&mut self, id: u32) {
        if let Some(waiting) = self.waiting.get_mut(id as usize) {
            self.released[id as usize] = std::mem::take(waiting);
        }
    }
}

/// Runs a warp until it pauses, for at most `turn` instructions.
///
/// # Safety
///
/// The register file must belong to a warp of the program, and the host must have the vector
/// instructions that the interpreter was compiled for.
pub(super) type Interpreter = unsafe fn(&mut Machine<'_>, &mut Warp, RegisterFile, u64) -> Pause;

/// An instruction set of the host for which the interpreter is compiled. The results are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostIsa {
    /// The baseline of the target.
    Baseline,
    /// x86-64 with AVX2 and FMA.
    Avx2,
    /// x86-64 with AVX-512 F, VL, BW and DQ.
    Avx512,
}

impl HostIsa {
    /// The instruction sets that this host has, the fastest last.
    pub fn supported() -> Vec<Self> {
        #[allow(unused_mut)]
        let mut supported = vec![Self::Baseline];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            supported.push(Self::Avx2);
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
            {
                supported.push(Self::Avx512);
            }
        }
        supported
    }
}

/// The interpreter for an instruction set; the fastest one by default, or if the host lacks it.
pub(super) fn interpreter_for(isa: Option<HostIsa>) -> Interpreter {
    let supported = HostIsa::supported();
    match isa.filter(|isa| supported.contains(isa)).or(supported.last().copied()) {
        #[cfg(target_arch = "x86_64")]
        Some(HostIsa::Avx2) => avx2::run,
        #[cfg(target_arch = "x86_64")]
        Some(HostIsa::Avx512) => avx512::run,
        _ => portable::run,
    }
}

/// Declares an interpreter in its own module, because the compiler compiles modules in parallel.
macro_rules! interpreter {
    ($(#[$attribute:meta])* $name:ident) => {
        mod $name {
            use super::{Machine, Pause, RegisterFile, Warp, interpret};

            $(#[$attribute])*
            pub(super) unsafe fn run(
                machine: &mut Machine<'_>,
                warp: &mut Warp,
                file: RegisterFile,
                turn: u64,
            ) -> Pause {
                // SAFETY: by the contract of `Interpreter`.
                unsafe { interpret(machine, warp, file, turn) }
            }
        }
    };
}

interpreter!(portable);
#[cfg(target_arch = "x86_64")]
interpreter!(
    #[target_feature(enable = "avx2,fma")]
    avx2
);
#[cfg(target_arch = "x86_64")]
interpreter!(
    #[target_feature(
        enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,bmi1,bmi2,popcnt,lzcnt"
    )]
    avx512
);

/// Called when all groups of a warp wait. Releases groups at warp barriers; if there are none,
/// returns why the warp stops. Out of line, to keep the interpreter small.
#[cold]
#[inline(never)]
fn resolve_deadlock(machine: &Machine<'_>, warp: &mut Warp) -> Option<Pause> {
    if warp.release_barrier() {
        if let Some(races) = &machine.memories.races {
            races.warp_barrier(machine.memories.warp);
        }
        return None;
    }
    if warp.is_parked() {
        return Some(Pause::Stalled);
    }
    let lane = warp.live.trailing_zeros() & 31;
    Some(Pause::Fault(FaultKind::BarrierDivergence, lane))
}

/// # Safety
///
/// As for [`Interpreter`].
#[inline(always)]
unsafe fn interpret(
    machine: &mut Machine<'_>,
    warp: &mut Warp,
    file: RegisterFile,
    turn: u64,
) -> Pause {
    let program = machine.program;
    let code = program.code.as_ptr();
    let mut left = turn;
    macro_rules! pause {
        ($pause:expr) => {{
            machine.executed += turn - left;
            return $pause;
        }};
    }
    macro_rules! or_fault {
        ($result:expr) => {
            match $result {
                Ok(value) => value,
                Err((kind, lane)) => pause!(Pause::Fault(kind, lane)),
            }
        };
    }
    macro_rules! or_deadlock {
        ($result:expr) => {
            match $result {
                Ok(value) => value,
                Err(Deadlock) => match resolve_deadlock(machine, warp) {
                    None => continue,
                    Some(pause) => pause!(pause),
                },
            }
        };
    }
    loop {
        if warp.pc >= warp.stop {
            or_deadlock!(warp.regroup());
        }
        if left == 0 {
            pause!(Pause::Turn);
        }
        left -= 1;
        // SAFETY: decoding ends every program with an exit and checks every branch, so the next
        // instruction exists; registers and indices belong to the file and the tables.
        unsafe {
            let instruction = &*code.add(warp.pc as usize);
            let guard = file.predicate(instruction.guard) ^ instruction.guard_inversion;
            let lanes = ActiveLanes { file, mask: warp.active & guard };
            if lanes.mask == 0 {
                warp.pc += 1;
                continue;
            }
            match &instruction.operation {
                Operation::Integer(operation) => operation.execute(lanes),
                Operation::Float(operation) => operation.execute(lanes),
                Operation::Convert(operation) => operation.execute(lanes),
                Operation::Predicate(operation) => operation.execute(lanes),
                Operation::Function(operation) => operation.execute(machine, lanes),
                Operation::Memory(operation) => {
                    or_fault!(operation.execute(machine, warp, lanes));
                }
                Operation::Tensor(operation) => {
                    let converges = operation.needs_all_lanes().is_some();
                    if converges && lanes.mask == warp.active && !warp.is_converged() {
                        or_deadlock!(warp.wait());
                        continue;
                    }
                    or_fault!(operation.execute(machine, warp, lanes));
                }
                Operation::Bulk(operation) => {
                    let bulk = operation.instruction;
                    let outcome = or_fault!(bulk::execute(machine, warp, lanes, bulk));
                    match outcome {
                        Outcome::Executed => {}
                        Outcome::MembersMissing => {
                            or_deadlock!(warp.park());
                            continue;
                        }
                        Outcome::Yields => {
                            warp.pc += 1;
                            pause!(Pause::Turn);
                        }
                    }
                }
                Operation::WarpWide(operation) => {
                    match or_fault!(operation.execute(machine, warp, lanes)) {
                        Arrival::Incomplete => {
                            or_deadlock!(operation.wait(warp, lanes));
                            continue;
                        }
                        Arrival::Part(part) => {
                            warp.split(part);
                            continue;
                        }
                        Arrival::Complete => {}
                    }
                }
                Operation::Control(operation) => {
                    let now = machine.executed + (turn - left);
                    match or_deadlock!(operation.execute(machine, warp, lanes, now)) {
                        Next::Advance => {}
                        Next::Resume => continue,
                        Next::Pause(pause) => pause!(pause),
                    }
                }
            }
        }
        warp.pc += 1;
    }
}
