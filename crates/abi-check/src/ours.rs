//! The descriptions of driver-sys and nccl-sys: declarations from their sources, functions from
//! their lists, and sizes, offsets and values from the compiler.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::path::Path;

#[allow(unused_imports, clippy::wildcard_imports)] // The generated code names every type.
use retrograph_driver_sys::*;
#[allow(unused_imports, clippy::wildcard_imports)]
use retrograph_nccl_sys::*;

use crate::model::{Constant, Definition, Description, Field, Function, Kind, Type};
use crate::source::{self, Form, Naming, Source, TypeSource};
use crate::types;

/// Numbers from the compiler.
#[derive(Default)]
struct Measured {
    types: BTreeMap<&'static str, (usize, usize)>,
    offsets: BTreeMap<&'static str, usize>,
    constants: BTreeMap<&'static str, i128>,
}

/// A value of a constant.
trait Number {
    fn number(self) -> i128;
}

macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl Number for $type {
            fn number(self) -> i128 {
                self as i128
            }
        }
    )*};
}

numbers! { u8 i8 u16 i16 u32 i32 u64 i64 usize }

impl Number for *mut c_void {
    fn number(self) -> i128 {
        self.addr() as i128
    }
}

include!(concat!(env!("OUT_DIR"), "/measured.rs"));

/// A function of a list: its name, the types of arguments and result, and `since`.
struct Listed {
    name: &'static str,
    arguments: &'static [&'static str],
    result: &'static str,
    since: Option<i32>,
}

macro_rules! driver_list {
    (
        required { $($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?);)* }
        optional {
            $($(#[$o_doc:meta])* fn $o_name:ident($($o_arg:ident: $o_type:ty),* $(,)?)
                since $since:literal;)*
        }
    ) => {
        const DRIVER: &[Listed] = &[
            $(Listed {
                name: stringify!($name),
                arguments: &[$(stringify!($type)),*],
                result: "CUresult",
                since: None,
            },)*
            $(Listed {
                name: stringify!($o_name),
                arguments: &[$(stringify!($o_type)),*],
                result: "CUresult",
                since: Some($since),
            },)*
        ];
    };
}

retrograph_driver_sys::driver_functions!(driver_list);

macro_rules! nccl_list {
    (
        required {
            $($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty;)*
        }
        optional {
            $($(#[$o_doc:meta])* fn $o_name:ident($($o_arg:ident: $o_type:ty),* $(,)?)
                since $since:literal;)*
        }
    ) => {
        const NCCL: &[Listed] = &[
            $(Listed {
                name: stringify!($name),
                arguments: &[$(stringify!($type)),*],
                result: stringify!($result),
                since: None,
            },)*
            $(Listed {
                name: stringify!($o_name),
                arguments: &[$(stringify!($o_type)),*],
                result: "ncclResult_t",
                since: Some($since),
            },)*
        ];
    };
}

retrograph_nccl_sys::nccl_functions!(nccl_list);

/// A crate that declares an interface.
struct Crate {
    name: &'static str,
    naming: Naming,
    measure: fn(&mut Measured),
    functions: &'static [Listed],
}

/// A failed description of a crate.
#[derive(Debug, thiserror::Error)]
#[error("{name}-sys cannot be described:\n{}", problems.join("\n"))]
pub struct Undescribed {
    /// The crate without `-sys`.
    pub name: &'static str,
    /// The unreadable declarations.
    pub problems: Vec<String>,
}

/// Describes driver-sys.
pub fn describe() -> Result<Description, Undescribed> {
    let (naming, functions) = (source::CUDA, DRIVER);
    Crate { name: "driver", naming, measure: measure_driver, functions }.describe()
}

/// Describes nccl-sys.
pub fn describe_nccl() -> Result<Description, Undescribed> {
    let (naming, functions) = (source::NCCL, NCCL);
    Crate { name: "nccl", naming, measure: measure_nccl, functions }.describe()
}

impl Crate {
    fn describe(&self) -> Result<Description, Undescribed> {
        let name = self.name;
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../{name}-sys/src"));
        let source = Source::read(&folder, self.naming)
            .map_err(|error| Undescribed { name, problems: vec![error.to_string()] })?;
        let mut reader =
            Reader { description: Description::default(), problems: Vec::new(), source };
        reader.problems.append(&mut reader.source.problems);
        let mut measured = Measured::default();
        (self.measure)(&mut measured);
        reader.run(&measured);
        reader.functions(self.functions);
        match reader.problems.is_empty() {
            true => Ok(reader.description),
            false => Err(Undescribed { name, problems: reader.problems }),
        }
    }
}

struct Reader {
    description: Description,
    problems: Vec<String>,
    source: Source,
}

impl Reader {
    fn run(&mut self, measured: &Measured) {
        for item in std::mem::take(&mut self.source.types) {
            if let Some(definition) = self.definition(&item, measured) {
                self.description.types.insert(item.name, definition);
            }
        }
        for (name, target) in std::mem::take(&mut self.source.aliases) {
            if let Some(target) = self.type_of(&name, &target) {
                self.description.aliases.insert(name, target);
            }
        }
        for (name, integer) in std::mem::take(&mut self.source.flags) {
            if let Some(integer) = self.type_of(&name, &integer) {
                self.description.flags.insert(name, integer);
            }
        }
        for constant in std::mem::take(&mut self.source.constants) {
            let Some(&value) = measured.constants.get(&*constant.name) else {
                self.problems.push(format!("{} was not measured", constant.name));
                continue;
            };
            let entry = Constant { value, of: constant.of, since: constant.since };
            if self.description.constants.insert(constant.name.clone(), entry).is_some() {
                self.problems.push(format!("{} is declared twice", constant.name));
            }
        }
    }

    fn definition(&mut self, item: &TypeSource, measured: &Measured) -> Option<Definition> {
        let Some(&(size, align)) = measured.types.get(&*item.name) else {
            self.problems.push(format!("{} was not measured", item.name));
            return None;
        };
        let kind = match &item.form {
            Form::Struct => Kind::Struct,
            Form::Union => Kind::Union,
            Form::Handle => Kind::Handle,
            Form::Enumeration(integer) => match self.type_of(&item.name, integer)? {
                Type::Integer { signed, .. } => Kind::Enumeration { signed },
                other => {
                    self.problems.push(format!("{} is a newtype over {other}", item.name));
                    return None;
                }
            },
        };
        let mut fields = Vec::new();
        for (field, of) in &item.fields {
            let name = field.trim_start_matches("r#").to_owned();
            let key = format!("{}.{name}", item.name);
            let offset = measured.offsets.get(&*key).map(|&offset| offset as u64);
            if offset.is_none() {
                self.problems.push(format!("{key} was not measured"));
            }
            fields.push(Field { offset, of: self.type_of(&key, of)?, name });
        }
        Some(Definition { kind, size: Some(size as u64), align: Some(align as u64), fields })
    }

    fn functions(&mut self, list: &[Listed]) {
        for &Listed { name, arguments, result, since } in list {
            let arguments: Option<Vec<Type>> =
                arguments.iter().map(|argument| self.type_of(name, argument)).collect();
            let Some((arguments, result)) = arguments.zip(self.type_of(name, result)) else {
                continue;
            };
            let function = Function { arguments, result, since };
            if self.description.functions.insert(name.to_owned(), function).is_some() {
                self.problems.push(format!("{name} is declared twice"));
            }
        }
    }

    fn type_of(&mut self, owner: &str, text: &str) -> Option<Type> {
        let parsed = syn::parse_str(&text.replace("$crate", "crate"))
            .map_err(|error| error.to_string())
            .and_then(|parsed| types::describe(&parsed).map_err(|error| error.to_string()));
        match parsed {
            Ok(described) => Some(described),
            Err(error) => {
                self.problems.push(format!("{owner}: `{text}`: {error}"));
                None
            }
        }
    }
}
