//! Directives of a module: versions, variables, and entries up to their body.

use std::collections::HashSet;

use super::body::parse_body;
use super::lexer::{Position, Token};
use super::module_scope::ModuleScope;
use super::scope::Scope;
use super::variable::{
    MAX_PARAMETER_BYTES, parse_align, parse_parameter_length, parse_sized_type, parse_variables,
    too_many_bytes,
};
use super::{Cursor, ParseError, Result};
use crate::ast::{
    Entry, Function, Limits, Linkage, Modifier, Module, Parameter, PointerAttribute, StateSpace,
};
use crate::target::{IsaVersion, SmTarget};

/// The maximum size of the parameters of a kernel before PTX ISA 8.1 and sm_70.
const OLD_MAX_PARAMETER_BYTES: u32 = 4352;

/// The PTX ISA version and the target that introduced clusters.
const CLUSTERS: (IsaVersion, u32) = (IsaVersion::new(7, 8), 90);

/// The PTX ISA version that introduced `.common`.
const COMMON: IsaVersion = IsaVersion::new(5, 0);

/// Declarations outside of entries.
const TOP_LEVEL: &str = "`.entry`, a variable, or the end of the text";

pub(super) fn parse_module(cursor: &mut Cursor<'_>) -> Result<Module> {
    let (isa, target) = parse_header(cursor)?;
    let (variables, functions, entries, lines) = Default::default();
    let module = Module { isa, target, variables, functions, entries, lines };
    let mut scope = ModuleScope::new(module);
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
            parse_function(cursor, &mut scope, linkage)?;
            cursor.end_of_lines();
        } else if cursor.accept_word("entry") {
            if linkage == Linkage::Extern {
                let expected = "`.visible`, `.weak` or nothing before `.entry`";
                return Err(ParseError::new(at, "`.extern` before an entry", expected));
            }
            let entry = parse_entry(cursor, &scope)?;
            scope.add_entry(at, entry)?;
            cursor.end_of_lines();
        } else {
            for variable in parse_variables(cursor, linkage, TOP_LEVEL, false)? {
                scope.declare_variable(at, variable)?;
            }
        }
    }
    let lines = std::mem::take(&mut cursor.lines);
    Ok(Module { lines: lines.into(), ..scope.module })
}

/// Rejects `.common` before anything except a global variable.
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
        // `debug` and `texmode_independent` have no effect here.
        cursor.name("a target option")?;
    }
    if isa < target.min_isa() {
        let help = format!("{target} needs PTX ISA {}", target.min_isa());
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

fn parse_entry(cursor: &mut Cursor<'_>, outer: &ModuleScope) -> Result<Entry> {
    let name = cursor.name("the name of the entry")?.to_owned();
    let mut entry = Entry { name, ..Entry::default() };
    let at = cursor.position();
    entry.parameters = parse_parameters(cursor, outer, &mut HashSet::new())?;
    if let Some(empty) = entry.parameters.iter().find(|parameter| parameter.length == Some(0)) {
        let found = format!("the array `{}` without a length", empty.name);
        return Err(ParseError::new(at, found, "parameters of an entry with a size"));
    }
    let Module { isa, target, .. } = outer.module;
    let is_old = isa < IsaVersion::new(8, 1) || target.number < 70;
    let limit = if is_old { OLD_MAX_PARAMETER_BYTES } else { MAX_PARAMETER_BYTES };
    // As in `Entry::parameter_layout`, but without overflow.
    let bytes = entry.parameters.iter().fold(0, |bytes: u64, parameter| {
        bytes.next_multiple_of(u64::from(parameter.alignment())) + u64::from(parameter.size())
    });
    if bytes > u64::from(limit) {
        let error = too_many_bytes(at, "more", limit);
        return Err(if is_old { error.help("more need PTX ISA 8.1 and sm_70") } else { error });
    }
    let at = cursor.position();
    entry.limits = parse_limits(cursor, &outer.module)?;
    if entry.limits.max_threads.is_some() && entry.limits.required_threads.is_some() {
        let expected = "only one of them";
        return Err(ParseError::new(at, "`.maxntid` and `.reqntid`", expected));
    }
    cursor.expect('{')?;
    let mut scope = Scope::new(outer, entry);
    parse_body(cursor, &mut scope)?;
    Ok(scope.finish())
}

/// A function after `.func`: `(results) name (parameters)`, and a body or `;`.
fn parse_function(
    cursor: &mut Cursor<'_>,
    outer: &mut ModuleScope,
    linkage: Linkage,
) -> Result<()> {
    let mut names = HashSet::new();
    let results = parse_parameters(cursor, outer, &mut names)?;
    let at = cursor.position();
    let name = cursor.name("the name of the function")?.to_owned();
    let parameters = parse_parameters(cursor, outer, &mut names)?;
    let code = Entry { name, parameters, results, ..Entry::default() };
    cursor.accept_word("noreturn");
    let is_declaration = cursor.accept(';');
    let index = outer.declare_function(at, Function { linkage, code, is_defined: false })?;
    if is_declaration {
        return Ok(());
    }
    let function = &outer.module.functions[index];
    if function.is_defined || linkage == Linkage::Extern {
        let found = format!("the body of `{}`", function.code.name);
        return Err(ParseError::new(at, found, "a function without a body so far"));
    }
    let mut code = function.code.clone();
    code.limits = parse_limits(cursor, &outer.module)?;
    cursor.expect('{')?;
    let mut scope = Scope::new(outer, code);
    parse_body(cursor, &mut scope)?;
    let code = scope.finish();
    outer.module.functions[index] = Function { linkage, code, is_defined: true };
    Ok(())
}

/// Parses optional parameters in parentheses. `names` collects the names of an entry.
fn parse_parameters(
    cursor: &mut Cursor<'_>,
    outer: &ModuleScope,
    names: &mut HashSet<String>,
) -> Result<Vec<Parameter>> {
    let mut list: Vec<Parameter> = Vec::new();
    if !cursor.accept('(') || cursor.accept(')') {
        return Ok(list);
    }
    loop {
        let at = cursor.position();
        let parameter = parse_parameter(cursor, false)?;
        if outer.has_variable(&parameter.name) || !names.insert(parameter.name.clone()) {
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
            Token::Dotted(word) => Modifier::from_text(word).and_then(StateSpace::from_modifier),
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
    let length = parse_parameter_length(cursor)?;
    Ok(Parameter { name, ty, align, length, pointer })
}

fn parse_limits(cursor: &mut Cursor<'_>, module: &Module) -> Result<Limits> {
    let mut limits = Limits::default();
    while let Token::Dotted(word) = cursor.peek() {
        if word == "pragma" {
            cursor.skip_pragma()?;
            continue;
        }
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

/// One to three sizes; missing ones are 1.
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
