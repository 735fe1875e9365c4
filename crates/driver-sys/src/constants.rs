//! All constants by name, for tools such as scenarios, traces and comparisons with a header.

/// A constant of cuda.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constant {
    /// Its name in cuda.h.
    pub name: &'static str,
    /// The enumeration it belongs to.
    pub group: &'static str,
    /// Its value.
    pub value: i64,
}

/// Every constant of the enumerations and flags of this crate, and every known result code.
///
/// ```
/// let found = retrograph_driver_sys::constants::all()
///     .find(|constant| constant.name == "CU_STREAM_CAPTURE_MODE_RELAXED");
/// let found = found.map(|constant| (constant.group, constant.value));
/// assert_eq!(found, Some(("CUstreamCaptureMode", 2)));
/// ```
pub fn all() -> impl Iterator<Item = Constant> {
    let results = crate::CUresult::KNOWN.iter().filter_map(|code| {
        Some(Constant { name: code.name()?, group: "CUresult", value: i64::from(code.0) })
    });
    LISTS.iter().flat_map(|list| list.iter().copied()).chain(results)
}

/// The value of the constant of this name.
///
/// ```
/// use retrograph_driver_sys::constants::value;
///
/// assert_eq!(value("CU_STREAM_NON_BLOCKING"), Some(1));
/// assert_eq!(value("CUDA_ERROR_OUT_OF_MEMORY"), Some(2));
/// assert_eq!(value("CU_NO_SUCH_NAME"), None);
/// ```
pub fn value(name: &str) -> Option<i64> {
    all().find(|constant| constant.name == name).map(|constant| constant.value)
}

/// The lists of all modules.
const LISTS: &[&[Constant]] = &[
    crate::array::ENUMERATIONS,
    crate::array::FLAGS,
    crate::capture::ENUMERATIONS,
    crate::capture::FLAGS,
    crate::context::ENUMERATIONS,
    crate::context::FLAGS,
    crate::copy::ENUMERATIONS,
    crate::copy::FLAGS,
    crate::coredump::ENUMERATIONS,
    crate::coredump::FLAGS,
    crate::device::ATTRIBUTES,
    crate::device::ENUMERATIONS,
    crate::device::FLAGS,
    crate::event::FLAGS,
    crate::function::ENUMERATIONS,
    crate::graph::ENUMERATIONS,
    crate::graph::FLAGS,
    crate::graph::lists::EXEC,
    crate::graph::lists::EXEC_FLAGS,
    crate::graph::lists::PARAMETERS,
    crate::jit::ENUMERATIONS,
    crate::launch::ENUMERATIONS,
    crate::launch::FLAGS,
    crate::launch::POLICIES,
    crate::library::ENUMERATIONS,
    crate::location::ENUMERATIONS,
    crate::managed::ENUMERATIONS,
    crate::managed::FLAGS,
    crate::memory::ENUMERATIONS,
    crate::memory::FLAGS,
    crate::memory_operation::ENUMERATIONS,
    crate::memory_operation::FLAGS,
    crate::occupancy::FLAGS,
    crate::pool::ENUMERATIONS,
    crate::pool::FLAGS,
    crate::resource::ENUMERATIONS,
    crate::resource::FLAGS,
    crate::stream::FLAGS,
    crate::symbol::ENUMERATIONS,
    crate::symbol::FLAGS,
    crate::tensor_map::ENUMERATIONS,
    crate::virtual_memory::ENUMERATIONS,
    crate::virtual_memory::FLAGS,
];
