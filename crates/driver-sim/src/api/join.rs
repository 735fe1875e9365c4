//! Joins the modules of a link into one PTX text.

use std::collections::{BTreeMap, BTreeSet};

use retrograph_ptx::ast::{Entry, Function, Linkage, Module, Parameter, Variable};

/// Lines of a module's header: `.version`, `.target` and `.address_size`.
const HEAD_LINES: usize = 3;

/// Returns one text with the declarations and definitions of all modules, for their newest version
/// and target; `None` without modules. Internal names become unique; one of several weak or common
/// definitions remains.
pub(super) fn join(modules: &[Module]) -> Option<String> {
    let isa = modules.iter().map(|module| module.isa).max()?;
    let target = modules.iter().map(|module| module.target).max()?;
    let mut modules = modules.to_vec();
    keep_one_definition(&mut modules);
    rename_internal(&mut modules);
    let mut text = format!(".version {isa}\n.target {target}\n.address_size 64\n");
    for module in &modules {
        let printed = module.to_string();
        text.push_str(printed.splitn(HEAD_LINES + 1, '\n').nth(HEAD_LINES).unwrap_or_default());
    }
    Some(text)
}

/// The name of a function that two modules declare or define with different signatures.
pub(super) fn mismatched_function(modules: &[Module]) -> Option<&str> {
    let mut known: BTreeMap<&str, &Entry> = BTreeMap::new();
    let functions = modules.iter().flat_map(|module| &module.functions);
    let public = functions.filter(|function| function.linkage != Linkage::Internal);
    for Function { code, .. } in public {
        let first = *known.entry(&code.name).or_insert(code);
        let fits = |new: &[Parameter], old: &[Parameter]| {
            new.len() == old.len() && new.iter().zip(old).all(|(new, old)| new.fits(old))
        };
        if !fits(&code.parameters, &first.parameters) || !fits(&code.results, &first.results) {
            return Some(&code.name);
        }
    }
    None
}

/// A variable or function of a module.
enum Symbol<'a> {
    Variable(&'a mut Variable),
    Function(&'a mut Function),
}

impl Symbol<'_> {
    fn name(&mut self) -> &mut String {
        match self {
            Self::Variable(variable) => &mut variable.name,
            Self::Function(function) => &mut function.code.name,
        }
    }

    fn linkage(&self) -> Linkage {
        match self {
            Self::Variable(variable) => variable.linkage,
            Self::Function(function) => function.linkage,
        }
    }

    /// The strength of its definition: the strongest definition of all modules remains.
    fn strength(&self) -> Option<u32> {
        match (self.linkage(), self) {
            (Linkage::Internal | Linkage::Extern, _) => None,
            (_, Self::Function(function)) if !function.is_defined => None,
            (Linkage::Visible, _) => Some(2),
            (Linkage::Weak, _) => Some(1),
            (Linkage::Common, _) => Some(0),
        }
    }

    /// Reduces the definition to a declaration.
    fn declare(self) {
        match self {
            Self::Variable(variable) => {
                variable.linkage = Linkage::Extern;
                variable.initial.clear();
            }
            Self::Function(function) => {
                function.linkage = Linkage::Extern;
                function.is_defined = false;
                function.code.body.clear();
            }
        }
    }
}

/// The variables and functions of a module.
fn symbols(module: &mut Module) -> impl Iterator<Item = Symbol<'_>> {
    let variables = module.variables.iter_mut().map(Symbol::Variable);
    variables.chain(module.functions.iter_mut().map(Symbol::Function))
}

/// Keeps the first of the strongest definitions of each name.
fn keep_one_definition(modules: &mut [Module]) {
    let mut kept: BTreeMap<String, (u32, usize)> = BTreeMap::new();
    for (index, module) in modules.iter_mut().enumerate() {
        for mut symbol in symbols(module) {
            let Some(strength) = symbol.strength() else { continue };
            let best = kept.entry(symbol.name().clone()).or_insert((strength, index));
            if strength > best.0 {
                *best = (strength, index);
            }
        }
    }
    for (index, module) in modules.iter_mut().enumerate() {
        for mut symbol in symbols(module) {
            let best = kept.get(symbol.name().as_str()).copied();
            if symbol.strength().is_some() && best.is_some_and(|(_, keeper)| keeper != index) {
                symbol.declare();
            }
        }
    }
}

/// Renames internal symbols whose name another module has, too.
fn rename_internal(modules: &mut [Module]) {
    let mut taken = BTreeSet::new();
    for module in modules.iter_mut() {
        taken.extend(module.entries.iter().map(|entry| entry.name.clone()));
        let public = symbols(module).filter(|symbol| symbol.linkage() != Linkage::Internal);
        taken.extend(public.map(|mut symbol| symbol.name().clone()));
    }
    for (index, module) in modules.iter_mut().enumerate() {
        for mut symbol in symbols(module) {
            if symbol.linkage() != Linkage::Internal {
                continue;
            }
            let name = symbol.name();
            while !taken.insert(name.clone()) {
                name.push_str(&format!("_{index}_"));
            }
        }
    }
}
