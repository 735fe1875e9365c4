//! Converts panics of the crates `tokenizers`, `minijinja` and `parquet` into errors.
//!
//! These crates panic on some invalid files. Known cases are refused when the file is read; this
//! module handles all others.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether a panic of this thread becomes an error and is not printed.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Calls `tokenizers`. A panic becomes an error with its message.
pub(super) fn guarded<T>(
    call: impl FnOnce() -> tokenizers::Result<T>,
) -> Result<T, tokenizers::Error> {
    caught(call).unwrap_or_else(|panic| Err(format!("the tokenizer failed: {panic}").into()))
}

/// Returns the result of `call`, or the message of its panic.
pub(crate) fn caught<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = take_hook();
        set_hook(Box::new(move |info| {
            if !GUARDED.get() {
                others(info);
            }
        }));
    });
    let outer = GUARDED.replace(true);
    // Only caches outlive a call, and locks protect them.
    let outcome = catch_unwind(AssertUnwindSafe(call));
    GUARDED.set(outer);
    outcome.map_err(|panic| message(panic.as_ref()).to_owned())
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("unknown reason")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error() {
        let failed = guarded::<()>(|| panic!("index {} is too large", 7)).unwrap_err();
        assert_eq!(failed.to_string(), "the tokenizer failed: index 7 is too large");
        assert!(!GUARDED.get());
        assert_eq!(guarded(|| Ok(3)).unwrap(), 3);
    }
}
