//! The functions of the table, callable by name with argument words.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::LazyLock;

use retrograph_driver_sys::{CUresult, DriverTable};

use crate::reflect::DRIVER;
use crate::types::Type;

/// An argument of a driver function.
#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) of: Type,
    /// The size of a pointer's target, from the compiler.
    pub(crate) pointee_size: Option<usize>,
    /// The size of the argument itself.
    pub(crate) size: usize,
}

/// Calls a function of a table with one word per argument. `None` if the driver lacks it.
pub(crate) type Invoke = unsafe fn(&DriverTable, &[u64]) -> Option<CUresult>;

/// A function of the driver.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) invoke: Invoke,
}

/// A type whose size and pointee can be queried.
struct Probe<T>(PhantomData<T>);

impl<T> Probe<*mut T> {
    const POINTEE: Option<usize> = Some(size_of::<T>());
}

impl<T> Probe<*const T> {
    const POINTEE: Option<usize> = Some(size_of::<T>());
}

/// Constants of types that are not pointers; the inherent constants above take precedence.
trait Plain {
    const POINTEE: Option<usize> = None;
}

impl<T> Plain for Probe<T> {}

/// The value of a word. A value larger than eight bytes is passed by address.
///
/// # Safety
/// The word is a valid bit pattern of `T`, or the address of one if `T` is larger than a word.
unsafe fn from_word<T>(word: u64) -> T {
    if size_of::<T>() > size_of::<u64>() {
        // SAFETY: the caller guarantees that the word is the address of a value.
        return unsafe { std::ptr::with_exposed_provenance::<T>(word as usize).read_unaligned() };
    }
    // SAFETY: the word is at least as large as `T`, and all platforms with a driver are
    // little-endian; the caller guarantees the bit pattern.
    unsafe { std::mem::transmute_copy(&word) }
}

/// Returns the type that the function list names.
fn resolve(written: &str) -> Type {
    let text = written.replace("$crate", "").replace("retrograph_driver_sys", "");
    let text = text.replace(' ', "").replace("*mut", "*mut ").replace("*const", "*const ");
    DRIVER.resolve(&text.replace("::", ""))
}

macro_rules! callers {
    (
        required { $($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?);)* }
        optional {
            $($(#[$o_doc:meta])* fn $o_name:ident($($o_arg:ident: $o_type:ty),* $(,)?)
                since $since:literal;)*
        }
    ) => {
        fn all() -> Vec<Function> {
            vec![
                $(Function {
                    name: stringify!($name),
                    parameters: vec![$(Parameter {
                        name: stringify!($arg),
                        of: resolve(stringify!($type)),
                        pointee_size: Probe::<$type>::POINTEE,
                        size: size_of::<$type>(),
                    }),*],
                    invoke: |table, words| {
                        let mut words = words.iter().copied();
                        let mut next = || words.next().unwrap_or_default();
                        let _ = &mut next;
                        // SAFETY: the caller of `invoke` guarantees valid arguments.
                        Some(unsafe { (table.$name)($(from_word::<$type>(next())),*) })
                    },
                },)*
                $(Function {
                    name: stringify!($o_name),
                    parameters: vec![$(Parameter {
                        name: stringify!($o_arg),
                        of: resolve(stringify!($o_type)),
                        pointee_size: Probe::<$o_type>::POINTEE,
                        size: size_of::<$o_type>(),
                    }),*],
                    invoke: |table, words| {
                        let mut words = words.iter().copied();
                        let mut next = || words.next().unwrap_or_default();
                        let _ = &mut next;
                        let function = table.$o_name?;
                        // SAFETY: the caller of `invoke` guarantees valid arguments.
                        Some(unsafe { function($(from_word::<$o_type>(next())),*) })
                    },
                },)*
            ]
        }
    };
}

retrograph_driver_sys::driver_functions!(callers);

static FUNCTIONS: LazyLock<HashMap<&'static str, Function>> =
    LazyLock::new(|| all().into_iter().map(|function| (function.name, function)).collect());

/// The function with this exact symbol.
pub(crate) fn find(name: &str) -> Option<&'static Function> {
    FUNCTIONS.get(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argument_types_are_read_from_the_list_with_the_sizes_of_the_compiler() {
        for function in FUNCTIONS.values() {
            for parameter in &function.parameters {
                let what = format!("{} {}", function.name, parameter.name);
                assert!(!matches!(parameter.of, Type::Unknown(_)), "{what}: {:?}", parameter.of);
                if parameter.size <= 8 {
                    assert_eq!(DRIVER.size(&parameter.of), Some(parameter.size), "{what}");
                }
                if let Some(pointee) = parameter.of.pointee() {
                    let size = DRIVER.size(pointee);
                    assert!(size.is_none() || size == parameter.pointee_size, "{what}: {size:?}");
                }
            }
        }
    }
}
