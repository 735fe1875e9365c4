//! Operands.

use super::lexer::{Token, integer};
use super::scope::{Meaning, Scope};
use super::{Cursor, ParseError, Result};
use crate::ast::{Address, AddressBase, Immediate, Operand, RegisterId, SpecialRegister, Type};

/// An operand of an instruction with `types`, which determine the format of decimal floats.
pub(super) fn parse_operand(
    cursor: &mut Cursor<'_>,
    scope: &Scope<'_>,
    types: &[Type],
) -> Result<Operand> {
    match cursor.peek() {
        Token::Symbol('[') => parse_address(cursor, scope),
        Token::Symbol('{') => parse_vector(cursor, scope, types),
        Token::Symbol('(') => parse_list(cursor, scope, types),
        Token::Symbol('!') => {
            cursor.take();
            Ok(Operand::NotPredicate(register(cursor, scope)?))
        }
        Token::Symbol('-') | Token::Number(_) => {
            Ok(Operand::Immediate(constant(cursor, float_of(types))?))
        }
        Token::Name("_") => {
            cursor.take();
            match cursor.accept('|') {
                true => Ok(Operand::Pair(None, Some(register(cursor, scope)?))),
                false => Ok(Operand::Sink),
            }
        }
        Token::Name(name) => parse_name(cursor, scope, name),
        _ => Err(cursor.unexpected("an operand")),
    }
}

/// The type of a float constant: the float type of the instruction.
fn float_of(types: &[Type]) -> Type {
    types.iter().copied().find(|ty| ty.is_float()).unwrap_or(Type::B32)
}

fn parse_name(cursor: &mut Cursor<'_>, scope: &Scope<'_>, name: &str) -> Result<Operand> {
    match scope.find(name) {
        Some(Meaning::Register(first)) => {
            cursor.take();
            if cursor.accept('|') {
                let sink = cursor.peek() == Token::Name("_");
                let second = if sink { None } else { Some(register(cursor, scope)?) };
                if sink {
                    cursor.take();
                }
                return Ok(Operand::Pair(Some(first), second));
            }
            Ok(Operand::Register(first))
        }
        Some(Meaning::Symbol(symbol)) => {
            cursor.take();
            Ok(Operand::Symbol(symbol, offset(cursor)?))
        }
        Some(Meaning::Function(function)) => {
            cursor.take();
            Ok(Operand::Function(function))
        }
        Some(Meaning::Table(table)) => {
            cursor.take();
            Ok(Operand::Targets(table))
        }
        Some(Meaning::Prototype(prototype)) => {
            cursor.take();
            Ok(Operand::Prototype(prototype))
        }
        None if name == "WARP_SZ" => {
            cursor.take();
            Ok(Operand::Immediate(Immediate::Integer(32)))
        }
        None => match SpecialRegister::from_text(name) {
            Some(special) => {
                cursor.take();
                Ok(Operand::Special(special))
            }
            None => Err(undeclared(cursor)),
        },
    }
}

fn undeclared(cursor: &Cursor<'_>) -> ParseError {
    let help = "declare it with `.reg`, `.shared` or `.param` before its use";
    cursor.unexpected("a declared name or a special register").help(help)
}

fn register(cursor: &mut Cursor<'_>, scope: &Scope<'_>) -> Result<RegisterId> {
    let Token::Name(name) = cursor.peek() else {
        return Err(cursor.unexpected("a register"));
    };
    match scope.find(name) {
        Some(Meaning::Register(register)) => {
            cursor.take();
            Ok(register)
        }
        _ => Err(cursor.unexpected("a declared register")),
    }
}

fn symbol_or_register(cursor: &mut Cursor<'_>, scope: &Scope<'_>) -> Result<AddressBase> {
    let Token::Name(name) = cursor.peek() else {
        return Err(cursor.unexpected("a register, a name or a number"));
    };
    let base = match scope.find(name) {
        Some(Meaning::Register(register)) => AddressBase::Register(register),
        Some(Meaning::Symbol(symbol)) => AddressBase::Symbol(symbol),
        _ => return Err(undeclared(cursor)),
    };
    cursor.take();
    Ok(base)
}

/// `[base+offset]`, or `[map, {x, y}]`
fn parse_address(cursor: &mut Cursor<'_>, scope: &Scope<'_>) -> Result<Operand> {
    cursor.expect('[')?;
    let address = match cursor.peek() {
        Token::Number(_) => Address { base: AddressBase::Absolute, offset: signed(cursor)? },
        _ => {
            let base = symbol_or_register(cursor, scope)?;
            Address { base, offset: offset(cursor)? }
        }
    };
    if cursor.accept(',') {
        let Address { base: AddressBase::Register(map), offset: 0 } = address else {
            return Err(cursor.unexpected("`]`; the address of a tensor map is a register"));
        };
        let Operand::Vector(coordinates) = parse_vector(cursor, scope, &[])? else {
            return Err(cursor.unexpected("coordinates"));
        };
        cursor.expect(']')?;
        return Ok(Operand::TensorCoordinates(map, coordinates));
    }
    cursor.expect(']')?;
    Ok(Operand::Address(address))
}

/// `+4` or `+-4`, if present.
fn offset(cursor: &mut Cursor<'_>) -> Result<i64> {
    if !cursor.accept('+') {
        return Ok(0);
    }
    cursor.accept('+');
    signed(cursor)
}

/// An integer with an optional sign. Values above `i64::MAX` wrap around.
fn signed(cursor: &mut Cursor<'_>) -> Result<i64> {
    let at = cursor.position();
    let negative = cursor.accept('-');
    let Token::Number(text) = cursor.peek() else {
        return Err(cursor.unexpected("an integer"));
    };
    cursor.take();
    let value = integer(text).filter(|&value| !negative || value <= 1 << 63);
    match value {
        Some(value) if negative => Ok((value as i64).wrapping_neg()),
        Some(value) => Ok(value as i64),
        None => Err(ParseError::new(at, format!("`{text}`"), "a 64-bit integer")),
    }
}

fn parse_vector(cursor: &mut Cursor<'_>, scope: &Scope<'_>, types: &[Type]) -> Result<Operand> {
    cursor.expect('{')?;
    let mut list = Vec::new();
    loop {
        if matches!(cursor.peek(), Token::Symbol('{' | '[' | '(')) {
            return Err(cursor.unexpected("a register or a constant"));
        }
        list.push(parse_operand(cursor, scope, types)?);
        if !cursor.accept(',') {
            break;
        }
    }
    cursor.expect('}')?;
    Ok(Operand::Vector(list))
}

/// Arguments or results of a call, `(a, b)`.
fn parse_list(cursor: &mut Cursor<'_>, scope: &Scope<'_>, types: &[Type]) -> Result<Operand> {
    cursor.expect('(')?;
    let mut list = Vec::new();
    while !cursor.accept(')') {
        if !list.is_empty() {
            cursor.expect(',')?;
        }
        if matches!(cursor.peek(), Token::Symbol('{' | '[' | '(')) {
            return Err(cursor.unexpected("a parameter, a register or a constant"));
        }
        list.push(parse_operand(cursor, scope, types)?);
    }
    Ok(Operand::List(list))
}

/// A constant of type `ty`: floats are rounded to it, as `ptxas` does.
pub(super) fn constant(cursor: &mut Cursor<'_>, ty: Type) -> Result<Immediate> {
    let at = cursor.position();
    let negative = cursor.peek() == Token::Symbol('-');
    let text = match if negative { cursor.peek_second() } else { cursor.peek() } {
        Token::Number(text) => text,
        _ => return Err(cursor.unexpected("a constant")),
    };
    let Some(float) = float(text) else {
        return Ok(Immediate::Integer(signed(cursor)?));
    };
    cursor.accept('-');
    cursor.take();
    if negative && matches!(text.as_bytes(), [b'0', b'f' | b'F', ..]) {
        let expected = "the bits of a float, which include the sign";
        return Err(ParseError::new(at, format!("`-{text}`"), expected));
    }
    let float = float.map_err(|()| ParseError::new(at, format!("`{text}`"), "a float"))?;
    Ok(match float {
        Float::Single(bits) if ty != Type::F64 => {
            Immediate::F32(if negative { bits ^ 1 << 31 } else { bits })
        }
        Float::Single(bits) => of_double(f64::from(f32::from_bits(bits)), negative, ty),
        Float::Double(bits) => of_double(f64::from_bits(bits), negative, ty),
    })
}

/// Converts a 64-bit float to a constant of `ty`; only 32-bit floats are rounded.
fn of_double(value: f64, negative: bool, ty: Type) -> Immediate {
    let value = if negative { -value } else { value };
    match ty {
        Type::F32 => Immediate::F32((value as f32).to_bits()),
        _ => Immediate::F64(value.to_bits()),
    }
}

/// The bits of a float literal.
enum Float {
    Single(u32),
    Double(u64),
}

/// Parses a float literal; `None` if `text` is an integer.
fn float(text: &str) -> Option<std::result::Result<Float, ()>> {
    let bits = |digits: &str, length: usize| match digits.len() == length {
        true => u64::from_str_radix(digits, 16).map_err(|_| ()),
        false => Err(()),
    };
    match text.as_bytes() {
        [b'0', b'f' | b'F', ..] => Some(bits(&text[2..], 8).map(|b| Float::Single(b as u32))),
        [b'0', b'd' | b'D', ..] => Some(bits(&text[2..], 16).map(Float::Double)),
        [b'0', b'x' | b'X' | b'b' | b'B', ..] => None,
        _ if text.contains(['.', 'e', 'E']) => {
            Some(text.parse::<f64>().map(|v| Float::Double(v.to_bits())).map_err(|_| ()))
        }
        _ => None,
    }
}
