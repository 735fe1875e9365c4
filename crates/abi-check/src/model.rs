//! The model of an interface: types, constants, functions.

use std::collections::BTreeMap;
use std::fmt;

/// A type as the binary interface sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// `void`.
    Void,
    /// `char`, whose sign is the platform's business.
    Char,
    /// `size_t`.
    Size,
    /// Any other integer.
    Integer {
        /// Its size.
        bytes: u32,
        /// Whether it can be negative.
        signed: bool,
    },
    /// A floating-point number of this many bytes.
    Float(u32),
    /// A type by its name: a struct, a union, an enumeration, a handle or an alias.
    Named(String),
    /// A pointer.
    Pointer {
        /// Whether what it points to is constant.
        constant: bool,
        /// What it points to.
        to: Box<Type>,
    },
    /// An array inside a struct.
    Array {
        /// How many elements.
        length: u64,
        /// Of which type.
        of: Box<Type>,
    },
    /// A pointer to a function, null or not.
    Function {
        /// The types of the arguments.
        arguments: Vec<Type>,
        /// The type of the result.
        result: Box<Type>,
    },
}

/// What kind of type a definition makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Fields one after the other.
    Struct,
    /// Fields on top of each other.
    Union,
    /// A set of named integers.
    Enumeration {
        /// Whether the integer can be negative.
        signed: bool,
    },
    /// A pointer to something that only the driver knows.
    Handle,
}

/// A field of a struct or union.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name as in C.
    pub name: String,
    /// Bytes from the start of the struct; `None` where the describer does not say.
    pub offset: Option<u64>,
    /// Its type.
    pub of: Type,
}

/// A type with a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// What kind it is.
    pub kind: Kind,
    /// Size in bytes; `None` where the describer does not say.
    pub size: Option<u64>,
    /// Alignment in bytes; `None` where the describer does not say.
    pub align: Option<u64>,
    /// The fields in order.
    pub fields: Vec<Field>,
}

/// A named number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constant {
    /// Its value.
    pub value: i128,
    /// The enumeration that it belongs to.
    pub of: Option<String>,
    /// The first CUDA version that has it, where the describer says that some lack it.
    pub since: Option<i32>,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The types of the arguments.
    pub arguments: Vec<Type>,
    /// The type of the result.
    pub result: Type,
    /// The first CUDA version that has the function, where the describer says that some lack it.
    pub since: Option<i32>,
}

/// Everything that one source says about an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Types by name.
    pub types: BTreeMap<String, Definition>,
    /// Other names of types.
    pub aliases: BTreeMap<String, Type>,
    /// Integers under the name of a set of flags, which in C is an enumeration: functions take the
    /// integer.
    pub flags: BTreeMap<String, Type>,
    /// Constants and enumerators by name.
    pub constants: BTreeMap<String, Constant>,
    /// Functions by symbol.
    pub functions: BTreeMap<String, Function>,
}

impl Type {
    /// A mutable or constant pointer to this type.
    pub fn pointer(self, constant: bool) -> Self {
        Self::Pointer { constant, to: Box::new(self) }
    }

    /// The type with every inner name replaced by what `resolve` says it is.
    pub fn map_names(&self, resolve: &mut dyn FnMut(&str) -> Type) -> Type {
        match self {
            Self::Named(name) => resolve(name),
            Self::Pointer { constant, to } => to.map_names(resolve).pointer(*constant),
            Self::Array { length, of } => {
                Self::Array { length: *length, of: Box::new(of.map_names(resolve)) }
            }
            Self::Function { arguments, result } => Self::Function {
                arguments: arguments.iter().map(|argument| argument.map_names(resolve)).collect(),
                result: Box::new(result.map_names(resolve)),
            },
            other => other.clone(),
        }
    }
}

impl Function {
    /// The function with every type replaced.
    pub fn map(&self, mut of: impl FnMut(&Type) -> Type) -> Self {
        let arguments = self.arguments.iter().map(&mut of).collect();
        Self { arguments, result: of(&self.result), since: self.since }
    }
}

impl Description {
    /// The type without aliases.
    pub fn resolve(&self, of: &Type) -> Type {
        of.map_names(&mut |name| match self.aliases.get(name) {
            // A C typedef of the tag of the same name is that type.
            Some(Type::Named(target)) if target == name => Type::Named(target.clone()),
            Some(target) => self.resolve(target),
            None => Type::Named(name.to_owned()),
        })
    }

    /// The definition of a name, with the name of the definition.
    pub fn definition(&self, name: &str) -> Option<(String, &Definition)> {
        match self.resolve(&Type::Named(name.to_owned())) {
            Type::Named(tag) => self.types.get(&tag).map(|definition| (tag, definition)),
            _ => None,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Void => f.write_str("void"),
            Self::Char => f.write_str("char"),
            Self::Size => f.write_str("size_t"),
            Self::Integer { bytes, signed } => {
                write!(f, "{}{}", if *signed { 'i' } else { 'u' }, bytes * 8)
            }
            Self::Float(bytes) => write!(f, "f{}", bytes * 8),
            Self::Named(name) => f.write_str(name),
            Self::Pointer { constant, to } => {
                write!(f, "*{} {to}", if *constant { "const" } else { "mut" })
            }
            Self::Array { length, of } => write!(f, "[{of}; {length}]"),
            Self::Function { arguments, result } => {
                write!(f, "fn{}", signature(arguments, result))
            }
        }
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&signature(&self.arguments, &self.result))
    }
}

fn signature(arguments: &[Type], result: &Type) -> String {
    let arguments: Vec<String> = arguments.iter().map(Type::to_string).collect();
    format!("({}) -> {result}", arguments.join(", "))
}
