//! Every combination of the types and modifiers of every form in the table, through the parser, the
//! printer and `ptxas`.

use retrograph_ptx::ast::{Modifier, StateSpace, Type};
use retrograph_ptx::instructions::{Form, Opcode, Shape, Ty};
use retrograph_ptx::{IsaVersion, Reach, SmTarget, parse};

use crate::ptxas;
use crate::table::module_around;

/// One instruction that a form allows.
struct Example<'a> {
    modifiers: Vec<Modifier>,
    types: Vec<Type>,
    form: &'a Form,
}

/// The choices of modifiers that differ from the minimal choice in at most one slot.
fn modifier_choices(form: &Form) -> Vec<Vec<Modifier>> {
    let least: Vec<Option<Modifier>> =
        form.slots.iter().map(|slot| slot.required.then(|| slot.choices[0])).collect();
    let mut all = vec![least.clone()];
    for (index, slot) in form.slots.iter().enumerate() {
        for &choice in slot.choices {
            let mut other = least.clone();
            other[index] = Some(choice);
            all.push(other);
        }
    }
    all.into_iter().map(|choices| choices.into_iter().flatten().collect()).collect()
}

/// Every combination of types.
fn type_choices(form: &Form) -> Vec<Vec<Type>> {
    form.types.iter().fold(vec![Vec::new()], |partial, choices| {
        let extend = |before: &Vec<Type>| {
            let before = before.clone();
            choices.iter().map(move |&ty| [&before[..], &[ty]].concat())
        };
        partial.iter().flat_map(extend).collect()
    })
}

impl Example<'_> {
    /// The lowest version, and the lowest generated target.
    fn needs(&self) -> (IsaVersion, SmTarget) {
        let Form { mut isa, mut sm, arch_specific: exact, .. } = *self.form;
        for modifier in &self.modifiers {
            let needs = modifier.needs();
            (isa, sm) = (isa.max(needs.isa), sm.max(needs.sm));
        }
        let reach = if exact { Reach::ArchSpecific } else { Reach::Forward };
        let sm = SmTarget { number: sm.max(75), reach };
        (isa.max(sm.min_isa()), sm)
    }

    fn has(&self, modifier: Modifier) -> bool {
        self.modifiers.contains(&modifier)
    }

    /// The instruction as text, or `None` for a vector that is too long.
    fn text(&self, opcode: Opcode) -> Option<String> {
        let mut words: Vec<&str> = self.modifiers.iter().map(|modifier| modifier.text()).collect();
        words.extend(self.types.iter().map(|ty| ty.text()));
        let operands = self.form.operands.iter().enumerate();
        let operands: Option<Vec<String>> =
            operands.map(|(index, &shape)| self.operand(index, shape)).collect();
        let name: String = words.iter().map(|word| format!(".{word}")).collect();
        Some(format!("{opcode}{name} {};", operands?.join(", ")))
    }

    fn resolve(&self, ty: Ty) -> Type {
        match ty {
            Ty::First => self.types[0],
            Ty::Second => self.types[1],
            Ty::Is(ty) => ty,
            Ty::Double if self.types[0].size() == 2 => Type::B32,
            Ty::Double => Type::B64,
        }
    }

    fn operand(&self, index: usize, shape: Shape) -> Option<String> {
        let nth = |ty: Ty| register(self.resolve(ty), index + 1);
        Some(match shape {
            Shape::WideDestination(ty) | Shape::WideSource(ty)
                if self.types.contains(&Type::Bf16) && self.resolve(ty).size() == 1 =>
            {
                // Conversions from and to bf16 take no wider registers.
                format!("%b{}", index + 1)
            }
            Shape::Destination(ty) | Shape::WideDestination(ty) => nth(ty),
            Shape::Source(ty) | Shape::WideSource(ty) => nth(ty),
            Shape::DestinationOrSink(ty) => nth(ty),
            Shape::Sink => "_".to_owned(),
            Shape::DestinationAndPredicate(ty) => format!("{}|%p4", nth(ty)),
            Shape::SinkAndPredicate(_) => "_|%p4".to_owned(),
            Shape::Predicates => "%p1|%p4".to_owned(),
            Shape::Loaded | Shape::LoadedOrSink | Shape::Stored => self.memory_value()?,
            Shape::Predicate | Shape::PredicateRegister => "!%p3".to_owned(),
            Shape::Anything => nth(Ty::First),
            Shape::Unpacked if self.types[0] == Type::B16 => "{%b1, %b2}".to_owned(),
            Shape::Unpacked if self.types[0] == Type::B32 => "{%h1, %h2}".to_owned(),
            Shape::Unpacked if self.types[0] == Type::B128 => "{%rd1, %rd2}".to_owned(),
            Shape::Unpacked => "{%r1, %r2}".to_owned(),
            Shape::Constant => "0x96".to_owned(),
            Shape::Memory => self.address().to_owned(),
            Shape::AddressValue => register(self.types[0], 2),
            Shape::MemoryIn(StateSpace::Shared) => "[tile+16]".to_owned(),
            Shape::MemoryIn(_) => "[%rd3+-16]".to_owned(),
            Shape::TensorCoordinates => {
                let digit = |text: &str| text.strip_suffix('d').and_then(|n| n.parse().ok());
                let rank = self.modifiers.iter().find_map(|modifier| digit(modifier.text()))?;
                let list: Vec<String> = (1..=rank).map(|n| register(Type::S32, n)).collect();
                format!("[%rd4, {{{}}}]", list.join(", "))
            }
            Shape::Within(most) => most.min(7).to_string(),
            Shape::Threads => "64".to_owned(),
            Shape::OneOf(choices) => choices[0].to_string(),
            Shape::Integer | Shape::Count => "3".to_owned(),
            Shape::UpToPrevious(ty) | Shape::Register(ty) => register(ty, index + 1),
            Shape::FragmentDestination(ty, count)
            | Shape::Fragment(ty, count)
            | Shape::Registers(ty, count)
            | Shape::Accumulators(ty, count) => {
                let list: Vec<String> = (1..=count).map(|n| register(ty, n)).collect();
                format!("{{{}}}", list.join(", "))
            }
            Shape::Target => "done".to_owned(),
            Shape::Targets => "targets".to_owned(),
            Shape::Callee => match self.form.operands {
                [Shape::Results, _, _] => "callee",
                [Shape::Results, _] => "giver",
                [_, _] => "taker",
                _ => "action",
            }
            .to_owned(),
            Shape::CalledPointer => "%rd1".to_owned(),
            Shape::Prototype => match self.form.operands {
                [Shape::Results, _, _, _] => "to_callee",
                [Shape::Results, _, _] => "to_giver",
                [_, _, _] => "to_taker",
                _ => "to_action",
            }
            .to_owned(),
            Shape::Results => "(got)".to_owned(),
            Shape::Arguments => "(given)".to_owned(),
        })
    }

    fn memory_value(&self) -> Option<String> {
        let ty = self.types[0];
        let count = match () {
            () if self.has(Modifier::V2) => 2,
            () if self.has(Modifier::V4) => 4,
            () if self.has(Modifier::V8) => 8,
            () => return Some(register(ty, 1)),
        };
        if ty.size() * count > 16 && count < 8 {
            return None;
        }
        let list: Vec<String> = (1..=count as usize).map(|n| register(ty, n)).collect();
        Some(format!("{{{}}}", list.join(", ")))
    }

    fn accesses_parameter(&self) -> bool {
        let words = [Modifier::Param, Modifier::ParamEntry, Modifier::ParamFunc];
        words.into_iter().any(|word| self.has(word))
    }

    fn address(&self) -> &'static str {
        match () {
            () if self.accesses_parameter() => {
                let store = matches!(self.form.operands, [Shape::Memory, _, ..]);
                if store { "[given]" } else { "[p]" }
            }
            () if self.has(Modifier::Shared) => "[tile+16]",
            () if self.has(Modifier::SharedCta) => "[tile+16]",
            () if self.has(Modifier::SharedCluster) => "[tile+16]",
            () if self.has(Modifier::Local) => "[stack]",
            () if self.has(Modifier::Const) => "[constants]",
            () => "[%rd3+-16]",
        }
    }
}

/// The `n`-th register that holds a value of type `ty`.
fn register(ty: Type, n: usize) -> String {
    let file = match ty {
        Type::Pred => "%p",
        Type::B128 => "%q",
        Type::F32 => "%f",
        Type::F64 => "%fd",
        _ => match ty.size() {
            8 => "%rd",
            4 => "%r",
            _ => "%h",
        },
    };
    format!("{file}{n}")
}

/// All examples, with their requirements.
fn examples() -> Vec<(IsaVersion, SmTarget, String)> {
    let mut all = Vec::new();
    for &opcode in Opcode::ALL {
        for form in opcode.forms() {
            for types in type_choices(form) {
                for modifiers in modifier_choices(form) {
                    let example = Example { modifiers, types: types.clone(), form };
                    let (isa, sm) = example.needs();
                    all.extend(example.text(opcode).map(|text| (isa, sm, text)));
                }
            }
        }
    }
    all
}

#[test]
fn every_combination_is_parsed_and_printed_back() {
    for (isa, sm, text) in examples() {
        let module = parse(&module_around(&isa.to_string(), &sm.to_string(), &text))
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(parse(&module.to_string()).as_ref(), Ok(&module), "{text}");
    }
}

#[test]
fn ptxas_accepts_every_combination() {
    let mut groups: Vec<((IsaVersion, SmTarget), Vec<String>)> = Vec::new();
    for (isa, sm, text) in examples() {
        // Code after a jump or an exit would be unreachable.
        let text = match text.split([' ', '.', ';']).next() {
            Some("bra" | "brx" | "ret" | "exit" | "trap") => format!("@%p1 {text}"),
            _ => text,
        };
        match groups.iter_mut().find(|(needs, _)| *needs == (isa, sm)) {
            Some((_, group)) => group.push(text),
            None => groups.push(((isa, sm), vec![text])),
        }
    }
    for ((isa, sm), group) in groups {
        let (isa, sm) = (isa.to_string(), sm.to_string());
        let Some(Err(said)) = ptxas::assemble(&module_around(&isa, &sm, &group.join("\n")), &sm)
        else {
            continue;
        };
        let faults = said.lines().filter_map(|line| {
            let (_, rest) = line.split_once(", line ")?;
            let (number, message) = rest.split_once(';')?;
            let line: usize = number.parse().ok()?;
            let text = group.get(line.checked_sub(crate::table::FIRST_LINE)?)?;
            message.contains("error").then(|| format!("{text}  {message}"))
        });
        let faults: Vec<String> = faults.collect();
        // A message without a line concerns the whole text.
        let said = if faults.is_empty() { said } else { faults.join("\n") };
        panic!("{isa} {sm}: {} faults of {}\n{said}", faults.len(), group.len());
    }
}
