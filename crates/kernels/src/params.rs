//! Constructors of kernel parameters under short names.

use crate::Parameter;

/// A pointer parameter.
pub(crate) const fn pointer(name: &'static str) -> Parameter {
    Parameter::pointer(name)
}

/// A `.u32` parameter.
pub(crate) const fn u32(name: &'static str) -> Parameter {
    Parameter::u32(name)
}

/// A `.f32` parameter.
pub(crate) const fn f32(name: &'static str) -> Parameter {
    Parameter::f32(name)
}

/// A `.u64` parameter.
pub(crate) const fn u64(name: &'static str) -> Parameter {
    Parameter::f64(name)
}
