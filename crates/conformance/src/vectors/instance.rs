//! One instruction with all its types and modifiers chosen.

use retrograph_ptx::ast::Type;
use retrograph_ptx::instructions::Opcode;

/// What the values of an operand are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Any value of the type, edges first.
    Value,
    /// A number of bits, or of lanes: small values, and some beyond every width.
    Count,
    /// Small whole numbers, of which sums and products are exact.
    Exact,
}

/// Something that a case reads, in a word of eight bytes.
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
    /// The mnemonic, and constants where the form has some.
    pub name: String,
    /// How many cases there are: whole warps.
    pub cases: usize,
    /// The types of the results, each in a word of eight bytes.
    pub results: Vec<Type>,
    pub(super) sources: Vec<Input>,
    /// Declarations and statements between loading the sources and storing the results. Sources
    /// are `%s0…`, results `%d0…`.
    pub(super) body: String,
    /// Whether the statement stores the results by itself, at `%out`.
    pub(super) stores: bool,
}

impl Instance {
    /// How many bytes a result of this type has in a vector file.
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
