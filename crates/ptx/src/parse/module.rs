//! Directives of a module: versions, variables, and entries up to their body.

use super::body::parse_body;
use super::lexer::{Position, Token};
use super::scope::Scope;
use super::variable::{parse_align, parse_length, parse_sized_type, parse_variables};
use super::{Cursor, ParseError, Result};
use crate::ast::{Entry, Limits, Linkage, Modifier, Module, Parameter, PointerAttribute, Space};
use crate::target::{IsaVersion, SmTarget};

/// The most bytes of parameters that any PTX ISA version allows.
const MOST_PARAMETER_BYTES: u32 = 32_764;

/// What may stand outside of entries.
const TOP_LEVEL: &str = "`.entry`, a variable, or the end of the text";

pub(super) fn parse_module(cursor: &mut Cursor<'_>) -> Result<Module> {
    let (isa, target) = parse_header(cursor)?;
    let mut module = Module { isa, target, variables: Vec::new(), entries: Vec::new() };
    while cursor.peek() != Token::End {
        if cursor.skip_debug()? {
            continue;
        }
        let linkage = parse_linkage(cursor);
        if cursor.peek() == Token::Dotted("func") {
            let help = "device functions are not supported; inline them into the kernel";
            return Err(cursor.unexpected("`.entry`").help(help));
        }
        let at = cursor.position();
        if cursor.accept_word("entry") {
            let entry = parse_entry(cursor, &module)?;
            if module.entry(&entry.name).is_some() {
                let found = format!("entry `{}` again", entry.name);
                return Err(ParseError::new(at, found, "an entry name that is not taken"));
            }
            module.entries.push(entry);
        } else {
            for variable in parse_variables(cursor, linkage, TOP_LEVEL)? {
                if module.variables.iter().any(|known| known.name == variable.name) {
                    let found = format!("`{}` again", variable.name);
                    return Err(ParseError::new(at, found, "a name that is not taken"));
                }
                module.variables.push(variable);
            }
        }
    }
    Ok(module)
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
    let target: SmTarget =
        name.parse().map_err(|_| ParseError::new(at, format!("`{name}`"), "an SM target"))?;
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
    } else if cursor.accept_word("visible") || cursor.accept_word("weak") {
        Linkage::Visible
    } else {
        Linkage::Internal
    }
}

fn parse_entry(cursor: &mut Cursor<'_>, module: &Module) -> Result<Entry> {
    let name = cursor.name("the name of the entry")?.to_owned();
    let mut entry = Entry { name, ..Entry::default() };
    if cursor.accept('(') && !cursor.accept(')') {
        loop {
            let at = cursor.position();
            let parameter = parse_parameter(cursor)?;
            let mut names = entry.parameters.iter().map(|known| &known.name);
            let mut outer = module.variables.iter().map(|known| &known.name);
            if names.any(|name| *name == parameter.name)
                || outer.any(|name| *name == parameter.name)
            {
                let found = format!("`{}` again", parameter.name);
                return Err(ParseError::new(at, found, "a name that is not taken"));
            }
            entry.parameters.push(parameter);
            if !cursor.accept(',') {
                break;
            }
        }
        cursor.expect(')')?;
    }
    entry.limits = parse_limits(cursor)?;
    cursor.expect('{')?;
    let mut scope = Scope::new(module, entry);
    parse_body(cursor, &mut scope)?;
    scope.finish()
}

fn parse_parameter(cursor: &mut Cursor<'_>) -> Result<Parameter> {
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
    let name = cursor.name("the name of the parameter")?.to_owned();
    let at = cursor.position();
    let length = parse_length(cursor)?;
    if length.is_some_and(|length| length > MOST_PARAMETER_BYTES) {
        let expected = format!("at most {MOST_PARAMETER_BYTES} bytes of parameters");
        return Err(ParseError::new(at, "a longer array", expected));
    }
    Ok(Parameter { name, ty, align, length, pointer })
}

fn parse_limits(cursor: &mut Cursor<'_>) -> Result<Limits> {
    let mut limits = Limits::default();
    while let Token::Dotted(word) = cursor.peek() {
        let at = cursor.position();
        cursor.take();
        match word {
            "maxntid" => limits.max_threads = Some(parse_extent(cursor)?),
            "reqntid" => limits.required_threads = Some(parse_extent(cursor)?),
            "minnctapersm" => limits.min_blocks = Some(cursor.count()?),
            "maxnreg" => limits.max_registers = Some(cursor.count()?),
            "pragma" => cursor.skip_statement()?,
            _ => return Err(unknown_limit(at, word)),
        }
    }
    Ok(limits)
}

fn unknown_limit(at: Position, word: &str) -> ParseError {
    let expected = "`.maxntid`, `.reqntid`, `.minnctapersm`, `.maxnreg` or `{`";
    ParseError::new(at, format!("`.{word}`"), expected)
}

/// One to three sizes; those that are left out are 1.
fn parse_extent(cursor: &mut Cursor<'_>) -> Result<[u32; 3]> {
    let mut extent = [cursor.count()?, 1, 1];
    for size in &mut extent[1..] {
        if cursor.accept(',') {
            *size = cursor.count()?;
        }
    }
    Ok(extent)
}
