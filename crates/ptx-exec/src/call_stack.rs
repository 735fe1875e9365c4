//! Call stacks, one per lane, for calls with frames.
//!
//! Registers of a function are the same slots at every depth. A call saves the callee's slots of
//! its lanes, and the return restores them, so a recursive caller keeps its values. Saved values
//! are not in the thread's memory; frames in local memory hold parameters, results and variables.

use std::collections::HashMap;

use super::fault::FaultKind;
use super::interpreter::{Machine, Pause};
use super::operation::Next;
use super::program::Width;
use super::registers::{ActiveLanes, Offset, RegisterFile};
use super::undefined::Undefined;
use super::warp::{Deadlock, Warp};
use crate::memory::POISON;

/// Bytes of local memory for the frames of a thread.
pub(super) const STACK_BYTES: u32 = 16 << 10;

/// Poison for registers of each width.
const POISON_64: u64 = (POISON as u64) << 32 | POISON as u64;

/// The upper half of function addresses, in a range without memory.
const FUNCTIONS: u64 = 0x5000_0000_0000;

/// The address of a function in kernels: a hash of its name (FNV-1a), so it is the same in all
/// modules with the function.
pub(super) fn address_of_function(name: &str) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    FUNCTIONS | (hash & 0xffff_ffff) << 4
}

/// The functions with frames of a program.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    /// The address of the running function's frame, in local memory.
    pub(super) frame_pointer: Offset,
    /// The functions.
    pub(super) regions: Vec<Region>,
    /// The region of each function address.
    pub(super) addresses: HashMap<u64, u32>,
}

/// A function with frames.
#[derive(Clone, Debug)]
pub(super) struct Region {
    /// Its first instruction.
    pub(super) entry: u32,
    /// Bytes of its frame.
    pub(super) frame_bytes: u32,
    /// Its registers, as runs of one width: first register and number.
    pub(super) registers: Vec<(Offset, u32, Width)>,
}

impl Region {
    fn slots(&self) -> impl DoubleEndedIterator<Item = (Offset, Width)> {
        self.registers.iter().flat_map(|&(first, count, width)| {
            (0..count).map(move |index| (Offset(first.0 + index * width.bytes()), width))
        })
    }
}

/// The return state of a call in a lane.
#[derive(Clone, Copy, Debug, Hash)]
struct Return {
    pc: u32,
    frame_pointer: u64,
    region: u32,
}

/// The active calls of a lane.
#[derive(Clone, Debug, Default, Hash)]
struct CallStack {
    returns: Vec<Return>,
    saved: Vec<u64>,
}

/// The call stacks of a warp; empty before the first call.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct CallStacks(Vec<CallStack>);

impl CallStacks {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn of_lane(&mut self, lane: usize) -> &mut CallStack {
        if self.0.is_empty() {
            self.0.resize(super::program::LANES, CallStack::default());
        }
        &mut self.0[lane]
    }
}

/// The callee of a call.
#[derive(Clone, Copy)]
pub(super) enum Target {
    /// A region.
    Region(u32),
    /// The function whose address a register holds.
    Pointer(Offset),
}

/// Enters a function in the active lanes. `frame` holds the address of its frame.
///
/// # Safety
///
/// The registers must come from decoding for the register file of `lanes`.
#[cold]
#[inline(never)]
pub(super) unsafe fn call(
    machine: &Machine<'_>,
    warp: &mut Warp,
    lanes: ActiveLanes,
    target: Target,
    frame: Offset,
) -> Result<Next, Deadlock> {
    let program = machine.program;
    let Some(calls) = &program.calls else { return Ok(undefined(Undefined::CallTarget, 0)) };
    let file = lanes.file;
    let mut targets = Vec::with_capacity(32);
    for lane in lanes.iter() {
        let region = match target {
            Target::Region(region) => Some(region),
            Target::Pointer(pointer) => {
                // SAFETY: decoding gave the register this width.
                let address = unsafe { file.lane(pointer, Width::Double, lane) };
                calls.addresses.get(&address).copied()
            }
        };
        let Some(region) = region else { return Ok(undefined(Undefined::CallTarget, lane)) };
        let callee = &calls.regions[region as usize];
        // SAFETY: as above.
        let address = unsafe { file.lane(frame, Width::Double, lane) };
        if address + u64::from(callee.frame_bytes) > u64::from(machine.memories.local_bytes) {
            return Ok(undefined(Undefined::StackOverflow, lane));
        }
        // SAFETY: the slots belong to the file.
        unsafe { enter(warp, calls, region, file, lane, address) };
        targets.push((lane, callee.entry));
    }
    warp.scatter(lanes.mask, targets)?;
    Ok(Next::Resume)
}

/// Saves the registers of the function `region` in a lane and poisons them. `frame` is the address
/// of its frame.
///
/// # Safety
///
/// `calls` and `file` must belong to the same program.
unsafe fn enter(
    warp: &mut Warp,
    calls: &Calls,
    region: u32,
    file: RegisterFile,
    lane: usize,
    frame: u64,
) {
    let pc = warp.pc + 1;
    let stack = warp.calls.of_lane(lane);
    // SAFETY: by the contract.
    unsafe {
        for (offset, width) in calls.regions[region as usize].slots() {
            stack.saved.push(file.lane(offset, width, lane));
            file.set_lane(offset, width, lane, POISON_64);
        }
        let frame_pointer = file.lane(calls.frame_pointer, Width::Double, lane);
        stack.returns.push(Return { pc, frame_pointer, region });
        file.set_lane(calls.frame_pointer, Width::Double, lane, frame);
    }
}

/// Returns from the current function in the active lanes.
///
/// # Safety
///
/// As for [`call`].
#[cold]
#[inline(never)]
pub(super) unsafe fn leave(
    machine: &Machine<'_>,
    warp: &mut Warp,
    lanes: ActiveLanes,
) -> Result<Next, Deadlock> {
    let Some(calls) = &machine.program.calls else {
        return Ok(undefined(Undefined::CallTarget, 0));
    };
    let mut targets = Vec::with_capacity(32);
    for lane in lanes.iter() {
        let stack = warp.calls.of_lane(lane);
        let Some(back) = stack.returns.pop() else {
            return Ok(undefined(Undefined::CallTarget, lane));
        };
        // SAFETY: the slots belong to the file.
        unsafe {
            for (offset, width) in calls.regions[back.region as usize].slots().rev() {
                let value = stack.saved.pop().unwrap_or(POISON_64);
                lanes.file.set_lane(offset, width, lane, value);
            }
            lanes.file.set_lane(calls.frame_pointer, Width::Double, lane, back.frame_pointer);
        }
        targets.push((lane, back.pc));
    }
    warp.scatter(lanes.mask, targets)?;
    Ok(Next::Resume)
}

fn undefined(what: Undefined, lane: usize) -> Next {
    Next::Pause(Pause::Fault(FaultKind::Undefined(what), lane as u32))
}
