//! Reading the JSON files of models and adapters.

use std::io::{self, Read};
use std::path::Path;

use retrograph_runtime::open_regular;
use serde::Deserialize;

/// Maximum bytes of a JSON file. The largest tokenizers on the hub have about 40 MB.
const MAX_BYTES: u64 = 512 << 20;

/// Deserializes a JSON object. An error begins with the path of the field, such as
/// `rope_scaling.factor`.
pub(crate) fn parse_json<'de, T: Deserialize<'de>>(text: &'de [u8]) -> Result<T, String> {
    require_object(text)?;
    let mut json = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut json);
    let value = value.map_err(|error| in_terms_of_json(&error.to_string()))?;
    json.end().map_err(|error| error.to_string())?;
    Ok(value)
}

/// Fails for a text that is not an object: serde would read a list as the fields in order.
pub(crate) fn require_object(text: &[u8]) -> Result<(), String> {
    let reason = match text.trim_ascii_start() {
        [b'{', ..] => return Ok(()),
        [] => "it is empty",
        [0xef, 0xbb, 0xbf, ..] => "it begins with a byte order mark; save it as UTF-8 without one",
        _ => "it is not an object",
    };
    Err(reason.to_owned())
}

/// Replaces the types of Rust in an error of serde.
fn in_terms_of_json(error: &str) -> String {
    let Some((before, expected)) = error.split_once("expected ") else { return error.to_owned() };
    let (name, rest) = expected.split_at(expected.find(' ').unwrap_or(expected.len()));
    let kind = match name {
        "u8" | "u32" | "u64" | "usize" => "a whole number",
        "f32" | "f64" => "a number",
        "struct" => {
            let of_struct = rest.trim_start();
            let end = of_struct.find(' ').map_or("", |end| &of_struct[end..]);
            return format!("{before}expected an object{end}");
        }
        _ => return error.to_owned(),
    };
    format!("{before}expected {kind}{rest}")
}

/// Reads a JSON file, or another text file of a model.
///
/// # Errors
/// If the file cannot be read, is not a regular file, or has more than [`MAX_BYTES`].
pub(crate) fn read_json(path: &Path) -> io::Result<Vec<u8>> {
    let (file, mut bytes) = (open_regular(path)?, Vec::new());
    // Refuse a file that is too long before reading it; limit the read in case it grows.
    let mut length = file.metadata()?.len();
    if length <= MAX_BYTES {
        length = file.take(MAX_BYTES + 1).read_to_end(&mut bytes)? as u64;
    }
    if length > MAX_BYTES {
        let reason = format!("it has more than {MAX_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Sizes {
        #[allow(dead_code)]
        rows: usize,
        #[allow(dead_code)]
        scale: Option<f32>,
        #[allow(dead_code)]
        inner: Option<Inner>,
    }

    #[derive(Debug, Deserialize)]
    struct Inner {}

    #[test]
    fn errors_name_the_field_and_types_of_json() {
        for (text, expected) in [
            ("", "it is empty"),
            (" \n", "it is empty"),
            ("[1, 2.0, {}]", "it is not an object"),
            ("\u{feff}{}", "it begins with a byte order mark"),
            (r#"{"rows": "3"}"#, "rows: invalid type: string \"3\", expected a whole number at"),
            (r#"{"rows": -3}"#, "expected a whole number at"),
            (r#"{"rows": 3, "scale": []}"#, "scale: invalid type: sequence, expected a number at"),
            (
                r#"{"rows": 3, "inner": "x"}"#,
                "inner: invalid type: string \"x\", expected an object",
            ),
            (r#"{"rows": 3} x"#, "trailing characters"),
        ] {
            let error = parse_json::<Sizes>(text.as_bytes()).unwrap_err();
            assert!(error.starts_with(expected) || error.contains(expected), "{text}: {error}");
        }
        parse_json::<Sizes>(b" {\"rows\": 3}").unwrap();
    }
}
