//! Calls of device functions, which are inlined unless they need frames (see [`super::frames`]).
//!
//! Parameters and results are in local memory, as in the calling convention: a `.param` variable of
//! the caller and the parameter of an inlined function are the same bytes.

use retrograph_ptx::ast::{Entry, Instruction, Operand, Parameter, StateSpace, Symbol, Type};

use super::frames::Callee;
use super::variables::append;
use super::{Decoder, Reason, VirtualRegister, width_of};
use crate::operation::{Control, Memory};
use crate::program::Site;

/// The maximum instructions of a kernel with all inlined functions.
const MAX_INSTRUCTIONS: usize = 1 << 22;
/// The maximum virtual registers of a kernel with all inlined functions.
const MAX_REGISTERS: usize = 1 << 20;
/// The maximum number of inlined calls. Nested calls multiply it.
const MAX_INLINED: u32 = 1 << 13;
/// The maximum depth of inlined calls, which the decoder recurses over.
const MAX_DEPTH: u32 = 128;

/// The kernel, or an inlined function.
pub(super) struct Frame<'a> {
    /// 0 for the kernel, otherwise one more than the index of the function.
    pub(super) code: u32,
    /// The declarations and the body.
    pub(super) entry: &'a Entry,
    /// The types of its registers.
    pub(super) types: Vec<Type>,
    /// The virtual register of the first declared register.
    first_register: u32,
    /// The number of the first label.
    first_label: u32,
    /// The label that `ret` branches to; `None` in a kernel.
    end: Option<u32>,
    /// The addresses of parameters and results in local memory; empty in a kernel.
    passed: (Vec<u64>, Vec<u64>),
    /// The addresses of the variables in local memory.
    local: Vec<Option<u64>>,
}

impl<'a> Frame<'a> {
    /// Creates the initial frame of the kernel.
    pub(super) fn kernel(entry: &'a Entry) -> Self {
        Self {
            code: 0,
            entry,
            types: entry.register_types(),
            first_register: 0,
            first_label: 0,
            end: None,
            passed: (Vec::new(), Vec::new()),
            local: Vec::new(),
        }
    }

    /// Creates the frame of a function that is decoded once for all calls, with the addresses of
    /// its parameters and results.
    pub(super) fn function(
        code: u32,
        entry: &'a Entry,
        parameters: Vec<u64>,
        results: Vec<u64>,
    ) -> Self {
        Self { code, passed: (parameters, results), ..Self::kernel(entry) }
    }

    /// The virtual register of a register, if declared.
    pub(super) fn register(&self, register: u32) -> Option<VirtualRegister> {
        let known = (register as usize) < self.types.len();
        known.then(|| VirtualRegister(self.first_register + register))
    }

    /// The program's label for a label of the entry.
    pub(super) fn label(&self, label: u32) -> u32 {
        self.first_label + label
    }

    /// The label after an inlined function; `None` in a kernel.
    pub(super) fn end(&self) -> Option<u32> {
        self.end
    }
}

impl<'a> Decoder<'a> {
    /// Creates the registers, labels and local memory of a frame.
    pub(super) fn open(&mut self, frame: Frame<'a>) -> Frame<'a> {
        let first_register = self.registers.len() as u32;
        for ty in &frame.types {
            self.registers.push(super::RegisterInfo { width: width_of(*ty), preset: None });
        }
        let first_label = self.labels.len() as u32;
        self.labels.resize(self.labels.len() + frame.entry.labels.len(), None);
        let mut local = Vec::new();
        for variable in &frame.entry.variables {
            let is_local = matches!(variable.space, StateSpace::Local | StateSpace::Param);
            local.push(is_local.then(|| append(&mut self.local, variable)));
        }
        self.local_peak = self.local_peak.max(self.local);
        Frame { first_register, first_label, local, ..frame }
    }

    /// Creates a label that no statement uses.
    pub(super) fn new_label(&mut self) -> u32 {
        self.labels.push(None);
        self.labels.len() as u32 - 1
    }

    /// Places a label at the next instruction.
    pub(super) fn place_label(&mut self, label: u32) {
        let here = self.code.len() as u32;
        if let Some(position) = self.labels.get_mut(label as usize) {
            *position = Some(here);
        }
    }

    /// The space and address of a symbol. Parameters of functions and of calls are local.
    pub(super) fn address_of(&self, symbol: Symbol) -> Option<(StateSpace, u64)> {
        let frame = &self.frame;
        let (space, address) = match symbol {
            Symbol::Parameter(index) if frame.code == 0 => {
                let (offset, _) = self.variables.parameters.0.get(index as usize)?;
                (StateSpace::Param, Some(u64::from(*offset)))
            }
            Symbol::Parameter(index) => {
                (StateSpace::Local, frame.passed.0.get(index as usize).copied())
            }
            Symbol::Result(index) => {
                (StateSpace::Local, frame.passed.1.get(index as usize).copied())
            }
            Symbol::Local(index) => {
                let local = frame.local.get(index as usize).copied().flatten();
                let (space, address) = *self.variables.own(frame.code).get(index as usize)?;
                (space, local.or(address))
            }
            Symbol::Module(index) => self.variables.module(index)?,
        };
        Some((space, address?))
    }

    /// `call`
    pub(super) fn call(&mut self, instruction: &'a Instruction) -> Result<(), Reason> {
        super::only(instruction, &[retrograph_ptx::ast::Modifier::Uni])?;
        let list = |operand: Option<&'a Operand>| match operand {
            Some(Operand::List(list)) => &list[..],
            _ => &[],
        };
        let operands = match &instruction.operands[..] {
            [operands @ .., Operand::Prototype(_)] => operands,
            operands => operands,
        };
        let arguments = if operands.len() > 1 { list(operands.last()) } else { &[] };
        let results = list(operands.first());
        let callee = operands.iter().find_map(|operand| match operand {
            Operand::Function(index) => Some(*index),
            _ => None,
        });
        let Some(callee) = callee else {
            return self.call_through_pointer(instruction, arguments, results);
        };
        let module = self.module;
        let function = module.functions.get(callee as usize).ok_or("an unknown function")?;
        let name = &function.code.name;
        let code = &function.code;
        if arguments.len() != code.parameters.len() || results.len() != code.results.len() {
            return Err(format!("another number of arguments than `{name}` has"));
        }
        let after = self.skip_unless_guarded();
        if !function.is_defined {
            self.call_of_driver(function, arguments, results)?;
            self.place_label(after);
            return Ok(());
        }
        if self.recursive.contains(&callee) {
            let callee = Callee::Function(callee);
            self.call_with_frame(callee, arguments, results, &code.parameters, &code.results)?;
            self.place_label(after);
            return Ok(());
        }
        self.check_inlining(code)?;
        let mark = self.local;
        let passed = self.pass(arguments, &code.parameters)?;
        let given = self.receive(results, &code.results)?;
        let frame = Frame {
            code: callee + 1,
            end: Some(after),
            passed: (passed, given.clone()),
            ..Frame::kernel(code)
        };
        self.enter(frame)?;
        self.place_label(after);
        self.take(results, &code.results, &given)?;
        self.local = mark;
        Ok(())
    }

    /// Refuses to inline another call of `code` beyond the limits.
    fn check_inlining(&mut self, code: &Entry) -> Result<(), Reason> {
        self.inlined += 1;
        let registers = code.registers.iter().map(|found| found.count.unwrap_or(1) as usize);
        let registers = registers.fold(self.registers.len(), usize::saturating_add);
        let (what, limit) = if self.depth == MAX_DEPTH {
            ("calls inside each other", MAX_DEPTH as usize)
        } else if self.inlined > MAX_INLINED {
            ("calls, with all functions in place of their calls", MAX_INLINED as usize)
        } else if self.code.len() > MAX_INSTRUCTIONS {
            ("instructions, with all functions in place of their calls", MAX_INSTRUCTIONS)
        } else if registers > MAX_REGISTERS {
            ("registers, with all functions in place of their calls", MAX_REGISTERS)
        } else {
            return Ok(());
        };
        Err(format!("more than {limit} {what}"))
    }

    /// A call through a pointer, with a frame.
    fn call_through_pointer(
        &mut self,
        instruction: &'a Instruction,
        arguments: &'a [Operand],
        results: &'a [Operand],
    ) -> Result<(), Reason> {
        let (mut pointer, mut prototype) = (None, None);
        for operand in &instruction.operands {
            match operand {
                Operand::Register(_) => pointer = Some(operand),
                Operand::Prototype(index) => {
                    prototype = self.frame.entry.prototypes.get(*index as usize);
                }
                _ => {}
            }
        }
        let (pointer, prototype) = pointer.zip(prototype).ok_or("a call without a prototype")?;
        let (parameters, wanted) = (&prototype.parameters, &prototype.results);
        if arguments.len() != parameters.len() || results.len() != wanted.len() {
            return Err(format!("another number of arguments than `{}` has", prototype.name));
        }
        let pointer = self.read(pointer, Type::U64)?;
        let after = self.skip_unless_guarded();
        let callee = Callee::Pointer(pointer);
        self.call_with_frame(callee, arguments, results, parameters, wanted)?;
        self.place_label(after);
        Ok(())
    }

    /// Emits a branch over the call for lanes with a false guard. Returns its target label.
    fn skip_unless_guarded(&mut self) -> u32 {
        let after = self.new_label();
        if let Some((guard, negated)) = self.guard {
            self.guard = Some((guard, !negated));
            self.emit(Control::Branch { target: after });
            self.guard = None;
        }
        after
    }

    fn enter(&mut self, frame: Frame<'a>) -> Result<(), Reason> {
        let frame = self.open(frame);
        let outer = std::mem::replace(&mut self.frame, frame);
        let (site, guard) = (self.site, self.guard.take());
        self.depth += 1;
        let result = self.statements();
        self.depth -= 1;
        let inner = std::mem::replace(&mut self.frame, outer);
        self.site = site;
        self.guard = guard;
        result.map_err(|(statement, what)| {
            // Errors inside are reported at the call, with the line of the instruction.
            let line = match inner.entry.body.get(statement) {
                Some(retrograph_ptx::ast::Statement::Instruction(i)) => i.line.0,
                _ => 0,
            };
            format!("in `{}`, line {line}: {what}", inner.entry.name)
        })
    }

    /// Returns the addresses of the arguments; values are first stored in local memory.
    pub(super) fn pass(
        &mut self,
        list: &'a [Operand],
        wanted: &[Parameter],
    ) -> Result<Vec<u64>, Reason> {
        let mut addresses = Vec::new();
        for (operand, wanted) in list.iter().zip(wanted) {
            if let Some(address) = self.variable_of_call(operand)? {
                addresses.push(address);
                continue;
            }
            let value = self.read(operand, wanted.ty)?;
            let address = self.reserve(wanted);
            let (at, access) = self.local_access(address, wanted.ty, value);
            self.emit(Memory::Store1 { address: at, a: value, access });
            addresses.push(address);
        }
        Ok(addresses)
    }

    /// The addresses of the results.
    pub(super) fn receive(
        &mut self,
        list: &'a [Operand],
        wanted: &[Parameter],
    ) -> Result<Vec<u64>, Reason> {
        let mut addresses = Vec::new();
        for (operand, wanted) in list.iter().zip(wanted) {
            let known = self.variable_of_call(operand)?;
            addresses.push(known.unwrap_or_else(|| self.reserve(wanted)));
        }
        Ok(addresses)
    }

    /// Loads the results that go to registers.
    pub(super) fn take(
        &mut self,
        list: &'a [Operand],
        wanted: &[Parameter],
        addresses: &[u64],
    ) -> Result<(), Reason> {
        for ((operand, wanted), &address) in list.iter().zip(wanted).zip(addresses) {
            if matches!(operand, Operand::Register(_)) {
                let to = self.write(operand, wanted.ty)?;
                let (at, access) = self.local_access(address, wanted.ty, to);
                self.emit(Memory::Load1 { d: to, address: at, access });
            }
        }
        Ok(())
    }

    /// The address of the operand if it is a `.param` variable.
    pub(super) fn variable_of_call(&self, operand: &Operand) -> Result<Option<u64>, Reason> {
        match operand {
            Operand::Symbol(symbol, offset) => match self.address_of(*symbol) {
                Some((StateSpace::Local, address)) => {
                    Ok(Some(address.wrapping_add(*offset as u64)))
                }
                _ => Err("a symbol that no call may name".to_owned()),
            },
            _ => Ok(None),
        }
    }

    fn reserve(&mut self, parameter: &Parameter) -> u64 {
        let start = self.local.next_multiple_of(u64::from(parameter.alignment()));
        self.local = start + u64::from(parameter.size());
        self.local_peak = self.local_peak.max(self.local);
        start
    }

    /// The address register of a value in local memory, and the access to it.
    pub(super) fn local_access(
        &mut self,
        address: u64,
        ty: Type,
        value: VirtualRegister,
    ) -> (VirtualRegister, u32) {
        let place = self.local_place(address);
        (place.base, self.access_in_frame(place.offset, ty, value))
    }

    /// Decodes the statements of the frame. An error has the index of its statement.
    pub(super) fn statements(&mut self) -> Result<(), (usize, Reason)> {
        use retrograph_ptx::ast::Statement;
        let entry = self.frame.entry;
        for (index, statement) in entry.body.iter().enumerate() {
            self.site = Site { code: self.frame.code, statement: index as u32 };
            self.guard = None;
            match statement {
                Statement::Label(label) => self.place_label(self.frame.label(label.0)),
                Statement::Instruction(instruction) => {
                    self.instruction(instruction).map_err(|what| (index, what))?;
                }
            }
        }
        self.guard = None;
        Ok(())
    }
}
