//! Writing a checkpoint file, one tensor in memory at a time.

use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use safetensors::tensor::Dtype;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::error::{CheckpointError, Kept};
use super::header::{DIGEST_PLACEHOLDER, Header, METADATA_KEY, find_digest};
use super::part::{StatePart, StateReader, state_order};
use crate::digest::hex;
use crate::error::{Error, Result};
use crate::files::builder;
use crate::parameters::Parameter;
use crate::tensor_file::{self, Entry};

/// Prefix of temporary files that become checkpoints.
pub(super) const UNFINISHED: &str = ".checkpoint-";

/// Writes a checkpoint of `parameters` to `path`. Replaces `path` only when the file is complete.
///
/// # Errors
/// [`CheckpointError::Write`] if the file cannot be written, [`Error::StateNotFinite`] if a value
/// is infinite or NaN, or the error of `state`. A file that was at `path` before is then
/// unchanged.
pub fn write_checkpoint(
    path: &Path,
    header: &Header,
    parameters: &[&Parameter],
    state: &mut dyn StateReader,
) -> Result<()> {
    let failed = unwritable(path);
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut temporary = builder(0o666).prefix(UNFINISHED).tempfile_in(folder).map_err(&failed)?;
    let (offset, digest) = write_body(temporary.as_file_mut(), path, header, parameters, state)?;
    finish(temporary, offset, digest, path).map_err(failed)
}

/// Writes everything but the digest. Returns the offset and the value of the digest.
fn write_body(
    file: &mut File,
    path: &Path,
    header: &Header,
    parameters: &[&Parameter],
    state: &mut dyn StateReader,
) -> Result<(usize, String)> {
    let failed = unwritable(path);
    let mut output = Hashing { file: BufWriter::new(file), hash: Sha256::new() };
    let head = file_head(header, parameters);
    output.put(&head).map_err(&failed)?;
    for (index, part) in state_order(parameters.len()) {
        let values = state.read(index, part)?;
        if let Some(&value) = values.iter().find(|value| !value.is_finite()) {
            let (tensor, steps) = (part.tensor_name(&parameters[index].name), header.next_step);
            return Err(Error::StateNotFinite { steps, tensor, value, kept: Kept::Nothing });
        }
        output.put(bytemuck::cast_slice(&values)).map_err(&failed)?;
    }
    output.file.flush().map_err(&failed)?;
    let offset = find_digest(&head, DIGEST_PLACEHOLDER)
        .ok_or_else(|| failed(std::io::Error::other("the header has no digest")))?;
    Ok((offset, hex(&output.hash.finalize())))
}

fn unwritable(path: &Path) -> impl Fn(std::io::Error) -> Error {
    move |source| {
        CheckpointError::Write { path: PathBuf::from(path), source, kept: Kept::Nothing }.into()
    }
}

/// Writes the digest at `offset`, synchronizes the file and renames it to `path`.
fn finish(
    mut temporary: tempfile::NamedTempFile,
    offset: usize,
    digest: String,
    path: &Path,
) -> std::io::Result<()> {
    temporary.as_file_mut().seek(SeekFrom::Start(offset as u64))?;
    temporary.as_file_mut().write_all(digest.as_bytes())?;
    persist(temporary, path)
}

/// Synchronizes a temporary file, renames it to `path`, and synchronizes the folder.
pub(super) fn persist(temporary: tempfile::NamedTempFile, path: &Path) -> std::io::Result<()> {
    temporary.as_file().sync_all()?;
    temporary.persist(path).map_err(|error| error.error)?;
    // The rename is durable only once the folder is synchronized.
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Returns the bytes before the first tensor: length, JSON and padding.
fn file_head(header: &Header, parameters: &[&Parameter]) -> Vec<u8> {
    let mut header = header.clone();
    header.digest = DIGEST_PLACEHOLDER.to_owned();
    let header = serde_json::to_string(&header).expect("a header is plain data");
    let entry = |(index, part): (usize, StatePart)| {
        let Parameter { name, shape, .. }: &Parameter = parameters[index];
        Entry { name: part.tensor_name(name), dtype: Dtype::F32, shape: shape.clone() }
    };
    let entries = state_order(parameters.len()).map(entry);
    tensor_file::head(json!({ METADATA_KEY: header }), entries)
}

struct Hashing<W> {
    file: W,
    hash: Sha256,
}

impl<W: Write> Hashing<W> {
    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.hash.update(bytes);
        self.file.write_all(bytes)
    }
}
