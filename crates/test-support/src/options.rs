//! Options, whose structs other crates cannot write in full.

/// Returns `value` after `change`.
pub fn with<T>(mut value: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut value);
    value
}
