//! Assertions of `Send` and `Sync` for every public type of a crate.

use std::collections::BTreeSet;

/// Asserts at compile time which types are `Send` and `Sync`, and lists them in a constant `NAMES`.
///
/// Types in `shared` are both, types in `sent` are only `Send`, and types in `stay` are neither.
macro_rules! assert_threads {
    (
        shared { $($shared:ident $(<$of:tt>)?),* $(,)? }
        sent { $($sent:ident),* $(,)? }
        stay { $($stays:ident $(<$life:tt>)?),* $(,)? }
    ) => {
        $(static_assertions::assert_impl_all!($shared $(<$of>)?: Send, Sync);)*
        $(
            static_assertions::assert_impl_all!($sent: Send);
            static_assertions::assert_not_impl_any!($sent: Sync);
        )*
        $(static_assertions::assert_not_impl_any!($stays $(<$life>)?: Send, Sync);)*
        pub(crate) const NAMES: &[&str] =
            &[$(stringify!($shared),)* $(stringify!($sent),)* $(stringify!($stays),)*];
    };
}
pub(crate) use assert_threads;

/// Returns the names of the types that a source file re-exports with `pub use`.
fn exported(source: &str) -> BTreeSet<&str> {
    let lists = source.split("\npub use ").skip(1).filter_map(|rest| rest.split(';').next());
    let words = lists.flat_map(|list| list.split(|sign: char| !sign.is_alphanumeric()));
    // Modules have no upper-case letters; constants have only upper-case letters.
    let has = |word: &str, kind: fn(char) -> bool| word.contains(kind);
    let is_type = |word: &&str| has(word, char::is_uppercase) && has(word, char::is_lowercase);
    words.filter(is_type).collect()
}

/// Asserts that `names` are exactly the types that `source` re-exports. Ignores a digit at the end
/// of a name, which aliases with arguments have.
///
/// # Panics
/// If a type is missing or unknown.
pub fn assert_complete(source: &str, names: &[&str]) {
    let asserted: BTreeSet<&str> = names
        .iter()
        .map(|name| name.trim_end_matches(|sign: char| sign.is_ascii_digit()))
        .collect();
    let exported = exported(source);
    let missing: Vec<_> = exported.symmetric_difference(&asserted).collect();
    assert!(missing.is_empty(), "add to the assertions, or remove: {missing:?}");
}
