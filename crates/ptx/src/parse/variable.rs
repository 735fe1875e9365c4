//! Declarations of variables.

use super::lexer::{Position, Token};
use super::operand::constant;
use super::{Cursor, ParseError, Result};
use crate::ast::{Immediate, Linkage, Modifier, StateSpace, Type, Variable};

/// The maximum size of parameters in any PTX ISA version.
pub(super) const MAX_PARAMETER_BYTES: u32 = 32_764;

/// `.align n`, if present.
pub(super) fn parse_align(cursor: &mut Cursor<'_>) -> Result<Option<u32>> {
    if !cursor.accept_word("align") {
        return Ok(None);
    }
    let at = cursor.position();
    let align = cursor.count()?;
    if align.is_power_of_two() && align <= 1 << 16 {
        return Ok(Some(align));
    }
    Err(ParseError::new(at, format!("`{align}`"), "a power of two up to 65536"))
}

pub(super) fn parse_type(cursor: &mut Cursor<'_>) -> Result<Type> {
    let ty = match cursor.peek() {
        Token::Dotted(word) => Type::from_text(word).filter(|ty| ty.is_fundamental()),
        _ => None,
    };
    let ty = ty.ok_or_else(|| cursor.unexpected("a type such as `.f32`"))?;
    cursor.take();
    Ok(ty)
}

/// A type that variables can have.
pub(super) fn parse_sized_type(cursor: &mut Cursor<'_>) -> Result<Type> {
    let at = cursor.position();
    match parse_type(cursor)? {
        Type::Pred => Err(ParseError::new(at, "`.pred`", "a type with a size")),
        ty => Ok(ty),
    }
}

/// Variables of one declaration: `.shared .align 16 .b32 a[64], b;`. `of_calls` allows `.param`
/// variables, which hold arguments and results of calls.
pub(super) fn parse_variables(
    cursor: &mut Cursor<'_>,
    linkage: Linkage,
    expected: &str,
    of_calls: bool,
) -> Result<Vec<Variable>> {
    let space = match cursor.peek() {
        Token::Dotted(word) => Modifier::from_text(word).and_then(StateSpace::from_modifier),
        _ => None,
    };
    let Some(space) = space.filter(|&space| space != StateSpace::Param || of_calls) else {
        return Err(cursor.unexpected(expected));
    };
    cursor.take();
    let mut is_managed = parse_managed(cursor, space)?;
    let align = parse_align(cursor)?;
    is_managed |= parse_managed(cursor, space)?;
    let ty = parse_sized_type(cursor)?;
    let mut variables = Vec::new();
    loop {
        let name = cursor.name("the name of a variable")?.to_owned();
        let at = cursor.position();
        let length = match space {
            StateSpace::Param => parse_parameter_length(cursor)?,
            _ => parse_length(cursor)?,
        };
        let initial = match cursor.accept('=') {
            true => parse_initial(cursor, space, ty, length)?,
            false => Vec::new(),
        };
        if length == Some(0) && initial.is_empty() && linkage != Linkage::Extern {
            let expected = "a length; only extern variables may leave it out";
            return Err(ParseError::new(at, "an array without a length", expected));
        }
        variables.push(Variable { linkage, space, is_managed, align, ty, name, length, initial });
        if !cursor.accept(',') {
            break;
        }
    }
    cursor.expect(';')?;
    Ok(variables)
}

/// `.attribute(.managed)`, if present.
fn parse_managed(cursor: &mut Cursor<'_>, space: StateSpace) -> Result<bool> {
    let at = cursor.position();
    if !cursor.accept_word("attribute") {
        return Ok(false);
    }
    cursor.expect('(')?;
    if !cursor.accept_word("managed") {
        return Err(cursor.unexpected("`.managed`"));
    }
    cursor.expect(')')?;
    match space {
        StateSpace::Global => Ok(true),
        _ => Err(ParseError::new(at, "`.attribute(.managed)`", "a variable in `.global`")),
    }
}

/// `[n]` or `[]`, if present.
pub(super) fn parse_length(cursor: &mut Cursor<'_>) -> Result<Option<u32>> {
    if !cursor.accept('[') {
        return Ok(None);
    }
    let length = if cursor.peek() == Token::Symbol(']') { 0 } else { cursor.count()? };
    cursor.expect(']')?;
    Ok(Some(length))
}

/// The length of a parameter, or of a variable that holds an argument.
pub(super) fn parse_parameter_length(cursor: &mut Cursor<'_>) -> Result<Option<u32>> {
    let at = cursor.position();
    let length = parse_length(cursor)?;
    if length.is_some_and(|length| length > MAX_PARAMETER_BYTES) {
        return Err(too_many_bytes(at, "a longer array", MAX_PARAMETER_BYTES));
    }
    Ok(length)
}

pub(super) fn too_many_bytes(at: Position, found: &str, limit: u32) -> ParseError {
    ParseError::new(at, found, format!("at most {limit} bytes of parameters"))
}

/// The value of a scalar, or a list of values in braces for an array.
fn parse_initial(
    cursor: &mut Cursor<'_>,
    space: StateSpace,
    ty: Type,
    length: Option<u32>,
) -> Result<Vec<Immediate>> {
    if !matches!(space, StateSpace::Global | StateSpace::Const) {
        let expected = "no initial value; only `.global` and `.const` variables have one";
        return Err(cursor.unexpected(expected));
    }
    let Some(length) = length else { return Ok(vec![initial_value(cursor, ty)?]) };
    cursor.expect('{')?;
    let mut list = Vec::new();
    loop {
        // An array without a length is as long as its values.
        if length != 0 && list.len() == length as usize {
            return Err(cursor.unexpected(format!("at most {length} initial values")));
        }
        list.push(initial_value(cursor, ty)?);
        if !cursor.accept(',') {
            break;
        }
    }
    cursor.expect('}')?;
    Ok(list)
}

fn initial_value(cursor: &mut Cursor<'_>, ty: Type) -> Result<Immediate> {
    let at = cursor.position();
    if let Token::Name(_) = cursor.peek() {
        let error = cursor.unexpected("a constant").help("addresses are not supported");
        return Err(ParseError { is_missing: true, ..error });
    }
    match constant(cursor, ty)? {
        // A byte of an address, such as `0xFF(variable)`.
        Immediate::Integer(_) if cursor.peek() == Token::Symbol('(') => {
            let error = cursor.unexpected("`,` or the end of the initial values");
            let error = error.help("addresses are not supported");
            Err(ParseError { is_missing: true, ..error })
        }
        Immediate::Integer(value) if ty.is_float() => {
            let expected = format!("a float, as the variable has type .{ty}");
            Err(ParseError::new(at, format!("`{value}`"), expected))
        }
        value => Ok(value),
    }
}
