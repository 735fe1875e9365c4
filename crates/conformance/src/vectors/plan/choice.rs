//! Instances of one choice of modifiers and types.

use retrograph_ptx::ast::{Modifier, Type};
use retrograph_ptx::instructions::{Form, Opcode, Shape, Ty};

use super::special;
use crate::vectors::instance::{Input, Instance, Role, class};
use crate::vectors::kernel::BLOCK;

/// An instruction while its operands are being chosen.
pub(super) struct Choice<'a> {
    pub(super) opcode: Opcode,
    pub(super) form: &'a Form,
    pub(super) modifiers: Vec<Modifier>,
    pub(super) types: Vec<Type>,
    pub(super) sources: Vec<Input>,
    pub(super) results: Vec<Type>,
    /// Statements before and after the instruction.
    pub(super) before: String,
    pub(super) after: String,
    pub(super) stores: bool,
    /// Number of barrier operands that were generated.
    pub(super) barrier_operands: usize,
}

impl<'a> Choice<'a> {
    pub(super) fn new(
        opcode: Opcode,
        form: &'a Form,
        modifiers: Vec<Modifier>,
        types: Vec<Type>,
    ) -> Self {
        Self {
            opcode,
            form,
            modifiers,
            types,
            sources: Vec::new(),
            results: Vec::new(),
            before: String::new(),
            after: String::new(),
            stores: false,
            barrier_operands: 0,
        }
    }

    fn has(&self, modifier: Modifier) -> bool {
        self.modifiers.contains(&modifier)
    }

    fn resolve(&self, of: Ty) -> Type {
        let first = self.types.first().copied().unwrap_or(Type::B32);
        match of {
            Ty::First => first,
            Ty::Second => self.types.get(1).copied().unwrap_or(first),
            Ty::Is(of) => of,
            Ty::Double => match (first.size(), first.is_signed()) {
                (2, true) => Type::S32,
                (2, false) => Type::U32,
                (_, true) => Type::S64,
                (_, false) => Type::U64,
            },
            #[allow(unreachable_patterns)]
            _ => first,
        }
    }

    pub(super) fn source(&mut self, of: Type, role: Role) -> String {
        self.sources.push(Input { of, role });
        format!("%s{}", self.sources.len() - 1)
    }

    pub(super) fn result(&mut self, of: Type) -> String {
        self.results.push(of);
        format!("%d{}", self.results.len() - 1)
    }

    /// The instance; `None` if the choice needs none.
    pub(super) fn instance(
        mut self,
        constant: Option<i64>,
    ) -> Result<Option<Instance>, &'static str> {
        if special::is_elsewhere(&self) {
            return Ok(None);
        }
        self.carry_in();
        let mut operands = Vec::new();
        let last = self.form.operands.len().wrapping_sub(1);
        for (at, shape) in self.form.operands.iter().enumerate() {
            let is_mask = at == last && special::ends_with_mask(self.opcode);
            let operand = match (is_mask, constant) {
                (true, _) => "0xffffffff".to_owned(),
                (_, Some(constant)) if *shape == Shape::Constant => constant.to_string(),
                _ => self.operand(*shape)?,
            };
            operands.push(operand);
        }
        self.carry_out();
        let mut words: Vec<&str> = self.modifiers.iter().map(|word| word.text()).collect();
        words.extend(self.types.iter().map(|of| of.text()));
        let mnemonic: String = words.iter().map(|word| format!(".{word}")).collect();
        let mnemonic = format!("{}{mnemonic}", self.opcode);
        let name = self.name(&mnemonic, constant);
        let statement = format!("{mnemonic} {};", operands.join(", "));
        let body = format!("{}{statement}\n{}", self.before, self.after);
        Ok(Some(Instance {
            opcode: self.opcode,
            name,
            cases: 0,
            results: self.results,
            sources: self.sources,
            body,
            stores: self.stores,
        }))
    }

    /// The mnemonic, and the number of sources and constants, which distinguish forms.
    fn name(&self, mnemonic: &str, constant: Option<i64>) -> String {
        let forms = self.opcode.forms();
        let same = |other: &&Form| {
            other.types == self.form.types && other.operands.len() != self.form.operands.len()
        };
        let mut name = mnemonic.to_owned();
        if forms.iter().any(|other| same(&other)) {
            name.push_str(&format!("/{}", self.form.operands.len()));
        }
        if let Some(constant) = constant {
            name.push_str(&format!("/{constant:#x}"));
        }
        name
    }

    fn operand(&mut self, shape: Shape) -> Result<String, &'static str> {
        let role = special::role(self.opcode);
        Ok(match shape {
            Shape::Destination(of) | Shape::WideDestination(of) | Shape::DestinationOrSink(of) => {
                let of = special::widened(self.resolve(of));
                self.result(of)
            }
            Shape::DestinationAndPredicate(of) => {
                let of = self.resolve(of);
                let (value, predicate) = (self.result(of), self.result(Type::Pred));
                format!("{value}|{predicate}")
            }
            Shape::SinkAndPredicate(of) => {
                let of = self.resolve(of);
                let (value, predicate) = (self.result(of), self.result(Type::Pred));
                format!("{value}|{predicate}")
            }
            Shape::Predicates => {
                format!("{}|{}", self.result(Type::Pred), self.result(Type::Pred))
            }
            Shape::Source(Ty::Is(Type::U32)) | Shape::Within(_) | Shape::Threads
                if special::is_barrier(self.opcode) =>
            {
                // The barrier, then the number of threads.
                self.barrier_operands += 1;
                if self.barrier_operands == 1 { "1".to_owned() } else { BLOCK.to_string() }
            }
            Shape::Source(Ty::Is(Type::U32)) | Shape::Within(_) | Shape::Threads => {
                self.source(Type::U32, Role::Count)
            }
            Shape::Source(of) | Shape::WideSource(of) => {
                let of = self.resolve(of);
                self.source(of, role)
            }
            Shape::Predicate | Shape::PredicateRegister => self.source(Type::Pred, Role::Value),
            Shape::Anything => {
                let of = self.resolve(Ty::First);
                self.source(of, Role::Value)
            }
            Shape::Unpacked => {
                let half = if self.types[0] == Type::B64 { Type::B32 } else { Type::B16 };
                format!("{{{}, {}}}", self.result(half), self.result(half))
            }
            Shape::Register(of) => self.source(of, role),
            Shape::FragmentDestination(of, count) => {
                let names: Vec<_> = (0..count).map(|_| self.result(of)).collect();
                format!("{{{}}}", names.join(", "))
            }
            Shape::Fragment(of, count) => {
                let names: Vec<_> = (0..count).map(|_| self.source(of, role)).collect();
                format!("{{{}}}", names.join(", "))
            }
            Shape::Loaded | Shape::LoadedOrSink => self.loaded(),
            Shape::Stored => self.stored(),
            Shape::Memory => self.memory()?,
            _ => return Err("an operand that the generator does not support"),
        })
    }

    pub(super) fn vector(&self) -> usize {
        let lengths = [(Modifier::V2, 2), (Modifier::V4, 4), (Modifier::V8, 8)];
        lengths.iter().find(|(word, _)| self.has(*word)).map_or(1, |(_, length)| *length)
    }

    /// The registers of a load, as wide as the register class of the type.
    fn loaded(&mut self) -> String {
        let of = special::widened(self.types[0]);
        let names: Vec<_> = (0..self.vector()).map(|_| self.result(of)).collect();
        if names.len() == 1 { names.concat() } else { format!("{{{}}}", names.join(", ")) }
    }

    fn stored(&mut self) -> String {
        let of = special::widened(self.types[0]);
        let names: Vec<_> = (0..self.vector()).map(|_| self.source(of, Role::Value)).collect();
        if names.len() == 1 { names.concat() } else { format!("{{{}}}", names.join(", ")) }
    }
}

/// Loads and stores of a register's class, around an instruction.
pub(super) fn move_class(of: Type) -> &'static str {
    match class(of) {
        "pred" => "b32",
        other => other,
    }
}
