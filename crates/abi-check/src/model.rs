//! The model of an interface: types, constants, functions.

use std::collections::BTreeMap;
use std::fmt;

/// A type as the binary interface sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// `void`.
    Void,
    /// `char`, whose sign depends on the platform.
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
        /// Whether the target is constant.
        constant: bool,
        /// The target.
        to: Box<Type>,
    },
    /// An array inside a struct.
    Array {
        /// The number of elements.
        length: u64,
        /// The type of an element.
        of: Box<Type>,
    },
    /// A nullable function pointer.
    Function {
        /// The types of the arguments.
        arguments: Vec<Type>,
        /// The type of the result.
        result: Box<Type>,
    },
}

/// The kind of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A struct.
    Struct,
    /// A union.
    Union,
    /// An enumeration.
    Enumeration {
        /// Whether the integer can be negative.
        signed: bool,
    },
    /// A pointer to an opaque type.
    Handle,
}

/// A field of a struct or union.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name as in C.
    pub name: String,
    /// Bytes from the start of the struct; `None` if unknown.
    pub offset: Option<u64>,
    /// Its type.
    pub of: Type,
}

/// A type with a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The kind.
    pub kind: Kind,
    /// Size in bytes; `None` if unknown.
    pub size: Option<u64>,
    /// Alignment in bytes; `None` if unknown.
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
    /// The first CUDA version that has it, if earlier ones lack it.
    pub since: Option<i32>,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The types of the arguments.
    pub arguments: Vec<Type>,
    /// The type of the result.
    pub result: Type,
    /// The first CUDA version that has the function, if earlier ones lack it.
    pub since: Option<i32>,
}

/// The description of an interface by one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Types by name.
    pub types: BTreeMap<String, Definition>,
    /// Type aliases.
    pub aliases: BTreeMap<String, Type>,
    /// Integer types of flags, by the name of their enumeration in C.
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

    /// The type with every inner name replaced by `resolve`.
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
            // In C, `typedef struct X X` names the struct itself.
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
