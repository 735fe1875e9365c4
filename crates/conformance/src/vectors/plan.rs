//! The instances, derived from the instruction table.

mod special;

use retrograph_ptx::ast::{Modifier, Type};
use retrograph_ptx::instructions::{Form, Opcode, Shape, Ty};

use super::instance::{Input, Instance, Role, class};
use super::kernel::BLOCK;

/// A form without vectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uncovered {
    /// The form as the table prints it.
    pub form: String,
    /// The reason.
    pub reason: &'static str,
}

/// The reason of a form none of whose choices yields an instance.
const NO_CHOICE: &str =
    "every choice of it is undocumented, not simulated, or of another state space";

/// All instances, and the forms that have none.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Instances by opcode.
    pub instances: Vec<Instance>,
    /// Forms without instances.
    pub uncovered: Vec<Uncovered>,
    /// Number of forms with instances.
    pub covered_forms: usize,
}

/// The plan for instructions that begin with `opcode`; for all if it is empty.
pub fn plan(opcode: &str) -> Plan {
    let mut plan = Plan::default();
    for &one in Opcode::ALL.iter().filter(|one| opcode.is_empty() || one.text() == opcode) {
        for form in one.forms() {
            match instances(one, form) {
                Ok(found) if !found.is_empty() => {
                    plan.covered_forms += 1;
                    plan.instances.extend(found);
                }
                Ok(_) => plan.leave_out(one, form, NO_CHOICE),
                Err(reason) => plan.leave_out(one, form, reason),
            }
        }
    }
    // Several forms may have the same instruction.
    let mut seen = std::collections::HashSet::new();
    plan.instances.retain(|instance| seen.insert(instance.name.clone()));
    plan
}

impl Plan {
    fn leave_out(&mut self, opcode: Opcode, form: &Form, reason: &'static str) {
        self.uncovered.push(Uncovered { form: format!("{opcode}{form}"), reason });
    }
}

/// An instruction while its operands are being chosen.
struct Choice<'a> {
    opcode: Opcode,
    form: &'a Form,
    modifiers: Vec<Modifier>,
    types: Vec<Type>,
    sources: Vec<Input>,
    results: Vec<Type>,
    /// Statements before and after the instruction.
    before: String,
    after: String,
    stores: bool,
    /// How many operands of a barrier were made.
    barrier_operands: usize,
}

fn instances(opcode: Opcode, form: &Form) -> Result<Vec<Instance>, &'static str> {
    if let Some(reason) = special::reason_against(opcode, form) {
        return Err(reason);
    }
    let mut found = Vec::new();
    for (modifiers, types) in choices(opcode, form) {
        for constant in special::constants(opcode, form) {
            let choice = Choice::new(opcode, form, modifiers.clone(), types.clone());
            found.extend(choice.instance(constant)?);
        }
    }
    let count = found.len();
    for instance in &mut found {
        instance.cases = special::cases(opcode, count);
    }
    Ok(found)
}

/// All combinations of modifiers and types. Modifiers that do not affect the computed value (state
/// space, cache, scope) are varied one at a time, with the first types.
fn choices(opcode: Opcode, form: &Form) -> Vec<(Vec<Modifier>, Vec<Type>)> {
    let types = type_choices(form);
    let mut all = Vec::new();
    for (modifiers, is_main) in modifier_choices(opcode, form) {
        let of_types = if is_main { types.as_slice() } else { &types[..1] };
        all.extend(of_types.iter().map(|types| (modifiers.clone(), types.clone())));
    }
    all
}

/// Choices of modifiers, each with whether it has only modifiers that affect the computed value.
fn modifier_choices(opcode: Opcode, form: &Form) -> Vec<(Vec<Modifier>, bool)> {
    let options = form.slots.iter().map(|slot| {
        let none = (!slot.required).then_some(None);
        none.into_iter().chain(slot.choices.iter().copied().map(Some)).collect::<Vec<_>>()
    });
    let options: Vec<_> = options.collect();
    let mut all: Vec<Vec<Option<Modifier>>> = vec![Vec::new()];
    for choices in &options {
        let extend = |before: &Vec<Option<Modifier>>| {
            let before = before.clone();
            choices.iter().map(move |choice| [&before[..], &[*choice]].concat())
        };
        all = all.iter().flat_map(extend).collect();
    }
    let is_sparse = special::has_modifiers_of_place(opcode);
    let weigh = |chosen: &Vec<Option<Modifier>>| {
        let differing = chosen.iter().zip(&options).filter(|(one, choices)| **one != choices[0]);
        let minor = |(one, _): &(&Option<Modifier>, _)| !one.is_some_and(special::says_what);
        let (all, minor) = (differing.clone().count(), differing.filter(minor).count());
        let is_main = !is_sparse || minor == 0;
        (is_main || all == 1)
            .then(|| (chosen.iter().copied().flatten().collect::<Vec<_>>(), is_main))
    };
    all.iter().filter_map(weigh).collect()
}

fn type_choices(form: &Form) -> Vec<Vec<Type>> {
    form.types.iter().fold(vec![Vec::new()], |partial, choices| {
        let extend = |before: &Vec<Type>| {
            let before = before.clone();
            choices.iter().map(move |of| [&before[..], &[*of]].concat())
        };
        partial.iter().flat_map(extend).collect()
    })
}

impl<'a> Choice<'a> {
    fn new(opcode: Opcode, form: &'a Form, modifiers: Vec<Modifier>, types: Vec<Type>) -> Self {
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

    fn source(&mut self, of: Type, role: Role) -> String {
        self.sources.push(Input { of, role });
        format!("%s{}", self.sources.len() - 1)
    }

    fn result(&mut self, of: Type) -> String {
        self.results.push(of);
        format!("%d{}", self.results.len() - 1)
    }

    /// The instance; `None` if the choice needs none.
    fn instance(mut self, constant: Option<i64>) -> Result<Option<Instance>, &'static str> {
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
            _ => return Err("an operand that the generator does not make"),
        })
    }

    fn vector(&self) -> usize {
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
fn move_class(of: Type) -> &'static str {
    match class(of) {
        "pred" => "b32",
        other => other,
    }
}
