//! Addresses of parameters and variables.

use retrograph_ptx::ast::{
    AddressBase, Entry, Instruction, Linkage, Module, Opcode, Operand, StateSpace, Statement,
    Symbol, Variable,
};

/// The addresses of the variables of the kernel and of the functions that it may call, except in
/// local memory, which is laid out per call.
#[derive(Debug)]
pub(super) struct VariableLayout {
    /// Offset and size of each parameter, and the size of the block.
    pub(super) parameters: (Vec<(u32, u32)>, u32),
    /// The variables of the kernel, then of each function.
    own: Vec<Vec<VariableAddress>>,
    /// The variables of the module.
    module: Vec<VariableAddress>,
    /// Bytes of static shared memory.
    pub(super) shared_bytes: u64,
    /// Bytes of local memory of the module's variables.
    pub(super) local_bytes: u64,
}

/// The space and address of a variable. The address is `None` for module variables without one, and
/// in local memory of a kernel or function.
pub(super) type VariableAddress = (StateSpace, Option<u64>);

/// Layout of static shared memory, and of the module's local memory.
struct Layout<'a> {
    shared: u64,
    local: u64,
    address_of: &'a dyn Fn(&str) -> Option<u64>,
}

impl Layout<'_> {
    /// A variable of the module.
    fn outer(&mut self, variable: &Variable, used: bool) -> VariableAddress {
        let end = match variable.space {
            StateSpace::Shared if used && !is_dynamic(variable) => &mut self.shared,
            StateSpace::Local => &mut self.local,
            space => return (space, (self.address_of)(&variable.name)),
        };
        (variable.space, Some(append(end, variable)))
    }

    /// A variable of a kernel or function.
    fn inner(&mut self, variable: &Variable) -> VariableAddress {
        match variable.space {
            StateSpace::Shared if !is_dynamic(variable) => {
                (StateSpace::Shared, Some(append(&mut self.shared, variable)))
            }
            StateSpace::Local | StateSpace::Param => (StateSpace::Local, None),
            space => (space, (self.address_of)(&variable.name)),
        }
    }
}

/// Appends a variable to a memory. Returns its offset.
pub(super) fn append(end: &mut u64, variable: &Variable) -> u64 {
    let start = u64::next_multiple_of(*end, u64::from(variable.alignment()));
    *end = start + variable.size();
    start
}

impl VariableLayout {
    /// Lays out static shared memory and determines the addresses of other variables.
    pub(super) fn new(
        module: &Module,
        entry: &Entry,
        address_of: &dyn Fn(&str) -> Option<u64>,
    ) -> Self {
        let (offsets, size) = entry.parameter_layout();
        let sizes = entry.parameters.iter().map(|parameter| parameter.size());
        let parameters = (offsets.into_iter().zip(sizes).collect(), size);
        // A kernel with any call may call every function.
        let calls = entry.body.iter().any(is_call);
        let functions = module.functions.iter().filter(|_| calls).map(|function| &function.code);
        let codes: Vec<&Entry> = std::iter::once(entry).chain(functions).collect();
        let used: Vec<bool> = (0..module.variables.len())
            .map(|index| codes.iter().any(|code| names(code, index as u32)))
            .collect();
        let mut layout = Layout { shared: 0, local: 0, address_of };
        let mut own: Vec<Vec<VariableAddress>> = codes
            .iter()
            .map(|code| code.variables.iter().map(|v| layout.inner(v)).collect())
            .collect();
        let pairs = module.variables.iter().zip(&used);
        let mut outer: Vec<VariableAddress> =
            pairs.map(|(v, &used)| layout.outer(v, used)).collect();
        // Dynamic shared memory starts after the static part; all arrays of it share the start.
        let used = module.variables.iter().zip(&used).filter(|(_, used)| **used).map(|(v, _)| v);
        let variables = codes.iter().flat_map(|code| &code.variables).chain(used);
        let dynamic = variables.filter(|variable| is_dynamic(variable));
        let alignment = dynamic.map(Variable::alignment).max().unwrap_or(1);
        let shared = layout.shared.next_multiple_of(u64::from(alignment));
        let fill = |addresses: &mut Vec<VariableAddress>, variables: &[Variable]| {
            for (address, variable) in addresses.iter_mut().zip(variables) {
                if is_dynamic(variable) {
                    *address = (StateSpace::Shared, Some(shared));
                }
            }
        };
        for (addresses, code) in own.iter_mut().zip(&codes) {
            fill(addresses, &code.variables);
        }
        fill(&mut outer, &module.variables);
        let local_bytes = layout.local;
        Self { parameters, own, module: outer, shared_bytes: shared, local_bytes }
    }

    /// The variables of the kernel (0) or of the function before `code`.
    pub(super) fn own(&self, code: u32) -> &[VariableAddress] {
        self.own.get(code as usize).map_or(&[], Vec::as_slice)
    }

    /// A variable of the module.
    pub(super) fn module(&self, index: u32) -> Option<VariableAddress> {
        self.module.get(index as usize).copied()
    }

    /// A module variable without an address in the operands of an instruction.
    pub(super) fn unplaced(&self, instruction: &Instruction, module: &Module) -> Option<String> {
        let symbols = instruction.operands.iter().filter_map(symbol_of);
        let module_variable = symbols.filter_map(|symbol| match symbol {
            Symbol::Module(index) => Some(index as usize),
            _ => None,
        });
        let mut missing = module_variable
            .filter(|&index| self.module.get(index).is_some_and(|(_, address)| address.is_none()));
        let variable = module.variables.get(missing.next()?)?;
        Some(variable.name.clone())
    }
}

fn is_dynamic(variable: &Variable) -> bool {
    variable.space == StateSpace::Shared && variable.linkage == Linkage::Extern
}

fn is_call(statement: &Statement) -> bool {
    matches!(statement, Statement::Instruction(i) if i.opcode == Opcode::Call)
}

fn symbol_of(operand: &Operand) -> Option<Symbol> {
    match operand {
        Operand::Symbol(symbol, _) => Some(*symbol),
        Operand::Address(address) => match address.base {
            AddressBase::Symbol(symbol) => Some(symbol),
            _ => None,
        },
        _ => None,
    }
}

/// Whether the entry refers to a module variable.
fn names(entry: &Entry, variable: u32) -> bool {
    entry.body.iter().any(|statement| match statement {
        Statement::Label(_) => false,
        Statement::Instruction(instruction) => instruction
            .operands
            .iter()
            .any(|operand| symbol_of(operand) == Some(Symbol::Module(variable))),
    })
}
