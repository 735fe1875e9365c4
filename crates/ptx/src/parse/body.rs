//! The body of an entry: declarations, labels and instructions.

use super::lexer::Token;
use super::mnemonic::parse_mnemonic;
use super::module::parse_parameter;
use super::operand::parse_operand;
use super::scope::{Meaning, Scope};
use super::variable::{parse_type, parse_variables};
use super::{Cursor, ParseError, Result};
use crate::ast::{
    BranchTable, Guard, Instruction, LabelId, Linkage, Opcode, Operand, Parameter, Prototype,
    RegisterDeclaration, SourceLine, Statement, Type,
};
use crate::instructions::{Names, Requirements, check, needs};
use crate::target::IsaVersion;

/// Reads from after the `{` of the entry up to and including its `}`.
pub(super) fn parse_body(cursor: &mut Cursor<'_>, scope: &mut Scope<'_>) -> Result<()> {
    scope.open(&cursor.labels());
    loop {
        if cursor.skip_debug()? {
            continue;
        }
        match cursor.peek() {
            Token::Symbol('{') => {
                cursor.take();
                scope.open(&cursor.labels());
            }
            Token::Symbol('}') => {
                cursor.take();
                if !scope.close() {
                    return Ok(());
                }
            }
            Token::Dotted("reg") => parse_registers(cursor, scope)?,
            Token::Dotted(_) => {
                let at = cursor.position();
                let expected = "`.reg`, `.shared`, `.local`, `.param` or an instruction";
                for variable in parse_variables(cursor, Linkage::Internal, expected, true)? {
                    scope.declare_variable(at, variable)?;
                }
            }
            _ => {
                if let Some(statement) = parse_statement(cursor, scope)? {
                    scope.entry.body.push(statement);
                }
            }
        }
    }
}

/// `.reg .f32 %f<10>, %g;`
fn parse_registers(cursor: &mut Cursor<'_>, scope: &mut Scope<'_>) -> Result<()> {
    cursor.take();
    let place = cursor.position();
    let ty = parse_type(cursor)?;
    if ty == Type::B128 && scope.outer.module.isa < IsaVersion::new(8, 3) {
        let expected = format!("a type of PTX ISA {}", scope.outer.module.isa);
        let error = ParseError::new(place, "`.b128`", expected);
        return Err(error.help("it needs PTX ISA 8.3"));
    }
    loop {
        let at = cursor.position();
        let name = cursor.name("the name of a register")?.to_owned();
        let count = if cursor.accept('<') {
            let count = cursor.count()?;
            cursor.expect('>')?;
            if count == 0 {
                return Err(ParseError::new(at, "0 registers", "at least one register"));
            }
            Some(count)
        } else {
            None
        };
        scope.declare_registers(at, RegisterDeclaration { name, ty, count })?;
        if !cursor.accept(',') {
            break;
        }
    }
    cursor.expect(';')
}

/// A statement, or `None` after a branch table or a prototype.
fn parse_statement(cursor: &mut Cursor<'_>, scope: &mut Scope<'_>) -> Result<Option<Statement>> {
    if cursor.peek_second() == Token::Symbol(':') {
        let at = cursor.position();
        let name = cursor.name("a label")?;
        cursor.take();
        if cursor.accept_word("branchtargets") {
            let labels = parse_targets(cursor, scope)?;
            scope.declare_table(at, BranchTable { name: name.to_owned(), labels })?;
            return Ok(None);
        }
        if cursor.accept_word("callprototype") {
            let (results, parameters) = parse_signature(cursor)?;
            let name = name.to_owned();
            scope.declare_prototype(at, Prototype { name, results, parameters })?;
            return Ok(None);
        }
        if let Token::Dotted("calltargets") = cursor.peek() {
            let error = cursor.unexpected("no list of the functions that a call may reach");
            return Err(ParseError { is_missing: true, ..error });
        }
        return Ok(Some(Statement::Label(scope.place(at, name)?)));
    }
    let guard = parse_guard(cursor, scope)?;
    Ok(Some(Statement::Instruction(parse_instruction(cursor, scope, guard)?)))
}

/// The labels after `.branchtargets`.
fn parse_targets(cursor: &mut Cursor<'_>, scope: &mut Scope<'_>) -> Result<Vec<LabelId>> {
    let mut labels = Vec::new();
    loop {
        let at = cursor.position();
        let name = cursor.name("a label")?;
        labels.push(scope.label(at, name)?);
        if !cursor.accept(',') {
            break;
        }
    }
    cursor.expect(';')?;
    Ok(labels)
}

/// The results and the parameters after `.callprototype`.
fn parse_signature(cursor: &mut Cursor<'_>) -> Result<(Vec<Parameter>, Vec<Parameter>)> {
    let results = parse_anonymous(cursor)?;
    if cursor.peek() != Token::Name("_") {
        return Err(cursor.unexpected("`_` in place of the name of a function"));
    }
    cursor.take();
    let parameters = parse_anonymous(cursor)?;
    if let Token::Dotted(_) = cursor.peek() {
        let error = cursor.unexpected("no attribute of a prototype");
        return Err(ParseError { is_missing: true, ..error });
    }
    cursor.expect(';')?;
    Ok((results, parameters))
}

/// Parameters in parentheses, if present.
fn parse_anonymous(cursor: &mut Cursor<'_>) -> Result<Vec<Parameter>> {
    let mut list = Vec::new();
    if !cursor.accept('(') || cursor.accept(')') {
        return Ok(list);
    }
    loop {
        list.push(parse_parameter(cursor, true)?);
        if !cursor.accept(',') {
            break;
        }
    }
    cursor.expect(')')?;
    Ok(list)
}

/// `@%p1` or `@!%p1`, if present.
fn parse_guard(cursor: &mut Cursor<'_>, scope: &Scope<'_>) -> Result<Option<Guard>> {
    if !cursor.accept('@') {
        return Ok(None);
    }
    let negated = cursor.accept('!');
    let at = cursor.position();
    let name = cursor.name("a predicate register")?;
    match scope.find(name) {
        Some(Meaning::Register(predicate)) if scope.types[predicate.0 as usize] == Type::Pred => {
            Ok(Some(Guard { predicate, negated }))
        }
        _ => Err(ParseError::new(at, format!("`{name}`"), "a predicate register")),
    }
}

fn parse_instruction(
    cursor: &mut Cursor<'_>,
    scope: &mut Scope<'_>,
    guard: Option<Guard>,
) -> Result<Instruction> {
    let start = cursor.position();
    let (opcode, modifiers, types) = parse_mnemonic(cursor)?;
    let line = SourceLine(start.line);
    let operands = Vec::new();
    let mut instruction = Instruction { guard, opcode, modifiers, types, operands, line };
    let mut places = Vec::new();
    while cursor.peek() != Token::Symbol(';') {
        if !places.is_empty() && !cursor.accept(',') {
            return Err(cursor.unexpected("`,` or `;`"));
        }
        let at = cursor.position();
        places.push(at);
        let operand = match cursor.peek() {
            Token::Name(name) if opcode == Opcode::Bra => {
                cursor.take();
                Operand::Label(scope.label(at, name)?)
            }
            // Their sources have the second type.
            _ if matches!(opcode, Opcode::Cvt | Opcode::Set) && instruction.types.len() == 2 => {
                parse_operand(cursor, scope, &instruction.types[1..])?
            }
            _ => parse_operand(cursor, scope, &instruction.types)?,
        };
        instruction.operands.push(operand);
    }
    cursor.take();
    let space = |symbol| scope.space(symbol);
    let parameter = |symbol| scope.parameter(symbol);
    let (module, registers) = (&scope.outer.module, &scope.types[..]);
    let prototypes = &scope.entry.prototypes[..];
    let names = Names { module, parameter: &parameter, registers, space: &space, prototypes };
    let mnemonic = crate::print::mnemonic(&instruction);
    let form = check(&instruction, &names).map_err(|mismatch| {
        let at = mismatch.operand.and_then(|index| places.get(index)).copied().unwrap_or(start);
        let help = format!("in `{mnemonic}`; its forms are {}", forms(opcode));
        ParseError::new(at, mismatch.found, mismatch.expected).help(help)
    })?;
    let needs = needs(form, &instruction);
    if !needs.are_met(module.isa, module.target) {
        let expected = format!("an instruction of PTX ISA {} on {}", module.isa, module.target);
        let target = Requirements { sm: needs.sm.max(30), ..needs }.target();
        let help = format!("it needs PTX ISA {} and {target}", needs.isa);
        return Err(ParseError::new(start, format!("`{mnemonic}`"), expected).help(help));
    }
    Ok(instruction)
}

/// The forms of an instruction, for a message.
pub(super) fn forms(opcode: Opcode) -> String {
    let forms = opcode.forms().iter().map(|form| format!("`{opcode}{form}`"));
    forms.collect::<Vec<_>>().join(", ")
}
