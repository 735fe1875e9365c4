//! Variables of a running scenario: named, typed memory.

use std::collections::HashMap;

use crate::arena::{ArenaAddress, word};
use crate::error::Problem;
use crate::reflect::DRIVER;
use crate::types::Type;

/// A variable.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) of: Type,
    /// The number of elements, for arrays.
    pub(crate) count: Option<usize>,
    pub(crate) place: ArenaAddress,
    /// Whether the variable is a host buffer, whose value is its address.
    pub(crate) is_buffer: bool,
}

/// The elements of a missing list.
static ZEROS: [u64; 64] = [0; 64];

/// All variables by name.
#[derive(Debug, Default)]
pub(crate) struct Variables(HashMap<String, Variable>);

impl Variables {
    pub(crate) fn set(&mut self, name: &str, variable: Variable) {
        self.0.insert(name.to_owned(), variable);
    }

    pub(crate) fn get(&self, name: &str) -> Result<&Variable, Problem> {
        match self.0.get(name.trim_start_matches('_')) {
            Some(variable) => Ok(variable),
            None => Problem::unknown("variable", name),
        }
    }

    /// Resolves a path such as `name.field[2]`.
    pub(crate) fn follow(&self, path: &str) -> Result<Variable, Problem> {
        let end = path.find(['.', '[']).unwrap_or(path.len());
        let mut found = self.get(&path[..end])?.clone();
        let mut rest = &path[end..];
        while !rest.is_empty() {
            let next = rest[1..].find(['.', '[']).map_or(rest.len(), |next| next + 1);
            let part = &rest[1..next];
            found = if rest.starts_with('.') {
                found.field(part)?
            } else {
                found.element(part.trim_end_matches(']'))?
            };
            rest = &rest[next..];
        }
        Ok(found)
    }
}

impl Variable {
    fn field(&self, name: &str) -> Result<Self, Problem> {
        let Type::Record(record) = &self.of else {
            return Problem::value(name, &self.of);
        };
        match DRIVER.field(record, name) {
            Some(field) => {
                let place = self.place.offset(field.offset);
                Ok(Self { of: field.of, count: None, place, is_buffer: false })
            }
            None => Problem::unknown("field", name),
        }
    }

    fn element(&self, index: &str) -> Result<Self, Problem> {
        let Ok(index) = index.parse::<usize>() else {
            return Problem::syntax("an index", index);
        };
        let (of, place) = match (&self.of, self.count) {
            (of, Some(_)) => (of.clone(), self.place),
            (Type::Array(element, _), None) => ((**element).clone(), self.place),
            (Type::Pointer(target), None) => {
                ((**target).clone(), ArenaAddress::of_address(self.word()))
            }
            (other, None) => return Problem::value(index, other),
        };
        let size = DRIVER.size(&of).unwrap_or(8);
        // The elements of an unwritten list are null.
        let place = if place.address() == 0 {
            ArenaAddress::of_address((&raw const ZEROS).expose_provenance() as u64)
        } else {
            place.offset(index * size)
        };
        Ok(Self { of, count: None, place, is_buffer: false })
    }

    /// The value, truncated to a word.
    pub(crate) fn word(&self) -> u64 {
        word(&self.place.read(DRIVER.size(&self.of).unwrap_or(8).min(8)))
    }

    /// Whether the variable is passed by address, because its value is not a single word.
    pub(crate) fn is_by_address(&self) -> bool {
        self.is_buffer
            || self.count.is_some()
            || matches!(self.of, Type::Record(_) | Type::Array(..))
    }
}
