//! Directives of a module: versions, variables, and entries up to their body.

use super::body::parse_body;
use super::lexer::{Position, Token};
use super::scope::Scope;
use super::variable::{parse_align, parse_length, parse_sized_type, parse_variables};
use super::{Cursor, ParseError, Result};
use crate::ast::{
    Entry, Function, Limits, Linkage, Modifier, Module, Parameter, PointerAttribute, Space,
    Variable,
};
use crate::target::{IsaVersion, SmTarget};

/// The most bytes of parameters that any PTX ISA version allows.
const MOST_PARAMETER_BYTES: u32 = 32_764;

/// The PTX ISA version and the target that know clusters.
const CLUSTERS: (IsaVersion, u32) = (IsaVersion::new(7, 8), 90);

/// The PTX ISA version that knows `.common`.
const COMMON: IsaVersion = IsaVersion::new(5, 0);

/// Declarations outside of entries.
const TOP_LEVEL: &str = "`.entry`, a variable, or the end of the text";

pub(super) fn parse_module(cursor: &mut Cursor<'_>) -> Result<Module> {
    let (isa, target) = parse_header(cursor)?;
    let (variables, functions, entries, lines) = Default::default();
    let mut module = Module { isa, target, variables, functions, entries, lines };
    while cursor.peek() != Token::End {
        if cursor.skip_debug()? {
            continue;
        }
        let linkage = parse_linkage(cursor);
        let at = cursor.position();
        if linkage == Linkage::Common {
            check_common(cursor, isa)?;
        }
        if cursor.accept_word("func") {
            parse_function(cursor, &mut module, linkage)?;
            cursor.end_of_lines();
        } else if cursor.accept_word("entry") {
            let entry = parse_entry(cursor, &module)?;
            if module.entry(&entry.name).is_some() {
                let found = format!("entry `{}` again", entry.name);
                return Err(ParseError::new(at, found, "an entry name that is not taken"));
            }
            module.entries.push(entry);
            cursor.end_of_lines();
        } else {
            for variable in parse_variables(cursor, linkage, (TOP_LEVEL, false))? {
                declare_variable(&mut module, at, variable)?;
            }
        }
    }
    module.lines = std::mem::take(&mut cursor.lines).into();
    Ok(module)
}

/// Declares a variable of the module. An extern declaration and a definition of the same type may
/// both be there, in either order.
fn declare_variable(module: &mut Module, at: Position, variable: Variable) -> Result<()> {
    let again = || {
        let found = format!("`{}` again", variable.name);
        Err(ParseError::new(at, found, "a name that is not taken"))
    };
    if module.functions.iter().any(|known| known.code.name == variable.name) {
        return again();
    }
    let Some(known) = module.variables.iter_mut().find(|known| known.name == variable.name) else {
        module.variables.push(variable);
        return Ok(());
    };
    let is_same = (known.space, known.ty) == (variable.space, variable.ty);
    match (known.linkage, variable.linkage) {
        (Linkage::Internal, _) | (_, Linkage::Internal) => again(),
        (_, Linkage::Extern) if is_same => Ok(()),
        (Linkage::Extern, _) if is_same => {
            *known = variable;
            Ok(())
        }
        _ => again(),
    }
}

/// Refuses `.common` before anything but a global variable.
fn check_common(cursor: &Cursor<'_>, isa: IsaVersion) -> Result<()> {
    if cursor.peek() != Token::Dotted("global") {
        return Err(cursor.unexpected("`.global`").help("`.common` is for global variables"));
    }
    match isa < COMMON {
        true => Err(cursor.unexpected(format!("PTX ISA {COMMON}, which knows `.common`"))),
        false => Ok(()),
    }
}

/// `.version`, `.target` and `.address_size`, which come first.
fn parse_header(cursor: &mut Cursor<'_>) -> Result<(IsaVersion, SmTarget)> {
    while cursor.skip_debug()? {}
    if !cursor.accept_word("version") {
        return Err(cursor.unexpected("`.version`").help("a PTX module starts with its version"));
    }
    let isa = parse_version(cursor)?;
    if !cursor.accept_word("target") {
        return Err(cursor.unexpected("`.target`"));
    }
    let at = cursor.position();
    let name = cursor.name("an SM target such as sm_80")?;
    let target: SmTarget = name
        .parse()
        .ok()
        .filter(|target: &SmTarget| target.is_known())
        .ok_or_else(|| ParseError::new(at, format!("`{name}`"), "an SM target"))?;
    while cursor.accept(',') {
        // `debug` and `texmode_independent` change nothing here.
        cursor.name("a target option")?;
    }
    if isa < target.least_isa() {
        let help = format!("{target} needs PTX ISA {}", target.least_isa());
        return Err(ParseError::new(at, format!("`{name}`"), "an older target").help(help));
    }
    if cursor.accept_word("address_size") {
        let at = cursor.position();
        let size = cursor.count()?;
        if size != 64 {
            let help = "only 64-bit addressing is supported";
            return Err(ParseError::new(at, format!("`{size}`"), "`64`").help(help));
        }
    }
    Ok((isa, target))
}

fn parse_version(cursor: &mut Cursor<'_>) -> Result<IsaVersion> {
    let at = cursor.position();
    let Token::Number(text) = cursor.take() else {
        return Err(ParseError::new(at, "no version", "a version such as 7.0"));
    };
    let parts = text.split_once('.').map(|(major, minor)| (major.parse(), minor.parse()));
    match parts {
        Some((Ok(major), Ok(minor))) => Ok(IsaVersion::new(major, minor)),
        _ => Err(ParseError::new(at, format!("`{text}`"), "a version such as 7.0")),
    }
}

fn parse_linkage(cursor: &mut Cursor<'_>) -> Linkage {
    if cursor.accept_word("extern") {
        Linkage::Extern
    } else if cursor.accept_word("visible") {
        Linkage::Visible
    } else if cursor.accept_word("weak") {
        Linkage::Weak
    } else if cursor.accept_word("common") {
        Linkage::Common
    } else {
        Linkage::Internal
    }
}

fn parse_entry(cursor: &mut Cursor<'_>, module: &Module) -> Result<Entry> {
    let name = cursor.name("the name of the entry")?.to_owned();
    let mut entry = Entry { name, ..Entry::default() };
    entry.parameters = parse_parameters(cursor, (module, &[]))?;
    entry.limits = parse_limits(cursor, module)?;
    cursor.expect('{')?;
    let mut scope = Scope::new(module, entry);
    parse_body(cursor, &mut scope)?;
    Ok(scope.finish())
}

/// A function after `.func`: `(results) name (parameters)`, and a body or `;`.
fn parse_function(cursor: &mut Cursor<'_>, module: &mut Module, linkage: Linkage) -> Result<()> {
    let results = parse_parameters(cursor, (module, &[]))?;
    let at = cursor.position();
    let name = cursor.name("the name of the function")?.to_owned();
    let parameters = parse_parameters(cursor, (module, &results))?;
    let code = Entry { name, parameters, results, ..Entry::default() };
    cursor.accept_word("noreturn");
    let is_declaration = cursor.accept(';');
    let index = declare_function(module, at, Function { linkage, code, is_defined: false })?;
    if is_declaration {
        return Ok(());
    }
    let function = &module.functions[index];
    if function.is_defined || linkage == Linkage::Extern {
        let found = format!("the body of `{}`", function.code.name);
        return Err(ParseError::new(at, found, "a function without a body so far"));
    }
    let mut code = function.code.clone();
    code.limits = parse_limits(cursor, module)?;
    cursor.expect('{')?;
    let mut scope = Scope::new(module, code);
    parse_body(cursor, &mut scope)?;
    let code = scope.finish();
    module.functions[index] = Function { linkage, code, is_defined: true };
    Ok(())
}

/// Declares a function, which may have been declared before in the same way, and gives its index.
fn declare_function(module: &mut Module, at: Position, function: Function) -> Result<usize> {
    let name = &function.code.name;
    let taken = module.variables.iter().any(|variable| variable.name == *name)
        || module.entry(name).is_some();
    let known = module.functions.iter().position(|known| known.code.name == *name);
    let fits = |new: &[Parameter], old: &[Parameter]| {
        new.len() == old.len() && new.iter().zip(old).all(|(new, old)| new.fits(old))
    };
    let differs = known.is_some_and(|index| {
        let old = &module.functions[index].code;
        let new = &function.code;
        !fits(&new.parameters, &old.parameters) || !fits(&new.results, &old.results)
    });
    if taken || differs {
        let found = format!("`{name}` again");
        return Err(ParseError::new(at, found, "a name that is not taken"));
    }
    match known {
        Some(index) => {
            // The names of the body are declared before it.
            if !module.functions[index].is_defined {
                module.functions[index] = function;
            }
            Ok(index)
        }
        None => {
            module.functions.push(function);
            Ok(module.functions.len() - 1)
        }
    }
}

/// Parameters in parentheses, if they are there; `before` are others of the same entry.
fn parse_parameters(
    cursor: &mut Cursor<'_>,
    (module, before): (&Module, &[Parameter]),
) -> Result<Vec<Parameter>> {
    let mut list: Vec<Parameter> = Vec::new();
    if !cursor.accept('(') || cursor.accept(')') {
        return Ok(list);
    }
    loop {
        let at = cursor.position();
        let parameter = parse_parameter(cursor, false)?;
        let mut names = list.iter().chain(before).map(|known| &known.name);
        let mut outer = module.variables.iter().map(|known| &known.name);
        if names.any(|name| *name == parameter.name) || outer.any(|name| *name == parameter.name) {
            let found = format!("`{}` again", parameter.name);
            return Err(ParseError::new(at, found, "a name that is not taken"));
        }
        list.push(parameter);
        if !cursor.accept(',') {
            break;
        }
    }
    cursor.expect(')')?;
    Ok(list)
}

/// A parameter. In a prototype it may be called `_`.
pub(super) fn parse_parameter(cursor: &mut Cursor<'_>, in_prototype: bool) -> Result<Parameter> {
    if !cursor.accept_word("param") {
        return Err(cursor.unexpected("`.param`"));
    }
    let align = parse_align(cursor)?;
    let ty = parse_sized_type(cursor)?;
    let pointer = if cursor.accept_word("ptr") {
        let space = match cursor.peek() {
            Token::Dotted(word) => Modifier::from_text(word).and_then(Space::from_modifier),
            _ => None,
        };
        if space.is_some() {
            cursor.take();
        }
        Some(PointerAttribute { space, align: parse_align(cursor)? })
    } else {
        None
    };
    let name = if in_prototype && cursor.peek() == Token::Name("_") {
        cursor.take();
        "_".to_owned()
    } else {
        cursor.name("the name of the parameter")?.to_owned()
    };
    let at = cursor.position();
    let length = parse_length(cursor)?;
    if length.is_some_and(|length| length > MOST_PARAMETER_BYTES) {
        let expected = format!("at most {MOST_PARAMETER_BYTES} bytes of parameters");
        return Err(ParseError::new(at, "a longer array", expected));
    }
    Ok(Parameter { name, ty, align, length, pointer })
}

fn parse_limits(cursor: &mut Cursor<'_>, module: &Module) -> Result<Limits> {
    let mut limits = Limits::default();
    while let Token::Dotted(word) = cursor.peek() {
        let at = cursor.position();
        cursor.take();
        let is_of_clusters = word.contains("cluster");
        if is_of_clusters && (module.isa < CLUSTERS.0 || module.target.number < CLUSTERS.1) {
            let help = format!("clusters need PTX ISA {} and sm_{}", CLUSTERS.0, CLUSTERS.1);
            return Err(unknown_limit(at, word).help(help));
        }
        match word {
            "maxntid" => limits.max_threads = Some(parse_extent(cursor)?),
            "reqntid" => limits.required_threads = Some(parse_extent(cursor)?),
            "minnctapersm" => limits.min_blocks = Some(cursor.count()?),
            "maxnreg" => limits.max_registers = Some(cursor.count()?),
            "reqnctapercluster" => limits.cluster = Some(parse_extent(cursor)?),
            "explicitcluster" => limits.explicit_cluster = true,
            "maxclusterrank" => limits.max_cluster_rank = Some(cursor.count()?),
            "pragma" => cursor.skip_statement()?,
            _ => return Err(unknown_limit(at, word)),
        }
    }
    Ok(limits)
}

fn unknown_limit(at: Position, word: &str) -> ParseError {
    let expected =
        "`.maxntid`, `.reqntid`, `.minnctapersm`, `.maxnreg`, a limit of clusters or `{`";
    ParseError::new(at, format!("`.{word}`"), expected)
}

/// One to three sizes; those that are left out are 1.
fn parse_extent(cursor: &mut Cursor<'_>) -> Result<[u32; 3]> {
    let at = cursor.position();
    let mut extent = [cursor.count()?, 1, 1];
    for size in &mut extent[1..] {
        if cursor.accept(',') {
            *size = cursor.count()?;
        }
    }
    if extent.contains(&0) {
        return Err(ParseError::new(at, "a size of 0", "at least one thread"));
    }
    Ok(extent)
}
