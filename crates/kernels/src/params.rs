//! Constructors of kernel parameters.

use crate::{Parameter, ParameterKind};

/// A pointer parameter.
pub(crate) const fn pointer(name: &'static str) -> Parameter {
    Parameter { name, kind: ParameterKind::Pointer }
}

/// A `.u32` parameter.
pub(crate) const fn u32(name: &'static str) -> Parameter {
    Parameter { name, kind: ParameterKind::U32 }
}

/// A `.f32` parameter.
pub(crate) const fn f32(name: &'static str) -> Parameter {
    Parameter { name, kind: ParameterKind::F32 }
}

/// A `.u64` parameter.
pub(crate) const fn u64(name: &'static str) -> Parameter {
    Parameter { name, kind: ParameterKind::U64 }
}
