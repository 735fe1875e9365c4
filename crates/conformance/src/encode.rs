//! Encoding of scenario values as argument words and bytes in memory.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use crate::arena::{Arena, ArenaAddress, UNWRITTEN};
use crate::error::Problem;
use crate::functions::Parameter;
use crate::host::{Action, Lent, Log};
use crate::reflect::DRIVER;
use crate::scenario::{Out, Value};
use crate::types::Type;
use crate::variables::{Variable, Variables};

/// An output of a call.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) name: String,
    pub(crate) is_recorded: bool,
    pub(crate) variable: Variable,
    /// The name of the parameter, if the output is an argument.
    pub(crate) parameter: Option<&'static str>,
}

/// The memory of a running scenario.
#[derive(Debug)]
pub(crate) struct Memory {
    images: PathBuf,
    arena: Arena,
    lent: Lent,
    loaded: HashMap<(String, Option<usize>), ArenaAddress>,
    pub(crate) log: Log,
    pub(crate) variables: Variables,
    /// The outputs of the call that is being encoded.
    pub(crate) written: Vec<Written>,
}

impl Memory {
    pub(crate) fn new(images: PathBuf) -> Self {
        Self {
            images,
            arena: Arena::default(),
            lent: Lent::default(),
            loaded: HashMap::new(),
            log: Log::default(),
            variables: Variables::default(),
            written: Vec::new(),
        }
    }

    /// A block without a name.
    pub(crate) fn block(&mut self, size: usize) -> ArenaAddress {
        self.arena.block(size, 0)
    }

    /// The word that an argument is passed as.
    pub(crate) fn argument(
        &mut self,
        value: &Value,
        parameter: &'static Parameter,
    ) -> Result<u64, Problem> {
        if parameter.size > 8 {
            let place = self.arena.block(parameter.size, 0);
            self.store(place, value, &parameter.of)?;
            return Ok(place.address());
        }
        if let (Some(target), Some(size)) = (parameter.of.pointee(), parameter.pointee_size) {
            let computed = DRIVER.size(target);
            if computed.is_some_and(|computed| computed != size) {
                return Problem::value("a layout of another size", target);
            }
        }
        let word = self.word(value, &parameter.of)?;
        if let (Value::Out(_), Some(last)) = (value, self.written.last_mut()) {
            last.parameter = Some(parameter.name);
        }
        Ok(word)
    }

    /// The word of a value of a type.
    fn word(&mut self, value: &Value, of: &Type) -> Result<u64, Problem> {
        match value {
            Value::Null => Ok(0),
            Value::Integer(number) => match of {
                Type::Float { .. } => self.word(&Value::Float(*number as f64), of),
                _ => Ok(*number as u64),
            },
            Value::Float(number) => match of {
                Type::Float { size: 8 } => Ok(number.to_bits()),
                _ => Ok(u64::from((*number as f32).to_bits())),
            },
            Value::Text(text) => {
                let bytes: Vec<u8> = text.bytes().chain([0]).collect();
                Ok(self.arena.bytes(&bytes).address())
            }
            Value::Image(name, length) => self.image(name, *length),
            Value::ImageSize(name) => self.image_bytes(name).map(|bytes| bytes.len() as u64 + 1),
            Value::Name(path) => self.variable(path, of),
            Value::Offset(path, bytes) => Ok(self.variable(path, of)?.wrapping_add_signed(*bytes)),
            Value::Out(out) => self.out(out, of),
            Value::List(values) => self.array(values, of),
            Value::Record(_) => self.record_pointer(value, of),
            Value::Parameters(parameters) => self.parameters(parameters),
            Value::HostFunction(name) => {
                self.lent.lend(Action::Say(name.clone(), self.log.clone()), false)
            }
            Value::Callback(name) => {
                self.lent.lend(Action::Say(name.clone(), self.log.clone()), true)
            }
            Value::SleepFunction(time) => self.lent.lend(Action::Sleep(*time), false),
        }
    }

    fn variable(&mut self, path: &str, of: &Type) -> Result<u64, Problem> {
        let variable = self.variables.follow(path)?;
        let is_pointed_to = of.pointee().is_some_and(|target| *target == variable.of)
            && !matches!(variable.of, Type::Pointer(_) | Type::Address);
        if variable.is_by_address() || is_pointed_to {
            return Ok(variable.place.address());
        }
        Ok(variable.word())
    }

    fn image(&mut self, name: &str, length: Option<usize>) -> Result<u64, Problem> {
        let key = (name.to_owned(), length);
        if let Some(place) = self.loaded.get(&key) {
            return Ok(place.address());
        }
        let mut bytes = self.image_bytes(name)?;
        bytes.truncate(length.unwrap_or(bytes.len()));
        bytes.push(0);
        let place = self.arena.bytes(&bytes);
        self.loaded.insert(key, place);
        Ok(place.address())
    }

    fn image_bytes(&self, name: &str) -> Result<Vec<u8>, Problem> {
        let path = self.images.join(name);
        let failed = |error| Problem::File { reason: format!("{}: {error}", path.display()) };
        fs::read(&path).map_err(failed)
    }

    /// An output.
    fn out(&mut self, out: &Out, of: &Type) -> Result<u64, Problem> {
        let element = match (&out.of, of) {
            (Some(name), _) => DRIVER.resolve(name),
            (None, Type::Pointer(target)) => (**target).clone(),
            (None, other) => return Problem::value(&out.name, other),
        };
        let Some(size) = DRIVER.size(&element) else {
            return Problem::value(&out.name, element);
        };
        let count = out.count.unwrap_or(1);
        let is_buffer = out.of.is_some();
        let fill = if out.initial.is_empty() && !is_buffer { UNWRITTEN } else { 0 };
        let place = self.arena.block(size * count, fill);
        if is_buffer && out.initial.is_empty() {
            place.write(&vec![0; size * count]);
        }
        for (at, value) in out.initial.iter().take(count).enumerate() {
            self.store(place.offset(at * size), value, &element)?;
        }
        let count = out.count;
        let variable = Variable { of: element, count, place, is_buffer };
        let is_recorded = out.is_recorded && !is_buffer;
        let name = out.name.clone();
        self.written.push(Written { name, is_recorded, variable, parameter: None });
        Ok(place.address())
    }

    /// An array argument: a block with consecutive values.
    fn array(&mut self, values: &[Value], of: &Type) -> Result<u64, Problem> {
        let word = Type::Integer { size: 8, signed: false };
        let element = match of.pointee() {
            Some(Type::Void | Type::Unknown(_)) | None => &word,
            Some(target) => target,
        };
        let Some(size) = DRIVER.size(element) else {
            return Problem::value(values, of);
        };
        let place = self.arena.block(size * values.len(), 0);
        for (at, value) in values.iter().enumerate() {
            self.store(place.offset(at * size), value, element)?;
        }
        Ok(place.address())
    }

    /// A structure argument: a block with the structure, and its address.
    fn record_pointer(&mut self, value: &Value, of: &Type) -> Result<u64, Problem> {
        let Some(target) = of.pointee() else {
            // A structure of at most eight bytes that is passed by value.
            let Some(size) = DRIVER.size(of).filter(|size| *size <= 8) else {
                return Problem::value(value, of);
            };
            let place = self.arena.block(8, 0);
            self.store(place, value, of)?;
            return Ok(crate::arena::word(&place.read(size)));
        };
        let Some(size) = DRIVER.size(target) else {
            return Problem::value(value, target);
        };
        let place = self.arena.block(size, 0);
        self.store(place, value, target)?;
        Ok(place.address())
    }

    /// Kernel parameters, each in its own block.
    fn parameters(&mut self, parameters: &[(String, Value)]) -> Result<u64, Problem> {
        let list = self.arena.block(parameters.len() * 8, 0);
        for (at, (name, value)) in parameters.iter().enumerate() {
            let of = DRIVER.resolve(name);
            if DRIVER.size(&of).is_none() {
                return Problem::unknown("type", name);
            }
            let place = self.arena.block(8, 0);
            self.store(place, value, &of)?;
            list.offset(at * 8).write(&place.address().to_le_bytes());
        }
        Ok(list.address())
    }

    /// Writes a value in the layout of its type.
    fn store(&mut self, place: ArenaAddress, value: &Value, of: &Type) -> Result<(), Problem> {
        match (of, value) {
            (Type::Record(name), Value::Record(fields)) => {
                for (field, value) in fields {
                    let Some(found) = DRIVER.field(name, field) else {
                        return Problem::unknown("field", format!("{name}.{field}"));
                    };
                    self.store(place.offset(found.offset), value, &found.of)?;
                }
                Ok(())
            }
            (Type::Array(element, count), Value::List(values)) => {
                let size = DRIVER.size(element).unwrap_or(1);
                for (at, value) in values.iter().take(*count).enumerate() {
                    self.store(place.offset(at * size), value, element)?;
                }
                Ok(())
            }
            (Type::Record(_) | Type::Array(..), Value::Name(path)) => {
                let variable = self.variables.follow(path)?;
                place.write(&variable.place.read(DRIVER.size(of).unwrap_or(0)));
                Ok(())
            }
            (Type::Record(_) | Type::Array(..), Value::Null | Value::Integer(0)) => Ok(()),
            _ => {
                let Some(size) = DRIVER.size(of).filter(|size| *size <= 8) else {
                    return Problem::value(value, of);
                };
                let word = self.word(value, of)?;
                place.write(&word.to_le_bytes()[..size]);
                Ok(())
            }
        }
    }
}
