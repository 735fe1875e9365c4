//! The file: metadata, the list of tensors, aligned data. Written as a temporary file and renamed.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::Result as CrateResult;
use crate::export::{ExportError, OnProgress, Progress, WeightType, Written};
use crate::files::{file_in, folder_of};

/// The first bytes of a file.
const MAGIC: &[u8; 4] = b"GGUF";
/// The version of the format.
const VERSION: u32 = 3;
/// Each tensor starts at a multiple of these bytes, which is the default of the format.
const ALIGNMENT: u64 = 32;

/// A value of the metadata.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    U32(u32),
    F32(f32),
    Bool(bool),
    Text(String),
    Texts(Vec<String>),
    Floats(Vec<f32>),
    Integers(Vec<i32>),
}

/// Keys and values, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Metadata(Vec<(String, Value)>);

impl Metadata {
    pub(super) fn add(&mut self, key: impl Into<String>, value: Value) {
        self.0.push((key.into(), value));
    }
}

/// The entry of a tensor.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) name: String,
    /// Outermost dimension first.
    pub(super) shape: Vec<usize>,
    pub(super) dtype: WeightType,
}

impl Head {
    /// Bytes of the elements.
    fn bytes(&self) -> u64 {
        self.dtype.bytes(self.shape.iter().product()) as u64
    }

    /// The number of the type in the format.
    fn kind(&self) -> u32 {
        match self.dtype {
            WeightType::F32 => 0,
            WeightType::F16 => 1,
            WeightType::Q8_0 => 8,
            WeightType::Bf16 => 30,
        }
    }
}

/// Writes the file, with progress before each tensor.
pub(super) fn write(
    path: &Path,
    metadata: &Metadata,
    heads: &[Head],
    bytes: &mut dyn FnMut(usize) -> CrateResult<Vec<u8>>,
    on: OnProgress<'_>,
) -> CrateResult<Written> {
    let mut file = NewFile::create(path, metadata, heads)?;
    let total = heads.iter().map(Head::bytes).sum();
    let mut done = 0;
    for (index, head) in heads.iter().enumerate() {
        if !on(Progress { done, total, name: &head.name }) {
            return Err(ExportError::Stopped.into());
        }
        file.padded(&bytes(index)?)?;
        done += head.bytes();
    }
    on(Progress { done, total, name: "" });
    file.publish()?;
    Ok(Written { tensors: heads.len(), files: 1, bytes: total })
}

/// A temporary file that is renamed when it is complete.
struct NewFile {
    writer: BufWriter<NamedTempFile>,
    path: PathBuf,
}

impl NewFile {
    /// Starts the file for `path`, which must not exist.
    fn create(path: &Path, metadata: &Metadata, tensors: &[Head]) -> Result<Self, ExportError> {
        let failed = |source| ExportError::Write { path: path.to_owned(), source };
        let folder = folder_of(path);
        std::fs::create_dir_all(folder).map_err(failed)?;
        let writer = BufWriter::with_capacity(1 << 20, file_in(folder).map_err(failed)?);
        let mut file = Self { writer, path: path.to_owned() };
        file.padded(&head(metadata, tensors))?;
        Ok(file)
    }

    /// Synchronizes and renames the file.
    fn publish(self) -> Result<(), ExportError> {
        let Self { writer, path } = self;
        let failed = |source| ExportError::Write { path: path.clone(), source };
        let file = writer.into_inner().map_err(|error| failed(error.into_error()))?;
        file.as_file().sync_all().map_err(failed)?;
        match file.persist_noclobber(&path) {
            Ok(_) => Ok(()),
            Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => {
                Err(ExportError::Exists { path })
            }
            Err(error) => Err(failed(error.error)),
        }
    }

    /// Writes `bytes` up to the next aligned position.
    fn padded(&mut self, bytes: &[u8]) -> Result<(), ExportError> {
        let rest = (bytes.len() as u64).next_multiple_of(ALIGNMENT) - bytes.len() as u64;
        let zeros = [0; ALIGNMENT as usize];
        self.writer
            .write_all(bytes)
            .and_then(|()| self.writer.write_all(&zeros[..rest as usize]))
            .map_err(|source| ExportError::Write { path: self.path.clone(), source })
    }
}

/// Returns everything before the first tensor.
fn head(Metadata(metadata): &Metadata, tensors: &[Head]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend(VERSION.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata {
        text(&mut out, key);
        encode(&mut out, value);
    }
    let mut offset = 0;
    for tensor in tensors {
        text(&mut out, &tensor.name);
        out.extend((tensor.shape.len() as u32).to_le_bytes());
        // The innermost dimension comes first.
        out.extend(tensor.shape.iter().rev().flat_map(|size| (*size as u64).to_le_bytes()));
        out.extend(tensor.kind().to_le_bytes());
        out.extend(u64::to_le_bytes(offset));
        offset += tensor.bytes().next_multiple_of(ALIGNMENT);
    }
    out
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// Appends the type of a value and the value.
fn encode(out: &mut Vec<u8>, value: &Value) {
    const U32: u32 = 4;
    const I32: u32 = 5;
    const F32: u32 = 6;
    const BOOL: u32 = 7;
    const TEXT: u32 = 8;
    const ARRAY: u32 = 9;
    fn list(out: &mut Vec<u8>, kind: u32, count: usize) {
        out.extend(ARRAY.to_le_bytes());
        out.extend(kind.to_le_bytes());
        out.extend((count as u64).to_le_bytes());
    }
    match value {
        Value::U32(value) => {
            out.extend(U32.to_le_bytes());
            out.extend(value.to_le_bytes());
        }
        Value::F32(value) => {
            out.extend(F32.to_le_bytes());
            out.extend(value.to_le_bytes());
        }
        Value::Bool(value) => {
            out.extend(BOOL.to_le_bytes());
            out.push(u8::from(*value));
        }
        Value::Text(value) => {
            out.extend(TEXT.to_le_bytes());
            text(out, value);
        }
        Value::Texts(values) => {
            list(out, TEXT, values.len());
            values.iter().for_each(|value| text(out, value));
        }
        Value::Floats(values) => {
            list(out, F32, values.len());
            out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
        Value::Integers(values) => {
            list(out, I32, values.len());
            out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
    }
}
