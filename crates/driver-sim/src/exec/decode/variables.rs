//! Where parameters and variables lie.

use retrograph_ptx::ast::{
    AddressBase, Entry, Instruction, Linkage, Module, Operand, Space, Symbol, Variable,
};

/// The addresses of the symbols that an entry may name.
#[derive(Debug)]
pub(super) struct Places {
    /// Offset and size of each parameter, and the size of the block.
    pub(super) parameters: (Vec<(u32, u32)>, u32),
    entry: Vec<Place>,
    module: Vec<Place>,
    /// Bytes of static shared memory.
    pub(super) shared_bytes: u32,
    /// Bytes of local memory of one thread.
    pub(super) local_bytes: u32,
}

/// The space and address of a variable; no address where a variable of the module was given none.
type Place = (Space, Option<u64>);

impl Places {
    /// Lays out static shared and local memory.
    pub(super) fn new(
        module: &Module,
        entry: &Entry,
        address_of: &dyn Fn(&str) -> Option<u64>,
    ) -> Self {
        let (offsets, size) = entry.parameter_layout();
        let sizes = entry.parameters.iter().map(|parameter| parameter.size());
        let parameters = (offsets.into_iter().zip(sizes).collect(), size);
        let used: Vec<bool> =
            (0..module.variables.len()).map(|index| names(entry, index as u32)).collect();
        let (mut shared, mut local) = (0, 0);
        let mut lay = |variable: &Variable, used: bool| {
            let end = match variable.space {
                Space::Shared if used && !is_dynamic(variable) => &mut shared,
                Space::Local => &mut local,
                space => return (space, address_of(&variable.name)),
            };
            let start = u64::next_multiple_of(*end, u64::from(variable.alignment()));
            *end = start + variable.size();
            (variable.space, Some(start))
        };
        let mut own: Vec<Place> = entry.variables.iter().map(|v| lay(v, true)).collect();
        let pairs = module.variables.iter().zip(&used);
        let mut outer: Vec<Place> = pairs.map(|(v, &used)| lay(v, used)).collect();
        // Dynamic shared memory starts after the static part; all arrays of it share the start.
        let dynamic: Vec<&Variable> = entry
            .variables
            .iter()
            .chain(module.variables.iter().zip(&used).filter(|(_, used)| **used).map(|(v, _)| v))
            .filter(|variable| is_dynamic(variable))
            .collect();
        let alignment = dynamic.iter().map(|variable| variable.alignment()).max().unwrap_or(1);
        shared = shared.next_multiple_of(u64::from(alignment));
        let fill = |places: &mut Vec<Place>, variables: &[Variable]| {
            for (place, variable) in places.iter_mut().zip(variables) {
                if is_dynamic(variable) {
                    *place = (Space::Shared, Some(shared));
                }
            }
        };
        fill(&mut own, &entry.variables);
        fill(&mut outer, &module.variables);
        let local_bytes = (local as u32).next_multiple_of(16);
        Self { parameters, entry: own, module: outer, shared_bytes: shared as u32, local_bytes }
    }

    /// The space and address of a symbol.
    pub(super) fn find(&self, symbol: Symbol) -> Option<(Space, u64)> {
        let (space, address) = match symbol {
            Symbol::Parameter(index) => {
                let (offset, _) = self.parameters.0.get(index as usize)?;
                (Space::Param, Some(u64::from(*offset)))
            }
            Symbol::Result(_) => return None,
            Symbol::Local(index) => *self.entry.get(index as usize)?,
            Symbol::Module(index) => *self.module.get(index as usize)?,
        };
        Some((space, address?))
    }

    /// A variable of the module that the instruction names and that has no address.
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
    variable.space == Space::Shared && variable.linkage == Linkage::Extern
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

/// Whether the entry names a variable of the module.
fn names(entry: &Entry, variable: u32) -> bool {
    use retrograph_ptx::ast::Statement;
    entry.body.iter().any(|statement| match statement {
        Statement::Label(_) => false,
        Statement::Instruction(instruction) => instruction
            .operands
            .iter()
            .any(|operand| symbol_of(operand) == Some(Symbol::Module(variable))),
    })
}
