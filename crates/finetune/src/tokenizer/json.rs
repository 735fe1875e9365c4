//! The filter `tojson`: JSON as Python writes it.

use minijinja::value::Kwargs;
use minijinja::{Error, ErrorKind, Value};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

use super::meter::Metered;

/// Writes JSON as Python does: a space after commas and colons, and characters unescaped.
pub(super) fn to_json(value: Value, arguments: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = arguments.get("indent")?;
    // These options of Python do not change the JSON of tools and messages.
    for name in ["ensure_ascii", "sort_keys", "separators"] {
        let _: Option<Value> = arguments.get(name)?;
    }
    arguments.assert_all_used()?;
    match indent {
        None => serialize(&value, OneLine),
        Some(indent) => {
            serialize(&value, PrettyFormatter::with_indent(" ".repeat(indent).as_bytes()))
        }
    }
}

fn serialize(value: &Value, formatter: impl Formatter) -> Result<String, Error> {
    let mut text = Metered(Vec::new());
    let failed =
        |error: &dyn std::fmt::Display| Error::new(ErrorKind::BadSerialization, error.to_string());
    value
        .serialize(&mut Serializer::with_formatter(&mut text, formatter))
        .map_err(|error| failed(&error))?;
    String::from_utf8(text.0).map_err(|error| failed(&error))
}

/// One line, with the spaces of Python.
struct OneLine;

impl Formatter for OneLine {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
    ) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}
