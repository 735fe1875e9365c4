//! Emission of operations on virtual registers, and assembly of the program.

use std::sync::Arc;

use retrograph_ptx::ast::{Module, StateSpace};

use super::Decoder;
use super::micro::{Micro, RegisterInfo, VirtualRegister};
use crate::lane_function::LaneFunction;
use crate::layout::lay_out;
use crate::operation::{Function, Instruction, Operation, Tensor};
use crate::program::{LaneOperation, Preset, Program, Width};
use crate::registers::{Offset, invert};
use crate::warpgroup::Warpgroup;

/// Returns the module without its entries.
fn without_entries(module: &Module) -> Module {
    let (isa, target, entries) = (module.isa, module.target, Vec::new());
    let (variables, functions) = (module.variables.clone(), module.functions.clone());
    Module { isa, target, variables, functions, entries, lines: Arc::clone(&module.lines) }
}

impl Decoder<'_> {
    /// Appends an operation under the guard of the statement.
    pub(super) fn emit(&mut self, operation: impl Into<Operation<VirtualRegister>>) {
        self.code.push(Micro::new(operation.into(), self.guard, self.site));
    }

    /// Appends a matrix instruction. Its registers are in a table of the program.
    pub(super) fn emit_tensor(
        &mut self,
        operation: Tensor,
        writes: &[VirtualRegister],
        reads: &[VirtualRegister],
    ) {
        let (writes, reads) = (writes.to_vec(), reads.to_vec());
        let operation = operation.into();
        self.code.push(Micro { operation, guard: self.guard, writes, reads, site: self.site });
    }

    /// Appends a per-lane function of up to four operands.
    pub(super) fn emit_lanes(
        &mut self,
        function: LaneFunction,
        d: VirtualRegister,
        from: &[VirtualRegister],
    ) {
        let mut operands = [Width::Word; 4];
        for (operand, register) in operands.iter_mut().zip(from) {
            *operand = self.width(*register);
        }
        self.lanes.push(LaneOperation { function, result: self.width(d), operands });
        let function = self.lanes.len() as u32 - 1;
        self.emit(match *from {
            [a, b, c, e, ..] => Function::Apply4 { d, a, b, c, e, function },
            [a, b, c] => Function::Apply3 { d, a, b, c, function },
            [a, b] => Function::Apply2 { d, a, b, function },
            [a] => Function::Apply1 { d, a, function },
            // A function without operands reads its own result.
            [] => Function::Apply1 { d, a: d, function },
        });
    }

    /// Creates a virtual register that is not declared in the kernel.
    pub(super) fn temporary(&mut self, width: Width) -> VirtualRegister {
        self.registers.push(RegisterInfo { width, preset: None });
        VirtualRegister(self.registers.len() as u32 - 1)
    }

    /// The register of a preset.
    pub(super) fn preset(&mut self, preset: Preset, width: Width) -> VirtualRegister {
        if let Some(&register) = self.presets.get(&preset) {
            return register;
        }
        self.registers.push(RegisterInfo { width, preset: Some(preset) });
        let register = VirtualRegister(self.registers.len() as u32 - 1);
        self.presets.insert(preset, register);
        register
    }

    /// The register of a constant.
    pub(super) fn constant(&mut self, bits: u64, width: Width) -> VirtualRegister {
        self.preset(Preset::Constant(bits, width), width)
    }

    /// The register of an address.
    pub(super) fn address_constant(
        &mut self,
        space: StateSpace,
        address: u64,
        width: Width,
    ) -> VirtualRegister {
        match space {
            StateSpace::Shared => self.preset(Preset::Shared(address, width), width),
            _ => self.constant(address, width),
        }
    }

    /// Sets the register offsets of matrix instructions.
    fn assign_matrices(&mut self, offset_of: impl Fn(VirtualRegister) -> Offset) {
        let fenced = self.fenced_inputs().into_iter();
        let fenced_inputs: Vec<Offset> = fenced.map(&offset_of).collect();
        for micro in &self.code {
            match micro.operation {
                Operation::Tensor(Tensor::Matrix { matrix }) => {
                    let registers = micro.writes.iter().chain(&micro.reads);
                    self.matrices[matrix as usize].registers =
                        registers.map(|r| offset_of(*r)).collect();
                }
                Operation::Tensor(Tensor::Warpgroup { instruction }) => {
                    match &mut self.warpgroups[instruction as usize] {
                        Warpgroup::Start(product) => {
                            product.registers = micro.reads.iter().map(|r| offset_of(*r)).collect();
                        }
                        Warpgroup::Fence(registers) => registers.clone_from(&fenced_inputs),
                        _ => {}
                    }
                }
                _ => {}
            }
        }
    }

    pub(super) fn finish(mut self) -> Program {
        let module = self.module;
        let always = self.constant(u64::MAX, Width::Predicate);
        self.keep_accumulators();
        self.watch_stores();
        let starts: Vec<usize> = self.regions.iter().map(|region| region.start).collect();
        let layout = lay_out(&self.code, &starts, &self.registers);
        let calls = self.call_table(&layout);
        let offset_of = |register: VirtualRegister| layout.offsets[register.0 as usize];
        let encode = |micro: &Micro| {
            let (guard, negated) = micro.guard.unwrap_or((always, false));
            Instruction {
                guard: offset_of(guard),
                guard_inversion: invert(negated),
                operation: micro.operation.map(offset_of),
            }
        };
        let code = self.code.iter().map(encode).collect();
        self.assign_matrices(offset_of);
        self.assign_bulk(&offset_of);
        let presets = self.presets.iter().map(|(&preset, &register)| {
            let preset = match preset {
                Preset::FrameEnd(region) => Preset::Constant(self.frame_end(region), Width::Double),
                other => other,
            };
            (preset, offset_of(register))
        });
        let exposed = |register: &VirtualRegister| {
            (offset_of(*register), self.registers[register.0 as usize].width.bytes())
        };
        Program {
            code,
            sites: self.code.iter().map(|micro| micro.site).collect(),
            presets: presets.collect(),
            exposed: layout.exposed.iter().map(exposed).collect(),
            parameters: self.variables.parameters,
            module: Arc::new(without_entries(module)),
            entry: Arc::new(self.frame.entry.clone()),
            accesses: self.accesses,
            atomics: self.atomics,
            lanes: self.lanes,
            copies: self.copies,
            matrices: self.matrices,
            warpgroups: self.warpgroups,
            bulk: self.bulk,
            register_bytes: layout.register_bytes,
            file_bytes: layout.file_bytes,
            // `check_memory` has checked that it fits.
            shared_bytes: self.variables.shared_bytes as u32,
            local_bytes: self.local_peak.next_multiple_of(16) as u32,
            calls,
            communicates: self.communicates,
            uses_heap: self.uses_heap,
            uses_workspace: self.uses_workspace,
        }
    }
}
