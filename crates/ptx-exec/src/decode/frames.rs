//! Calls with frames: calls of functions that may be recursive, and calls through pointers.
//!
//! All other calls are inlined. A function with frames is decoded once, after the kernel, as a
//! region of the code with its own registers. Its frame in local memory starts with parameters and
//! results, which the caller copies; addresses in the frame are relative to the frame pointer.

use std::collections::HashSet;

use retrograph_ptx::ast::{
    Entry, Instruction, Module, Opcode, Operand, Parameter, Statement, Symbol, Type,
};

use super::call::Frame;
use super::{Decoder, Reason, VirtualRegister, Width};
use crate::call_stack::{Calls, Region, address_of_function};
use crate::fault::DecodeError;
use crate::layout::Layout;
use crate::operation::{Control, Integer, Memory};
use crate::program::{Access, Preset};
use retrograph_ptx::ast::StateSpace;

/// A function with frames.
pub(super) struct DecodedRegion {
    function: u32,
    /// The label of its first instruction.
    label: u32,
    /// The index of its first instruction.
    pub(super) start: usize,
    /// Bytes of its frame.
    pub(super) bytes: u64,
}

/// The callee of a call.
#[derive(Clone, Copy)]
pub(super) enum Callee {
    /// A function.
    Function(u32),
    /// The function whose address a register holds.
    Pointer(VirtualRegister),
}

/// A place in local memory: the register of an address, and an offset from it.
#[derive(Clone, Copy)]
pub(super) struct LocalPlace {
    pub(super) base: VirtualRegister,
    pub(super) offset: i64,
}

impl LocalPlace {
    /// The place `bytes` bytes further.
    fn plus(self, bytes: u32) -> Self {
        Self { offset: self.offset + i64::from(bytes), ..self }
    }
}

/// The offsets of parameters and results in a frame, and the bytes of both.
fn offsets(parameters: &[Parameter], results: &[Parameter]) -> (Vec<u64>, Vec<u64>, u64) {
    let mut end = 0u64;
    let mut place = |parameter: &Parameter| {
        let start = end.next_multiple_of(u64::from(parameter.alignment()));
        end = start + u64::from(parameter.size());
        start
    };
    let parameters = parameters.iter().map(&mut place).collect();
    let results = results.iter().map(&mut place).collect();
    (parameters, results, end)
}

fn instructions(code: &Entry) -> impl Iterator<Item = &Instruction> {
    code.body.iter().filter_map(|statement| match statement {
        Statement::Instruction(instruction) => Some(instruction),
        Statement::Label(_) => None,
    })
}

fn functions_of(instruction: &Instruction) -> impl Iterator<Item = u32> {
    instruction.operands.iter().filter_map(|operand| match operand {
        Operand::Function(index) => Some(*index),
        _ => None,
    })
}

fn calls(code: &Entry) -> impl Iterator<Item = &Instruction> {
    instructions(code).filter(|instruction| instruction.opcode == Opcode::Call)
}

/// The functions that `from` calls, directly or not.
fn reached(module: &Module, from: &[&Entry]) -> HashSet<u32> {
    let mut reached = HashSet::new();
    let mut open: Vec<&Entry> = from.to_vec();
    while let Some(code) = open.pop() {
        for callee in calls(code).flat_map(functions_of) {
            if reached.insert(callee) {
                open.extend(module.functions.get(callee as usize).map(|function| &function.code));
            }
        }
    }
    reached
}

/// The functions that need frames in `entry`: if it calls through pointers, first the functions
/// whose address is taken, then functions that may be recursive.
pub(super) fn functions_with_frames(module: &Module, entry: &Entry) -> (Vec<u32>, HashSet<u32>) {
    let code = |index: &u32| module.functions.get(*index as usize).map(|f| &f.code);
    let mut roots = vec![entry];
    let reached_code = |roots: &[&Entry]| -> Vec<u32> {
        let mut list: Vec<u32> = reached(module, roots).into_iter().collect();
        list.sort_unstable();
        list
    };
    let is_pointer_call = |instruction: &Instruction| functions_of(instruction).next().is_none();
    let called = reached_code(&roots);
    let by_pointer = roots.iter().copied().chain(called.iter().filter_map(code));
    let mut taken = Vec::new();
    if by_pointer.flat_map(calls).any(is_pointer_call) {
        let all = module.functions.iter().map(|f| &f.code).chain(&module.entries);
        let named = all.flat_map(instructions).filter(|i| i.opcode != Opcode::Call);
        taken = named.flat_map(functions_of).collect();
        taken.sort_unstable();
        taken.dedup();
        taken.retain(|index| module.functions.get(*index as usize).is_some_and(|f| f.is_defined));
        roots.extend(taken.iter().filter_map(code));
    }
    let mut candidates = reached_code(&roots);
    candidates.extend(&taken);
    let is_recursive =
        |index: &u32| code(index).is_some_and(|code| reached(module, &[code]).contains(index));
    let recursive = candidates.into_iter().filter(is_recursive).collect();
    (taken, recursive)
}

impl<'a> Decoder<'a> {
    /// The number of the region of a function: 0 is the kernel.
    pub(super) fn region_of(&mut self, function: u32) -> u32 {
        let known = self.regions.iter().position(|region| region.function == function);
        let index = known.unwrap_or_else(|| {
            let label = self.new_label();
            self.regions.push(DecodedRegion { function, label, start: 0, bytes: 0 });
            self.regions.len() - 1
        });
        index as u32 + 1
    }

    /// Decodes the functions with frames that are called so far, and their callees.
    pub(super) fn decode_regions(&mut self) -> Result<(), DecodeError> {
        let kernel_bytes = self.local_peak;
        let mut next = 0;
        while next < self.regions.len() {
            self.decode_region(next)?;
            next += 1;
        }
        (self.region, self.local_peak) = (0, kernel_bytes);
        Ok(())
    }

    fn decode_region(&mut self, index: usize) -> Result<(), DecodeError> {
        let DecodedRegion { function, label, .. } = self.regions[index];
        let module = self.module;
        let code = &module.functions[function as usize].code;
        let (parameters, results, bytes) = offsets(&code.parameters, &code.results);
        self.region = index as u32 + 1;
        (self.carry, self.guard) = (None, None);
        (self.local, self.local_peak) = (bytes, bytes);
        let frame = self.open(Frame::function(function + 1, code, parameters, results));
        let kernel = std::mem::replace(&mut self.frame, frame);
        self.place_label(label);
        self.regions[index].start = self.code.len();
        let result = self.statements();
        self.frame = kernel;
        result.map_err(|(statement, what)| self.refuse_in(code, statement, &what))?;
        self.emit(Control::Return {});
        // The return address takes 16 bytes, too.
        self.regions[index].bytes = self.local_peak.next_multiple_of(16) + 16;
        Ok(())
    }

    /// Creates the error for a statement of a function.
    fn refuse_in(&self, code: &Entry, statement: usize, what: &str) -> DecodeError {
        let kernel = self.frame.entry.name.clone();
        let (line, text) = match code.body.get(statement) {
            Some(Statement::Instruction(instruction)) => {
                let text = crate::site::text_of(self.module, code, instruction);
                (instruction.line.0, text)
            }
            _ => (0, String::new()),
        };
        DecodeError::Unsupported { kernel, line, text, what: format!("in `{}`: {what}", code.name) }
    }

    /// The table of regions for the interpreter; `None` if no function needs frames.
    pub(super) fn call_table(&mut self, layout: &Layout) -> Option<Box<Calls>> {
        if self.regions.is_empty() {
            return None;
        }
        let pointer = self.frame_pointer();
        let regions = self.regions.iter().zip(&layout.regions).map(|(region, registers)| Region {
            entry: region.start as u32,
            frame_bytes: region.bytes as u32,
            registers: registers.clone(),
        });
        let name = |region: &DecodedRegion| {
            let function = &self.module.functions[region.function as usize];
            address_of_function(&function.code.name)
        };
        let addresses = self.regions.iter().map(name).zip(0..).collect();
        Some(Box::new(Calls {
            frame_pointer: layout.offsets[pointer.0 as usize],
            regions: regions.collect(),
            addresses,
        }))
    }

    /// The end of the frame of a region, where the frames of its callees begin.
    pub(super) fn frame_end(&self, region: u32) -> u64 {
        match region.checked_sub(1) {
            None => self.local_peak.next_multiple_of(16),
            Some(index) => self.regions[index as usize].bytes,
        }
    }

    pub(super) fn frame_pointer(&mut self) -> VirtualRegister {
        self.preset(Preset::FramePointer, Width::Double)
    }

    /// The place of an address in local memory of this kernel or function.
    pub(super) fn local_place(&mut self, address: u64) -> LocalPlace {
        if self.region == 0 {
            LocalPlace { base: self.constant(address, Width::Double), offset: 0 }
        } else {
            LocalPlace { base: self.frame_pointer(), offset: address as i64 }
        }
    }

    /// The register of the address of a symbol plus an offset.
    pub(super) fn symbol_address(
        &mut self,
        symbol: Symbol,
        offset: i64,
        width: Width,
    ) -> Result<(StateSpace, VirtualRegister), Reason> {
        let address = self.address_of(symbol);
        let (space, address) = address.ok_or_else(|| "a symbol without an address".to_owned())?;
        let address = address.wrapping_add(offset as u64);
        let is_in_frame = space == StateSpace::Local && !matches!(symbol, Symbol::Module(_));
        if self.region == 0 || !is_in_frame {
            return Ok((space, self.address_constant(space, address, width)));
        }
        if width != Width::Double {
            return Err("an address of 32 bits in a function that needs frames".to_owned());
        }
        let (d, a) = (self.temporary(width), self.frame_pointer());
        let b = self.constant(address, width);
        self.unguarded(Integer::Add64 { d, a, b });
        Ok((space, d))
    }

    /// A call with a frame. Inactive lanes must have branched away.
    pub(super) fn call_with_frame(
        &mut self,
        callee: Callee,
        arguments: &'a [Operand],
        given: &'a [Operand],
        parameters: &'a [Parameter],
        results: &'a [Parameter],
    ) -> Result<(), Reason> {
        let (to, from, _) = offsets(parameters, results);
        let end = self.preset(Preset::FrameEnd(self.region), Width::Double);
        let frame = if self.region == 0 {
            end
        } else {
            let (d, a) = (self.temporary(Width::Double), self.frame_pointer());
            self.emit(Integer::Add64 { d, a, b: end });
            d
        };
        for ((operand, wanted), offset) in arguments.iter().zip(parameters).zip(to) {
            let place = LocalPlace { base: frame, offset: offset as i64 };
            match self.variable_of_call(operand)? {
                Some(address) => {
                    let variable = self.local_place(address);
                    self.copy_bytes(place, variable, wanted);
                }
                None => {
                    let value = self.read(operand, wanted.ty)?;
                    self.store_local(place, value, wanted.ty);
                }
            }
        }
        match callee {
            Callee::Function(function) => {
                let region = self.region_of(function) - 1;
                self.emit(Control::Call { frame, region });
            }
            Callee::Pointer(pointer) => self.emit(Control::CallPointer { pointer, frame }),
        }
        for ((operand, wanted), offset) in given.iter().zip(results).zip(from) {
            let place = LocalPlace { base: frame, offset: offset as i64 };
            match self.variable_of_call(operand)? {
                Some(address) => {
                    let variable = self.local_place(address);
                    self.copy_bytes(variable, place, wanted);
                }
                None => {
                    let d = self.write(operand, wanted.ty)?;
                    self.load_local(place, d, wanted.ty);
                }
            }
        }
        Ok(())
    }

    /// Copies a parameter or result within local memory.
    fn copy_bytes(&mut self, to: LocalPlace, from: LocalPlace, parameter: &Parameter) {
        let ty = match parameter.alignment() {
            1 => Type::U8,
            2 | 3 => Type::U16,
            4..=7 => Type::U32,
            _ => Type::U64,
        };
        let (mut at, size) = (0, parameter.size());
        while at < size {
            let ty = if at + ty.size() <= size { ty } else { Type::U8 };
            let value = self.temporary(super::width_of(ty));
            self.load_local(from.plus(at), value, ty);
            self.store_local(to.plus(at), value, ty);
            at += ty.size();
        }
    }

    fn load_local(&mut self, from: LocalPlace, d: VirtualRegister, ty: Type) {
        let access = self.access_in_frame(from.offset, ty, d);
        self.emit(Memory::Load1 { d, address: from.base, access });
    }

    fn store_local(&mut self, to: LocalPlace, a: VirtualRegister, ty: Type) {
        let access = self.access_in_frame(to.offset, ty, a);
        self.emit(Memory::Store1 { address: to.base, a, access });
    }

    /// An access to local memory at an offset from a register.
    pub(super) fn access_in_frame(&mut self, offset: i64, ty: Type, value: VirtualRegister) -> u32 {
        self.accesses.push(Access {
            space: Some(StateSpace::Local),
            signed: ty.is_signed(),
            value: self.width(value),
            offset,
            ..Access::generic(ty.size())
        });
        self.accesses.len() as u32 - 1
    }
}
