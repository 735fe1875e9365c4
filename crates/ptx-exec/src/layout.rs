//! Register allocation: an offset in the register file for every virtual register.
//!
//! Kernels have thousands of registers, but few are live at the same time. Registers with disjoint
//! live intervals share an offset, so the register file of a warp fits in the L1 cache. An
//! instruction writes only its active lanes, so liveness holds for each lane separately.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use super::decode::{Micro, RegisterInfo, VirtualRegister};
use super::program::Width;
use super::registers::Offset;

/// The layout of the register file.
#[derive(Debug)]
pub(super) struct Layout {
    /// The offset of each register.
    pub(super) offsets: Vec<Offset>,
    /// Bytes of all registers except presets; they come first.
    pub(super) register_bytes: u32,
    /// Bytes of the file.
    pub(super) file_bytes: u32,
    /// The registers of each function with frames, as runs of one width: first register and number.
    pub(super) regions: Vec<Vec<(Offset, u32, Width)>>,
    /// Slots that may be read before they are written; they start as poison.
    pub(super) exposed: Vec<VirtualRegister>,
}

/// Lays out the registers of `code`. Functions with frames start at `starts`; no two of them share
/// a slot.
pub(super) fn lay_out(code: &[Micro], starts: &[usize], registers: &[RegisterInfo]) -> Layout {
    let live = Liveness::of(code, registers.len());
    let intervals = live.intervals(code, registers);
    let mut offsets = vec![Offset::default(); registers.len()];
    let (mut end, mut regions) = (0, Vec::new());
    let bounds: Vec<usize> = [&[0], starts, &[code.len()]].concat();
    for bounds in bounds.windows(2) {
        let mut slots_of_region = Vec::new();
        for width in [Width::Double, Width::Word, Width::Predicate] {
            let range = bounds[0]..bounds[1];
            let (slots, count) = assign(&intervals, registers, width, range);
            for (register, slot) in slots {
                offsets[register] = Offset(end + slot * width.bytes());
            }
            slots_of_region.push((Offset(end), count, width));
            end += (count * width.bytes()).next_multiple_of(128);
        }
        regions.push(slots_of_region);
    }
    // The kernel is not called.
    regions.remove(0);
    let register_bytes = end;
    for width in [Width::Double, Width::Word, Width::Predicate] {
        for (register, info) in registers.iter().enumerate() {
            if info.preset.is_some() && info.width == width {
                offsets[register] = Offset(end);
                end += width.bytes();
            }
        }
    }
    let exposed = (0..registers.len()).filter(|&register| registers[register].preset.is_none());
    let exposed = exposed.filter(|&register| live.blocks[0].live_in.has(register));
    let exposed = exposed.map(|register| VirtualRegister(register as u32)).collect();
    Layout { offsets, register_bytes, file_bytes: end.next_multiple_of(128), regions, exposed }
}

#[derive(Clone, PartialEq)]
struct Set(Vec<u64>);

impl Set {
    fn new(size: usize) -> Self {
        Self(vec![0; size.div_ceil(64)])
    }

    fn has(&self, register: usize) -> bool {
        self.0[register / 64] >> (register % 64) & 1 != 0
    }

    fn insert(&mut self, register: VirtualRegister) {
        self.0[register.0 as usize / 64] |= 1 << (register.0 % 64);
    }

    fn remove(&mut self, register: VirtualRegister) {
        self.0[register.0 as usize / 64] &= !(1 << (register.0 % 64));
    }

    fn unite(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine |= theirs;
        }
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        let words = self.0.iter().enumerate();
        words.flat_map(|(word, &bits)| {
            (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| word * 64 + bit)
        })
    }
}

/// A basic block.
struct Block {
    start: usize,
    end: usize,
    live_in: Set,
    live_out: Set,
}

struct Liveness {
    blocks: Vec<Block>,
}

/// Moves backwards over one instruction.
fn step_back(live: &mut Set, micro: &Micro) {
    // A guarded write keeps the value in other lanes, so the old value is still live.
    if micro.guard.is_none() {
        micro.writes.iter().for_each(|&register| live.remove(register));
    }
    micro.reads.iter().for_each(|&register| live.insert(register));
    if let Some((guard, _)) = micro.guard {
        live.insert(guard);
        micro.writes.iter().for_each(|&register| live.insert(register));
    }
}

impl Liveness {
    fn of(code: &[Micro], registers: usize) -> Self {
        let mut leader = vec![false; code.len() + 1];
        leader[0] = true;
        leader[code.len()] = true;
        for (index, micro) in code.iter().enumerate() {
            if let Some(target) = micro.operation.branch_target() {
                leader[target as usize] = true;
            }
            if micro.ends_block() {
                leader[index + 1] = true;
            }
        }
        let starts: Vec<usize> = (0..=code.len()).filter(|&index| leader[index]).collect();
        let block = |range: &[usize]| Block {
            start: range[0],
            end: range[1],
            live_in: Set::new(registers),
            live_out: Set::new(registers),
        };
        let mut this = Self { blocks: starts.windows(2).map(block).collect() };
        while this.pass(code) {}
        this
    }

    /// One pass over all blocks from the last to the first. Returns whether anything changed.
    fn pass(&mut self, code: &[Micro]) -> bool {
        let mut changed = false;
        for index in (0..self.blocks.len()).rev() {
            let (start, end) = (self.blocks[index].start, self.blocks[index].end);
            let last = &code[end - 1];
            let mut live = self.blocks[index].live_out.clone();
            if let Some(target) = last.operation.branch_target() {
                live.unite(&self.live_at(target as usize));
            }
            let falls = !last.ends_block() || last.guard.is_some();
            if falls && end < code.len() {
                live.unite(&self.live_at(end));
            }
            let out = live.clone();
            code[start..end].iter().rev().for_each(|micro| step_back(&mut live, micro));
            changed |= live != self.blocks[index].live_in;
            self.blocks[index].live_in = live;
            self.blocks[index].live_out = out;
        }
        changed
    }

    fn live_at(&self, start: usize) -> Set {
        let found = self.blocks.binary_search_by_key(&start, |block| block.start);
        found.map_or_else(|_| Set::new(0), |index| self.blocks[index].live_in.clone())
    }

    /// The first and last instruction at which each register is in use.
    fn intervals(&self, code: &[Micro], registers: &[RegisterInfo]) -> Vec<Option<(usize, usize)>> {
        let mut intervals: Vec<Option<(usize, usize)>> = vec![None; registers.len()];
        let mut extend = |register: usize, at: usize| {
            let (first, last) = intervals[register].get_or_insert((at, at));
            *first = at.min(*first);
            *last = at.max(*last);
        };
        for block in &self.blocks {
            block.live_in.iter().for_each(|register| extend(register, block.start));
            block.live_out.iter().for_each(|register| extend(register, block.end - 1));
            for (at, micro) in code.iter().enumerate().take(block.end).skip(block.start) {
                let guard = micro.guard.iter().map(|(register, _)| register);
                for register in micro.writes.iter().chain(&micro.reads).chain(guard) {
                    extend(register.0 as usize, at);
                }
            }
        }
        intervals
    }
}

/// Assigns indices to the registers of one width that are in use in a range of the code;
/// overlapping intervals get different indices. Returns the indices and their number.
fn assign(
    intervals: &[Option<(usize, usize)>],
    registers: &[RegisterInfo],
    width: Width,
    range: Range<usize>,
) -> (Vec<(usize, u32)>, u32) {
    let wanted = |register: usize| {
        registers[register].preset.is_none() && registers[register].width == width
    };
    let mut order: Vec<(usize, usize, usize)> = intervals
        .iter()
        .enumerate()
        .filter(|&(register, _)| wanted(register))
        .filter_map(|(register, interval)| interval.map(|(first, last)| (first, last, register)))
        .filter(|(first, ..)| range.contains(first))
        .collect();
    order.sort_unstable();
    let mut busy: BinaryHeap<Reverse<(usize, u32)>> = BinaryHeap::new();
    let mut free: BinaryHeap<Reverse<u32>> = BinaryHeap::new();
    let (mut slots, mut count) = (Vec::new(), 0);
    for (first, last, register) in order {
        // A slot becomes free after the instruction of its last use, so no result overwrites an
        // operand of the same instruction.
        while let Some(&Reverse((end, slot))) = busy.peek()
            && end < first
        {
            busy.pop();
            free.push(Reverse(slot));
        }
        let slot = free.pop().map_or_else(
            || {
                count += 1;
                count - 1
            },
            |Reverse(slot)| slot,
        );
        busy.push(Reverse((last, slot)));
        slots.push((register, slot));
    }
    (slots, count)
}
