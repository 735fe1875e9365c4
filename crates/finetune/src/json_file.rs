//! Reading the JSON files of models and adapters.

use std::io::{self, Read};
use std::path::Path;

use retrograph_runtime::open_regular;
use serde::Deserialize;

/// Maximum bytes of a JSON file. The largest tokenizers on the hub have about 40 MB.
const MAX_BYTES: u64 = 512 << 20;

/// Deserializes JSON. An error begins with the path of the field, such as `rope_scaling.factor`.
pub(crate) fn parse_json<'de, T: Deserialize<'de>>(text: &'de [u8]) -> Result<T, String> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| error.to_string())?;
    json.end().map_err(|error| error.to_string())?;
    Ok(value)
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
