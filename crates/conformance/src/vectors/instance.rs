//! An instruction with all types and modifiers chosen.

use retrograph_ptx::ast::Type;
use retrograph_ptx::instructions::Opcode;

/// The distribution of an operand's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Any value of the type, edges first.
    Value,
    /// A count of bits or lanes: small values, and some beyond every width.
    Count,
    /// Small integers, whose sums and products are exact.
    Exact,
}

/// An input of a case, an eight-byte word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input {
    pub(super) of: Type,
    pub(super) role: Role,
}

/// An instruction that a kernel applies to many cases.
#[derive(Clone, Debug)]
pub struct Instance {
    /// The instruction.
    pub opcode: Opcode,
    /// The mnemonic, with the constants of the form.
    pub name: String,
    /// Number of cases: whole warps.
    pub cases: usize,
    /// The types of the results, each in a word of eight bytes.
    pub results: Vec<Type>,
    pub(super) sources: Vec<Input>,
    /// Declarations and statements between loading the sources and storing the results. Sources
    /// are `%s0…`, results `%d0…`.
    pub(super) body: String,
    /// Whether the statement itself stores the results at `%out`.
    pub(super) stores: bool,
}

impl Instance {
    /// The size in bytes of a result of this type in a vector file.
    pub(super) fn width(of: Type) -> usize {
        match of {
            Type::Pred => 1,
            other => (other.size() as usize).max(1),
        }
    }
}

/// The register that holds a value of a type: its class.
pub(super) fn class(of: Type) -> &'static str {
    match of {
        Type::Pred => "pred",
        Type::F32 => "f32",
        Type::F64 => "f64",
        other => match other.size() {
            8 => "b64",
            2 => "b16",
            _ => "b32",
        },
    }
}
