//! Reading the JSON files of models and adapters.

use std::io::{self, Read};
use std::path::Path;

use retrograph_runtime::open_regular;

/// The most bytes of a JSON file. The largest tokenizers of the hub take about 40 MB.
const MOST_BYTES: u64 = 512 << 20;

/// The bytes of a JSON file, or of another text that belongs to a model.
///
/// # Errors
/// When the file cannot be read, is not a regular one, or has more than [`MOST_BYTES`].
pub(crate) fn read_json(path: &Path) -> io::Result<Vec<u8>> {
    let (file, mut bytes) = (open_regular(path)?, Vec::new());
    // A file that is too long is not read, and one that grows is read up to the limit.
    let mut length = file.metadata()?.len();
    if length <= MOST_BYTES {
        length = file.take(MOST_BYTES + 1).read_to_end(&mut bytes)? as u64;
    }
    if length > MOST_BYTES {
        let why = format!("it has more than {MOST_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}
