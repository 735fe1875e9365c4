//! The layouts of all structs and unions as values, for tools.

/// The layout of a struct or union.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The name in cuda.h, or `Outer_field` for an unnamed type.
    pub name: &'static str,
    /// `struct` or `union`.
    pub kind: &'static str,
    /// Bytes.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
    /// The fields in order.
    pub fields: &'static [Field],
}

/// A field of a struct or union.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name in cuda.h. An unnamed field is called `anonymous`.
    pub name: &'static str,
    /// The type, as it is written in this crate.
    pub type_name: &'static str,
    /// Bytes from the start of the struct.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
}

/// The layout of every struct and union of this crate.
///
/// ```
/// let layout = retrograph_driver_sys::layouts::all()
///     .find(|layout| layout.name == "CUDA_KERNEL_NODE_PARAMS")
///     .expect("it is declared");
/// assert_eq!((layout.size, layout.fields[0].name), (72, "func"));
/// ```
pub fn all() -> impl Iterator<Item = &'static Layout> {
    LISTS.iter().flat_map(|list| list.iter())
}

/// The lists of all modules.
const LISTS: &[&[Layout]] = &[
    crate::array::LAYOUTS,
    crate::context::LAYOUTS,
    crate::copy::BATCHES,
    crate::copy::LAYOUTS,
    crate::device::LAYOUTS,
    crate::graph::LAYOUTS,
    crate::graph::lists::EXEC_LAYOUTS,
    crate::graph::lists::PARAMETER_LAYOUTS,
    crate::graph::lists::UNIONS,
    crate::launch::LAYOUTS,
    crate::launch::POLICY_LAYOUTS,
    crate::launch::VALUES,
    crate::library::LAYOUTS,
    crate::location::LAYOUTS,
    crate::memory_operation::LAYOUTS,
    crate::pool::LAYOUTS,
    crate::resource::LAYOUTS,
    crate::tensor_map::LAYOUTS,
    crate::virtual_memory::LAYOUTS,
];
