//! Limits of one rendering of a chat template: bytes and depth of the values that it creates.
//!
//! Each rendering runs in a new thread, so the meter is thread-local.

use std::cell::Cell;

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

/// Maximum bytes that a rendering creates, in addition to [`TIMES`] the bytes of the conversation.
const BYTES: usize = 64 << 20;
/// Additional bytes that a rendering may create, per byte of the conversation.
const TIMES: usize = 64;
/// Maximum nesting of values.
const DEPTH: usize = 64;
/// Bytes that are counted for every value.
pub(super) const VALUE: usize = 24;

thread_local! {
    static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
    static EXCEEDED: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Starts a rendering of a conversation of `bytes` bytes.
pub(super) fn start(bytes: usize) {
    LEFT.set(BYTES + TIMES * bytes);
    EXCEEDED.set(None);
}

/// Returns the limit that the rendering exceeded.
pub(super) fn exceeded() -> Option<&'static str> {
    EXCEEDED.get()
}

/// Returns the error of a limit, and stores the limit for [`exceeded`].
pub(super) fn exceed(limit: &'static str) -> Error {
    EXCEEDED.set(Some(limit));
    Error::new(ErrorKind::InvalidOperation, limit)
}

/// Counts `bytes` before they are created.
pub(super) fn spend(bytes: usize) -> Result<(), Error> {
    let left = LEFT.get().checked_sub(bytes);
    LEFT.set(left.unwrap_or(0));
    left.map(drop).ok_or_else(|| exceed("it creates too much text or too many values"))
}

/// Counts a value and everything inside it.
pub(super) fn spend_value(value: &Value) -> Result<(), Error> {
    visit(value, DEPTH, &mut spend)
}

/// Returns the bytes of a value and everything inside it.
pub(super) fn size(value: &Value) -> usize {
    let mut all = 0;
    let counted = visit(value, DEPTH, &mut |bytes| {
        all += bytes;
        Ok(())
    });
    // A value that is nested too deeply is an error when it is used.
    counted.map_or(all, |()| all)
}

fn visit(
    value: &Value,
    depth: usize,
    spend: &mut dyn FnMut(usize) -> Result<(), Error>,
) -> Result<(), Error> {
    if depth == 0 {
        return Err(exceed("its values are nested too deeply"));
    }
    spend(VALUE + value.as_str().map_or(0, str::len))?;
    let map = match value.kind() {
        ValueKind::Map => true,
        ValueKind::Seq | ValueKind::Iterable => false,
        _ => return Ok(()),
    };
    for item in value.try_iter()? {
        visit(&item, depth - 1, spend)?;
        if map {
            visit(&value.get_item(&item)?, depth - 1, spend)?;
        }
    }
    Ok(())
}

/// Checks a new attribute of a namespace. It must not contain a namespace, so that namespaces
/// cannot contain themselves.
pub(super) fn storable(value: Value) -> Result<Value, Error> {
    fn find(value: &Value, depth: usize) -> Result<(), Error> {
        spend(1)?;
        if depth == 0 {
            return Err(exceed("its values are nested too deeply"));
        }
        if value.as_object().is_some_and(|object| object.type_name().ends_with("Namespace")) {
            return Err(exceed("it puts a namespace into a namespace"));
        }
        let map = value.kind() == ValueKind::Map;
        if map || matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) {
            for item in value.try_iter()? {
                find(&if map { value.get_item(&item)? } else { item }, depth - 1)?;
            }
        }
        Ok(())
    }
    find(&value, DEPTH / 2)?;
    Ok(value)
}

/// Text that is counted as it is written.
pub(super) struct Metered(pub(super) Vec<u8>);

impl std::io::Write for Metered {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        spend(bytes.len()).map_err(std::io::Error::other)?;
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
