//! Panics of the crate `tokenizers` as errors.
//!
//! A `tokenizer.json` can ask for things that `tokenizers` does not check. What is known is refused
//! when the file is read; this is the last resort for the rest.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether a panic of this thread becomes an error, so that it must not be printed.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Calls `tokenizers`, and turns a panic into an error with its message.
pub(super) fn guarded<T>(
    call: impl FnOnce() -> tokenizers::Result<T>,
) -> Result<T, tokenizers::Error> {
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
    // The tokenizer is not changed by a call, apart from caches that locks protect.
    let outcome = catch_unwind(AssertUnwindSafe(call));
    GUARDED.set(outer);
    outcome.unwrap_or_else(|panic| Err(message(panic.as_ref()).into()))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the tokenizer failed: {}", text.unwrap_or("unknown reason"))
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
