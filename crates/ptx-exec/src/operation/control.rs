//! Branches, exits, barriers of a block, and clocks.

use super::operations;
use crate::access::LaneFault;
use crate::call_stack;
use crate::fault::FaultKind;
use crate::interpreter::{Machine, Pause};
use crate::printf::LaneMemory;
use crate::program::{GRID_BARRIER, LANES};
use crate::registers::{ActiveLanes, Offset};
use crate::undefined::Undefined;
use crate::warp::{Deadlock, Warp};

/// `cudaCGScopeGrid`.
const GRID_SCOPE: u32 = 1;
/// `cudaErrorUnknown`, which `cudaCGSynchronize` returns for handle 0.
const NO_GRID: u32 = 999;

operations! {
    /// Branches, exits, barriers and clocks.
    enum Control {
        /// `bra`. The target is a label until labels are resolved, then an instruction.
        Branch() <- () { target: u32 };
        /// `exit`, and `ret` in a kernel.
        Exit() <- ();
        /// `call` of a function with a frame, whose address in local memory is `frame`.
        Call() <- (frame) { region: u32 };
        /// `call` through a pointer.
        CallPointer() <- (pointer, frame);
        /// `ret` of a function with a frame.
        Return() <- ();
        /// `trap`.
        Trap() <- ();
        /// `__assertfail`: the addresses of the condition and the file, the line, the address of
        /// the name of the function.
        AssertFail() <- (message, file, line, name);
        /// `vprintf`: the addresses of the format and of the arguments.
        Print(d) <- (format, list);
        /// `cudaGraphSetConditional`.
        SetConditional() <- (handle, value);
        /// `malloc`.
        Allocate(d) <- (size);
        /// `free`.
        Free() <- (address);
        /// `cudaCGGetIntrinsicHandle`.
        GridHandle(d) <- (scope);
        /// `cudaCGSynchronize`: 0 after the barrier, or an error if the handle is 0.
        GridBarrier(d) <- (handle);
        /// The fault of lanes whose `brx.idx` index is not in the table.
        BranchOutOfTable() <- ();
        /// `barrier.sync` and `barrier.arrive`. A count of 0 means all threads of the block.
        Barrier() <- (id, count) { arrives: bool };
        /// `barrier.red`, before the barrier: counts the threads and their true predicates.
        Contribute() <- (id, predicate);
        /// `barrier.red.popc`, after the barrier.
        ContributionCount(d) <- (id);
        /// `barrier.red.and`, after the barrier.
        ContributionAll(d) <- (id);
        /// `barrier.red.or`, after the barrier.
        ContributionAny(d) <- (id);
        /// `%clock`: the number of instructions that the block has executed.
        Clock32(d) <- ();
        /// `%clock_hi`.
        ClockHigh(d) <- ();
        /// `%clock64`.
        Clock64(d) <- ();
    }
}

/// The next action of the interpreter after a control operation.
pub(crate) enum Next {
    /// The next instruction.
    Advance,
    /// The instruction at `warp.pc`.
    Resume,
    /// The warp stops running.
    Pause(Pause),
}

impl Control<Offset> {
    /// Executes the operation in the active lanes. `now` is the number of executed instructions.
    ///
    /// # Safety
    ///
    /// The operation must come from decoding for the register file of `lanes`.
    #[inline(always)]
    pub(crate) unsafe fn execute(
        &self,
        machine: &mut Machine<'_>,
        warp: &mut Warp,
        lanes: ActiveLanes,
        now: u64,
    ) -> Result<Next, Deadlock> {
        // SAFETY: decoding ensures the register widths of each operation.
        unsafe {
            let barrier = |id| lanes.file.read::<u32>(id)[lanes.first()];
            match *self {
                Self::Branch { target } => {
                    warp.branch(lanes.mask, target);
                    return Ok(Next::Resume);
                }
                Self::Exit {} => return exit(machine, warp, lanes),
                Self::Call { frame, region } => {
                    let target = call_stack::Target::Region(region);
                    return call_stack::call(machine, warp, lanes, target, frame);
                }
                Self::CallPointer { pointer, frame } => {
                    let target = call_stack::Target::Pointer(pointer);
                    return call_stack::call(machine, warp, lanes, target, frame);
                }
                Self::Return {} => return call_stack::leave(machine, warp, lanes),
                Self::Trap {} => return Ok(fault(FaultKind::Trap, lanes)),
                Self::AssertFail { message, file, line, name } => {
                    let kind = assertion(machine, lanes, message, file, line, name);
                    return Ok(fault(kind, lanes));
                }
                Self::Print { d, format, list } => {
                    if let Err((kind, lane)) = print(machine, lanes, d, format, list) {
                        return Ok(Next::Pause(Pause::Fault(kind, lane)));
                    }
                }
                Self::SetConditional { handle, value } => {
                    if let Some((kind, lane)) = set_conditional(machine, lanes, handle, value) {
                        return Ok(Next::Pause(Pause::Fault(kind, lane)));
                    }
                }
                Self::Allocate { d, size } => allocate(machine, lanes, d, size),
                Self::Free { address } => {
                    if let Some(lane) = free(machine, lanes, address) {
                        let kind = FaultKind::Undefined(Undefined::Freed);
                        return Ok(Next::Pause(Pause::Fault(kind, lane)));
                    }
                }
                Self::GridHandle { d, scope } => {
                    let scopes = lanes.file.read::<u32>(scope);
                    let handle = |scope| if scope == GRID_SCOPE { machine.grid_handle } else { 0 };
                    lanes.write(d, &scopes.map(handle));
                }
                Self::GridBarrier { d, handle } => {
                    let handles = lanes.file.read::<u64>(handle);
                    if lanes.iter().all(|lane| handles[lane] == 0) {
                        lanes.write(d, &[NO_GRID; LANES]);
                        return Ok(Next::Advance);
                    }
                    let is_wrong =
                        |lane: &usize| handles[*lane] == 0 || handles[*lane] != machine.grid_handle;
                    if let Some(lane) = lanes.iter().find(is_wrong) {
                        let kind = FaultKind::Undefined(Undefined::GridBarrier);
                        return Ok(Next::Pause(Pause::Fault(kind, lane as u32)));
                    }
                    lanes.write(d, &[0u32; LANES]);
                    let barrier = Pause::Barrier { id: GRID_BARRIER, count: 0, arrives: false };
                    return pause_at(barrier, warp, lanes);
                }
                Self::BranchOutOfTable {} => {
                    return Ok(fault(FaultKind::Undefined(Undefined::BranchIndex), lanes));
                }
                Self::Barrier { id, count, arrives } => {
                    let (id, count) = (barrier(id), barrier(count));
                    return pause_at(Pause::Barrier { id, count, arrives }, warp, lanes);
                }
                Self::Contribute { id, predicate } => {
                    let votes = lanes.file.predicate(predicate) & lanes.mask;
                    machine.contributions.add(barrier(id), lanes.mask, votes);
                }
                Self::ContributionCount { d, id } => {
                    let (_, votes) = machine.contributions.released(barrier(id));
                    lanes.write(d, &[votes; LANES]);
                }
                Self::ContributionAll { d, id } => {
                    let (threads, votes) = machine.contributions.released(barrier(id));
                    lanes.write_predicate(d, if threads == votes { lanes.mask } else { 0 });
                }
                Self::ContributionAny { d, id } => {
                    let (_, votes) = machine.contributions.released(barrier(id));
                    lanes.write_predicate(d, if votes != 0 { lanes.mask } else { 0 });
                }
                Self::Clock32 { d } => lanes.write(d, &[now as u32; LANES]),
                Self::ClockHigh { d } => lanes.write(d, &[(now >> 32) as u32; LANES]),
                Self::Clock64 { d } => lanes.write(d, &[now; LANES]),
            }
        }
        Ok(Next::Advance)
    }
}

/// Creates the fault of a failed assertion in the first active lane. Out of line, because kernels
/// rarely call it.
///
/// # Safety
///
/// The registers must come from decoding [`Control::AssertFail`].
#[cold]
#[inline(never)]
unsafe fn assertion(
    machine: &Machine<'_>,
    lanes: ActiveLanes,
    message: Offset,
    file: Offset,
    line: Offset,
    name: Offset,
) -> FaultKind {
    let lane = lanes.first();
    let memory = LaneMemory { memories: &machine.memories, lane };
    // SAFETY: decoding ensures the widths of the registers.
    let (message, file, line, name) = unsafe {
        let word = |register| lanes.file.read::<u64>(register)[lane];
        (word(message), word(file), lanes.file.read::<u32>(line)[lane], word(name))
    };
    FaultKind::assertion(&memory, message, file, line, name).unwrap_or_else(|(kind, _)| kind)
}

/// Prints a text for each active lane. Out of line, because kernels rarely call it.
///
/// # Safety
///
/// The registers must come from decoding [`Control::Print`].
#[cold]
#[inline(never)]
unsafe fn print(
    machine: &Machine<'_>,
    lanes: ActiveLanes,
    d: Offset,
    format: Offset,
    list: Offset,
) -> Result<(), LaneFault> {
    // SAFETY: decoding ensures the widths of the registers.
    let (formats, lists) =
        unsafe { (lanes.file.read::<u64>(format), lanes.file.read::<u64>(list)) };
    let mut counts = [0u32; LANES];
    for lane in lanes.iter() {
        let memory = LaneMemory { memories: &machine.memories, lane };
        let (text, count) = memory.format(formats[lane], lists[lane])?;
        counts[lane] = count;
        machine.print(&text);
    }
    // SAFETY: as above.
    unsafe { lanes.write(d, &counts) };
    Ok(())
}

/// Sets the value of a conditional handle for each active lane. Returns the fault of a failing
/// lane. Out of line, because kernels rarely call it.
///
/// # Safety
///
/// The registers must come from decoding [`Control::SetConditional`].
#[cold]
#[inline(never)]
unsafe fn set_conditional(
    machine: &Machine<'_>,
    lanes: ActiveLanes,
    handle: Offset,
    value: Offset,
) -> Option<LaneFault> {
    // SAFETY: decoding ensures the widths of the registers.
    let (handles, values) =
        unsafe { (lanes.file.read::<u64>(handle), lanes.file.read::<u32>(value)) };
    let Some(conditions) = machine.conditions else {
        return Some((FaultKind::OutsideGraph, lanes.first() as u32));
    };
    let wrong = lanes.iter().find(|lane| !conditions.set(handles[*lane], values[*lane]));
    wrong.map(|lane| (FaultKind::Undefined(Undefined::ConditionalHandle), lane as u32))
}

/// Allocates a heap block for each active lane. Out of line, because kernels rarely call it.
///
/// # Safety
///
/// The registers must come from decoding [`Control::Allocate`].
#[cold]
#[inline(never)]
unsafe fn allocate(machine: &Machine<'_>, lanes: ActiveLanes, d: Offset, size: Offset) {
    let heap = machine.memories.global.heap();
    machine.memories.has_changed_global.set(true);
    // SAFETY: decoding ensures the widths of the registers.
    unsafe {
        let (sizes, mut blocks) = (lanes.file.read::<u64>(size), [0u64; LANES]);
        for lane in lanes.iter() {
            blocks[lane] = heap.map_or(0, |heap| heap.allocate(sizes[lane]));
        }
        lanes.write(d, &blocks);
    }
}

/// Frees a heap block for each active lane. Returns a lane whose address is not a block. Null is
/// ignored.
///
/// # Safety
///
/// The register must come from decoding [`Control::Free`].
#[cold]
#[inline(never)]
unsafe fn free(machine: &Machine<'_>, lanes: ActiveLanes, address: Offset) -> Option<u32> {
    let heap = machine.memories.global.heap();
    machine.memories.has_changed_global.set(true);
    // SAFETY: decoding ensures the width of the register.
    let addresses = unsafe { lanes.file.read::<u64>(address) };
    let is_freed = |lane: &usize| {
        addresses[*lane] == 0 || heap.is_some_and(|heap| heap.free(addresses[*lane]))
    };
    let wrong = lanes.iter().find(|lane| !is_freed(lane));
    wrong.map(|lane| lane as u32)
}

fn fault(kind: FaultKind, lanes: ActiveLanes) -> Next {
    Next::Pause(Pause::Fault(kind, lanes.mask.trailing_zeros()))
}

/// Pauses at a barrier, which all lanes of the warp must reach converged.
fn pause_at(barrier: Pause, warp: &mut Warp, lanes: ActiveLanes) -> Result<Next, Deadlock> {
    if lanes.mask != warp.active {
        return Ok(fault(FaultKind::BarrierDivergence, lanes));
    }
    if !warp.is_converged() {
        warp.wait()?;
        return Ok(Next::Resume);
    }
    warp.pc += 1;
    Ok(Next::Pause(barrier))
}

/// Ends the active lanes. Copies without a wait land now.
fn exit(machine: &mut Machine<'_>, warp: &mut Warp, lanes: ActiveLanes) -> Result<Next, Deadlock> {
    machine.memories.pc = warp.pc;
    let (copies, memories) = (&machine.program.copies, &mut machine.memories);
    if let Err((kind, lane)) = warp.async_copies.wait(memories, copies, lanes.mask, None) {
        return Ok(Next::Pause(Pause::Fault(kind, lane)));
    }
    if let Some(mut proxy) = machine.memories.proxy.take() {
        let ended = proxy.exit(&machine.memories, lanes.mask);
        machine.memories.proxy = Some(proxy);
        if let Err((kind, lane)) = ended {
            return Ok(Next::Pause(Pause::Fault(kind, lane)));
        }
    }
    warp.exit(lanes.mask)?;
    Ok(if warp.active == 0 { Next::Pause(Pause::Done) } else { Next::Resume })
}
