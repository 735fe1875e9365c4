//! Entries (kernels), their parameters, registers and variables.

use super::{Immediate, LabelId, RegisterId, StateSpace, Statement, Type};

/// A kernel, or the code of a device function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// The name under which it is launched or called.
    pub name: String,
    /// The parameters, in order.
    pub parameters: Vec<Parameter>,
    /// The results of a function; kernels have none.
    pub results: Vec<Parameter>,
    /// Limits on the launch geometry.
    pub limits: Limits,
    /// The register declarations; [`RegisterId`] counts through them in order.
    pub registers: Vec<RegisterDeclaration>,
    /// Variables of the entry, shared or local.
    pub variables: Vec<Variable>,
    /// Names of the labels; [`LabelId`] is an index into them. The builder and the parser number
    /// them in the order of their first mention.
    pub labels: Vec<String>,
    /// The label tables of `brx.idx`.
    pub tables: Vec<BranchTable>,
    /// The prototypes of indirect calls.
    pub prototypes: Vec<Prototype>,
    /// The statements.
    pub body: Vec<Statement>,
}

impl Entry {
    /// Number of registers.
    pub fn register_count(&self) -> usize {
        self.registers.iter().map(|declaration| declaration.len() as usize).sum()
    }

    /// The types of all registers, indexed by [`RegisterId`].
    pub fn register_types(&self) -> Vec<Type> {
        let repeat = |d: &RegisterDeclaration| std::iter::repeat_n(d.ty, d.len() as usize);
        self.registers.iter().flat_map(repeat).collect()
    }

    /// The name and type of a register, or `None` if the entry has no such register.
    pub fn register(&self, id: RegisterId) -> Option<(String, Type)> {
        let mut index = id.0;
        for declaration in &self.registers {
            if index < declaration.len() {
                return Some((declaration.name_of(index), declaration.ty));
            }
            index -= declaration.len();
        }
        None
    }

    /// The name of a label.
    pub fn label(&self, id: LabelId) -> Option<&str> {
        self.labels.get(id.0 as usize).map(String::as_str)
    }

    /// The offsets of the parameters in the parameter block, and the size of the block in bytes.
    pub fn parameter_layout(&self) -> (Vec<u32>, u32) {
        let mut size = 0u32;
        let offsets = self.parameters.iter().map(|parameter| {
            let start = size.next_multiple_of(parameter.alignment());
            size = start + parameter.size();
            start
        });
        (offsets.collect(), size)
    }
}

/// A table of labels, `name: .branchtargets a, b;`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchTable {
    /// The name.
    pub name: String,
    /// The labels.
    pub labels: Vec<LabelId>,
}

/// The signature of an indirect call, `name: .callprototype (.param .b32 _) _ (.param .b64 _);`
#[derive(Clone, Debug, PartialEq)]
pub struct Prototype {
    /// The name.
    pub name: String,
    /// The results, in order. Their names have no meaning.
    pub results: Vec<Parameter>,
    /// The parameters, in order. Their names have no meaning.
    pub parameters: Vec<Parameter>,
}

/// A device function.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// The linkage.
    pub linkage: Linkage,
    /// Name, parameters, results and body.
    pub code: Entry,
    /// Whether there is a body; otherwise another module defines it.
    pub is_defined: bool,
}

/// A kernel parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// The name.
    pub name: String,
    /// The type, or the type of the elements of an array.
    pub ty: Type,
    /// The `.align` attribute.
    pub align: Option<u32>,
    /// Number of elements of an array, such as a struct passed by value.
    pub length: Option<u32>,
    /// The `.ptr` attribute.
    pub pointer: Option<PointerAttribute>,
}

impl Parameter {
    /// A scalar parameter.
    pub fn scalar(name: &str, ty: Type) -> Self {
        Self { name: name.to_owned(), ty, align: None, length: None, pointer: None }
    }

    /// Size in bytes. Saturates; a parsed parameter has far fewer bytes.
    pub fn size(&self) -> u32 {
        self.ty.size().saturating_mul(self.length.unwrap_or(1))
    }

    /// Alignment in bytes.
    pub fn alignment(&self) -> u32 {
        self.align.unwrap_or(self.ty.size()).max(1)
    }

    /// Whether this may be passed as a parameter declared as `wanted`.
    pub fn fits(&self, wanted: &Self) -> bool {
        self.size() == wanted.size()
            && self.length.is_some() == wanted.length.is_some()
            && self.alignment() >= wanted.alignment()
    }
}

/// The memory that a pointer parameter points to: `.ptr .global .align 16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointerAttribute {
    /// The space; generic if `None`.
    pub space: Option<StateSpace>,
    /// The alignment in bytes.
    pub align: Option<u32>,
}

/// Limits on the geometry of a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// `.maxntid`: maximum threads per block.
    pub max_threads: Option<[u32; 3]>,
    /// `.reqntid`: exactly these threads per block.
    pub required_threads: Option<[u32; 3]>,
    /// `.minnctapersm`: blocks that must fit on a multiprocessor.
    pub min_blocks: Option<u32>,
    /// `.maxnreg`: maximum registers per thread.
    pub max_registers: Option<u32>,
    /// `.reqnctapercluster`: exactly these blocks per cluster.
    pub cluster: Option<[u32; 3]>,
    /// `.explicitcluster`: every launch must specify its cluster size.
    pub explicit_cluster: bool,
    /// `.maxclusterrank`: maximum blocks per cluster.
    pub max_cluster_rank: Option<u32>,
}

/// A declaration of registers: `.reg .f32 %f<10>;` or `.reg .pred %go;`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterDeclaration {
    /// The name of one register, or the prefix of several.
    pub name: String,
    /// The type.
    pub ty: Type,
    /// The number of registers called `name0`, `name1` and so on; `None` for a single register.
    pub count: Option<u32>,
}

impl RegisterDeclaration {
    /// Number of registers.
    #[expect(clippy::len_without_is_empty, reason = "a declaration declares at least one")]
    pub fn len(&self) -> u32 {
        self.count.unwrap_or(1)
    }

    /// The name of the `index`-th register.
    pub fn name_of(&self, index: u32) -> String {
        match self.count {
            None => self.name.clone(),
            Some(_) => format!("{}{index}", self.name),
        }
    }
}

/// The linkage of a symbol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Linkage {
    /// This module.
    #[default]
    Internal,
    /// Declared here, defined elsewhere, such as dynamic shared memory.
    Extern,
    /// Other modules.
    Visible,
    /// Visible to other modules, unless one of them defines the name without `.weak`.
    Weak,
    /// Visible to other modules, which may declare the same variable; the linker merges them.
    Common,
}

/// A variable: an array or a scalar in a state space.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// The linkage.
    pub linkage: Linkage,
    /// The state space.
    pub space: StateSpace,
    /// Whether host and devices share it (`.attribute(.managed)`).
    pub is_managed: bool,
    /// The `.align` attribute.
    pub align: Option<u32>,
    /// The type, or the type of the elements of an array.
    pub ty: Type,
    /// The name.
    pub name: String,
    /// Number of elements of an array. An extern array of unknown length has 0.
    pub length: Option<u32>,
    /// The initial elements; the rest is zero.
    pub initial: Vec<Immediate>,
}

impl Variable {
    /// Size in bytes; 0 for an extern array of unknown length.
    pub fn size(&self) -> u64 {
        u64::from(self.ty.size()) * u64::from(self.length.unwrap_or(1))
    }

    /// Alignment in bytes.
    pub fn alignment(&self) -> u32 {
        self.align.unwrap_or(self.ty.size()).max(1)
    }
}
