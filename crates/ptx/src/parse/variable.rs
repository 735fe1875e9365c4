//! Declarations of variables.

use super::lexer::Token;
use super::operand::constant;
use super::{Cursor, ParseError, Result};
use crate::ast::{Immediate, Linkage, Modifier, StateSpace, Type, Variable};

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
    (expected, of_calls): (&str, bool),
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
        let length = parse_length(cursor)?;
        let initial = if cursor.accept('=') { parse_initial(cursor, ty)? } else { Vec::new() };
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

/// The value of a scalar, or a list of values in braces.
fn parse_initial(cursor: &mut Cursor<'_>, ty: Type) -> Result<Vec<Immediate>> {
    if !cursor.accept('{') {
        return Ok(vec![constant(cursor, ty)?]);
    }
    let mut list = vec![constant(cursor, ty)?];
    while cursor.accept(',') {
        list.push(constant(cursor, ty)?);
    }
    cursor.expect('}')?;
    Ok(list)
}
